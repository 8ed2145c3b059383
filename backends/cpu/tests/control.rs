//! Threads that flush subnormals, or round otherwise: the bytes stay, and so does the threads' mode.

use strata_core::backend::Backend;
use strata_core::backend::ops::{Matrix, Q8RowsMut, QuantizeRows};
use strata_core::{Layout, reference};
use strata_cpu::{CpuBackend, CpuOptions, Isa};

cfg_select! {
    target_arch = "x86_64" => {
        /// Flush to zero, denormals are zero, round up.
        const ODD: u32 = 0x1f80 | 0x8040 | 0x4000;

        fn set(word: u32) {
            // SAFETY: MXCSR is set to a word without reserved bits, which the tests set back.
            unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word) };
        }

        fn get() -> u32 {
            let mut word = 0u32;
            // SAFETY: MXCSR is stored to the variable. Its low six bits are flags of what happened.
            unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut word) };
            word & !0x3f
        }

        const PLAIN: u32 = 0x1f80;
    }
    target_arch = "aarch64" => {
        /// Flush to zero, round up.
        const ODD: u64 = 1 << 24 | 1 << 22;

        fn set(word: u64) {
            // SAFETY: FPCR is writable, and the tests set it back.
            unsafe { std::arch::asm!("msr fpcr, {}", in(reg) word) };
        }

        fn get() -> u64 {
            let word: u64;
            // SAFETY: FPCR is readable.
            unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) word) };
            word
        }

        const PLAIN: u64 = 0;
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn the_mode_of_a_thread_changes_nothing_and_stays() {
    let (rows, cols) = (64, 512);
    // Every group has its own size, most of them below what normal numbers reach.
    let x: Vec<f32> = (0..rows * cols)
        .map(|i| f32::from_bits((i / 32 * 0x2_0000) as u32) * ((i * 37 % 64) as f32 / 32.0 - 1.0))
        .collect();
    let expected = reference::quantize(&x, rows, cols, cols, None, Layout::DS4);
    for isa in Isa::supported() {
        for threads in [Some(1), Some(3), None] {
            let options = CpuOptions { threads, isa: Some(isa) };
            let backend: Box<dyn Backend> = Box::new(CpuBackend::new(options).unwrap());
            let host = backend.from_slice(&x).unwrap();
            let mut out = backend.alloc::<u8>(expected.len()).unwrap();
            let to = Q8RowsMut::new(&mut out, Layout::DS4, rows, cols).unwrap();
            let x = Matrix::dense("x", &host, rows, cols).unwrap();
            let op = QuantizeRows::new(x, to).unwrap();
            rayon::broadcast(|_| set(ODD));
            set(ODD);
            let launched = op.launch(&*backend);
            let after = get();
            set(PLAIN);
            let pool = rayon::broadcast(|_| {
                let after = get();
                set(PLAIN);
                after
            });
            launched.unwrap();
            assert_eq!(after, ODD, "{isa}, {threads:?}");
            assert!(pool.into_iter().all(|after| after == ODD), "{isa}, {threads:?}");
            let given = backend.download(&out).unwrap();
            let differ = given.iter().zip(&expected).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 0, "{isa}, {threads:?}: bytes of {}", given.len());
        }
    }
}
