//! Running nvcc: in parallel, and only where something changed.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use crate::find::Arch;

/// No fast math, and nothing fused but what is written as fma.
const FLAGS: [&str; 5] = ["-std=c++17", "-O3", "-fmad=false", "-fatbin", "--compress-mode=size"];

/// Compiles `kernels/NAME.cu` to `out/NAME.fatbin` for each name.
pub fn all(
    nvcc: &Path,
    archs: &[Arch],
    kernels: &Path,
    names: &[String],
    out: &Path,
) -> Result<(), String> {
    let version = Command::new(nvcc)
        .arg("--version")
        .output()
        .map_err(|e| format!("{}: {e}", nvcc.display()))?;
    let mut flags: Vec<String> = FLAGS.iter().map(|f| (*f).to_owned()).collect();
    flags.extend(archs.iter().flat_map(Arch::flags));

    let mut stale = Vec::new();
    for name in names {
        let source = kernels.join(format!("{name}.cu"));
        let key = key(&source, &flags, &version.stdout)?;
        let fatbin = out.join(format!("{name}.fatbin"));
        let fresh = fs::read_to_string(out.join(format!("{name}.key"))).is_ok_and(|k| k == key);
        if !(fresh && fatbin.is_file()) {
            stale.push((name, source, fatbin, key));
        }
    }

    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    // Every cargo process already holds one token; each further compiler takes one of its own.
    let tokens = jobserver();
    let jobs = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1usize);
    thread::scope(|scope| {
        for worker in 0..jobs.clamp(1, stale.len().max(1)) {
            let (next, failed, stale, flags, tokens) = (&next, &failed, &stale, &flags, &tokens);
            scope.spawn(move || {
                loop {
                    let _token = match (worker, tokens) {
                        (0, _) | (_, None) => None,
                        (_, Some(client)) => client.acquire().ok(),
                    };
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, source, fatbin, key)) = stale.get(at) else { return };
                    if let Err(message) = one(nvcc, flags, source, fatbin, key, out, name) {
                        failed.lock().expect("no panic while it is held").push(message);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic while it is held");
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn jobserver() -> Option<jobserver::Client> {
    // SAFETY: cargo passes the descriptors on, and nothing in this process has closed them.
    unsafe { jobserver::Client::from_env() }
}

fn one(
    nvcc: &Path,
    flags: &[String],
    source: &Path,
    fatbin: &Path,
    key: &str,
    out: &Path,
    name: &str,
) -> Result<(), String> {
    let output = Command::new(nvcc)
        .args(flags)
        .arg("-o")
        .arg(fatbin)
        .arg(source)
        .output()
        .map_err(|e| format!("{}: {e}", nvcc.display()))?;
    if !output.status.success() {
        return Err(format!(
            "nvcc failed on {}:\n{}{}",
            source.display(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let path = out.join(format!("{name}.key"));
    fs::write(&path, key).map_err(|e| format!("{}: {e}", path.display()))
}

/// Changes whenever the source, a header it includes, the flags or the compiler do.
fn key(source: &Path, flags: &[String], version: &[u8]) -> Result<String, String> {
    let mut files = BTreeSet::new();
    includes(source, &mut files)?;
    let mut hasher = DefaultHasher::new();
    flags.hash(&mut hasher);
    version.hash(&mut hasher);
    for file in &files {
        fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// A file and all that it includes by a path beside itself; others are the vendor's.
fn includes(file: &Path, files: &mut BTreeSet<PathBuf>) -> Result<(), String> {
    let path = fs::canonicalize(file).map_err(|e| format!("{}: {e}", file.display()))?;
    if !files.insert(path.clone()) {
        return Ok(());
    }
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    for line in text.lines() {
        let Some(name) = line.trim().strip_prefix("#include \"") else { continue };
        let Some(name) = name.split('"').next() else { continue };
        let header = path.parent().expect("a file has a folder").join(name);
        if header.is_file() {
            includes(&header, files)?;
        }
    }
    Ok(())
}
