//! What is said where there is no driver; with one, what is said of a device
//! that does not exist. Runs in a process of its own, whose loader finds nothing.

use std::process::Command;

use strata_core::Error;
use strata_core::backend::BackendKind;
use strata_cuda::{CudaBackend, CudaOptions, best, devices};

/// Set in the process that is started again without a driver in sight.
const INNER: &str = "STRATA_TEST_WITHOUT_DRIVER";

fn unavailable<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Unavailable { kind: BackendKind::Cuda, reason }) => reason,
        Err(other) => panic!("expected Unavailable, got: {other}"),
        Ok(_) => panic!("expected Unavailable, got a device"),
    }
}

/// Whether the loader finds a driver.
fn has_driver() -> bool {
    match devices() {
        Ok(_) => true,
        Err(Error::Unavailable { reason, .. }) => !reason.contains("was found"),
        Err(_) => true,
    }
}

#[test]
fn a_missing_driver_is_an_error_that_says_what_to_do() {
    if has_driver() {
        // The other test covers this machine; a driver cannot be hidden from its own loader.
        let count = devices().map_or(0, |d| d.len() as u32);
        let error = CudaBackend::new(count + 7, CudaOptions::default()).err().unwrap().to_string();
        assert!(
            error.contains(&(count + 7).to_string()) || error.contains("not available"),
            "{error}"
        );
        return;
    }
    for reason in [
        unavailable(devices()),
        unavailable(best()),
        unavailable(CudaBackend::new(0, CudaOptions::default())),
        unavailable(CudaBackend::new(u32::MAX, CudaOptions::default())),
    ] {
        assert!(reason.contains("libcuda.so"), "{reason}");
        assert!(reason.contains("install the NVIDIA driver"), "{reason}");
        assert!(reason.contains("--backend cpu"), "{reason}");
    }
}

#[test]
fn a_library_that_is_no_driver_is_an_error_too() {
    if std::env::var_os(INNER).is_some() {
        let reason = unavailable(devices());
        assert!(reason.contains("has no cuDriverGetVersion"), "{reason}");
        return;
    }
    // Some library under the driver's name, found first.
    let folder = std::env::temp_dir().join(format!("strata-cuda-absent-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let Some(library) = some_library() else {
        panic!("no shared library of this process to pretend with");
    };
    std::fs::copy(&library, folder.join("libcuda.so")).unwrap();
    again("a_library_that_is_no_driver_is_an_error_too", &folder);
}

/// Runs a test once more in a process that finds its driver in a folder, which then goes.
fn again(case: &str, folder: &std::path::Path) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", case])
        .env("LD_LIBRARY_PATH", folder)
        .env(INNER, "1")
        .status()
        .unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    assert!(status.success());
}

/// A shared library that this process has loaded and that is not the loader's own.
fn some_library() -> Option<std::path::PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    path.map(std::path::PathBuf::from)
        .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libgcc_s")))
}

#[test]
fn a_driver_that_lacks_a_call_is_an_error_too() {
    let case = "a_driver_that_lacks_a_call_is_an_error_too";
    if std::env::var_os(INNER).is_some() {
        for reason in [unavailable(devices()), unavailable(best())] {
            assert!(reason.contains("has no cuCtxSetCurrent"), "{reason}");
        }
        return;
    }
    let folder = std::env::temp_dir().join(format!("strata-cuda-lacks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("cuda.c");
    let text = "int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
        int cuInit(unsigned f) { return 0; }
        int cuGetErrorString(int e, const char **s) { *s = \"\"; return 0; }
        int cuGetErrorName(int e, const char **s) { *s = \"\"; return 0; }
        int cuDeviceGetCount(int *n) { *n = 1; return 0; }";
    std::fs::write(&source, text).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&folder.join("libcuda.so"), &source])
        .status()
        .expect("cc, a C compiler");
    assert!(made.success());
    again(case, &folder);
}
