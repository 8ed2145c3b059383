//! Compiles what changed, some files at a time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, thread};

use crate::find::Clang;

/// One source for one architecture.
#[derive(Debug)]
pub struct Job {
    /// The source.
    pub source: PathBuf,
    /// Its name without extension.
    pub unit: String,
    /// The architecture.
    pub arch: String,
    /// The code object to write.
    pub object: PathBuf,
}

/// Flags that decide what the code computes; `docs/numerics.md` says why:
/// nothing contracted, division and square root correctly rounded, subnormals
/// kept (clang's default for HIP, stated).
const NUMERICS: [&str; 4] = [
    "-ffp-contract=off",
    "-fno-fast-math",
    "-fhip-fp32-correctly-rounded-divide-sqrt",
    "-fno-gpu-flush-denormals-to-zero",
];

/// The variable that says how products are computed: `dot` for dot products
/// everywhere, else by matrix units where an architecture has them.
pub const MMA_VARIABLE: &str = "STRATA_HIP_MMA";

fn matrix_units() -> Option<&'static str> {
    (env::var(MMA_VARIABLE).as_deref() == Ok("dot")).then_some("-DSTRATA_HIP_DOT")
}

/// Runs the jobs, as many at once as cargo allows. Returns how many compiled;
/// the others were up to date.
pub fn all(jobs: &[Job], clang: &Clang, include: &Path) -> Result<usize, String> {
    let threads = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1usize);
    let next = AtomicUsize::new(0);
    let compiled = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match one(job, clang, include) {
                        Ok(true) => _ = compiled.fetch_add(1, Ordering::Relaxed),
                        Ok(false) => {}
                        Err(e) => failed.lock().unwrap_or_else(|p| p.into_inner()).push(e),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(|p| p.into_inner());
    match failed.first() {
        None => Ok(compiled.into_inner()),
        Some(first) => Err(format!("{} of {} files failed; {first}", failed.len(), jobs.len())),
    }
}

/// Whether it had to be compiled.
fn one(job: &Job, clang: &Clang, include: &Path) -> Result<bool, String> {
    let stamp = job.object.with_extension("stamp");
    let depfile = job.object.with_extension("d");
    let mut command = Command::new(&clang.path);
    command
        .args(["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output"])
        .args(["-nogpuinc", "-nogpulib", "-std=c++17", "-O3"])
        .arg(format!("--offload-arch={}", job.arch))
        // Loaded by every ROCm from 5.5 on; newer clangs would write what only newer ones load.
        .arg("-mcode-object-version=5")
        .args(NUMERICS)
        .args(["-Wall", "-Wno-unused-function", "-Wno-pass-failed"])
        .arg("-DSTRATA_HIP")
        .args(matrix_units())
        .arg("-I")
        .arg(include)
        // clang's own -MD is for the host's half of a HIP compilation.
        .args(["-Xclang", "-dependency-file", "-Xclang"])
        .arg(&depfile)
        .args(["-Xclang", "-MT", "-Xclang", "object"])
        .arg("-o")
        .arg(&job.object)
        .arg(&job.source);
    let line = format!("{command:?}\n{}\n", clang.banner);
    let known = state(&depfile);
    if job.object.is_file()
        && !known.is_empty()
        && fs::read_to_string(&stamp).is_ok_and(|s| s == line.clone() + &known)
    {
        return Ok(false);
    }
    let started = SystemTime::now();
    let out = command.output().map_err(|e| format!("cannot run {}: {e}", clang.path.display()))?;
    if !out.status.success() {
        return Err(format!(
            "{} for {}: {}\n{}\n{line}",
            job.source.display(),
            job.arch,
            out.status,
            String::from_utf8_lossy(&out.stderr)
        ));
    }
    // A file that changed meanwhile may have been read before or after: the next build compiles again.
    let settled = files(&depfile).iter().all(|file| modified(file).is_some_and(|t| t < started));
    let text = if settled { line + &state(&depfile) } else { String::new() };
    fs::write(&stamp, text).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(true)
}

/// The files that an object was made from.
fn files(depfile: &Path) -> Vec<String> {
    let text = fs::read_to_string(depfile).unwrap_or_default();
    let files = text.split_once(": ").map_or("", |(_, files)| files);
    files.split_whitespace().filter(|f| *f != "\\").map(str::to_owned).collect()
}

fn modified(file: &str) -> Option<SystemTime> {
    fs::metadata(file).and_then(|m| m.modified()).ok()
}

/// The same, each with its size and time; empty where nothing is known.
fn state(depfile: &Path) -> String {
    let mut state = String::new();
    for file in files(depfile) {
        let size = fs::metadata(&file).map_or(0, |m| m.len());
        let time = modified(&file).and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        state.push_str(&format!("{file} {size} {}\n", time.map_or(0, |t| t.as_nanos())));
    }
    state
}
