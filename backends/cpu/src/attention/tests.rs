//! The kernels against the reference, in every instruction set.

use strata_core::attention::{AttentionShape, PAGE, Reach};
use strata_core::format::random::SplitMix64;
use strata_core::reference;

use super::{Append, Attend, Places};
use crate::memory::Parts;
use crate::quantize::Input;
use crate::{CpuBackend, CpuOptions, Isa};

const BASE: AttentionShape = AttentionShape {
    heads: 4,
    kv_heads: 2,
    key: 64,
    value: 64,
    scale: 0.125,
    softcap: None,
    reach: Reach::All,
};

/// Rows of one call: a sequence, and its positions.
type Spans<'a> = &'a [(u32, std::ops::Range<u32>)];

/// A cache in which sequence s has keys at the positions before `lens[s]`.
struct Setup {
    shape: AttentionShape,
    cache: Vec<u8>,
    pages: Vec<u32>,
    per_sequence: usize,
    random: SplitMix64,
}

fn values(random: &mut SplitMix64, n: usize) -> Vec<f32> {
    let one = |r: &mut SplitMix64| (r.next_u64() >> 40) as f32 / (1 << 22) as f32 - 2.0;
    (0..n).map(|_| one(random)).collect()
}

impl Setup {
    fn new(shape: AttentionShape, lens: &[u32]) -> Self {
        let per_sequence = lens.iter().max().map_or(1, |l| (*l as usize).div_ceil(PAGE));
        let mut random = SplitMix64::new(lens.len() as u64 + shape.key as u64);
        let count = lens.len() * per_sequence;
        let mut pages: Vec<u32> = (0..count as u32).collect();
        for i in (1..count).rev() {
            pages.swap(i, random.next_u64() as usize % (i + 1));
        }
        let layout = shape.layout();
        let mut cache = vec![0xff; layout.bytes() * count];
        for (s, len) in lens.iter().enumerate() {
            for position in 0..*len {
                let keys = values(&mut random, shape.kv_heads * shape.key);
                let values = values(&mut random, shape.kv_heads * shape.value);
                let page = pages[s * per_sequence + position as usize / PAGE] as usize;
                reference::append(&mut cache, layout, page, position, &keys, &values);
            }
        }
        Self { shape, cache, pages, per_sequence, random }
    }

    /// Compares all instruction sets with the reference.
    fn check(&mut self, spans: Spans<'_>, sinks: Option<&[f32]>) {
        let shape = self.shape;
        let (mut sequences, mut positions) = (Vec::new(), Vec::new());
        for (sequence, range) in spans {
            sequences.extend(range.clone().map(|_| *sequence));
            positions.extend(range.clone());
        }
        let (cols, gap) = (shape.heads * shape.key, 3);
        let queries = values(&mut self.random, positions.len() * (cols + gap));
        let places = Places {
            sequences: &sequences,
            positions: &positions,
            pages: &self.pages,
            per_sequence: self.per_sequence,
        };
        let out_cols = shape.heads * shape.value;
        let expected: Vec<Vec<f32>> = (0..positions.len())
            .map(|row| {
                let pages = &self.pages[sequences[row] as usize * self.per_sequence..];
                let query = &queries[row * (cols + gap)..][..cols];
                reference::attend(&shape, &self.cache, pages, positions[row], query, sinks)
            })
            .collect();
        for isa in Isa::supported() {
            for threads in [1, 2] {
                let options = CpuOptions { threads: Some(threads), isa: Some(isa) };
                let backend = CpuBackend::new(options).unwrap();
                let mut out = vec![7.0f32; positions.len() * (out_cols + gap)];
                let attend = Attend {
                    shape,
                    queries: Input { values: &queries, stride: cols + gap, cols },
                    places,
                    cache: &self.cache,
                    sinks,
                    out: Parts::new(&mut out),
                    out_stride: out_cols + gap,
                };
                attend.run(&backend.shared).unwrap();
                for (row, (given, expected)) in
                    out.chunks_exact(out_cols + gap).zip(&expected).enumerate()
                {
                    assert_eq!(given[out_cols..], [7.0; 3]);
                    for (i, (given, expected)) in given.iter().zip(expected).enumerate() {
                        assert_eq!(
                            given.to_bits(),
                            expected.to_bits(),
                            "{shape:?} {isa}: row {row} value {i}: {given:e}, expected {expected:e}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn sizes_of_heads() {
    for (key, value) in
        [(64, 64), (80, 80), (96, 96), (100, 100), (128, 128), (192, 128), (256, 256), (4, 12)]
    {
        let shape = AttentionShape { key, value, ..BASE };
        Setup::new(shape, &[70]).check(&[(0, 50..70)], None);
    }
}

#[test]
fn heads_that_share_keys() {
    for (heads, kv_heads) in [(1, 1), (2, 1), (6, 2), (5, 1), (8, 1), (16, 1), (32, 2), (3, 3)] {
        let shape = AttentionShape { heads, kv_heads, ..BASE };
        Setup::new(shape, &[130]).check(&[(0, 60..130)], None);
    }
}

#[test]
fn lengths_and_cuts() {
    for len in [1, 2, 63, 64, 65, 127, 128, 129] {
        let mut setup = Setup::new(BASE, &[len]);
        setup.check(&[(0, 0..len)], None);
        setup.check(&[(0, len - 1..len)], None);
    }
    let mut setup = Setup::new(BASE, &[200]);
    for cut in [1, 63, 64, 65, 100, 128, 199] {
        setup.check(&[(0, 0..cut)], None);
        setup.check(&[(0, cut..200)], None);
    }
}

#[test]
fn reaches_sinks_and_softcaps() {
    let reaches = [1, 63, 64, 65, 150].map(Reach::Window);
    for reach in reaches.into_iter().chain([40, 64, 100].map(Reach::Chunk)) {
        let shape = AttentionShape { reach, ..BASE };
        Setup::new(shape, &[300]).check(&[(0, 0..300)], Some(&[20.0, -20.0, 0.0, 1.5]));
    }
    for softcap in [1.0, 30.0, 50.0] {
        let shape = AttentionShape { softcap: Some(softcap), scale: 1.0, ..BASE };
        Setup::new(shape, &[100]).check(&[(0, 20..100)], None);
        Setup::new(shape, &[100]).check(&[(0, 20..100)], Some(&[20.0, -20.0, 0.0, 1.5]));
    }
}

#[test]
fn several_sequences_in_one_call() {
    let lens = [1, 200, 64, 65, 3, 128, 129, 77];
    let mut setup = Setup::new(BASE, &lens);
    // A token of each, a prompt among single tokens, and backwards.
    let one: Vec<_> = lens.iter().enumerate().map(|(s, l)| (s as u32, l - 1..*l)).collect();
    setup.check(&one, None);
    setup.check(&[(5, 127..128), (1, 10..200), (0, 0..1), (7, 0..77), (6, 128..129)], None);
    setup.check(&[(1, 199..200), (1, 198..199), (1, 5..9), (1, 9..12)], None);
}

#[test]
fn values_of_all_sizes() {
    // Zero rows, tiny rows, huge rows and a NaN.
    let mut setup = Setup::new(BASE, &[100]);
    let layout = BASE.layout();
    let factors = [0.0, 1e-38, 1e-31, 1e30, 3e38, f32::NAN, 1e-20, 1e20];
    for (i, factor) in factors.into_iter().enumerate() {
        let scaled = |r: &mut SplitMix64, n: usize, factor: f32| -> Vec<f32> {
            values(r, n).iter().map(|v| v * factor * 0.25).collect()
        };
        for (part, position) in [(0, 3 * i as u32 + 70), (1, 3 * i as u32 + 71)] {
            let (fk, fv) = if part == 0 { (factor, 1.0) } else { (1.0, factor) };
            let keys = scaled(&mut setup.random, BASE.kv_heads * BASE.key, fk);
            let vals = scaled(&mut setup.random, BASE.kv_heads * BASE.value, fv);
            let page = setup.pages[1] as usize;
            reference::append(&mut setup.cache, layout, page, position, &keys, &vals);
            setup.check(&[(0, 60..100)], None);
        }
    }
}

#[test]
fn appended_as_by_the_reference() {
    for (key, value) in [(64, 64), (100, 12), (192, 128), (512, 4), (576, 512)] {
        let shape = AttentionShape { key, value, ..BASE };
        let layout = shape.layout();
        let mut random = SplitMix64::new(key as u64);
        let (rows, pages) = (150, [2u32, 0, 3, 1]);
        let sequences = vec![0; rows];
        let positions: Vec<u32> = (30..30 + rows as u32).collect();
        let mut keys = values(&mut random, rows * shape.kv_heads * key);
        let mut vals = values(&mut random, rows * shape.kv_heads * value);
        keys[5] = f32::NAN;
        vals[7] = f32::INFINITY;
        keys[2 * key * 3..2 * key * 4].fill(-0.0);
        vals[2 * value * 4..2 * value * 5].fill(1e-39);
        for (i, v) in keys[2 * key * 5..2 * key * 6].iter_mut().enumerate() {
            // Halves, which round away from zero.
            *v = (i as f32 + 0.5) * if i % 2 == 0 { 1.0 } else { -1.0 };
        }
        keys[2 * key * 5] = 32512.0;
        let mut expected = vec![9u8; layout.bytes() * 4];
        for (row, position) in positions.iter().enumerate() {
            let n = shape.kv_heads;
            reference::append(
                &mut expected,
                layout,
                pages[*position as usize / PAGE] as usize,
                *position,
                &keys[row * n * key..][..n * key],
                &vals[row * n * value..][..n * value],
            );
        }
        for isa in Isa::supported() {
            let backend = CpuBackend::new(CpuOptions { threads: Some(2), isa: Some(isa) }).unwrap();
            let mut cache = vec![9u8; layout.bytes() * 4];
            let cols = |n| shape.kv_heads * n;
            Append {
                layout,
                keys: Input { values: &keys, stride: cols(key), cols: cols(key) },
                values: Input { values: &vals, stride: cols(value), cols: cols(value) },
                places: Places {
                    sequences: &sequences,
                    positions: &positions,
                    pages: &pages,
                    per_sequence: 4,
                },
                cache: Parts::new(&mut cache),
            }
            .run(&backend.shared);
            assert_eq!(cache, expected, "{key} {value} {isa}");
        }
    }
}

/// Sums of 256 times the high digits pass i32 here, and those of the mixed products 2^24.
#[test]
fn the_widest_keys_with_the_largest_digits() {
    // So that scores are of some size, and their last bits count.
    let scale = 1e-11;
    let shape = AttentionShape { heads: 3, kv_heads: 1, key: 576, value: 8, scale, ..BASE };
    let near = |sign: usize, n: usize| -> Vec<f32> {
        // 32383 = 126 * 256 + 127, but for the value that the scale is of.
        let value = |i| if i == 0 { 32512.0 } else { 32383.0 };
        (0..n)
            .map(|i| if (i / 576) % 2 == sign { -value(i % 576) } else { value(i % 576) })
            .collect()
    };
    let mut cache = vec![0u8; shape.layout().bytes()];
    for position in 0..40 {
        let keys = near(position % 3, 576);
        let values: Vec<f32> = (0..8).map(|i| (position * 8 + i) as f32).collect();
        reference::append(&mut cache, shape.layout(), 0, position as u32, &keys, &values);
    }
    let queries = near(1, 3 * 576);
    let expected = reference::attend(&shape, &cache, &[0], 39, &queries, None);
    for isa in Isa::supported() {
        let backend = CpuBackend::new(CpuOptions { threads: Some(1), isa: Some(isa) }).unwrap();
        let mut out = vec![0.0f32; 24];
        let places = Places { sequences: &[0], positions: &[39], pages: &[0], per_sequence: 1 };
        Attend {
            shape,
            queries: Input { values: &queries, stride: 3 * 576, cols: 3 * 576 },
            places,
            cache: &cache,
            sinks: None,
            out: Parts::new(&mut out),
            out_stride: 24,
        }
        .run(&backend.shared)
        .unwrap();
        assert_eq!(out, expected, "{isa}");
    }
}
