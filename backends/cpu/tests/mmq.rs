//! Products against the reference, byte for byte: every type, mode and
//! instruction set, on shapes that fit nothing.

mod support;

use proptest::prelude::*;
use strata_core::backend::Backend;
use strata_core::backend::ops::{MatrixMut, Product, Q8Rows, Rows, Strides, Weights};
use strata_core::format::random::SplitMix64;
use strata_core::format::random_blocks;
use strata_core::{Layout, WeightType, q8_1, reference};
use support::{backends, below, routing, same_f32, values};

/// What is written before a product: values that it must not leave, and not touch.
const POISON: f32 = f32::from_bits(0xa5a5_a5a5);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Dense,
    Experts,
    Indexed,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    ty: WeightType,
    mode: Mode,
    experts: usize,
    tokens: usize,
    k: usize,
    rows: usize,
    cols: usize,
    /// Bytes between weight rows, values between output rows.
    gaps: (usize, usize),
    seed: u64,
    /// Weights of random bits, scales included.
    wild: bool,
}

/// Quantized rows whose codes and headers are what random input gives.
fn activations(random: &mut SplitMix64, layout: Layout, rows: usize, cols: usize) -> Vec<u8> {
    let mut x = values(random, rows * cols);
    for row in x.chunks_exact_mut(cols) {
        // Rows of all sizes, and some of zeros.
        let size = [1.0, 1e-3, 300.0, 0.0][below(random, 4)];
        row.iter_mut().for_each(|v| *v *= size);
    }
    reference::quantize(&x, rows, cols, cols, None, layout)
}

fn run(backend: &dyn Backend, case: Case) {
    let Case { ty, mode, experts, tokens, k, rows, cols, gaps, seed, wild } = case;
    let experts = if mode == Mode::Dense { 1 } else { experts };
    let mut random = SplitMix64::new(seed);
    let (map, _, _, device_map) = routing(backend, &mut random, tokens, k, experts);
    let out_rows = if mode == Mode::Dense { tokens } else { tokens * k };
    let act_rows = if mode == Mode::Experts { tokens * k } else { tokens };
    let read: Vec<usize> = match mode {
        Mode::Indexed => map.src.iter().map(|&t| t as usize).collect(),
        _ => (0..out_rows).collect(),
    };
    let bounds = match mode {
        Mode::Dense => vec![0, out_rows as u32],
        _ => map.bounds.clone(),
    };

    // Gaps between rows and experts are all ones: NaN, were they read.
    let row_bytes = ty.row_bytes(cols).unwrap();
    let (row_stride, out_stride) = (row_bytes + gaps.0, rows + gaps.1);
    let expert_stride = rows * row_stride + 3;
    let mut bytes = vec![0xff; experts * expert_stride];
    for e in 0..experts {
        for r in 0..rows {
            let at = e * expert_stride + r * row_stride;
            let row = &mut bytes[at..at + row_bytes];
            match wild {
                true => random.fill(row),
                false => row.copy_from_slice(&random_blocks(
                    ty,
                    random.next_u64(),
                    cols / ty.block_values(),
                )),
            }
        }
    }
    let codes = activations(&mut random, ty.layout(), act_rows, cols);

    let mut expected = vec![POISON; out_rows * out_stride + 5];
    for e in 0..experts {
        let these = bounds[e] as usize..bounds[e + 1] as usize;
        let product = reference::mmq(
            ty,
            &bytes[e * expert_stride..],
            rows,
            cols,
            row_stride,
            &codes,
            act_rows,
            &read[these.clone()],
        );
        for (row, product) in these.zip(product.chunks_exact(rows)) {
            expected[row * out_stride..][..rows].copy_from_slice(product);
        }
    }

    let weights = backend.from_slice(&bytes).unwrap();
    let codes = backend.from_slice(&codes).unwrap();
    let mut dst = backend.from_slice(&vec![POISON; expected.len()]).unwrap();
    let strides = Strides { row: row_stride, expert: expert_stride };
    let weights = Weights::strided("weights", &weights, ty, experts, rows, cols, strides).unwrap();
    let codes = Q8Rows::new(&codes, ty.layout(), act_rows, cols).unwrap();
    let rows_of = match mode {
        Mode::Dense => Rows::Dense,
        Mode::Experts => Rows::Experts(&device_map),
        Mode::Indexed => Rows::Indexed(&device_map),
    };
    let out = MatrixMut::new("dst", &mut dst, out_rows, rows, out_stride).unwrap();
    Product::new(weights, codes, rows_of, out).unwrap().launch(backend).unwrap();
    let given = backend.download(&dst).unwrap();
    same_f32(&format!("{case:?} with {}", backend.device().arch), &given, &expected);
}

const MODES: [Mode; 3] = [Mode::Dense, Mode::Experts, Mode::Indexed];

/// Tokens and weight rows of every remainder of a tile, and columns of every
/// remainder of a slab that the type has.
#[test]
fn every_type_mode_and_isa() {
    for (_, backend) in backends() {
        for &ty in WeightType::ALL {
            let block = ty.block_values();
            for (m, mode) in MODES.into_iter().enumerate() {
                for (i, (tokens, rows)) in
                    [(1, 1), (2, 6), (3, 17), (5, 31), (7, 33), (13, 70)].into_iter().enumerate()
                {
                    let cols = block * [1, 2, 5, 3, 11, 4][i];
                    let gaps = [(0, 0), (7, 0), (0, 9)][(i + m) % 3];
                    let (experts, k) = ([1, 3, 8][m], [1, 3, 2][i % 3]);
                    let seed = (i * 3 + m) as u64;
                    let case =
                        Case { ty, mode, experts, tokens, k, rows, cols, gaps, seed, wild: false };
                    run(&*backend, case);
                }
            }
        }
    }
}

/// Random bits: infinite and NaN scales, the largest integers.
#[test]
fn weights_of_random_bits() {
    for (_, backend) in backends() {
        for &ty in WeightType::ALL {
            for seed in 0..3 {
                let (tokens, k, rows) = (5, 2, 40);
                let cols = 2 * ty.block_values();
                let mode = MODES[seed as usize];
                let gaps = (0, 0);
                run(
                    &*backend,
                    Case { ty, mode, experts: 3, tokens, k, rows, cols, gaps, seed, wild: true },
                );
            }
        }
    }
}

/// Routed rows past what one unit takes, one expert with all of them.
#[test]
fn many_rows_of_one_expert() {
    for (_, backend) in backends() {
        for ty in [WeightType::Q8_0, WeightType::Q2_K, WeightType::NVFP4] {
            let case = Case {
                ty,
                mode: Mode::Indexed,
                experts: 1,
                tokens: 600,
                k: 2,
                rows: 19,
                cols: 512,
                gaps: (0, 1),
                seed: 5,
                wild: false,
            };
            run(&*backend, case);
        }
    }
}

/// The largest integers and codes there can be: sums just below 2^24.
#[test]
fn extreme_codes() {
    for (_, backend) in backends() {
        for &ty in WeightType::ALL {
            for byte in [0x00, 0x7f, 0x80, 0xff] {
                let (rows, cols, tokens) = (33, 256, 4);
                let mut bytes = vec![byte; rows * ty.row_bytes(cols).unwrap()];
                // Finite scales, so that sums show in the result.
                let scales = random_blocks(ty, 1, bytes.len() / ty.block_bytes());
                if !matches!(ty, WeightType::MXFP4 | WeightType::NVFP4 | WeightType::IQ1_M) {
                    let ends = match ty {
                        WeightType::Q2_K => 80..84,
                        WeightType::Q3_K => 108..110,
                        WeightType::Q6_K => 208..210,
                        WeightType::TQ1_0 => 52..54,
                        WeightType::TQ2_0 => 64..66,
                        WeightType::Q4_1 | WeightType::Q5_1 => 0..4,
                        WeightType::Q4_K | WeightType::Q5_K => 0..4,
                        _ => 0..2,
                    };
                    for (to, from) in bytes
                        .chunks_exact_mut(ty.block_bytes())
                        .zip(scales.chunks_exact(ty.block_bytes()))
                    {
                        to[ends.clone()].copy_from_slice(&from[ends.clone()]);
                    }
                }
                let x: Vec<f32> = (0..tokens * cols)
                    .map(|i| if i / cols % 2 == 0 { 1.0 } else { -1.0 })
                    .collect();
                let codes = reference::quantize(&x, tokens, cols, cols, None, ty.layout());
                let read: Vec<usize> = (0..tokens).collect();
                let stride = ty.row_bytes(cols).unwrap();
                let expected =
                    reference::mmq(ty, &bytes, rows, cols, stride, &codes, tokens, &read);
                let weights = backend.from_slice(&bytes).unwrap();
                let codes = backend.from_slice(&codes).unwrap();
                let mut dst = backend.alloc::<f32>(tokens * rows).unwrap();
                let weights = Weights::dense("weights", &weights, ty, 1, rows, cols).unwrap();
                let codes = Q8Rows::new(&codes, ty.layout(), tokens, cols).unwrap();
                let out = MatrixMut::dense("dst", &mut dst, tokens, rows).unwrap();
                Product::new(weights, codes, Rows::Dense, out).unwrap().launch(&*backend).unwrap();
                let what = format!("{ty}, bytes {byte:#x}, {}", backend.device().arch);
                same_f32(&what, &backend.download(&dst).unwrap(), &expected);
            }
        }
    }
}

/// Headers that no quantizer writes for finite input, and padding of NaN bits.
#[test]
fn headers_of_any_bits() {
    for (_, backend) in backends() {
        for &ty in WeightType::ALL {
            let (rows, cols, tokens) = (18, ty.block_values(), 9);
            let mut random = SplitMix64::new(3);
            let mut codes = vec![0u8; q8_1::bytes(tokens, cols).unwrap()];
            random.fill(&mut codes);
            for block in codes.chunks_exact_mut(q8_1::BLOCK_BYTES) {
                // Codes are within -127..=127.
                block[q8_1::HEADER_BYTES..].iter_mut().filter(|c| **c == 0x80).for_each(|c| *c = 0);
            }
            let bytes = random_blocks(ty, 4, rows * cols / ty.block_values());
            let stride = ty.row_bytes(cols).unwrap();
            let read: Vec<usize> = (0..tokens).collect();
            let expected = reference::mmq(ty, &bytes, rows, cols, stride, &codes, tokens, &read);
            let weights = backend.from_slice(&bytes).unwrap();
            let codes = backend.from_slice(&codes).unwrap();
            let mut dst = backend.alloc::<f32>(tokens * rows).unwrap();
            let weights = Weights::dense("weights", &weights, ty, 1, rows, cols).unwrap();
            let codes = Q8Rows::new(&codes, ty.layout(), tokens, cols).unwrap();
            let out = MatrixMut::dense("dst", &mut dst, tokens, rows).unwrap();
            Product::new(weights, codes, Rows::Dense, out).unwrap().launch(&*backend).unwrap();
            let what = format!("{ty}, {}", backend.device().arch);
            same_f32(&what, &backend.download(&dst).unwrap(), &expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_shape(
        ty in proptest::sample::select(WeightType::ALL.to_vec()),
        mode in proptest::sample::select(MODES.to_vec()),
        (experts, tokens, k) in (1usize..9, 1usize..40, 1usize..5),
        (rows, blocks) in (1usize..80, 1usize..6),
        gaps in (0usize..5, 0usize..5),
        seed in any::<u64>(),
        wild in any::<bool>(),
    ) {
        let cols = blocks * ty.block_values();
        for (_, backend) in backends() {
            run(&*backend, Case { ty, mode, experts, tokens, k, rows, cols, gaps, seed, wild });
        }
    }
}
