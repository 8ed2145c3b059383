//! Says in words what would otherwise be a page of unresolved imports: hip-sys
//! has bindings for some HIP versions, asks the `hipconfig` on PATH which one it
//! is, and has none at all for any other.

use std::process::{Command, exit};

/// The patch numbers that hip-sys 7.14.6085001 has bindings for: HIP 6.2 to 7.
const KNOWN: [&str; 11] = [
    "41134", "42131", "42133", "42134", "43482", "43483", "43484", "51831", "52802", "53211",
    "60850",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PATH");
    // No hipconfig is fine: then the newest bindings are used, and the library is found at run time.
    let Ok(output) = Command::new("hipconfig").arg("--version").output() else {
        return;
    };
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let patch = version.split('-').next().and_then(|v| v.rsplit('.').next()).unwrap_or_default();
    if !KNOWN.contains(&patch) {
        eprintln!(
            "error: strata-hip: the hipconfig on PATH is of HIP {version}, for which hip-sys has no \
             bindings (it has them for the patch numbers {}).\nThe library is loaded at run time and \
             the calls in use are the same in every HIP from 6.0 on, so build without that program: \
             take its folder (often /opt/rocm/bin, or /usr/bin for a distribution's hipcc package) \
             out of PATH, and name the compiler by ROCM_PATH or STRATA_HIP_CLANG.",
            KNOWN.join(", ")
        );
        exit(1);
    }
}
