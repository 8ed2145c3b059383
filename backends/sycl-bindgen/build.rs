//! Compiles the bridge with an ordinary C++17 compiler and generates its Rust
//! declarations from its header.
//!
//! The result is a shared object, `bridge.so`, whose bytes go into the crate:
//! it alone needs libsycl, so a program with this crate in it starts where
//! libsycl is absent.

// The library looks for what runs, the build script for what compiles: each
// leaves a part of this file unused.
#[allow(dead_code)]
#[path = "src/find.rs"]
mod find;
#[path = "build/generate.rs"]
mod generate;
#[path = "build/header.rs"]
mod header;

use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::{env, fs};

const SOURCES: [&str; 3] = ["device.cpp", "queue.cpp", "kernel.cpp"];

fn main() {
    if let Err(text) = run() {
        // A panic would bury the text under a backtrace hint.
        eprintln!("error: sycl-bindgen: {text}");
        exit(1);
    }
}

fn run() -> Result<(), String> {
    for path in ["bridge", "build", "src/find.rs", "build.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for name in find::VARIABLES {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let text = fs::read_to_string("bridge/strata_sycl.h")
        .map_err(|e| format!("bridge/strata_sycl.h: {e}"))?;
    let header = header::parse(&text).map_err(|e| format!("bridge/strata_sycl.h: {e}"))?;
    write(&out.join("sys.rs"), &generate::rust(&header)?)?;
    write(&out.join("layout.inc"), &generate::layout_checks(&header)?)?;

    let root = find::find(find::Purpose::Build).map_err(|e| e.to_string())?;
    println!("cargo::rerun-if-changed={}", root.library.display());
    println!("cargo::rustc-env=STRATA_SYCL_SONAME={}", root.soname);
    compile(&root, &out)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Compiles and links the bridge in one call: `cc` itself only makes archives.
fn compile(root: &find::Found, out: &Path) -> Result<(), String> {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").pic(true).opt_level(2);
    let compiler = build.try_get_compiler().map_err(|e| format!("no C++17 compiler: {e}"))?;
    let mut command: Command = compiler.to_command();
    command
        .args(["-shared", "-fvisibility=hidden", "-Wall", "-Wextra"])
        .arg("-Wl,-z,defs")
        // Debug paths of the building machine have no place in the binary.
        .arg("-g0")
        .arg("-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING")
        .arg("-isystem")
        .arg(root.root.join("include"))
        .arg("-Ibridge")
        .arg("-I")
        .arg(out)
        .args(SOURCES.map(|s| format!("bridge/{s}")))
        .arg("-o")
        .arg(out.join("bridge.so"))
        .arg(&root.library);
    let result = command
        .output()
        .map_err(|e| format!("{} did not start: {e}", compiler.path().display()))?;
    if !result.status.success() {
        return Err(format!(
            "{} could not compile the bridge with SYCL of {} ({}):\n{}",
            compiler.path().display(),
            root.root.display(),
            root.origin,
            String::from_utf8_lossy(&result.stderr)
        ));
    }
    Ok(())
}
