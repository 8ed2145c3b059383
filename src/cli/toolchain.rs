//! Compilers and runtimes on this machine, looked up where build scripts and
//! the loader look.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that a backend is built with or runs on.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub serves: &'static str,
    /// How to get it.
    pub get: &'static str,
    find: fn(&Places) -> Option<PathBuf>,
    version: bool,
}

/// A tool, and where it was found.
pub struct Found {
    /// Which.
    pub tool: Tool,
    /// Its file.
    pub path: Option<PathBuf>,
    /// What it says its version is.
    pub version: Option<String>,
}

/// All of them.
pub fn look() -> Vec<Found> {
    let places = Places::new();
    tools()
        .into_iter()
        .map(|tool| {
            let path = (tool.find)(&places);
            let version = path.as_deref().filter(|_| tool.version).and_then(version);
            Found { tool, path, version }
        })
        .collect()
}

fn tools() -> Vec<Tool> {
    vec![
        Tool {
            name: "nvcc",
            serves: "builds --features cuda",
            get: "install a CUDA toolkit of version 13, or in a Python environment: pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-cccl==13.0.*'",
            find: |places| {
                let homes = ["CUDA_HOME", "CUDA_PATH"].map(|v| places.under(v, "bin/nvcc"));
                let python = || places.site("nvidia/cu13/bin/nvcc");
                homes.into_iter().flatten().next().or_else(|| places.path("nvcc")).or_else(python)
            },
            version: true,
        },
        Tool {
            name: "libcuda",
            serves: "runs cuda",
            get: "install the NVIDIA driver",
            find: |places| places.library("libcuda.so.1"),
            version: false,
        },
        Tool {
            name: "clang",
            serves: "builds --features hip",
            get: "install clang and lld of version 16 or later (Debian: apt install clang-22 lld-22), or ROCm",
            find: |places| {
                let rocm = ["ROCM_PATH", "HIP_PATH"].map(|v| places.under(v, "llvm/bin/clang++"));
                let names = ["clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang"];
                rocm.into_iter()
                    .flatten()
                    .next()
                    .or_else(|| names.into_iter().find_map(|name| places.path(name)))
                    .or_else(|| file("/opt/rocm/llvm/bin/clang++".into()))
            },
            version: true,
        },
        Tool {
            name: "hipcc",
            serves: "may build --features hip instead of clang",
            get: "install ROCm; clang alone is enough",
            find: |places| places.path("hipcc").or_else(|| file("/opt/rocm/bin/hipcc".into())),
            version: true,
        },
        Tool {
            name: "libamdhip64",
            serves: "runs hip",
            get: "install ROCm 6 or 7",
            find: |places| {
                let names = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"];
                let rocm = Path::new("/opt/rocm/lib/libamdhip64.so");
                names
                    .into_iter()
                    .find_map(|name| places.library(name))
                    .or_else(|| file(rocm.to_owned()))
            },
            version: false,
        },
        Tool {
            name: "c++",
            serves: "builds --features sycl, and the host side of cuda",
            get: "install g++ or clang++ (Debian: apt install g++)",
            find: |places| ["c++", "g++", "clang++"].into_iter().find_map(|n| places.path(n)),
            version: true,
        },
        Tool {
            name: "libsycl",
            serves: "builds --features sycl and runs it",
            get: "in a Python environment: pip install dpcpp-cpp-rt==2026.2.0, or install oneAPI; STRATA_SYCL_ROOT names its folder",
            find: |places| {
                let oneapi = PathBuf::from("/opt/intel/oneapi/compiler/latest/lib");
                ["STRATA_SYCL_ROOT", "CMPLR_ROOT", "VIRTUAL_ENV"]
                    .into_iter()
                    .filter_map(|v| Some(Path::new(&std::env::var_os(v)?).join("lib")))
                    .chain([oneapi])
                    .chain(places.prefixes.iter().map(|prefix| prefix.join("lib")))
                    .find_map(|folder| newest(&folder, "libsycl.so."))
            },
            version: false,
        },
        Tool {
            name: "icpx",
            serves: "not needed: sycl kernels are compiled by libsycl when they first run",
            get: "part of oneAPI",
            find: |places| places.path("icpx"),
            version: true,
        },
    ]
}

/// Folders that are asked.
struct Places {
    path: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    /// Prefixes of Python environments.
    prefixes: Vec<PathBuf>,
    /// Their folders of packages.
    sites: Vec<PathBuf>,
}

impl Places {
    fn new() -> Self {
        let list = |name: &str| {
            let value = std::env::var_os(name).unwrap_or_default();
            std::env::split_paths(&value).filter(|p| p.is_absolute()).collect::<Vec<_>>()
        };
        let mut libraries = list("LD_LIBRARY_PATH");
        libraries.extend(
            [
                "/usr/lib/x86_64-linux-gnu",
                "/usr/lib/aarch64-linux-gnu",
                "/usr/lib64",
                "/usr/lib",
                "/usr/local/lib",
                "/usr/lib/wsl/lib",
            ]
            .map(PathBuf::from),
        );
        let mut this = Self { path: list("PATH"), libraries, prefixes: vec![], sites: vec![] };
        this.ask_python();
        this
    }

    /// The environment in use, then that of the python3 on PATH.
    fn ask_python(&mut self) {
        if let Some(environment) = std::env::var_os("VIRTUAL_ENV").filter(|v| !v.is_empty()) {
            let environment = PathBuf::from(environment);
            let versions = std::fs::read_dir(environment.join("lib"));
            let versions = versions.into_iter().flatten().flatten().map(|entry| entry.path());
            self.sites.extend(versions.map(|python| python.join("site-packages")));
            self.prefixes.push(environment);
        }
        let ask = "import sys, site, sysconfig\nprint(sys.prefix)\nprint(site.getuserbase())\nprint(sysconfig.get_paths()['purelib'])\nprint(site.getusersitepackages())";
        if let Some(python) = self.path("python3")
            && let Ok(output) = Command::new(python).args(["-c", ask]).output()
        {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut lines = text.lines().map(PathBuf::from);
            self.prefixes.extend(lines.by_ref().take(2));
            self.sites.extend(lines);
        }
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().find_map(|folder| file(folder.join(name)))
    }

    fn library(&self, name: &str) -> Option<PathBuf> {
        self.libraries.iter().find_map(|folder| file(folder.join(name)))
    }

    fn site(&self, name: &str) -> Option<PathBuf> {
        self.sites.iter().find_map(|folder| file(folder.join(name)))
    }

    fn under(&self, variable: &str, name: &str) -> Option<PathBuf> {
        let folder = std::env::var_os(variable).filter(|v| !v.is_empty())?;
        file(Path::new(&folder).join(name))
    }
}

fn file(path: PathBuf) -> Option<PathBuf> {
    path.is_file().then_some(path)
}

/// The file of a folder that begins with a name and ends with the largest number.
fn newest(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let numbers = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(name)?.parse::<u32>().ok());
    Some(folder.join(format!("{name}{}", numbers.max()?)))
}

/// The line of `--version` that has a version in it.
fn version(path: &Path) -> Option<String> {
    let output = Command::new(path).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let with = |word: &str| text.lines().find(|line| line.contains(word));
    let line = with("release").or_else(|| with("version")).or_else(|| text.lines().next())?;
    Some(line.trim().to_owned())
}
