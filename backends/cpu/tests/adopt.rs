//! Memory of a program: read and written where it is, and kept as long as a buffer is on it.

use std::sync::Arc;

use strata_core::Error;
use strata_core::backend::Backend;
use strata_core::backend::ops::{Matrix, Q8RowsMut, QuantizeRows};
use strata_core::prefill::normals;
use strata_core::{Layout, q8_1, reference};
use strata_cpu::{CpuBackend, CpuOptions};

#[test]
fn a_launch_reads_and_writes_vectors_where_they_are() {
    let cpu = CpuBackend::new(CpuOptions::default()).unwrap();
    let (rows, cols) = (5, 256);
    let mut x = normals(1, rows * cols);
    // One more at both ends, to see that no others are written, and at an odd address.
    let mut q8 = vec![0xee_u8; q8_1::bytes(rows, cols).unwrap() + 2];
    let want = reference::quantize(&x, rows, cols, cols, None, Layout::D4);
    let (at, owner) = (q8.as_mut_ptr().wrapping_add(1), Arc::new(()));
    // SAFETY: the vectors live longer than the buffers and are not used meanwhile.
    let (values, mut out) = unsafe {
        (
            cpu.adopt(x.as_mut_ptr(), x.len(), ()).unwrap(),
            cpu.adopt(at, want.len(), Arc::clone(&owner)).unwrap(),
        )
    };
    let before = cpu.counts();
    let matrix = Matrix::dense("x", &values, rows, cols).unwrap();
    let to = Q8RowsMut::new(&mut out, Layout::D4, rows, cols).unwrap();
    QuantizeRows::new(matrix, to).unwrap().launch(&cpu).unwrap();
    assert_eq!(cpu.counts(), before, "no memory, no copy");
    assert_eq!(cpu.address(&values).unwrap(), x.as_ptr());
    assert_eq!(cpu.address_mut(&mut out).unwrap(), at);
    assert_eq!(Arc::strong_count(&owner), 2);
    drop(out);
    assert_eq!(Arc::strong_count(&owner), 1);
    assert_eq!((q8[0], q8[q8.len() - 1]), (0xee, 0xee));
    assert_eq!(&q8[1..q8.len() - 1], &*want);
}

#[test]
fn copies_and_allocations_are_counted() {
    let cpu = CpuBackend::new(CpuOptions::default()).unwrap();
    let ours: &dyn Backend = &cpu;
    let mut buffer = ours.from_slice(&[1f32; 8]).unwrap();
    let other = ours.alloc::<f32>(8).unwrap();
    ours.copy(buffer.view_mut(), &other).unwrap();
    ours.download(&buffer).unwrap();
    let counts = cpu.counts();
    assert_eq!((counts.allocations, counts.copies), (2, 3));
}

#[test]
fn an_address_that_values_cannot_have_is_refused() {
    let cpu = CpuBackend::new(CpuOptions::default()).unwrap();
    let mut values = [0f32; 4];
    let odd = values.as_mut_ptr().wrapping_byte_add(1);
    for (pointer, len) in [(odd, 1), (std::ptr::null_mut(), 1), (values.as_mut_ptr(), usize::MAX)] {
        // SAFETY: refused before anything is read.
        let refused = unsafe { cpu.adopt(pointer, len, ()) }.err();
        assert!(matches!(refused, Some(Error::Invalid { .. })), "{refused:?}");
    }
}
