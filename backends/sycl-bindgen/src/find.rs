//! Where a SYCL runtime is installed. The build script uses it too, so it
//! depends on the standard library alone.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Environment variables that name an installation, in the order asked.
pub const VARIABLES: [&str; 4] = ["STRATA_SYCL_ROOT", "CMPLR_ROOT", "ONEAPI_ROOT", "VIRTUAL_ENV"];

/// What an installation is wanted for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// Compiling the bridge: headers and any libsycl.
    Build,
    /// Running: the libsycl of the version that the bridge was linked with.
    Run {
        /// Its name, `libsycl.so.N`.
        soname: &'a str,
    },
}

/// A SYCL installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its folder, which holds `lib` and `include`.
    pub root: PathBuf,
    /// What named it, for people: a variable, a fixed folder, python3.
    pub origin: String,
    /// The libsycl to load or to link.
    pub library: PathBuf,
    /// The name of that library, `libsycl.so.N`.
    pub soname: String,
}

/// No SYCL installation was found: where it was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFound {
    wanted: String,
    looked: Vec<String>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no SYCL runtime was found: looked for {}", self.wanted)?;
        for place in &self.looked {
            write!(f, "\n  {place}")?;
        }
        write!(
            f,
            "\nGet one with `pip install dpcpp-cpp-rt==2026.2.0` in a Python environment, or \
             install oneAPI, and name its folder in STRATA_SYCL_ROOT"
        )
    }
}

impl std::error::Error for NotFound {}

/// A folder that may be an installation.
struct Candidate {
    origin: String,
    root: PathBuf,
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|v| !v.is_empty())
}

/// Where Python's packages may be: the environment of the first python3 on PATH, whose file is
/// its `bin/python3`, and the user's own. No program is run to ask.
fn python_prefixes() -> Vec<Candidate> {
    let path = variable("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).filter(|f| f.join("python3").is_file());
    let prefix = folders.next().and_then(|bin| Some(bin.parent()?.to_path_buf()));
    let user = variable("HOME").map(|home| PathBuf::from(home).join(".local"));
    let named = [("the folder of python3", prefix), ("Python's user base", user)];
    let named = named.into_iter().filter_map(|(name, root)| Some((name, root?)));
    named.map(|(name, root)| Candidate { origin: name.to_string(), root }).collect()
}

/// The `libsycl.so.N` of a lib folder with the largest N, if any.
fn newest_library(lib: &Path) -> Option<(PathBuf, String)> {
    let entries = std::fs::read_dir(lib).ok()?;
    let versions = entries.filter_map(|e| {
        let name = e.ok()?.file_name().into_string().ok()?;
        name.strip_prefix("libsycl.so.")?.parse::<u32>().ok()
    });
    let soname = format!("libsycl.so.{}", versions.max()?);
    Some((lib.join(&soname), soname))
}

/// Whether a candidate serves, or why not.
fn check(candidate: Candidate, purpose: Purpose<'_>) -> Result<Found, String> {
    let Candidate { origin, root } = candidate;
    let refuse = |why: String| Err(format!("{origin}: {}: {why}", root.display()));
    let lib = root.join("lib");
    let newest = newest_library(&lib);
    let (library, soname) = match purpose {
        Purpose::Build => {
            let Some(found) = newest else {
                return refuse("no lib/libsycl.so.N".into());
            };
            if !root.join("include/sycl/sycl.hpp").is_file() {
                return refuse("no include/sycl/sycl.hpp".into());
            }
            found
        }
        Purpose::Run { soname } => {
            let library = lib.join(soname);
            if !library.is_file() {
                return refuse(match newest {
                    Some((_, other)) => format!("it has {other}, this program needs {soname}"),
                    None => format!("no lib/{soname}"),
                });
            }
            (library, soname.to_string())
        }
    };
    Ok(Found { root, origin, library, soname })
}

/// Finds an installation: `STRATA_SYCL_ROOT` alone when it is set, else the
/// first that serves of `CMPLR_ROOT`, `ONEAPI_ROOT`, `/opt/intel/oneapi`,
/// `VIRTUAL_ENV`, the folder of the python3 on PATH, and `~/.local`. Only looks
/// at files: no program is run.
///
/// # Errors
/// [`NotFound`], which lists every place and what it lacks.
pub fn find(purpose: Purpose<'_>) -> Result<Found, NotFound> {
    let mut looked = Vec::new();
    let mut candidates = Vec::new();
    for name in VARIABLES {
        let Some(value) = variable(name) else {
            looked.push(format!("{name} is not set"));
            continue;
        };
        let mut root = PathBuf::from(value);
        if name == "ONEAPI_ROOT" {
            root.push("compiler/latest");
        }
        let origin = name.to_string();
        candidates.push(Candidate { origin, root });
        // A folder that a person names is meant: no other takes its place.
        if name == VARIABLES[0] {
            break;
        }
    }
    let named = candidates.first().is_some_and(|c| c.origin == VARIABLES[0]);
    if !named {
        let fixed = Candidate {
            origin: "the usual folder".into(),
            root: "/opt/intel/oneapi/compiler/latest".into(),
        };
        // A virtual environment is asked after oneAPI, which is complete.
        let before = candidates.iter().position(|c| c.origin == "VIRTUAL_ENV");
        candidates.insert(before.unwrap_or(candidates.len()), fixed);
    }
    for candidate in candidates {
        match check(candidate, purpose) {
            Ok(found) => return Ok(found),
            Err(why) => looked.push(why),
        }
    }
    if !named {
        let prefixes = python_prefixes();
        if prefixes.is_empty() {
            looked.push("python3: not on PATH, and HOME is not set".into());
        }
        for candidate in prefixes {
            match check(candidate, purpose) {
                Ok(found) => return Ok(found),
                Err(why) => looked.push(why),
            }
        }
    }
    Err(NotFound { wanted: wanted(purpose), looked })
}

fn wanted(purpose: Purpose<'_>) -> String {
    match purpose {
        Purpose::Build => "include/sycl/sycl.hpp and lib/libsycl.so.N".to_string(),
        Purpose::Run { soname } => format!("lib/{soname}"),
    }
}

/// The installation in `root`, and nowhere else.
///
/// # Errors
/// [`NotFound`], which says what it lacks.
pub fn find_in(root: &Path, purpose: Purpose<'_>) -> Result<Found, NotFound> {
    let given = Candidate { origin: "the folder given".into(), root: root.to_path_buf() };
    check(given, purpose).map_err(|why| NotFound { wanted: wanted(purpose), looked: vec![why] })
}
