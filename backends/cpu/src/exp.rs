//! [`numerics::exp`] and what is made of it, without branches, so that loops
//! over it become vector code. The operations and their order are the same.

#[cfg(doc)]
use strata_core::numerics;
use strata_core::numerics::{
    EXP_LN2_HI, EXP_LN2_LO, EXP_LOG2E, EXP_MAX, EXP_MIN, EXP_POLY, EXP_ROUND, EXP2_MAX, EXP2_MIN,
    EXP2_POLY, GELU_CUBE, GELU_SCALE, NAN_F32, TANH_ONE, TANH_POLY, TANH_SMALL, canonical,
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

/// 2 to the `x`: the bits of [`numerics::exp2`].
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    let inside = x > EXP2_MIN && x < EXP2_MAX;
    let y = if inside { x } else { 0.0 };
    let shifted = y + EXP_ROUND;
    let r = y - (shifted - EXP_ROUND);
    let mut p = EXP2_POLY[5];
    p = p.mul_add(r, EXP2_POLY[4]);
    p = p.mul_add(r, EXP2_POLY[3]);
    p = p.mul_add(r, EXP2_POLY[2]);
    p = p.mul_add(r, EXP2_POLY[1]);
    p = p.mul_add(r, EXP2_POLY[0]);
    p = p.mul_add(r, 1.0);
    let n = shifted.to_bits().wrapping_sub(EXP_ROUND.to_bits()) as i32;
    let half = n >> 1;
    let value = p * power_of_two(half) * power_of_two(n - half);
    let outside = if x >= EXP2_MAX { f32::INFINITY } else { 0.0 };
    let outside = if x.is_nan() { f32::from_bits(NAN_F32) } else { outside };
    if inside { value } else { outside }
}

/// The hyperbolic tangent: the bits of [`numerics::tanh`].
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let a = x.abs();
    // Both forms for all, each with 0 where the other holds.
    let small = if a < TANH_SMALL { a } else { 0.0 };
    let u = small * small;
    let mut p = TANH_POLY[5];
    p = p.mul_add(u, TANH_POLY[4]);
    p = p.mul_add(u, TANH_POLY[3]);
    p = p.mul_add(u, TANH_POLY[2]);
    p = p.mul_add(u, TANH_POLY[1]);
    p = p.mul_add(u, TANH_POLY[0]);
    let near = (small * u).mul_add(p, small);

    let between = if a < TANH_ONE { a } else { 0.0 };
    let x2 = between + between;
    let shifted = x2.mul_add(EXP_LOG2E, EXP_ROUND);
    let n = shifted - EXP_ROUND;
    let r0 = n.mul_add(-EXP_LN2_HI, x2);
    let r = n.mul_add(-EXP_LN2_LO, r0);
    let r_low = n.mul_add(-EXP_LN2_LO, r0 - r);
    let mut p = EXP_POLY[5];
    p = p.mul_add(r, EXP_POLY[4]);
    p = p.mul_add(r, EXP_POLY[3]);
    p = p.mul_add(r, EXP_POLY[2]);
    p = p.mul_add(r, EXP_POLY[1]);
    p = p.mul_add(r, EXP_POLY[0]);
    let one = 1.0 + r;
    let one_low = ((1.0 - one) + r) + r_low;
    let v = (r * r) * p;
    let high = one + v;
    let low = ((one - high) + v) + one_low;
    let power = power_of_two(shifted.to_bits().wrapping_sub(EXP_ROUND.to_bits()) as i32);
    let (high, low) = (high * power, low * power);
    let d = high + 1.0;
    let d_low = (1.0 - (d - high)) + low;
    let q = 2.0 / d;
    let e = (-q).mul_add(d, 2.0);
    let e = (-q).mul_add(d_low, e);
    let q_low = e * (q * 0.5);
    let t = 1.0 - q;
    let t_low = (1.0 - t) - q;
    let far = t + (t_low - q_low);

    let far = if a < TANH_ONE { far } else { 1.0 };
    let t = if a < TANH_SMALL { near } else { far };
    if x.is_nan() { f32::from_bits(NAN_F32) } else { t.copysign(x) }
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
        for bits in (0..=u32::MAX).step_by(97) {
            let x = f32::from_bits(bits);
            assert_eq!(super::exp2(x).to_bits(), numerics::exp2(x).to_bits(), "exp2({x:e})");
            assert_eq!(super::tanh(x).to_bits(), numerics::tanh(x).to_bits(), "tanh({x:e})");
        }
        for end in [
            numerics::EXP2_MAX,
            numerics::EXP2_MIN,
            numerics::TANH_ONE,
            numerics::TANH_SMALL,
            -numerics::TANH_ONE,
            -0.0,
        ] {
            for x in [end.next_down(), end, end.next_up()] {
                assert_eq!(super::exp2(x).to_bits(), numerics::exp2(x).to_bits(), "exp2({x:e})");
                assert_eq!(super::tanh(x).to_bits(), numerics::tanh(x).to_bits(), "tanh({x:e})");
            }
        }
        for end in [numerics::EXP_MAX, numerics::EXP_MIN] {
            for x in [end.next_down(), end, end.next_up()] {
                assert_eq!(super::exp(x).to_bits(), numerics::exp(x).to_bits(), "exp({x:e})");
            }
        }
    }
}
