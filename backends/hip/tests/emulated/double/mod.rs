//! Builds the test double of the HIP runtime and makes hip-sys find it.

use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use hip_sys::hipDeviceProp_tR0600 as Prop;

/// Devices of the double that the kernels do not run on, before those that they
/// do: opening one is an error that names it, and `best` passes them over.
pub const UNSUPPORTED: [&str; 2] = ["gfx803", "gfx1036"];

/// Bytes of memory of each device.
pub const MEMORY: u64 = 1 << 30;

/// The checkout of the emulator, or why there is none.
pub fn checkout() -> Result<PathBuf, String> {
    let advice = "the path of a tinygrad checkout, whose test/mockgpu/amd has the emulator";
    let path = env::var_os("STRATA_TINYGRAD").filter(|p| !p.is_empty());
    let path = PathBuf::from(path.ok_or(format!("STRATA_TINYGRAD is not set: {advice}"))?);
    match path.join("test/mockgpu/amd/emu.py").is_file() {
        true => Ok(path),
        false => Err(format!("STRATA_TINYGRAD={}: given no {advice}", path.display())),
    }
}

/// The architectures compiled in that the emulator has.
pub fn emulated() -> Vec<&'static str> {
    let known = |arch: &&str| {
        let number = &arch[3..];
        matches!(number, "90a" | "942" | "950")
            || number.starts_with("11")
            || number.starts_with("12")
    };
    strata_kernels_hip::archs().into_iter().filter(known).collect()
}

/// Compiles the double into `folder` and points the environment at it. To be
/// called before anything asks for a HIP device, on the only thread.
///
/// # Errors
/// What is missing, in words.
pub fn install(folder: &Path, checkout: Option<&Path>) -> Result<(), String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulated/double");
    let lib = folder.join("lib");
    fs::create_dir_all(&lib).map_err(|e| format!("{}: {e}", lib.display()))?;
    let properties = [
        ("PROP_SIZE", size_of::<Prop>()),
        ("PROP_NAME", offset_of!(Prop, name)),
        ("PROP_ARCH", offset_of!(Prop, gcnArchName)),
        ("PROP_MEMORY", offset_of!(Prop, totalGlobalMem)),
        ("PROP_LDS", offset_of!(Prop, sharedMemPerBlock)),
        ("PROP_WAVE", offset_of!(Prop, warpSize)),
        ("PROP_UNITS", offset_of!(Prop, multiProcessorCount)),
    ];
    let properties: Vec<_> = properties.iter().map(|(name, at)| format!("-D{name}={at}")).collect();
    compile(&sources.join("hip.c"), &lib.join("libamdhip64.so"), &properties)?;
    // hip-sys wants the run-time compiler's library too, and calls nothing in it.
    let empty = folder.join("hiprtc.c");
    fs::write(&empty, "").map_err(|e| format!("{}: {e}", empty.display()))?;
    compile(&empty, &lib.join("libhiprtc.so"), &[])?;
    let inner = folder.join("loop.so");
    compile(&sources.join("loop.c"), &inner, &[])?;

    let archs: Vec<_> = UNSUPPORTED.into_iter().chain(emulated()).collect();
    let set = |name: &str, value: &std::ffi::OsStr| {
        // SAFETY: no other thread runs yet, so none reads the environment.
        unsafe { env::set_var(name, value) };
    };
    set("ROCM_PATH", folder.as_os_str());
    set("STRATA_DOUBLE_ARCHS", archs.join(",").as_ref());
    set("STRATA_DOUBLE_MEMORY", MEMORY.to_string().as_ref());
    set("STRATA_DOUBLE_SERVER", sources.join("emulator.py").as_os_str());
    set("STRATA_DOUBLE_LOOP", inner.as_os_str());
    if let Some(checkout) = checkout {
        set("STRATA_TINYGRAD", checkout.as_os_str());
    }
    Ok(())
}

fn compile(source: &Path, to: &Path, flags: &[String]) -> Result<(), String> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let out = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-o"])
        .arg(to)
        .args(flags)
        .arg(source)
        .output()
        .map_err(|e| format!("no C compiler: {compiler}: {e}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", source.display(), String::from_utf8_lossy(&out.stderr))),
    }
}
