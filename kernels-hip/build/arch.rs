//! Which architectures to compile for.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::find::Clang;
use crate::known;

/// The name of the variable that picks them.
pub const VARIABLE: &str = "STRATA_HIP_ARCHS";

/// What is compiled where no card is present: the current data-centre cards,
/// and the first of each generation of desktop cards with matrix units.
const PORTABLE: [&str; 4] = ["gfx90a", "gfx942", "gfx1100", "gfx1201"];

/// The architectures to compile for, without repetition.
pub fn choose(clang: &Clang) -> Result<Vec<String>, String> {
    let mut archs = match env::var(VARIABLE) {
        Ok(list) if !list.trim().is_empty() => named(&list, clang)?,
        _ => present(clang).unwrap_or_else(|| portable(clang)),
    };
    archs.sort();
    archs.dedup();
    if archs.is_empty() {
        return Err(format!(
            "{} knows none of {}: a newer clang is needed, or {VARIABLE}",
            clang.path.display(),
            PORTABLE.join(", ")
        ));
    }
    Ok(archs)
}

fn named(list: &str, clang: &Clang) -> Result<Vec<String>, String> {
    let mut archs = Vec::new();
    for name in list.split([',', ';', ' ']).map(str::trim).filter(|n| !n.is_empty()) {
        if name == "all" {
            archs.extend(
                known::KNOWN.iter().map(|k| k.0.to_owned()).filter(|k| clang.archs.contains(k)),
            );
            continue;
        }
        if known::wave(name).is_none() {
            let names = known::KNOWN.map(|k| k.0).join(", ");
            return Err(format!("{VARIABLE}: given {name}, expected all, or some of {names}"));
        }
        if !clang.archs.iter().any(|a| a == name) {
            return Err(format!(
                "{VARIABLE}: {name} is not known to {} (clang {}): a newer clang is needed",
                clang.path.display(),
                clang.version
            ));
        }
        archs.push(name.to_owned());
    }
    Ok(archs)
}

fn portable(clang: &Clang) -> Vec<String> {
    let (known, unknown): (Vec<_>, Vec<_>) =
        PORTABLE.iter().map(|a| (*a).to_owned()).partition(|a| clang.archs.contains(a));
    if !unknown.is_empty() {
        println!(
            "cargo::warning=clang {} does not know {}: left out of the binary",
            clang.version,
            unknown.join(", ")
        );
    }
    known
}

/// The cards of this machine that the kernels compile for, if there are any.
fn present(clang: &Clang) -> Option<Vec<String>> {
    let mut found = from_sysfs(Path::new("/sys/class/kfd/kfd/topology/nodes"));
    if found.is_empty() {
        found = from_enumerator();
    }
    found.retain(|a| known::wave(a).is_some() && clang.archs.contains(a));
    (!found.is_empty()).then_some(found)
}

/// The kernel driver's own list: major, minor and stepping as decimal digits.
fn from_sysfs(nodes: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for node in fs::read_dir(nodes).into_iter().flatten().flatten() {
        let properties = fs::read_to_string(node.path().join("properties")).unwrap_or_default();
        let version = properties
            .lines()
            .find_map(|l| l.strip_prefix("gfx_target_version "))
            .and_then(|v| v.trim().parse::<u32>().ok());
        // 0 is the processor.
        if let Some(v) = version.filter(|&v| v != 0) {
            found.push(format!("gfx{}{:x}{:x}", v / 10_000, v / 100 % 100, v % 100));
        }
    }
    found
}

fn from_enumerator() -> Vec<String> {
    let root = env::var("ROCM_PATH").unwrap_or_else(|_| "/opt/rocm".into());
    let tool = Path::new(&root).join("bin/rocm_agent_enumerator");
    let Ok(out) = Command::new(tool).output() else {
        return Vec::new();
    };
    String::from_utf8_lossy(&out.stdout).lines().map(|l| l.trim().to_owned()).collect()
}
