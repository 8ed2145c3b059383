//! What libsycl and the drivers under it read from the environment.
//!
//! They read it as they start and later, from threads of their own, so that it
//! has to be there before: set by who starts the program, by the program itself
//! as the first thing that it does, or by [`restart_with`].

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::find::Found;

/// A variable, and what it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: OsString,
    /// What it serves, for people.
    pub serves: &'static str,
}

impl std::fmt::Display for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.name, self.value.display())
    }
}

/// What a program wants of the runtime.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Keep compiled kernels on disk between runs.
    pub persistent_cache: bool,
    /// Whether the OpenCL CPU device looks for vectors across work-items. Kernels
    /// with one work-item per work-group gain nothing and compile several times
    /// as long.
    pub cpu_vectorizer: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { persistent_cache: true, cpu_vectorizer: true }
    }
}

/// The variables that a program which loads `found` should start with, of those
/// that are not set: one that is set is meant.
pub fn variables(found: &Found, settings: Settings) -> Vec<Variable> {
    let mut all = Vec::new();
    let cpu = found.root.join("lib/libintelocl.so");
    if cpu.is_file() {
        let serves = "the installation's OpenCL CPU device, which is not seen otherwise";
        all.push(Variable { name: "OCL_ICD_FILENAMES", value: cpu.into(), serves });
    }
    let mut add = |name, value: &str, serves| {
        all.push(Variable { name, value: value.into(), serves });
    };
    let large = "allocations over 4 GiB on Level Zero";
    add("UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS", "1", large);
    if !settings.cpu_vectorizer {
        add("CL_CONFIG_USE_VECTORIZER", "false", "kernels that are vectors already");
    }
    if settings.persistent_cache {
        add("SYCL_CACHE_PERSISTENT", "1", "compiled kernels are kept on disk");
    }
    all.retain(|variable| std::env::var_os(variable.name).is_none());
    all
}

/// Starts this program again in the place of this process, with its arguments
/// and the variables; does nothing where there are none. All threads end here.
/// For programs that do not have their `main` for themselves, such as tests.
///
/// # Errors
/// What the system says where it does not start.
pub fn restart_with(variables: &[Variable]) -> std::io::Result<()> {
    if variables.is_empty() {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).envs(variables.iter().map(|v| (v.name, &v.value)));
    // Returns only where it failed.
    Err(command.exec())
}
