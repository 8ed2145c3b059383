//! Opening, memory and errors of the first SYCL device.
//!
//! Without a SYCL runtime each test prints `skipped:` and why, unless
//! `STRATA_REQUIRE_SYCL` is set.

use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use strata_core::backend::ops::{
    Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows, Rows, Weights,
};
use strata_core::backend::{Backend, BackendKind};
use strata_core::format::random_blocks;
use strata_core::prefill::normals;
use strata_core::{Error, WeightType, q8_1, reference};
use strata_sycl::{SyclBackend, best, devices, environment, runtime};
use sycl_bindgen::{Options, Runtime, restart_with};

fn open() -> Option<SyclBackend> {
    // What the runtime wants to find in the environment is set from outside.
    restart_with(&environment()).expect("the test starts again");
    match SyclBackend::open(0) {
        Ok(backend) => Some(backend),
        Err(e) if std::env::var_os("STRATA_REQUIRE_SYCL").is_none() => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("STRATA_REQUIRE_SYCL is set: {e}"),
    }
}

#[test]
fn lists_devices_and_says_what_it_runs_on() {
    let _turn = beside_others();
    let Some(backend) = open() else { return };
    println!("{}", runtime().unwrap());
    assert!(runtime().unwrap().contains("-ffp-contract=off"));
    let devices = devices().unwrap();
    for device in &devices {
        println!("{device:?}");
        assert_eq!(device.id.kind, BackendKind::Sycl);
    }
    assert_eq!(devices[0].name, backend.device().name);
    // A CPU is never what `auto` should take of this backend.
    match best() {
        Ok(index) => assert!(devices[index as usize].arch.starts_with("gpu")),
        Err(e) => assert!(e.to_string().contains("cpu"), "{e}"),
    }
    let count = devices.len() as u32;
    let error = SyclBackend::open(count).err().expect("there is no such device");
    println!("{error}");
    assert!(error.to_string().contains(&format!("given {count}, expected 0..{count}")), "{error}");
}

#[test]
fn exhausted_memory_is_an_error_and_leaves_room_for_less() {
    let _turn = beside_others();
    let Some(backend) = open() else { return };
    let backend: &dyn Backend = &backend;
    let info = backend.memory().unwrap();
    println!("{info:?}");
    assert!(info.free > 0 && info.free <= info.total);
    for bytes in [info.total as usize + 1, 1 << 60] {
        let error = backend.alloc::<u8>(bytes).expect_err("more than there is");
        println!("{error}");
        assert!(matches!(error, Error::OutOfMemory { asked, .. } if asked == bytes as u64));
    }
    let mut small = backend.alloc::<u8>(1 << 20).unwrap();
    backend.fill(&mut small, 7).unwrap();
    assert!(backend.download(&small).unwrap().iter().all(|&b| b == 7));
}

#[test]
fn more_than_the_device_gives_in_one_piece_is_an_error_that_says_how_much_it_does() {
    let _turn = beside_others();
    let Some(backend) = open() else { return };
    let devices = Runtime::load(Options::default()).unwrap().devices().unwrap();
    let device = devices.iter().find(|d| d.name == backend.device().name).unwrap();
    let backend: &dyn Backend = &backend;
    let (most, free) = (device.max_allocation, backend.memory().unwrap().free);
    if free < most + (1 << 20) {
        return println!("skipped: {free} bytes are free, {most} are given in one piece");
    }
    let error = backend.alloc::<u8>(most as usize + 1).expect_err("more than one piece");
    println!("{error}");
    let (text, asked) = (error.to_string(), (most + 1).to_string());
    assert!(matches!(error, Error::Device { .. }), "{text}");
    assert!(text.contains(&asked) && text.contains(&most.to_string()), "{text}");
}

/// One product of a few rows, compared with the reference.
fn product(backend: &dyn Backend, ty: WeightType) -> Result<(), Error> {
    let (rows, cols, tokens) = (20, 256, 3);
    let weights = random_blocks(ty, 1, rows * cols / ty.block_values());
    let x = normals(2, tokens * cols);
    let want_q8 = reference::quantize(&x, tokens, cols, cols, None, ty.layout());
    let read: Vec<usize> = (0..tokens).collect();
    let row_bytes = ty.row_bytes(cols)?;
    let want = reference::mmq(ty, &weights, rows, cols, row_bytes, &want_q8, tokens, &read);

    let (device_x, device_weights) = (backend.from_slice(&x)?, backend.from_slice(&weights)?);
    let mut q8 = backend.alloc::<u8>(q8_1::bytes(tokens, cols)?)?;
    let mut out = backend.alloc::<f32>(tokens * rows)?;
    QuantizeRows::new(
        Matrix::dense("x", &device_x, tokens, cols)?,
        Q8RowsMut::new(&mut q8, ty.layout(), tokens, cols)?,
    )?
    .launch(backend)?;
    Product::new(
        Weights::dense("weights", &device_weights, ty, 1, rows, cols)?,
        Q8Rows::new(&q8, ty.layout(), tokens, cols)?,
        Rows::Dense,
        MatrixMut::dense("out", &mut out, tokens, rows)?,
    )?
    .launch(backend)?;
    // What a launch still reads may go at once.
    drop((device_x, device_weights, q8));
    let got = backend.download(&out)?;
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&got), bits(&want));
    Ok(())
}

/// Held by every test, so that the one which looks at the memory of the process
/// has it for itself.
static TURNS: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    TURNS.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
}

#[test]
fn nothing_leaks_over_a_thousand_streams_and_products() {
    let _turn = alone();
    let Some(backend) = open() else { return };
    let round = |_| {
        let stream = backend.fork().unwrap();
        let big = stream.alloc::<u8>(8 << 20).unwrap();
        product(&*stream, WeightType::Q4_K).unwrap();
        assert!(stream.alloc::<u8>(1 << 60).is_err());
        drop(big);
    };
    // The first rounds fill the pool and the runtime's own caches.
    (0..100).for_each(round);
    let before = resident();
    (0..1000).for_each(round);
    let after = resident();
    println!("resident after 100 rounds: {before} KiB, after 1,100: {after} KiB");
    assert!(after < before + 16 * 1024, "1,000 rounds left {} KiB behind", after - before);
}

#[test]
fn memory_comes_back_only_when_its_last_launch_has_run() {
    let _turn = beside_others();
    let Some(backend) = open() else { return };
    let backend: &dyn Backend = &backend;
    let (rows, cols, tokens, ty) = (1024, 2048, 1024, WeightType::Q8_0);
    let weights = random_blocks(ty, 1, rows * cols / ty.block_values());
    let weights = backend.from_slice(&weights).unwrap();
    let mut q8 = backend.alloc::<u8>(q8_1::bytes(tokens, cols).unwrap()).unwrap();
    backend.fill(&mut q8, 0).unwrap();
    let ones = vec![1.0f32; tokens * rows];
    for round in 0..5 {
        let mut x = backend.alloc::<f32>(tokens * rows).unwrap();
        backend.synchronize().unwrap();
        for _ in 0..2 {
            Product::new(
                Weights::dense("weights", &weights, ty, 1, rows, cols).unwrap(),
                Q8Rows::new(&q8, ty.layout(), tokens, cols).unwrap(),
                Rows::Dense,
                MatrixMut::dense("out", &mut x, tokens, rows).unwrap(),
            )
            .unwrap()
            .launch(backend)
            .unwrap();
        }
        drop(x);
        // Taken by the stream that still writes what was dropped, and handed to one made later.
        let mut y = backend.alloc::<f32>(tokens * rows).unwrap();
        let later = backend.fork().unwrap();
        later.upload(&mut y, &ones).unwrap();
        later.synchronize().unwrap();
        backend.synchronize().unwrap();
        let wrong = later.download(&y).unwrap().iter().filter(|&&v| v != 1.0).count();
        assert_eq!(wrong, 0, "of {} values, in round {round}", ones.len());
    }
}

#[test]
fn streams_of_several_threads_share_the_pool() {
    let _turn = beside_others();
    let Some(backend) = open() else { return };
    std::thread::scope(|scope| {
        for ty in [WeightType::Q8_0, WeightType::Q4_1, WeightType::Q2_K] {
            let stream = backend.fork().unwrap();
            scope.spawn(move || {
                for _ in 0..50 {
                    product(&*stream, ty).unwrap();
                }
            });
        }
    });
    // A second handle on the device shares its memory, whichever opened it.
    let (first, second) = (&backend as &dyn Backend, SyclBackend::open(0).unwrap());
    let buffer = first.from_slice(&[1u8, 2, 3]).unwrap();
    assert_eq!((&second as &dyn Backend).download(&buffer).unwrap(), [1, 2, 3]);
}

#[test]
fn a_machine_without_a_runtime_gets_an_error_that_says_what_to_do() {
    let _turn = beside_others();
    // The environment is set from outside: this test runs itself again.
    if std::env::var_os("STRATA_TEST_ABSENT").is_some() {
        for error in [SyclBackend::open(0).err(), devices().err(), best().err(), runtime().err()] {
            let error = error.expect("there is no runtime");
            assert!(matches!(error, Error::Unavailable { kind: BackendKind::Sycl, .. }), "{error}");
            println!("{error}");
        }
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("a_machine_without_a_runtime_gets_an_error_that_says_what_to_do")
        .env_clear()
        .env("STRATA_TEST_ABSENT", "1")
        .env("STRATA_SYCL_ROOT", "/nonexistent")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for part in ["backend sycl is not available", "/nonexistent", "pip install dpcpp-cpp-rt"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}
