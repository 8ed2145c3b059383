//! Compilers and runtimes on this machine. Those that build scripts look for are
//! looked for by the scripts' own code.

use std::path::{Path, PathBuf};
use std::process::Command;

#[allow(dead_code)] // the build script also asks it what to compile for
#[path = "../../kernels-cuda/build/find.rs"]
mod cuda;
#[allow(dead_code)] // and here which architectures a clang knows
#[path = "../../kernels-hip/build/find.rs"]
mod hip;
#[allow(dead_code)] // and the loader which version it needs
#[path = "../../backends/sycl-bindgen/src/find.rs"]
mod sycl;

/// Something that a backend is built with or runs on.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub serves: &'static str,
    /// Its file, and what it says its version is; else where it was looked for and
    /// how to get it.
    pub found: Result<(PathBuf, Option<String>), String>,
}

/// All of them.
pub fn look() -> Vec<Tool> {
    let tool = |name, serves, found| Tool { name, serves, found };
    let nvcc = cuda::nvcc().map(with_version);
    let clang = hip::find().map(|clang| (clang.path, Some(clang.banner)));
    let libsycl = sycl::find(sycl::Purpose::Build)
        .map(|found| (found.library, Some(format!("named by {}", found.origin))))
        .map_err(|missing| missing.to_string());
    vec![
        tool("nvcc", "builds --features cuda", nvcc),
        tool("libcuda", "runs cuda", library(&["libcuda.so.1"], "the NVIDIA driver")),
        tool("clang", "builds --features hip", clang),
        tool(
            "libamdhip64",
            "runs hip",
            library(&["libamdhip64.so.7", "libamdhip64.so.6"], "ROCm 6 or 7"),
        ),
        tool("c++", "builds --features sycl, and the host side of cuda", host_compiler()),
        tool("libsycl", "builds --features sycl, and runs it", libsycl),
    ]
}

fn folders(variable: &str) -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os(variable).unwrap_or_default()).collect()
}

/// A library where the loader looks, and where its packages put it.
fn library(names: &[&str], package: &str) -> Result<(PathBuf, Option<String>), String> {
    const USUAL: [&str; 7] = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
        "/usr/lib/wsl/lib",
        "/opt/rocm/lib",
    ];
    let mut places = folders("LD_LIBRARY_PATH");
    places.extend(USUAL.map(PathBuf::from));
    let files = places.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    let found = files.into_iter().find(|file| file.is_file());
    found.map(|file| (file, None)).ok_or_else(|| {
        format!(
            "no {} in LD_LIBRARY_PATH, {}; install {package}",
            names.join(" or "),
            USUAL.join(", ")
        )
    })
}

fn host_compiler() -> Result<(PathBuf, Option<String>), String> {
    let names = ["c++", "g++", "clang++"];
    let path = folders("PATH");
    let mut files = names.iter().flat_map(|name| path.iter().map(move |folder| folder.join(name)));
    files
        .find(|file| file.is_file())
        .map(with_version)
        .ok_or_else(|| format!("no {} on PATH; Debian, Ubuntu: apt install g++", names.join(", ")))
}

fn with_version(path: PathBuf) -> (PathBuf, Option<String>) {
    let version = version(&path);
    (path, version)
}

/// The line of `--version` that has a version in it.
fn version(path: &Path) -> Option<String> {
    let output = Command::new(path).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let with = |word: &str| text.lines().find(|line| line.contains(word));
    let line = with("release").or_else(|| with("version")).or_else(|| text.lines().next())?;
    Some(line.trim().to_owned())
}
