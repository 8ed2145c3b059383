//! Attention by exact integers, as `docs/numerics.md` words it.

use crate::attention::{AttentionShape, DIGITS_TINY, DIGITS_TOP, PAGE, PageLayout};
use crate::numerics::{EXP_LOG2E, NAN_F32, canonical, exp2, largest_magnitude, tanh};

/// A row as two digits a value.
pub struct Digits {
    /// High digits.
    pub high: Vec<i8>,
    /// Low digits.
    pub low: Vec<i8>,
    /// What `256 * high + low` is multiplied by.
    pub scale: f32,
}

/// The digits of a row.
pub fn digits(x: &[f32]) -> Digits {
    let zero = vec![0; x.len()];
    if x.iter().any(|x| !x.is_finite()) {
        return Digits { high: zero.clone(), low: zero, scale: f32::from_bits(NAN_F32) };
    }
    let amax = largest_magnitude(x).unwrap_or(0.0);
    if amax < DIGITS_TINY {
        return Digits { high: zero.clone(), low: zero, scale: 0.0 };
    }
    let factor = DIGITS_TOP / amax;
    let (high, low) = x.iter().map(|x| two((x * factor).round() as i32)).unzip();
    Digits { high, low, scale: amax / DIGITS_TOP }
}

/// The digits of an integer up to 32512.
fn two(v: i32) -> (i8, i8) {
    let high = (v + 128) >> 8;
    (high as i8, (v - 256 * high) as i8)
}

/// Writes one token's key and value of each head to slot `position % 64` of `page`.
pub fn append(
    cache: &mut [u8],
    layout: PageLayout,
    page: usize,
    position: u32,
    keys: &[f32],
    values: &[f32],
) {
    let slot = position as usize % PAGE;
    for head in 0..layout.kv_heads {
        let bytes = &mut cache[layout.head(page, head)..][..layout.head_bytes()];
        let (key, value) = (layout.key, layout.value);
        let k = digits(&keys[head * key..][..key]);
        let v = digits(&values[head * value..][..value]);
        for i in 0..key {
            bytes[slot * key + i] = k.high[i] as u8;
            bytes[PAGE * key + slot * key + i] = k.low[i] as u8;
        }
        for i in 0..value {
            bytes[layout.values_at() + i * PAGE + slot] = v.high[i] as u8;
            bytes[layout.values_at() + PAGE * value + i * PAGE + slot] = v.low[i] as u8;
        }
        let at = layout.scales_at() + 4 * slot;
        bytes[at..at + 4].copy_from_slice(&k.scale.to_le_bytes());
        bytes[at + 4 * PAGE..at + 4 * PAGE + 4].copy_from_slice(&v.scale.to_le_bytes());
    }
}

/// One token's output: `heads` rows of `value` values.
///
/// `pages[b]` is the page of positions 64 b to 64 b + 63 of its sequence; `sinks` has a logit per head.
pub fn attend(
    shape: &AttentionShape,
    cache: &[u8],
    pages: &[u32],
    position: u32,
    queries: &[f32],
    sinks: Option<&[f32]>,
) -> Vec<f32> {
    let mut out = Vec::with_capacity(shape.heads * shape.value);
    for head in 0..shape.heads {
        let query = digits(&queries[head * shape.key..][..shape.key]);
        let kv_head = head / (shape.heads / shape.kv_heads);
        let sink = sinks.map(|sinks| sinks[head]);
        out.extend(attend_head(shape, cache, pages, position, &query, kv_head, sink));
    }
    out
}

fn attend_head(
    shape: &AttentionShape,
    cache: &[u8],
    pages: &[u32],
    position: u32,
    query: &Digits,
    kv_head: usize,
    sink: Option<f32>,
) -> Vec<f32> {
    let layout = shape.layout();
    let unit = (query.scale * 256.0) * shape.scale;
    // Scores are z * c in powers of two.
    let (c, cap) = match shape.softcap {
        None => (unit * EXP_LOG2E, None),
        Some(cap) => (EXP_LOG2E, Some((cap, unit / cap))),
    };
    let first = shape.reach.first(position) as usize;
    let last = position as usize;
    let (mut m, mut l) = (f32::NEG_INFINITY, 0.0f32);
    let mut o = vec![0.0f32; shape.value];
    for b in first / PAGE..=last / PAGE {
        let start = b * PAGE;
        let seen = first.max(start) - start..last.min(start + PAGE - 1) - start + 1;
        let bytes = &cache[layout.head(pages[b] as usize, kv_head)..][..layout.head_bytes()];
        let block = block(shape, bytes, query, seen, c, cap);
        let (a, b) = if start <= first {
            (0.0, 1.0)
        } else {
            let most = block.m.max(m);
            (exp2((m - most) * c), exp2((block.m - most) * c))
        };
        m = block.m.max(m);
        l = block.l.mul_add(b, l * a);
        for (o, sum) in o.iter_mut().zip(&block.o) {
            *o = sum.mul_add(block.g * b, *o * a);
        }
    }
    if let Some(sink) = sink {
        let (m, sink) = (m * c, sink * EXP_LOG2E);
        let most = m.max(sink);
        let a = exp2(m - most);
        l = l.mul_add(a, exp2(sink - most));
        for o in &mut o {
            *o *= a;
        }
    }
    o.iter().map(|o| canonical(o / l)).collect()
}

/// A block of 64 keys as one row sees it.
struct Block {
    m: f32,
    l: f32,
    g: f32,
    o: Vec<f32>,
}

fn block(
    shape: &AttentionShape,
    bytes: &[u8],
    query: &Digits,
    seen: std::ops::Range<usize>,
    c: f32,
    cap: Option<(f32, f32)>,
) -> Block {
    let layout = shape.layout();
    let digit = |i: usize| i32::from(bytes[i] as i8);
    let f32_at = |i: usize| f32::from_le_bytes(std::array::from_fn(|n| bytes[i + n]));

    let mut z = [0.0f32; PAGE];
    for j in seen.clone() {
        let (mut hh, mut cross) = (0i32, 0i32);
        for i in 0..shape.key {
            let (kh, kl) = (digit(j * shape.key + i), digit(PAGE * shape.key + j * shape.key + i));
            let (qh, ql) = (i32::from(query.high[i]), i32::from(query.low[i]));
            hh += qh * kh;
            cross += qh * kl + ql * kh;
        }
        let s = (hh as f32).mul_add(256.0, cross as f32);
        z[j] = s * f32_at(layout.scales_at() + 4 * j);
        if let Some((cap, inner)) = cap {
            z[j] = cap * tanh(z[j] * inner);
        }
    }
    // max() ignores NaN; it comes back with p.
    let m = seen.clone().fold(f32::NEG_INFINITY, |m, j| m.max(z[j]));

    let (mut p, mut w) = ([0.0f32; PAGE], [0.0f32; PAGE]);
    for j in seen.clone() {
        p[j] = exp2((z[j] - m) * c);
        w[j] = p[j] * f32_at(layout.scales_at() + 4 * (PAGE + j));
    }
    let mut half = PAGE / 2;
    while half > 0 {
        for j in 0..half {
            p[j] += p[j + half];
        }
        half /= 2;
    }
    let l = p[0];

    // w is not negative; a NaN among them is the largest.
    let e = w.iter().fold(0.0f32, |e, w| if e.is_nan() || *w <= e { e } else { *w });
    if e.is_nan() {
        return Block { m, l, g: e, o: vec![0.0; shape.value] };
    }
    let factor = if e < DIGITS_TINY { 0.0 } else { DIGITS_TOP / e };
    const ROUND: f32 = 8_388_608.0;
    let codes = w.map(|w| two((w.mul_add(factor, ROUND) - ROUND) as i32));
    let o = (0..shape.value)
        .map(|i| {
            let (mut hh, mut cross) = (0i32, 0i32);
            for j in seen.clone() {
                let at = layout.values_at() + i * PAGE + j;
                let (vh, vl) = (digit(at), digit(at + PAGE * shape.value));
                let (ph, pl) = (i32::from(codes[j].0), i32::from(codes[j].1));
                hh += ph * vh;
                cross += ph * vl + pl * vh;
            }
            (hh as f32).mul_add(256.0, cross as f32)
        })
        .collect();
    Block { m, l, g: (e * 256.0) / DIGITS_TOP, o }
}
