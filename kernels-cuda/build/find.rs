//! Where nvcc is, and what to compile for.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variables that decide.
pub const VARIABLES: [&str; 6] =
    ["STRATA_CUDA_ARCHS", "CUDA_HOME", "CUDA_PATH", "PATH", "VIRTUAL_ENV", "NVCC_CCBIN"];

/// Packages that together hold a compiler, for a machine without a toolkit.
const PACKAGES: &str = "nvidia-cuda-nvcc==13.0.* nvidia-cuda-runtime==13.0.* \
                        nvidia-cuda-crt==13.0.* nvidia-nvvm==13.0.* nvidia-cuda-cccl==13.0.*";

/// nvcc of a toolkit (CUDA_HOME, CUDA_PATH), the path, or a Python environment.
pub fn nvcc() -> Result<PathBuf, String> {
    let mut looked = Vec::new();
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        match env::var_os(name) {
            Some(root) => looked.push((name.to_owned(), Path::new(&root).join("bin"))),
            None => looked.push((format!("{name} (not set)"), PathBuf::new())),
        }
    }
    for folder in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        looked.push(("PATH".to_owned(), folder));
    }
    for packages in python_packages() {
        looked.push(("Python packages".to_owned(), packages.join("nvidia/cu13/bin")));
    }
    looked.push(("default".to_owned(), PathBuf::from("/usr/local/cuda/bin")));
    let nvcc = format!("nvcc{}", env::consts::EXE_SUFFIX);
    for (_, folder) in &looked {
        let path = folder.join(&nvcc);
        if !folder.as_os_str().is_empty() && path.is_file() {
            return Ok(path);
        }
    }
    let places: BTreeSet<String> = looked
        .iter()
        .map(|(why, folder)| match folder.as_os_str().is_empty() {
            true => format!("  {why}"),
            false => format!("  {why}: {}", folder.display()),
        })
        .collect();
    let places = places.into_iter().collect::<Vec<_>>().join("\n");
    Err(format!(
        "nvcc, the CUDA compiler, was not found. Looked in:\n{places}\n\
         Either install the CUDA toolkit 13 and set CUDA_HOME, or, without a toolkit,\n\
         create a Python environment, activate it and run\n  pip install {PACKAGES}\n\
         or build without the feature `cuda`."
    ))
}

/// Folders of Python packages: of the active environment, else of python3.
fn python_packages() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(root) = env::var_os("VIRTUAL_ENV") {
        let lib = Path::new(&root).join("lib");
        for entry in lib.read_dir().into_iter().flatten().flatten() {
            folders.push(entry.path().join("site-packages"));
        }
        folders.push(Path::new(&root).join("Lib/site-packages"));
    }
    let print = "import sys; print('\\n'.join(p for p in sys.path if p))";
    if let Ok(output) = Command::new("python3").args(["-c", print]).output() {
        folders.extend(String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from));
    }
    folders
}

/// One architecture: machine code for it, or PTX that later cards compile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arch {
    /// `90a`, `120`.
    name: String,
    ptx: bool,
}

impl Arch {
    /// nvcc's words for it.
    pub fn flags(&self) -> [String; 2] {
        let Self { name, ptx } = self;
        let code = if *ptx { format!("compute_{name}") } else { format!("sm_{name}") };
        ["-gencode".to_owned(), format!("arch=compute_{name},code={code}")]
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.ptx { "compute_" } else { "sm_" }, self.name)
    }
}

/// STRATA_CUDA_ARCHS (`80,90a,ptx80`), else the cards of this machine, else a portable set.
pub fn archs() -> Result<Vec<Arch>, String> {
    let list = match env::var("STRATA_CUDA_ARCHS") {
        Ok(list) if !list.trim().is_empty() => list,
        _ => present().unwrap_or_else(|| "80,90a,ptx80".to_owned()),
    };
    let mut archs = Vec::new();
    for word in list.split([',', ';', ' ']).filter(|word| !word.is_empty()) {
        let (ptx, name) = match word.strip_prefix("ptx").or(word.strip_prefix("compute_")) {
            Some(name) => (true, name),
            None => (false, word.strip_prefix("sm_").unwrap_or(word)),
        };
        let digits = name.trim_end_matches(['a', 'f']);
        let known = digits.parse::<u32>().is_ok_and(|n| (75..1000).contains(&n));
        if !known || name.len() > digits.len() + 1 {
            return Err(format!(
                "STRATA_CUDA_ARCHS: {word:?} in {list:?}: expected names like 80, 90a or ptx80, from 75 on"
            ));
        }
        let arch = Arch { name: name.to_owned(), ptx };
        if !archs.contains(&arch) {
            archs.push(arch);
        }
    }
    match archs.is_empty() {
        true => Err(format!("STRATA_CUDA_ARCHS: {list:?} names no architecture")),
        false => Ok(archs),
    }
}

/// The architectures of the cards that the driver shows.
fn present() -> Option<String> {
    let query = ["--query-gpu=compute_cap", "--format=csv,noheader"];
    let output = Command::new("nvidia-smi").args(query).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let names: BTreeSet<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let name = line.trim().replace('.', "");
            name.parse::<u32>().is_ok_and(|n| n >= 75).then_some(name)
        })
        .map(|name| if name == "90" { "90a".to_owned() } else { name })
        .collect();
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(","))
}
