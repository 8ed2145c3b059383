//! An engine that has unified shared memory and a queue runs a step on them: no
//! copy, no allocation of its values by us, and no wait.
//!
//! Without a SYCL runtime each test prints `skipped:` and why, unless
//! `STRATA_REQUIRE_SYCL` is set.

use std::sync::Arc;

use strata_core::backend::Backend;
use strata_core::backend::ops::{
    Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows, Rows, Weights,
};
use strata_core::format::random_blocks;
use strata_core::prefill::normals;
use strata_core::{WeightType, q8_1, reference};
use strata_sycl::{SyclBackend, environment};
use sycl_bindgen::{Kind, Options, Queue, Runtime, UsmBuffer, restart_with};

/// The engine's queue.
fn engine() -> Option<Queue> {
    restart_with(&environment()).expect("the test starts again");
    let required = std::env::var_os("STRATA_REQUIRE_SYCL").is_some();
    let runtime = match Runtime::load(Options::default()) {
        Ok(runtime) => runtime,
        Err(e) => {
            assert!(!required, "STRATA_REQUIRE_SYCL is set: {e}");
            println!("skipped: {e}");
            return None;
        }
    };
    let devices = runtime.devices().unwrap();
    let gpu = devices.iter().find(|d| d.aspects.source && d.kind != Kind::Cpu);
    let Some(device) = gpu.or_else(|| devices.iter().find(|d| d.aspects.source)) else {
        assert!(!required, "STRATA_REQUIRE_SYCL is set: no device takes source");
        println!("skipped: no SYCL device takes kernels from source");
        return None;
    };
    Some(Queue::open(runtime, device.index).unwrap())
}

fn device_memory(queue: &Queue, bytes: &[u8]) -> Arc<UsmBuffer> {
    let mut memory = queue.alloc(bytes.len() as u64).unwrap();
    memory.upload(0, bytes).unwrap();
    Arc::new(memory)
}

#[test]
fn an_engines_memory_and_queue_serve_as_they_are() {
    let Some(queue) = engine() else { return };
    let (rows, cols, tokens, ty) = (40, 512, 5, WeightType::Q8_0);
    let blocks = random_blocks(ty, 1, rows * cols / ty.block_values());
    let values = normals(2, tokens * cols);
    let q8 = reference::quantize(&values, tokens, cols, cols, None, ty.layout());
    let read: Vec<usize> = (0..tokens).collect();
    let row_bytes = ty.row_bytes(cols).unwrap();
    let want = reference::mmq(ty, &blocks, rows, cols, row_bytes, &q8, tokens, &read);

    // What the engine has.
    let (x, weights) =
        (device_memory(&queue, bytemuck::cast_slice(&values)), device_memory(&queue, &blocks));
    let out = device_memory(&queue, &vec![0xff; 4 * tokens * rows]);

    // SAFETY: a queue of the loaded libsycl, kept by its clone.
    let backend =
        unsafe { SyclBackend::on_stream(queue.native().unwrap(), queue.clone()) }.unwrap();
    // SAFETY: so many values lie there, kept by their owner, and used in this queue alone.
    let (x_values, w_blocks, mut y) = unsafe {
        (
            backend.adopt(x.as_ptr().cast::<f32>(), tokens * cols, Arc::clone(&x)).unwrap(),
            backend.adopt(weights.as_ptr().cast::<u8>(), blocks.len(), weights.clone()).unwrap(),
            backend.adopt(out.as_ptr().cast::<f32>(), tokens * rows, Arc::clone(&out)).unwrap(),
        )
    };
    assert_eq!(backend.address(&x_values).unwrap().cast(), x.as_ptr().cast_const());
    assert_eq!(backend.address_mut(&mut y).unwrap().cast(), out.as_ptr());
    let ours: &dyn Backend = &backend;
    let mut q8 = ours.alloc::<u8>(q8_1::bytes(tokens, cols).unwrap()).unwrap();
    QuantizeRows::new(
        Matrix::dense("x", &x_values, tokens, cols).unwrap(),
        Q8RowsMut::new(&mut q8, ty.layout(), tokens, cols).unwrap(),
    )
    .unwrap()
    .launch(ours)
    .unwrap();
    Product::new(
        Weights::dense("weights", &w_blocks, ty, 1, rows, cols).unwrap(),
        Q8Rows::new(&q8, ty.layout(), tokens, cols).unwrap(),
        Rows::Dense,
        MatrixMut::dense("out", &mut y, tokens, rows).unwrap(),
    )
    .unwrap()
    .launch(ours)
    .unwrap();
    // What a launch still uses may go at once: the owner stays until the queue has passed.
    drop((x_values, w_blocks, y));
    // The engine reads in its own queue, which orders it.
    let mut got = vec![0f32; tokens * rows];
    out.download(0, bytemuck::cast_slice_mut(&mut got)).unwrap();
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&got), bits(&want));

    ours.synchronize().unwrap();
    ours.synchronize().unwrap();
    assert_eq!([&x, &weights, &out].map(Arc::strong_count), [1; 3]);

    // An address that is not the device's, and one that is not aligned.
    let host = [0f32; 4];
    // SAFETY: refused before anything is read.
    let foreign = unsafe { backend.adopt(host.as_ptr().cast_mut(), 4, ()) }.unwrap_err();
    println!("{foreign}");
    assert!(foreign.to_string().contains("unified shared memory"), "{foreign}");
    // SAFETY: as above.
    let odd = unsafe { backend.adopt(x.as_ptr().wrapping_byte_add(1).cast::<f32>(), 1, ()) };
    assert!(odd.unwrap_err().to_string().contains("multiple of 4"));
}
