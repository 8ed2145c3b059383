//! The calls of the driver against a pretended one, `double/cuda.c`, and what is said when
//! it refuses. Order, memory and launches are tested in `strata-gpu`, for both vendors.
//!
//! Each case runs in a process of its own, whose loader finds the double.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use strata_core::backend::ops::{
    GateUp, GateUpOrder, MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows,
    QuantizeScatter, Rows, SwiGluQuantize, Weights,
};
use strata_core::backend::{Backend, DeviceRoutes, HostBytes, RoutingMap};
use strata_core::routing::Routes;
use strata_core::{Error, Layout, WeightType, q8_1};
use strata_cuda::{CudaBackend, CudaOptions, best, devices};

/// Names the case that a child process runs.
const INNER: &str = "STRATA_TEST_CASE";

/// Runs `case` in a process with the double and these variables. True in the child.
fn inside(case: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var(INNER).is_ok_and(|name| name == case) {
        return true;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", case, "--nocapture"])
        .env(INNER, case)
        .env("LD_LIBRARY_PATH", double())
        .env("DOUBLE_STRICT", "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stderr).into_owned();
    let out = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{}\n{out}\n{text}", child.status);
    // A name that is misspelt runs nothing.
    assert!(out.contains("1 passed"), "{out}");
    false
}

/// The folder of the double, built once.
fn double() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-double");
        std::fs::create_dir_all(&folder).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/double/cuda.c");
        // Under a name of this process first: several test runs may build it at once.
        let made = folder.join(format!("{}.so", std::process::id()));
        let output = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-pthread", "-o"])
            .args([&made, &source])
            .output()
            .expect("cc, a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(made, folder.join("libcuda.so")).unwrap();
        folder
    })
}

/// Code that this binary has, as a card's number.
fn card() -> String {
    let archs = strata_kernels_cuda::archs();
    let code = archs.iter().find_map(|a| a.strip_prefix("sm_")).expect("some machine code");
    code.trim_end_matches(['a', 'f']).to_owned()
}

fn open() -> Box<dyn Backend> {
    Box::new(CudaBackend::new(0, CudaOptions::default()).unwrap())
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 131 + i / 251 * 7 + seed) as u8).collect()
}

/// Lines of the double's log: name, blocks, threads, shared memory.
fn launches() -> Vec<(String, u32, u32, u32)> {
    let text = std::fs::read_to_string(std::env::var("DOUBLE_LOG").unwrap()).unwrap_or_default();
    let number = |word: Option<&str>| word.unwrap().parse().unwrap();
    text.lines()
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap().to_owned();
            (name, number(words.next()), number(words.next()), number(words.next()))
        })
        .collect()
}

/// A log that does not exist yet.
fn log(case: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{case}.log"));
    let _ = std::fs::remove_file(&path);
    path.display().to_string()
}

#[test]
fn bytes_go_to_the_device_and_back() {
    if !inside("bytes_go_to_the_device_and_back", &[("DOUBLE_CARDS", &card())]) {
        return;
    }
    let gpu = open();
    // From less than a piece to more than both halves of the staging memory.
    for len in [1, 4097, 262_145, (64 << 20) + 3] {
        let buffer = gpu.import(HostBytes::from(bytes(len, 1))).unwrap();
        let mut copy = gpu.alloc::<u8>(len).unwrap();
        gpu.copy(copy.view_mut(), &buffer).unwrap();
        drop(buffer);
        assert!(gpu.download(&copy).unwrap() == bytes(len, 1), "{len}");
    }
}

#[test]
fn two_threads_share_a_device() {
    if !inside("two_threads_share_a_device", &[("DOUBLE_CARDS", &card())]) {
        return;
    }
    let main = open();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let gpu = main.fork().unwrap();
            scope.spawn(move || {
                for round in 0..200 {
                    let data = bytes(10_000 + round, thread * 1000 + round);
                    let buffer = gpu.from_slice(&data).unwrap();
                    assert!(gpu.download(&buffer).unwrap() == data, "{thread} {round}");
                }
            });
        }
    });
    // Memory of one handle is memory of another.
    let buffer = main.from_slice(&[1u32, 2, 3]).unwrap();
    main.synchronize().unwrap();
    assert_eq!(open().download(&buffer).unwrap(), [1, 2, 3]);
}

#[test]
fn out_of_memory_says_the_figures_and_leaves_nothing_behind() {
    if !inside(
        "out_of_memory_says_the_figures_and_leaves_nothing_behind",
        &[("DOUBLE_CARDS", &card()), ("DOUBLE_BYTES", "100000000")],
    ) {
        return;
    }
    let gpu = open();
    let held = gpu.alloc::<u8>(40_000_000).unwrap();
    drop(gpu.alloc::<u8>(30_000_000).unwrap());
    let free = gpu.memory().unwrap().free;
    match gpu.alloc::<u8>(80_000_000).unwrap_err() {
        Error::OutOfMemory { device, asked, free: told, total } => {
            assert_eq!(
                (device.as_str(), asked, told, total),
                ("cuda:0", 80_000_000, free, 100_000_000)
            );
        }
        other => panic!("{other}"),
    }
    drop(held);
    // Only what was kept stood in the way.
    let all = gpu.alloc::<u8>(96_000_000).unwrap();
    drop(all);
    assert_eq!(gpu.memory().unwrap().free, 100_000_000);
}

#[test]
fn devices_that_do_not_exist_or_are_not_supported_are_named() {
    let case = "devices_that_do_not_exist_or_are_not_supported_are_named";
    if !inside(case, &[("DOUBLE_CARDS", &format!("61,{}", card()))]) {
        return;
    }
    let all = devices().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].arch.as_str(), all[1].arch.clone()), ("sm_61", format!("sm_{}", card())));
    assert_eq!(best().unwrap(), 1);
    let options = CudaOptions::default();
    let error = CudaBackend::new(0, options).err().unwrap().to_string();
    for part in ["cuda:0 (Double 0)", "sm_61", strata_kernels_cuda::archs()[0]] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = CudaBackend::new(2, options).err().unwrap().to_string();
    assert_eq!(error, "cuda device: given 2, expected 0 to 1, as there are 2");
    assert_eq!(CudaBackend::new(1, options).unwrap().device().id.to_string(), "cuda:1");
}

#[test]
fn an_old_driver_is_told_apart() {
    if !inside(
        "an_old_driver_is_told_apart",
        &[("DOUBLE_CARDS", "90"), ("DOUBLE_VERSION", "12040")],
    ) {
        return;
    }
    let error = devices().unwrap_err().to_string();
    for part in ["CUDA 12.4", "CUDA 13.0", "branch 580"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn no_card_is_told_apart() {
    if !inside("no_card_is_told_apart", &[("DOUBLE_CARDS", "")]) {
        return;
    }
    let error = devices().unwrap_err().to_string();
    assert!(error.contains("finds no NVIDIA GPU"), "{error}");
}

#[test]
fn marks_measure_and_are_checked() {
    if !inside("marks_measure_and_are_checked", &[("DOUBLE_CARDS", &card())]) {
        return;
    }
    let gpu = open();
    let mut buffer = gpu.alloc::<u8>(100).unwrap();
    let first = gpu.mark().unwrap();
    gpu.fill(&mut buffer, 1).unwrap();
    let last = gpu.mark().unwrap();
    // The double's clock ticks a quarter of a millisecond for every operation.
    assert_eq!(gpu.elapsed(&*first, &*last).unwrap().as_micros(), 500);
    assert!(matches!(gpu.elapsed(&*last, &*first), Err(Error::Invalid { .. })));
    let other = gpu.fork().unwrap();
    assert!(matches!(other.elapsed(&*first, &*last), Err(Error::Invalid { .. })));
    // Marks may outlive the handle, and end on a thread that knows no device.
    drop(gpu);
    std::thread::spawn(move || drop((first, last))).join().unwrap();
}

/// Launches the front of a layer for `tokens` tokens.
fn front(gpu: &dyn Backend, tokens: usize) {
    let (experts, k, cols, rows) = (8, 2, 256, 64);
    let ids: Vec<i32> = (0..tokens * k).map(|i| (i % experts) as i32).collect();
    let routes = Routes::new(ids, vec![0.5; tokens * k], k, experts).unwrap();
    let routes = DeviceRoutes::upload(gpu, &routes).unwrap();
    let mut map = RoutingMap::with_capacity(gpu, tokens, k, experts).unwrap();
    MapRoutes::new(routes.view(), &mut map).unwrap().launch(gpu).unwrap();
    let x = gpu.from_slice(&vec![1f32; tokens * cols]).unwrap();
    let x = Matrix::dense("x", &x, tokens, cols).unwrap();
    let mut q8 = gpu.alloc::<u8>(q8_1::bytes(tokens * k, cols).unwrap()).unwrap();
    let out = Q8RowsMut::new(&mut q8, Layout::D4, tokens * k, cols).unwrap();
    QuantizeRows::gather(x, &map, out).unwrap().launch(gpu).unwrap();
    let ty = WeightType::Q8_0;
    let blocks = gpu.alloc::<u8>(experts * rows * ty.row_bytes(cols).unwrap()).unwrap();
    let weights = Weights::dense("weights", &blocks, ty, experts, rows, cols).unwrap();
    let acts = Q8Rows::new(&q8, Layout::D4, tokens * k, cols).unwrap();
    let mut y = gpu.alloc::<f32>(tokens * k * rows).unwrap();
    let dst = MatrixMut::dense("y", &mut y, tokens * k, rows).unwrap();
    Product::new(weights, acts, Rows::Experts(&map), dst).unwrap().launch(gpu).unwrap();
    let gate_up = Matrix::dense("gate and up", &y, tokens * k, rows).unwrap();
    let gate_up = GateUp::new(gate_up, GateUpOrder::Split).unwrap();
    let mut h = gpu.alloc::<u8>(q8_1::bytes(tokens * k, rows / 2).unwrap()).unwrap();
    let out = Q8RowsMut::new(&mut h, Layout::DS4, tokens * k, rows / 2).unwrap();
    SwiGluQuantize::new(gate_up, out).unwrap().launch(gpu).unwrap();
    gpu.synchronize().unwrap();
}

#[test]
fn a_device_with_less_shared_memory_takes_a_smaller_tile() {
    let case = "a_device_with_less_shared_memory_takes_a_smaller_tile";
    let cards =
        [("DOUBLE_CARDS", &*card()), ("DOUBLE_LOG", &log(case)), ("DOUBLE_SHARED", "65536")];
    if !inside(case, &cards) {
        return;
    }
    front(&*open(), 1000);
    assert!(launches().iter().any(|l| l.0 == "strata_mmq_tile64"));
    let small = CudaOptions { shared_bytes: Some(28 << 10), ..CudaOptions::default() };
    front(&CudaBackend::new(0, small).unwrap() as &dyn Backend, 1000);
    assert!(launches().iter().any(|l| l.0 == "strata_mmq_tile_small"));
}

#[test]
fn a_bogus_limit_of_shared_memory_is_survived() {
    let case = "a_bogus_limit_of_shared_memory_is_survived";
    // Less after asking than without.
    let cards = [("DOUBLE_CARDS", &*card()), ("DOUBLE_LOG", &log(case)), ("DOUBLE_SHARED", "0")];
    if !inside(case, &cards) {
        return;
    }
    // 48 KiB are there without asking, and the widest tile that needs no more is taken.
    front(&*open(), 1000);
    assert!(launches().iter().any(|l| l.0 == "strata_mmq_tile32"));
}

#[test]
fn a_driver_that_gives_less_shared_memory_than_it_says_gets_other_kernels() {
    let case = "a_driver_that_gives_less_shared_memory_than_it_says_gets_other_kernels";
    let log = log(case);
    let cards =
        [("DOUBLE_CARDS", &*card()), ("DOUBLE_LOG", &*log), ("DOUBLE_SHARED_GIVEN", "65536")];
    if !inside(case, &cards) {
        return;
    }
    let options = CudaOptions { scatter_in_order_from: Some(0), ..CudaOptions::default() };
    let gpu = CudaBackend::new(0, options).unwrap();
    let (tokens, k, experts, cols) = (100, 2, 8, 256);
    let ids: Vec<i32> = (0..tokens * k).map(|i| (i % experts) as i32).collect();
    let routes = Routes::new(ids, vec![0.5; tokens * k], k, experts).unwrap();
    let routes = DeviceRoutes::upload(&gpu, &routes).unwrap();
    let mut map = RoutingMap::with_capacity(&gpu, tokens, k, experts).unwrap();
    MapRoutes::new(routes.view(), &mut map).unwrap().launch(&gpu).unwrap();
    let x = (&gpu as &dyn Backend).from_slice(&vec![1f32; tokens * cols]).unwrap();
    let x = Matrix::dense("x", &x, tokens, cols).unwrap();
    let bytes = q8_1::bytes(tokens * k, cols).unwrap();
    let mut q8 = (&gpu as &dyn Backend).alloc::<u8>(bytes).unwrap();
    let out = Q8RowsMut::new(&mut q8, Layout::D4, tokens * k, cols).unwrap();
    QuantizeScatter::new(x, &map, out).unwrap().launch(&gpu).unwrap();
    (&gpu as &dyn Backend).synchronize().unwrap();
    assert!(launches().iter().any(|l| l.0 == "strata_quantize_scatter_D4"));
    front(&gpu, 1000);
    assert!(launches().iter().any(|l| l.0 == "strata_mmq_tile64"));
}

#[test]
fn a_fault_is_reported_and_the_next_handle_works() {
    let case = "a_fault_is_reported_and_the_next_handle_works";
    let cards = [("DOUBLE_CARDS", &*card()), ("DOUBLE_FAULT", "strata_quantize_D4")];
    if !inside(case, &cards) {
        return;
    }
    // Memory of a context that faulted goes with the context.
    // SAFETY: this process runs no other thread that reads its environment.
    unsafe { std::env::remove_var("DOUBLE_STRICT") };
    {
        let gpu = open();
        let x = gpu.from_slice(&vec![1f32; 256]).unwrap();
        let mut q8 = gpu.alloc::<u8>(q8_1::bytes(1, 256).unwrap()).unwrap();
        let x = Matrix::dense("x", &x, 1, 256).unwrap();
        let out = Q8RowsMut::new(&mut q8, Layout::D4, 1, 256).unwrap();
        QuantizeRows::new(x, out).unwrap().launch(&*gpu).unwrap();
        let error = gpu.synchronize().unwrap_err().to_string();
        assert!(
            error.starts_with("cuda:0: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"),
            "{error}"
        );
        assert!(gpu.alloc::<u8>(1 << 20).is_err());
    }
    let gpu = open();
    let buffer = gpu.from_slice(&[7u8; 100]).unwrap();
    assert_eq!(gpu.download(&buffer).unwrap(), [7; 100]);
}

#[test]
fn a_driver_that_does_not_start_is_not_told_to_be_installed() {
    let case = "a_driver_that_does_not_start_is_not_told_to_be_installed";
    if let Some(code) = std::env::var_os("DOUBLE_INIT") {
        let error = devices().unwrap_err().to_string();
        let word = match code.to_str().unwrap() {
            "34" => "stub",
            "802" => "nvidia-fabricmanager",
            "803" => "different versions",
            "804" => "compatibility package",
            "999" => "nvidia-uvm",
            other => panic!("{other}"),
        };
        assert!(error.contains("cuInit: ") && error.contains(word), "{error}");
        assert!(!error.contains("install"), "{error}");
        return;
    }
    for code in ["34", "802", "803", "804", "999"] {
        inside(case, &[("DOUBLE_CARDS", &card()), ("DOUBLE_INIT", code)]);
    }
}

/// Device memory and a stream of an engine, made by the driver's own calls.
struct Engine {
    stream: sys::CUstream,
    memory: Vec<u64>,
}

// SAFETY: handles of the driver hold in the whole process.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

impl Engine {
    fn new(sizes: &[usize]) -> Self {
        let (mut stream, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let ok = sys::CUresult::CUDA_SUCCESS;
        // SAFETY: each writes one handle, given back in drop.
        unsafe {
            assert_eq!(sys::cuDevicePrimaryCtxRetain(&raw mut context, 0), ok);
            assert_eq!(sys::cuCtxSetCurrent(context), ok);
            assert_eq!(sys::cuStreamCreate(&raw mut stream, 1), ok);
        }
        let allocate = |&bytes: &usize| {
            let mut address = 0;
            // SAFETY: writes one address.
            assert_eq!(unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) }, ok);
            address
        };
        Self { stream, memory: sizes.iter().map(allocate).collect() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The double ends the process where a stream still needs any of it.
        // SAFETY: made by `new`; nothing is used after.
        unsafe {
            for &address in &self.memory {
                let _ = sys::cuMemFree_v2(address);
            }
            let _ = sys::cuStreamDestroy_v2(self.stream);
            let _ = sys::cuDevicePrimaryCtxRelease_v2(0);
        }
    }
}

#[test]
fn memory_and_streams_of_an_engine_are_used_without_copies() {
    let case = "memory_and_streams_of_an_engine_are_used_without_copies";
    if !inside(case, &[("DOUBLE_CARDS", &card()), ("DOUBLE_LOG", &log(case))]) {
        return;
    }
    let (rows, cols) = (64, 256);
    let q8_bytes = q8_1::bytes(rows, cols).unwrap();
    let _ = devices().unwrap();
    let engine = Arc::new(Engine::new(&[rows * cols * 4, q8_bytes]));
    // SAFETY: the engine's own stream, kept by its clone.
    let gpu = unsafe {
        CudaBackend::on_stream(0, CudaOptions::default(), engine.stream.cast(), Arc::clone(&engine))
    }
    .unwrap();
    assert_eq!(gpu.stream_address(), engine.stream.cast());
    let ours: &dyn Backend = &gpu;
    let free = ours.memory().unwrap().free;
    // SAFETY: so many values lie there, kept by their owner, and used in this stream alone.
    let (x, mut q8) = unsafe {
        (
            gpu.adopt::<f32>(engine.memory[0], rows * cols, Arc::clone(&engine)).unwrap(),
            gpu.adopt::<u8>(engine.memory[1], q8_bytes, Arc::clone(&engine)).unwrap(),
        )
    };
    assert_eq!(gpu.address(&x).unwrap(), engine.memory[0]);
    assert_eq!(gpu.address(x.slice(4..).unwrap()).unwrap(), engine.memory[0] + 16);
    assert_eq!(gpu.address_mut(&mut q8).unwrap(), engine.memory[1]);
    let (x_rows, q8_rows) = (
        Matrix::dense("x", &x, rows, cols).unwrap(),
        Q8RowsMut::new(&mut q8, Layout::D4, rows, cols).unwrap(),
    );
    QuantizeRows::new(x_rows, q8_rows).unwrap().launch(ours).unwrap();
    assert_eq!(ours.memory().unwrap().free, free, "nothing was allocated");
    assert_eq!(launches().iter().map(|l| l.0.as_str()).collect::<Vec<_>>(), ["strata_quantize_D4"]);
    drop((x, q8));
    ours.synchronize().unwrap();
    assert_eq!(Arc::strong_count(&engine), 2);
}

#[test]
fn streams_wait_for_events_of_others() {
    let case = "streams_wait_for_events_of_others";
    if !inside(case, &[("DOUBLE_CARDS", &card())]) {
        return;
    }
    let (first, second) = (open(), open());
    for round in 0..20 {
        let source = first.from_slice(&bytes(5000, round)).unwrap();
        let mut target = second.alloc::<u8>(5000).unwrap();
        let event = first.record().unwrap();
        second.wait(&event).unwrap();
        drop(event);
        second.copy(target.view_mut(), &source).unwrap();
        assert!(second.download(&target).unwrap() == bytes(5000, round), "{round}");
    }
}
