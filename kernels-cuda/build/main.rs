//! Compiles every `kernels/*.cu` to one fatbin and embeds them.
//!
//! Only what changed is compiled again: a fatbin is kept beside a key made of
//! its sources, the flags and the compiler.

mod compile;
mod find;

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    if let Err(message) = run() {
        eprintln!("{message}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build");
    if env::var_os("CARGO_FEATURE_IMAGES").is_none() {
        return Ok(());
    }
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let kernels = root.join("kernels");
    println!("cargo::rerun-if-changed={}", kernels.display());
    for name in find::VARIABLES {
        println!("cargo::rerun-if-env-changed={name}");
    }

    let nvcc = find::nvcc()?;
    let archs = find::archs()?;
    let sources = sources(&kernels)?;
    compile::all(&nvcc, &archs, &kernels, &sources, &out)?;

    let mut code = String::from(
        "/// Every image: the name of its source and the fatbin.\npub(crate) const IMAGES: &[(&str, &[u8])] = &[\n",
    );
    for name in &sources {
        let path = out.join(format!("{name}.fatbin"));
        code += &format!("    ({name:?}, include_bytes!({:?})),\n", path.display().to_string());
    }
    code += "];\n/// What the images were compiled for.\npub(crate) const ARCHS: &[&str] = &[\n";
    for arch in &archs {
        code += &format!("    {:?},\n", arch.to_string());
    }
    code += "];\n";
    write(&out.join("images.rs"), &code)
}

/// The names of the kernel sources, sorted.
fn sources(kernels: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(kernels).map_err(|e| format!("{}: {e}", kernels.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.path().to_str()?.strip_suffix(".cu").map(str::to_owned))
        .filter_map(|path| Some(Path::new(&path).file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
