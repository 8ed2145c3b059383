//! Compiles the shared kernels for AMD: one code object per source and
//! architecture, and a table of them for the library to embed.

mod build {
    pub mod arch;
    pub mod compile;
    pub mod find;
}
#[allow(dead_code)] // the library uses the rest
#[path = "src/arch.rs"]
mod known;

use std::path::{Path, PathBuf};
use std::process::exit;
use std::{env, fs};

use build::{arch, compile, find};

/// The sources, which the CUDA build compiles too.
const KERNELS: &str = strata_kernels_cuda::SOURCES;
/// HIP's halves of their `vendor.cuh` and `mma.cuh`.
const INCLUDE: &str = "include";

fn main() {
    if let Err(text) = run() {
        // A panic would bury the text under a backtrace hint.
        eprintln!("error: strata-kernels-hip: {text}");
        exit(1);
    }
}

fn run() -> Result<(), String> {
    for path in [KERNELS, INCLUDE, "build", "build.rs", "src/arch.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for name in find::VARIABLES.into_iter().chain([arch::VARIABLE, compile::MMA_VARIABLE]) {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let clang = find::find()?;
    let archs = arch::choose(&clang)?;
    let sources = sources(Path::new(KERNELS))?;
    let mut jobs = Vec::new();
    for arch in &archs {
        let folder = out.join(arch);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (unit, source) in &sources {
            let object = folder.join(format!("{unit}.co"));
            jobs.push(compile::Job {
                source: source.clone(),
                unit: unit.clone(),
                arch: arch.clone(),
                object,
            });
        }
    }
    match env::var(compile::MMA_VARIABLE).as_deref() {
        Ok("dot" | "auto" | "") | Err(_) => {}
        Ok(other) => {
            let name = compile::MMA_VARIABLE;
            return Err(format!("{name}: given {other}, expected auto or dot"));
        }
    }
    compile::all(&jobs, &clang, Path::new(INCLUDE))?;
    let table = out.join("images.rs");
    fs::write(&table, images(&jobs, &clang)).map_err(|e| format!("{}: {e}", table.display()))
}

/// Every `.cu` file by its name, in order.
fn sources(folder: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let list = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found = Vec::new();
    for entry in list {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        if path.extension().is_some_and(|e| e == "cu")
            && let Some(stem) = path.file_stem().and_then(|s| s.to_str())
        {
            found.push((stem.to_owned(), path));
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(format!("{}: no kernel sources", folder.display())),
        false => Ok(found),
    }
}

fn images(jobs: &[compile::Job], clang: &find::Clang) -> String {
    let mut text = format!("const COMPILER_BANNER: &str = {:?};\n", clang.banner);
    text.push_str("const IMAGE_TABLE: &[Image] = &[\n");
    for job in jobs {
        text.push_str(&format!(
            "    Image {{ unit: {:?}, arch: {:?}, code: embed!({:?}) }},\n",
            job.unit,
            job.arch,
            job.object.display().to_string()
        ));
    }
    text.push_str("];\n");
    text
}
