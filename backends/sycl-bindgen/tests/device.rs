//! The bridge on a real device: the OpenCL CPU device, or the first that takes
//! kernels from source.
//!
//! Without a SYCL runtime each test prints `skipped:` and why, unless
//! `STRATA_REQUIRE_SYCL` is set: then that is a failure.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sycl_bindgen::{
    Arg, Bundle, Code, Error, Kind, Options, Queue, Range, Runtime, Settings, found, restart_with,
    variables,
};

const OPTIONS: [&str; 1] = ["-ffp-contract=off"];

const SOURCE: &str = r#"
#include <sycl/sycl.hpp>
#include "scale.hpp"
namespace se = sycl::ext::oneapi::experimental;
using sycl::ext::oneapi::this_work_item::get_nd_item;

struct span { int first, count; };

// Reverses each work-group's floats and scales them.
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((se::nd_range_kernel<1>))
void reverse(float *to, const float *from, span s, sycl::local_accessor<float, 1> tile) {
    auto it = get_nd_item<1>();
    int i = it.get_global_id(0), l = it.get_local_id(0), n = it.get_local_range(0);
    tile[l] = i < s.count ? from[s.first + i] : 0.0f;
    sycl::group_barrier(it.get_group());
    if (i < s.count) to[i] = tile[n - 1 - l] * SCALE;
}

// Writes where each work-item of a box is.
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((se::nd_range_kernel<3>))
void where(int *to) {
    auto it = get_nd_item<3>();
    int x = it.get_global_id(2), y = it.get_global_id(1), z = it.get_global_id(0);
    to[(z * it.get_global_range(1) + y) * it.get_global_range(2) + x] = 10000 * z + 100 * y + x;
}
"#;

/// The runtime and a queue on a device that compiles source, CPU first: it is
/// what a machine without a card has.
fn queue() -> Option<Queue> {
    let required = std::env::var_os("STRATA_REQUIRE_SYCL").is_some();
    if let Ok(found) = found() {
        restart_with(&variables(&found, Settings::default())).expect("the test starts again");
    }
    let runtime = match Runtime::load(Options::default()) {
        Ok(runtime) => runtime,
        Err(e @ Error::Load { .. }) => panic!("what was found does not load: {e}"),
        Err(e) => {
            assert!(!required, "STRATA_REQUIRE_SYCL is set: {e}");
            println!("skipped: {e}");
            return None;
        }
    };
    let mut devices = runtime.devices().expect("devices are listed");
    devices.retain(|d| d.aspects.source);
    devices.sort_by_key(|d| d.kind != Kind::Cpu);
    let Some(device) = devices.first() else {
        assert!(!required, "STRATA_REQUIRE_SYCL is set: no device takes source");
        println!("skipped: no SYCL device takes kernels from source");
        return None;
    };
    Some(Queue::open(runtime, device.index).expect("a listed device opens"))
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn bundle(queue: &Queue) -> Bundle {
    let headers = [("scale.hpp", "#define SCALE 3.0f\n")];
    Bundle::build(queue, SOURCE, &headers, &OPTIONS).expect("the kernels build")
}

#[test]
fn lists_and_describes_devices() {
    let _turn = beside_others();
    let Some(queue) = queue() else { return };
    let runtime = Runtime::load(Options::default()).unwrap();
    println!("runtime: {:?}", runtime.found());
    for d in runtime.devices().unwrap() {
        println!("{d:?}; free {:?}", runtime.free_memory(d.index).unwrap());
        assert!(!d.name.is_empty() && d.max_work_group > 0 && d.global_memory > 0);
        assert!(d.sub_group_sizes.is_sorted() && !d.sub_group_sizes.is_empty());
    }
    let e = Queue::open(runtime, 1000).unwrap_err();
    println!("{e}");
    assert_eq!(e.code(), Some(Code::NoDevice));
    assert!(e.to_string().contains("1000"), "{e}");
    assert_eq!(runtime.device(1000).unwrap_err().code(), Some(Code::NoDevice));
    queue.wait().unwrap();
}

#[test]
fn runs_a_kernel_with_values_pointers_and_local_memory() {
    let _turn = beside_others();
    let Some(queue) = queue() else { return };
    let bundle = bundle(&queue);
    let reverse = bundle.kernel("reverse").unwrap();
    println!("limits {:?}, log {:?}", reverse.limits().unwrap(), bundle.log());

    let mut from = queue.alloc(80 * 4).unwrap();
    let mut to = queue.alloc(96 * 4).unwrap();
    from.upload(0, &floats((0..80).map(|i| i as f32))).unwrap();
    to.fill(0, 0xff, 96 * 4).unwrap();
    let span = [8i32, 60];
    let args = [Arg::buffer(&to), Arg::buffer(&from), Arg::value(&span), Arg::local(16 * 4)];
    let before = queue.record().unwrap();
    // SAFETY: `span` has the layout of the kernel's, 60 floats lie past 8 in
    // `from`, and `to` holds more than 60.
    unsafe { reverse.launch(&queue, &args, Range::linear(64, 16)) }.unwrap();
    let after = queue.record().unwrap();
    let mut got = vec![0u8; 96 * 4];
    to.download(0, &mut got).unwrap();
    println!("took {:?}", before.elapsed(&after).unwrap());
    assert_eq!(after.elapsed(&before).unwrap_err().code(), Some(Code::Invalid));

    // The last work-group holds 12 values, and zeros after them.
    let want = (0..60).map(|i| {
        let source = i / 16 * 16 + 15 - i % 16;
        if source < 60 { 3.0 * (source + 8) as f32 } else { 0.0 }
    });
    assert_eq!(got[..60 * 4], floats(want));
    assert!(got[60 * 4..].iter().all(|b| *b == 0xff), "wrote past the end");
}

#[test]
fn runs_in_three_dimensions_and_refuses_ranges_that_do_not_divide() {
    let _turn = beside_others();
    let Some(queue) = queue() else { return };
    let bundle = bundle(&queue);
    let kernel = bundle.kernel("where").unwrap();
    let to = queue.alloc(4 * 6 * 8 * 4).unwrap();
    let launch = |range| {
        // SAFETY: the box has as many work-items as `to` has ints, or none run.
        unsafe { kernel.launch(&queue, &[Arg::buffer(&to)], range) }
    };
    launch(Range::space([4, 6, 8], [2, 3, 4])).unwrap();
    let mut got = vec![0u8; 4 * 6 * 8 * 4];
    to.download(0, &mut got).unwrap();
    let mut want = Vec::new();
    for z in 0..4i32 {
        for y in 0..6 {
            for x in 0..8 {
                want.extend_from_slice(&(10000 * z + 100 * y + x).to_le_bytes());
            }
        }
    }
    assert_eq!(got, want);

    launch(Range::space([0, 6, 8], [1, 1, 1])).unwrap();
    for range in [Range::linear(10, 4), Range::linear(10, 0)] {
        let e = launch(range).unwrap_err();
        println!("{e}");
        assert_eq!(e.code(), Some(Code::Invalid));
    }
    let huge = launch(Range::space([1 << 20, 1, 1], [1 << 20, 1, 1])).unwrap_err();
    println!("{huge}");
    // SAFETY: a launch of the wrong arguments is refused before it runs.
    let e = unsafe { kernel.launch(&queue, &[], Range::space([1; 3], [1; 3])) }.unwrap_err();
    println!("{e}");
    let more = [Arg::buffer(&to), Arg::buffer(&to)];
    // SAFETY: as above.
    let e = unsafe { kernel.launch(&queue, &more, Range::space([1; 3], [1; 3])) }.unwrap_err();
    println!("{e}");
    queue.wait().unwrap();
    launch(Range::space([4, 6, 8], [1, 1, 1])).expect("a refused launch leaves nothing behind");
    to.download(0, &mut got).unwrap();
    assert_eq!(got, want);
}

#[test]
fn a_launch_that_fails_for_want_of_resources_is_no_lack_of_memory() {
    let _turn = beside_others();
    let Some(queue) = queue() else { return };
    let bundle = bundle(&queue);
    let reverse = bundle.kernel("reverse").unwrap();
    let (from, to) = (queue.alloc(64 * 4).unwrap(), queue.alloc(64 * 4).unwrap());
    let span = [0i32, 64];
    let more = queue.runtime().device(queue.device()).unwrap().local_memory + 4096;
    let args = [Arg::buffer(&to), Arg::buffer(&from), Arg::value(&span), Arg::local(more)];
    // SAFETY: 64 floats lie in both; the launch is refused for its local memory.
    let launched = unsafe { reverse.launch(&queue, &args, Range::linear(64, 16)) };
    let e = launched.and_then(|()| queue.wait()).expect_err("more local memory than there is");
    println!("{e}");
    assert_ne!(e.code(), Some(Code::OutOfMemory));
}

#[test]
fn an_event_passes_when_what_came_before_has_run() {
    let _turn = beside_others();
    let Some(queue) = queue() else { return };
    let mut buffer = queue.alloc(64 << 20).unwrap();
    buffer.fill(0, 1, 64 << 20).unwrap();
    let event = queue.record().unwrap();
    event.wait().unwrap();
    assert!(event.passed().unwrap());
}

#[test]
fn says_why_a_kernel_does_not_build() {
    let _turn = beside_others();
    let Some(queue) = queue() else { return };
    let broken = "#include <sycl/sycl.hpp>\nint f() { return missing_name; }\n";
    let e = Bundle::build(&queue, broken, &[], &[]).err().expect("it cannot build");
    println!("{e}");
    assert_eq!(e.code(), Some(Code::Build));
    assert!(e.to_string().contains("missing_name"), "{e}");

    let e = Bundle::build(&queue, SOURCE, &[], &[]).err().expect("a header is missing");
    assert_eq!(e.code(), Some(Code::Build));
    assert!(e.to_string().contains("scale.hpp"), "{e}");

    let e = Bundle::build(&queue, "\0", &[], &[]).err().expect("not a C string");
    assert_eq!(e.code(), Some(Code::Invalid));

    let e = bundle(&queue).kernel("nobody").unwrap_err();
    println!("{e}");
    assert_eq!(e.code(), Some(Code::Invalid));
    assert!(e.to_string().contains("nobody"), "{e}");
}

#[test]
fn memory_errors_name_what_was_asked() {
    let _turn = beside_others();
    let Some(queue) = queue() else { return };
    for bytes in [1u64 << 60, u64::MAX] {
        let e = queue.alloc(bytes).unwrap_err();
        println!("{e}");
        assert_eq!(e.code(), Some(Code::OutOfMemory));
        assert!(e.to_string().contains(&bytes.to_string()), "{e}");
        let e = queue.alloc_host(bytes).unwrap_err();
        println!("{e}");
        assert_eq!(e.code(), Some(Code::OutOfMemory));
    }
    let mut small = queue.alloc(16).unwrap();
    let e = small.upload(8, &[0; 9]).unwrap_err();
    println!("{e}");
    assert_eq!(e.code(), Some(Code::Invalid));
    assert!(small.upload(u64::MAX, &[0; 9]).is_err());
    assert!(small.fill(17, 0, 0).is_err());
    assert!(small.fill(16, 0, 0).is_ok());
    let empty = queue.alloc(0).unwrap();
    assert!(empty.is_empty() && empty.as_ptr().is_null());
    empty.download(0, &mut []).unwrap();
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
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4
}

#[test]
fn nothing_leaks_over_a_thousand_repetitions() {
    let _turn = alone();
    let Some(queue) = queue() else { return };
    let runtime = Runtime::load(Options::default()).unwrap();
    let bundle = bundle(&queue);
    let index = queue.device();
    let mut round = |i: usize| {
        let queue = Queue::open(runtime, index).unwrap();
        let kernel = bundle.kernel("where").unwrap();
        let mut to = queue.alloc(1 << 20).unwrap();
        to.fill(0, i as u8, 1 << 20).unwrap();
        let start = queue.record().unwrap();
        // SAFETY: 64 ints fit `to`.
        unsafe { kernel.launch(&queue, &[Arg::buffer(&to)], Range::space([4; 3], [2; 3])) }
            .unwrap();
        let end = queue.record().unwrap();
        start.elapsed(&end).unwrap();
        assert!(queue.alloc(1 << 60).is_err());
        assert!(bundle.kernel("nobody").is_err());
        let mut last = [0u8; 1];
        to.download((1 << 20) - 1, &mut last).unwrap();
        assert_eq!(last[0], i as u8);
    };
    // The first rounds fill the runtime's own caches.
    (0..100).for_each(&mut round);
    let before = resident();
    (0..1000).for_each(&mut round);
    let after = resident();
    println!("resident after 100 rounds: {before} KiB, after 1,100: {after} KiB");
    assert!(after < before + 16 * 1024, "1,000 rounds of 1 MiB left {} KiB behind", after - before);
}
