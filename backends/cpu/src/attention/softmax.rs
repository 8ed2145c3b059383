//! A row's weights over one block of keys.

use std::ops::Range;

use strata_core::attention::{DIGITS_TINY, DIGITS_TOP, PAGE};

use super::digits::two;
use crate::exp::{exp2, tanh};

/// What one row makes of a block, but for its values.
pub(super) struct Weighed {
    /// The largest score.
    pub m: f32,
    /// The sum of the weights.
    pub l: f32,
    /// What sums of digits are multiplied by.
    pub g: f32,
}

/// How a row's products become scores in powers of two.
#[derive(Clone, Copy, Default)]
pub(super) struct Unit {
    pub c: f32,
    /// The cap, and what a score is multiplied by before its tanh.
    pub cap: Option<(f32, f32)>,
}

/// Adding it rounds to an integer that then stands in the low bits.
const ROUND: f32 = 8_388_608.0;

/// `z` holds the sums of products, and `seen` the keys that count; the digits of the weights go to
/// `high` and `low`.
#[inline(always)]
pub(super) fn weigh(
    z: &mut [f32; PAGE],
    key_scales: &[f32; PAGE],
    value_scales: &[f32; PAGE],
    seen: &Range<u32>,
    unit: Unit,
    high: &mut [i8; PAGE],
    low: &mut [i8; PAGE],
) -> Weighed {
    let (first, count) = (seen.start, seen.end - seen.start);
    for (z, d) in z.iter_mut().zip(key_scales) {
        *z *= d;
    }
    if let Some((cap, inner)) = unit.cap {
        for z in z.iter_mut() {
            *z = cap * tanh(*z * inner);
        }
    }
    let mut tree = [0.0f32; PAGE];
    for j in 0..PAGE {
        let counts = (j as u32).wrapping_sub(first) < count && !z[j].is_nan();
        tree[j] = if counts { z[j] } else { f32::NEG_INFINITY };
    }
    halve(&mut tree, |a, b| if b > a { b } else { a });
    let m = tree[0];

    let mut w = [0.0f32; PAGE];
    let mut e = [0u32; PAGE];
    for j in 0..PAGE {
        let counts = (j as u32).wrapping_sub(first) < count;
        let p = exp2((z[j] - m) * unit.c);
        tree[j] = if counts { p } else { 0.0 };
        w[j] = if counts { p * value_scales[j] } else { 0.0 };
        // As bits, NaN is above all others.
        e[j] = w[j].to_bits() & 0x7fff_ffff;
    }
    halve(&mut tree, |a, b| a + b);
    halve(&mut e, u32::max);
    let e = f32::from_bits(e[0]);
    // With a NaN the digits are of no matter: g makes NaN of all.
    let factor = if e >= DIGITS_TINY { DIGITS_TOP / e } else { 0.0 };
    for j in 0..PAGE {
        let v = w[j].mul_add(factor, ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i32;
        (high[j], low[j]) = two(v);
    }
    Weighed { m, l: tree[0], g: (e * 256.0) / DIGITS_TOP }
}

/// The upper half to the lower, until one is left.
#[inline(always)]
fn halve<T: Copy>(x: &mut [T; PAGE], f: impl Fn(T, T) -> T) {
    macro_rules! halves {
        ($($half:literal)*) => {
            $(for j in 0..$half {
                x[j] = f(x[j], x[j + $half]);
            })*
        };
    }
    halves!(32 16 8 4 2 1);
}
