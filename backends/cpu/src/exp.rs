//! [`numerics::exp`] and what is made of it, without branches, so that loops
//! over it become vector code. The operations and their order are the same.

#[cfg(doc)]
use strata_core::numerics;
use strata_core::numerics::{
    EXP_LN2_HI, EXP_LN2_LO, EXP_LOG2E, EXP_MAX, EXP_MIN, EXP_POLY, EXP_ROUND, GELU_CUBE,
    GELU_SCALE, NAN_F32, canonical,
};

/// e to the `x`: the bits of [`numerics::exp`].
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // What follows is for x between the ends; elsewhere, and for NaN, 0 stands in and the result is replaced.
    let inside = (EXP_MIN..=EXP_MAX).contains(&x);
    let y = if inside { x } else { 0.0 };
    let shifted = y.mul_add(EXP_LOG2E, EXP_ROUND);
    let n = shifted - EXP_ROUND;
    let r = n.mul_add(-EXP_LN2_HI, y);
    let r = n.mul_add(-EXP_LN2_LO, r);
    let mut p = EXP_POLY[5];
    p = p.mul_add(r, EXP_POLY[4]);
    p = p.mul_add(r, EXP_POLY[3]);
    p = p.mul_add(r, EXP_POLY[2]);
    p = p.mul_add(r, EXP_POLY[1]);
    p = p.mul_add(r, EXP_POLY[0]);
    p = p.mul_add(r, 1.0);
    p = p.mul_add(r, 1.0);
    // The integer n is also the low bits of the sum that rounded it.
    let n = shifted.to_bits().wrapping_sub(EXP_ROUND.to_bits()) as i32;
    let half = n >> 1;
    let value = p * power_of_two(half) * power_of_two(n - half);
    let outside = if x > EXP_MAX { f32::INFINITY } else { 0.0 };
    let outside = if x.is_nan() { f32::from_bits(NAN_F32) } else { outside };
    if inside { value } else { outside }
}

/// 2^n for n in -126..=127, by its bits.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// `(g / (1 + exp(-g))) * u`.
#[inline(always)]
pub(crate) fn swiglu(g: f32, u: f32) -> f32 {
    canonical(silu(g) * u)
}

/// `g / (1 + exp(-g))`.
#[inline(always)]
pub(crate) fn silu(g: f32) -> f32 {
    g / (1.0 + exp(-g))
}

/// The bits of [`numerics::gelu`].
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    let u = x * (x * x).mul_add(GELU_CUBE, GELU_SCALE);
    x / (1.0 + exp(-u))
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use strata_core::numerics;

    #[test]
    fn every_97th_float_as_the_reference() {
        for bits in (0..=u32::MAX).step_by(97) {
            let x = f32::from_bits(bits);
            assert_eq!(super::exp(x).to_bits(), numerics::exp(x).to_bits(), "exp({x:e})");
        }
        for end in [numerics::EXP_MAX, numerics::EXP_MIN] {
            for x in [end.next_down(), end, end.next_up()] {
                assert_eq!(super::exp(x).to_bits(), numerics::exp(x).to_bits(), "exp({x:e})");
            }
        }
    }
}
