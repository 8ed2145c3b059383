//! The double finds what it is there to find.

use std::panic::{AssertUnwindSafe, catch_unwind};

use strata_gpu::{Driver, ImageHandle, Launch};

use crate::double::{Double, Vendor, card};

/// What is said of something that breaks a rule.
fn told(what: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(what)).expect_err("the double must refuse it");
    *panic.downcast::<String>().expect("words")
}

/// A driver of a device of its own.
fn open<V: Vendor>() -> Double<V> {
    Double::open(&Double::<V>::describe(card(1 << 20).0).unwrap()).unwrap()
}

fn memory_given_back_that_a_stream_needs_is_found<V: Vendor>() {
    let filled = || {
        let driver = open::<V>();
        let (stream, at) = (driver.new_stream().unwrap(), driver.alloc(4096).unwrap().unwrap());
        // SAFETY: memory of the device.
        unsafe { driver.fill(stream, at + 4000, 1, 96).unwrap() };
        (driver, stream, at)
    };
    let (driver, _, at) = filled();
    // SAFETY: the double refuses it.
    assert!(told(|| unsafe { driver.free(at).unwrap() }).contains("a stream needs"));
    let (driver, stream, _) = filled();
    // SAFETY: the double refuses it.
    assert!(told(|| unsafe { driver.end_stream(stream).unwrap() }).contains("work in it"));
}

fn host_bytes_written_over_before_they_were_copied_are_found<V: Vendor>() {
    let driver = open::<V>();
    let (stream, at) = (driver.new_stream().unwrap(), driver.alloc(4096).unwrap().unwrap());
    let host = driver.alloc_host(4096).unwrap();
    // SAFETY: memory of the device, and of the host.
    unsafe {
        host.as_ptr().write_bytes(1, 4096);
        let bytes = std::ptr::slice_from_raw_parts(host.as_ptr(), 4096);
        driver.copy_in(stream, at, bytes).unwrap();
        host.as_ptr().add(1000).write(2);
    }
    assert!(told(|| driver.wait_stream(stream).unwrap()).contains("host bytes changed"));
}

/// An image of the map's kernels.
fn map_image<V: Vendor>(driver: &Double<V>) -> ImageHandle {
    let info = Double::<V>::describe(0).unwrap();
    driver.load(Double::<V>::image("map", &info).unwrap()).unwrap()
}

fn kernels_and_variables_that_there_are_not_are_found<V: Vendor>() {
    let driver = open::<V>();
    let image = map_image(&driver);
    assert!(told(|| drop(driver.kernel(image, "strata_map_rows"))).contains("has no kernel"));
    let driver = open::<V>();
    let image = map_image(&driver);
    assert!(told(|| drop(driver.words(image, "strata_top_k_shape"))).contains("exports no"));
    assert!(Double::<V>::image("sort", &Double::<V>::describe(0).unwrap()).is_none());
}

fn arguments_and_geometry_that_a_kernel_does_not_take_are_found<V: Vendor>() {
    let launch = |blocks, threads, shared, bytes, address| {
        let driver = open::<V>();
        let stream = driver.new_stream().unwrap();
        let kernel = driver.kernel(map_image(&driver), "strata_map_tiles").unwrap();
        let tiles = driver.alloc(4096).unwrap().unwrap();
        let args = [address, tiles, 0];
        let args = std::ptr::slice_from_raw_parts(args.as_ptr().cast(), bytes);
        let launch = Launch { kernel, blocks, threads, shared };
        // SAFETY: nothing runs but the double's checks.
        unsafe { driver.launch(stream, launch, args).unwrap() };
        driver.wait_stream(stream).unwrap();
    };
    launch(1, 256, 0, 24, 0);
    assert!(told(|| launch(1, 256, 0, 16, 0)).contains("bytes of arguments"));
    for (blocks, threads, shared) in [(2, 256, 0), (1, 128, 0), (1, 512, 0), (1, 256, 8)] {
        assert!(told(|| launch(blocks, threads, shared, 24, 0)).contains("blocks of"));
    }
    assert!(told(|| launch(1, 256, 0, 24, 0x1000)).contains("no device memory"));
}

on_both! {
    memory_given_back_that_a_stream_needs_is_found
    host_bytes_written_over_before_they_were_copied_are_found
    kernels_and_variables_that_there_are_not_are_found
    arguments_and_geometry_that_a_kernel_does_not_take_are_found
}
