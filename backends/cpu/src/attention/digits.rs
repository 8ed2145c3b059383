//! Rows as digits, and a token's keys and values into their page.

use strata_core::attention::{DIGITS_TINY, DIGITS_TOP, MOST_KEY, PAGE, PageLayout};
use strata_core::numerics::NAN_F32;

use super::Places;
use crate::device::Shared;
use crate::isa::Work;
use crate::memory::Parts;
use crate::quantize::Input;

/// Added to a magnitude before the fraction is cut off: rounds half away from zero.
const BELOW_HALF: f32 = 0.499_999_97;

/// Writes the digits of `x` and returns their scale; `high` and `low` are as long as `x`.
#[inline(always)]
pub(super) fn digits(x: &[f32], high: &mut [i8], low: &mut [i8]) -> f32 {
    let (high, low) = (&mut high[..x.len()], &mut low[..x.len()]);
    // As bits, NaN is above infinity, and infinity above all that is finite.
    let most = x.iter().map(|x| x.to_bits() & 0x7fff_ffff).fold(0, u32::max);
    let finite = most < 0x7f80_0000;
    let amax = f32::from_bits(most);
    if !finite || amax < DIGITS_TINY {
        high.fill(0);
        low.fill(0);
        return if finite { 0.0 } else { f32::from_bits(NAN_F32) };
    }
    let factor = DIGITS_TOP / amax;
    for i in 0..x.len() {
        let y = x[i] * factor;
        // SAFETY: of magnitude 32513 at most.
        let v = unsafe { (y + BELOW_HALF.copysign(y)).to_int_unchecked::<i32>() };
        high[i] = ((v + 128) >> 8) as i8;
        low[i] = v as i8;
    }
    amax / DIGITS_TOP
}

/// The digits of an integer up to 32512, as bytes: the low one is its low byte.
#[inline(always)]
pub(super) fn two(v: i32) -> (i8, i8) {
    (((v + 128) >> 8) as i8, v as i8)
}

/// Keys and values of tokens into their pages.
#[derive(Clone, Copy)]
pub(crate) struct Append<'a> {
    pub(crate) layout: PageLayout,
    pub(crate) keys: Input<'a>,
    pub(crate) values: Input<'a>,
    pub(crate) places: Places<'a>,
    pub(crate) cache: Parts<'a, u8>,
}

impl Append<'_> {
    /// Runs it on all threads: a head of keys and values belongs to one.
    pub(crate) fn run(&self, shared: &Shared) {
        shared.parallel(self.layout.kv_heads, |kv_head| {
            shared.cpu.run(Head { append: self, kv_head });
        });
    }
}

/// All tokens of one head.
struct Head<'a, 'b> {
    append: &'a Append<'b>,
    kv_head: usize,
}

impl Work for Head<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { append: Append { layout, keys, values, places, cache }, kv_head } = self;
        let (key, value) = (layout.key, layout.value);
        let mut planes = [[0i8; MOST_KEY]; 2];
        let [high, low] = &mut planes;
        for row in 0..places.positions.len() {
            let (page, slot) = places.page(row);
            // SAFETY: one task writes to this head, and one row after the other.
            let bytes = unsafe { cache.part(layout.head(page, kv_head), layout.head_bytes()) };
            let scale = digits(&keys.row(row)[kv_head * key..][..key], high, low);
            put(&mut bytes[slot * key..], &high[..key], 1);
            put(&mut bytes[PAGE * key + slot * key..], &low[..key], 1);
            let scales = layout.scales_at() + 4 * slot;
            bytes[scales..scales + 4].copy_from_slice(&scale.to_le_bytes());

            let scale = digits(&values.row(row)[kv_head * value..][..value], high, low);
            let at = layout.values_at() + slot;
            put(&mut bytes[at..], &high[..value], PAGE);
            put(&mut bytes[at + PAGE * value..], &low[..value], PAGE);
            let scales = scales + 4 * PAGE;
            bytes[scales..scales + 4].copy_from_slice(&scale.to_le_bytes());
        }
    }
}

/// Digits `stride` bytes apart.
#[inline(always)]
fn put(to: &mut [u8], digits: &[i8], stride: usize) {
    for (to, digit) in to.iter_mut().step_by(stride).zip(digits) {
        *to = *digit as u8;
    }
}
