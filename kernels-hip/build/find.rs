//! A clang that compiles for AMD GPUs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The oldest clang that takes the kernels.
const OLDEST: u32 = 16;

/// The variables that are looked at.
pub const VARIABLES: [&str; 4] = ["STRATA_HIP_CLANG", "ROCM_PATH", "HIP_PATH", "PATH"];

/// What was found.
#[derive(Debug)]
pub struct Clang {
    /// The program.
    pub path: PathBuf,
    /// Its major version.
    pub version: u32,
    /// The first line it says of itself.
    pub banner: String,
    /// The architectures it compiles for.
    pub archs: Vec<String>,
}

/// The first usable one; else what was looked at and why it would not do.
pub fn find() -> Result<Clang, String> {
    if let Some(path) = env::var_os("STRATA_HIP_CLANG").filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        return probe(&path)
            .map_err(|why| format!("STRATA_HIP_CLANG={}: {why}\n{}", path.display(), advice()));
    }
    let mut looked = Vec::new();
    for path in candidates() {
        match probe(&path) {
            Ok(clang) => return Ok(clang),
            Err(why) => looked.push(format!("  {}: {why}", path.display())),
        }
    }
    if looked.is_empty() {
        looked.push("  no clang at all".into());
    }
    Err(format!(
        "no compiler for AMD GPUs. Looked in ROCM_PATH, HIP_PATH, /opt/rocm and PATH:\n{}\n{}",
        looked.join("\n"),
        advice()
    ))
}

fn advice() -> String {
    format!(
        "Needed: clang {OLDEST} or newer with the AMDGPU target, and lld of the same version; \
         ROCm is not.\nDebian, Ubuntu: apt install clang-19 lld-19. Fedora: dnf install clang lld. \
         Arch: pacman -S clang lld.\nOr name one: STRATA_HIP_CLANG=/path/to/clang. \
         A ROCm installation has one, as /opt/rocm/lib/llvm/bin/clang."
    )
}

/// Programs that exist, in order of preference.
fn candidates() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf| {
        if path.is_file() && !found.contains(&path) {
            found.push(path);
        }
    };
    let roots = [env::var_os("ROCM_PATH"), env::var_os("HIP_PATH"), Some("/opt/rocm".into())];
    for root in roots.into_iter().flatten().filter(|r| !r.is_empty()) {
        for inside in ["lib/llvm/bin/clang", "llvm/bin/clang", "bin/amdclang", "bin/hipcc"] {
            add(Path::new(&root).join(inside));
        }
    }
    // Newest first; a plain `clang` last, since a distribution's default is its oldest.
    let names: Vec<String> = ["amdclang".to_owned()]
        .into_iter()
        .chain((OLDEST..=30).rev().map(|v| format!("clang-{v}")))
        .chain(["clang".to_owned()])
        .collect();
    let path = env::var_os("PATH").unwrap_or_default();
    for name in names {
        for folder in env::split_paths(&path) {
            add(folder.join(&name));
        }
    }
    found
}

/// Whether it has what it takes.
fn probe(path: &Path) -> Result<Clang, String> {
    let text = say(path, &["--version"])?;
    let banner = text.lines().find(|l| l.contains("clang version")).unwrap_or_default();
    let version = banner
        .split("clang version ")
        .nth(1)
        .and_then(|v| v.split('.').next()?.parse::<u32>().ok())
        .ok_or_else(|| {
            format!("says `{}`, not a clang version", text.lines().next().unwrap_or_default())
        })?;
    if version < OLDEST {
        return Err(format!("is clang {version}, older than {OLDEST}"));
    }
    if !say(path, &["-print-targets"])?.contains("amdgcn") {
        return Err(format!("clang {version} has no AMDGPU target"));
    }
    // The name alone comes back where there is none.
    let lld = say(path, &["-print-prog-name=ld.lld"])?;
    if fs::metadata(lld.trim()).is_err() && !on_path("ld.lld") {
        return Err(format!("clang {version} finds no ld.lld (package lld-{version})"));
    }
    let list = say(path, &["--target=amdgcn-amd-amdhsa", "--print-supported-cpus"])?;
    let archs = list
        .split_whitespace()
        .filter(|w| w.starts_with("gfx"))
        .map(str::to_owned)
        .collect::<Vec<_>>();
    Ok(Clang { path: path.to_owned(), version, banner: banner.trim().to_owned(), archs })
}

fn on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// What it prints, on either stream.
fn say(path: &Path, args: &[&str]) -> Result<String, String> {
    let out = Command::new(path).args(args).output().map_err(|e| e.to_string())?;
    Ok(format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
}
