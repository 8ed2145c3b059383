//! Attention's definition keeps its laws, and is never worse than half-precision operands.

use half::f16;
use strata_core::attention::{AttentionShape, PAGE, PageLayout, Reach};
use strata_core::reference::{append, attend, digits};

/// A fixed generator of values that are about normal.
struct Values(u64);

impl Values {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }

    fn normal(&mut self) -> f32 {
        ((0..12).map(|_| self.uniform()).sum::<f64>() - 6.0) as f32
    }

    fn rows(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }
}

const SHAPE: AttentionShape = AttentionShape {
    heads: 2,
    kv_heads: 1,
    key: 16,
    value: 8,
    scale: 0.25,
    softcap: None,
    reach: Reach::All,
};

/// One sequence: keys and values of every position.
struct Sequence {
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    len: usize,
}

impl Sequence {
    fn random(shape: &AttentionShape, len: usize, seed: u64) -> Self {
        let mut values = Values(seed);
        Self {
            keys: values.rows(len * shape.kv_heads * shape.key),
            values: values.rows(len * shape.kv_heads * shape.value),
            queries: values.rows(len * shape.heads * shape.key),
            len,
        }
    }

    fn append(&self, layout: PageLayout, cache: &mut [u8], pages: &[u32], position: usize) {
        let row = |x: &[f32], n: usize| x[position * n..][..n].to_vec();
        append(
            cache,
            layout,
            pages[position / PAGE] as usize,
            position as u32,
            &row(&self.keys, layout.kv_heads * layout.key),
            &row(&self.values, layout.kv_heads * layout.value),
        );
    }

    fn attend(
        &self,
        shape: &AttentionShape,
        cache: &[u8],
        pages: &[u32],
        position: usize,
        sinks: Option<&[f32]>,
    ) -> Vec<f32> {
        let query = &self.queries[position * shape.heads * shape.key..][..shape.heads * shape.key];
        attend(shape, cache, pages, position as u32, query, sinks)
    }

    /// In f64, with operands rounded by `cast`.
    fn exact(
        &self,
        shape: &AttentionShape,
        position: usize,
        sinks: Option<&[f32]>,
        cast: impl Fn(f64) -> f64,
    ) -> Vec<f64> {
        let mut out = Vec::new();
        let first = shape.reach.first(position as u32) as usize;
        for head in 0..shape.heads {
            let kv = head / (shape.heads / shape.kv_heads);
            let q = &self.queries[(position * shape.heads + head) * shape.key..][..shape.key];
            let mut scores: Vec<f64> = (first..=position)
                .map(|j| {
                    let k = &self.keys[(j * shape.kv_heads + kv) * shape.key..][..shape.key];
                    let dot: f64 =
                        q.iter().zip(k).map(|(q, k)| cast((*q).into()) * cast((*k).into())).sum();
                    let score = dot * f64::from(shape.scale);
                    shape
                        .softcap
                        .map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                })
                .collect();
            let sink = sinks.map(|s| f64::from(s[head]));
            let most = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
            scores.iter_mut().for_each(|s| *s = (*s - most).exp());
            let sum = scores.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - most).exp());
            for i in 0..shape.value {
                let weighted: f64 = (first..=position)
                    .map(|j| {
                        let at = (j * shape.kv_heads + kv) * shape.value + i;
                        cast(scores[j - first]) * cast(f64::from(self.values[at]))
                    })
                    .sum();
                out.push(weighted / sum);
            }
        }
        out
    }
}

fn cache_for(layout: PageLayout, pages: usize) -> Vec<u8> {
    // What was never appended must not matter: not even NaN.
    vec![0xff; layout.bytes() * pages]
}

#[test]
fn digits_keep_fifteen_bits() {
    for (x, v) in [
        (vec![1.0f32, -1.0, 0.5, 0.0], vec![32512, -32512, 16256, 0]),
        (vec![0.0, -0.0], vec![0, 0]),
        (vec![1e-38, -1e-38], vec![0, 0]),
        (vec![3e38, 1.5e38], vec![32512, 16256]),
        (vec![f32::NAN, 1.0], vec![0, 0]),
        (vec![f32::INFINITY, 1.0], vec![0, 0]),
    ] {
        let d = digits(&x);
        let got: Vec<i32> =
            d.high.iter().zip(&d.low).map(|(h, l)| 256 * i32::from(*h) + i32::from(*l)).collect();
        assert_eq!(got, v, "{x:?}");
        assert_eq!(d.scale.is_nan(), x.iter().any(|x| !x.is_finite()));
    }
    let mut values = Values(7);
    let x = values.rows(4096);
    let d = digits(&x);
    let most = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    for ((x, h), l) in x.iter().zip(&d.high).zip(&d.low) {
        let back = (256 * i32::from(*h) + i32::from(*l)) as f32 * d.scale;
        assert!((back - x).abs() <= most * 1.6e-5, "{x} came back as {back}");
    }
}

/// The law: what is behind a token does not reach it, wherever the prompt is cut.
#[test]
fn a_token_knows_only_what_is_before_it() {
    for reach in
        [Reach::All, Reach::Window(63), Reach::Window(64), Reach::Window(65), Reach::Chunk(96)]
    {
        for softcap in [None, Some(5.0)] {
            let shape = AttentionShape { reach, softcap, ..SHAPE };
            let len = 200;
            let sequence = Sequence::random(&shape, len, 1);
            let layout = shape.layout();
            let pages = [3, 0, 5, 1];
            // Token after token.
            let mut cache = cache_for(layout, 6);
            let alone: Vec<Vec<f32>> = (0..len)
                .map(|position| {
                    sequence.append(layout, &mut cache, &pages, position);
                    sequence.attend(&shape, &cache, &pages, position, None)
                })
                .collect();
            // All keys are there before the first query.
            for (position, alone) in alone.iter().enumerate() {
                let whole = sequence.attend(&shape, &cache, &pages, position, None);
                assert!(whole.iter().all(|v| v.is_finite()));
                assert_eq!(bits(&whole), bits(alone), "{shape:?} at {position}");
            }
            // In other pages, after other tokens were there.
            let pages = [0, 1, 2, 3];
            for position in 0..len {
                sequence.append(layout, &mut cache, &pages, position);
            }
            for (position, alone) in alone.iter().enumerate() {
                let moved = sequence.attend(&shape, &cache, &pages, position, None);
                assert_eq!(bits(&moved), bits(alone), "{shape:?} at {position}");
            }
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn never_worse_than_half_precision() {
    let half = |x: f64| f64::from(f16::from_f64(x));
    let base = AttentionShape { key: 128, value: 128, scale: 0.088_388_35, ..SHAPE };
    let cases = [
        ("normal", base, None),
        ("outliers", base, None),
        ("sharp", base, None),
        ("softcap", AttentionShape { softcap: Some(30.0), ..base }, None),
        ("sinks", base, Some([20.0f32, -20.0])),
        ("window", AttentionShape { reach: Reach::Window(100), ..base }, None),
        ("sizes", AttentionShape { key: 192, value: 128, scale: 0.072, ..base }, None),
    ];
    for (name, shape, sinks) in cases {
        let len = 1024;
        let mut sequence = Sequence::random(&shape, len, 11);
        let mut values = Values(5);
        for row in sequence.values.chunks_exact_mut(shape.value) {
            let factor = values.normal().exp();
            row.iter_mut().for_each(|v| *v *= factor);
        }
        if name == "outliers" {
            for row in sequence.keys.chunks_exact_mut(shape.key) {
                row[7] += 12.0;
                row[50] -= 9.0;
            }
            for row in sequence.queries.chunks_exact_mut(shape.key) {
                row[7] *= 3.0;
            }
        }
        if name == "sharp" {
            sequence.queries.iter_mut().for_each(|q| *q *= 4.0);
        }
        let (layout, pages) = (shape.layout(), Vec::from_iter(0..16));
        let mut cache = cache_for(layout, 16);
        for position in 0..len {
            sequence.append(layout, &mut cache, &pages, position);
        }
        let sinks = sinks.as_ref().map(|s| &s[..]);
        let (mut ours, mut theirs, mut unit) = (0.0, 0.0, 0.0);
        for position in (0..sequence.len).rev().step_by(97) {
            let want = sequence.exact(&shape, position, sinks, |x| x);
            let f16 = sequence.exact(&shape, position, sinks, half);
            let got = sequence.attend(&shape, &cache, &pages, position, sinks);
            for ((want, f16), got) in want.iter().zip(f16).zip(got) {
                ours += (f64::from(got) - want).powi(2);
                theirs += (f16 - want).powi(2);
                unit += want * want;
            }
        }
        let (ours, theirs) = ((ours / unit).sqrt(), (theirs / unit).sqrt());
        println!("{name:9} digits {ours:.1e}  f16 {theirs:.1e}");
        assert!(ours < theirs, "{name}: {ours:e} against {theirs:e}");
    }
}

#[test]
fn what_is_not_finite_is_seen() {
    let layout = SHAPE.layout();
    let pages = [0, 1];
    for (value, in_key) in [(f32::NAN, true), (f32::NAN, false), (f32::INFINITY, true)] {
        let mut sequence = Sequence::random(&SHAPE, 100, 3);
        let row = if in_key { &mut sequence.keys } else { &mut sequence.values };
        row[30 * if in_key { SHAPE.key } else { SHAPE.value }] = value;
        let mut cache = cache_for(layout, 2);
        for position in 0..100 {
            sequence.append(layout, &mut cache, &pages, position);
        }
        for position in 0..100 {
            let out = sequence.attend(&SHAPE, &cache, &pages, position, None);
            let bad = out.iter().filter(|v| v.to_bits() == 0x7fc0_0000).count();
            assert_eq!(bad, if position < 30 { 0 } else { out.len() }, "{position}");
            assert_eq!(bad, out.iter().filter(|v| !v.is_finite()).count());
        }
    }
}

#[test]
fn rows_of_zeros() {
    let shape = AttentionShape { scale: 1.0, ..SHAPE };
    let mut sequence = Sequence::random(&shape, 70, 4);
    sequence.queries.fill(0.0);
    let (layout, pages) = (shape.layout(), [0, 1]);
    let mut cache = cache_for(layout, 2);
    for position in 0..70 {
        sequence.append(layout, &mut cache, &pages, position);
    }
    // Every key weighs the same.
    let got = sequence.attend(&shape, &cache, &pages, 69, None);
    for (i, got) in got[..shape.value].iter().enumerate() {
        let mean: f32 = (0..70).map(|j| sequence.values[j * shape.value + i]).sum::<f32>() / 70.0;
        assert!((got - mean).abs() < 1e-4, "{got} {mean}");
    }
    // Values of zero.
    sequence.values.fill(0.0);
    for position in 0..70 {
        sequence.append(layout, &mut cache, &pages, position);
    }
    assert!(sequence.attend(&shape, &cache, &pages, 69, None).iter().all(|v| *v == 0.0));
}
