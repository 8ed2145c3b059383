//! The scalar operations that every backend repeats, bit for bit.
//!
//! All arithmetic is IEEE-754 binary32, round to nearest even, subnormals
//! kept; nothing is contracted unless `mul_add` is written.

use half::f16;

mod erf;
mod functions;

pub use erf::*;
pub use functions::*;

/// The one NaN that is ever stored as f32.
pub const NAN_F32: u32 = 0x7fc0_0000;
/// The one NaN that is ever stored as f16.
pub const NAN_F16: u16 = 0x7e00;

/// `x`, or the canonical NaN.
#[inline(always)]
pub fn canonical(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(NAN_F32) } else { x }
}

/// The largest magnitude among values, NaN left out; none where there is nothing but NaN.
///
/// By their bits, as `f32::max` of a signalling NaN is NaN on some processors (AArch64's `fmaxnm`)
/// and would forget what came before.
#[inline]
pub fn largest_magnitude(x: &[f32]) -> Option<f32> {
    let bits = x.iter().map(|x| x.abs().to_bits());
    bits.filter(|&bits| bits <= f32::INFINITY.to_bits()).max().map(f32::from_bits)
}

/// f32 to f16 bits: nearest even, overflow to infinity, canonical NaN.
#[inline]
pub fn f16_bits(x: f32) -> u16 {
    if x.is_nan() { NAN_F16 } else { f16::from_f32(x).to_bits() }
}

/// f16 bits to f32, exactly.
#[inline]
pub fn f16_to_f32(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// `x` rounded half away from zero, NaN to 0, clamped to -127..=127.
#[inline(always)]
pub fn round_code(x: f32) -> i8 {
    if x.is_nan() {
        return 0;
    }
    // round() is half away from zero; beyond the clamp its result is not looked at.
    x.round().clamp(-127.0, 127.0) as i8
}

/// Above this, `exp` is infinite: the largest f32 below ln(2^128).
pub const EXP_MAX: f32 = f32::from_bits(0x42b1_7217);
/// Below this, `exp` is zero: the result is under half the smallest subnormal.
pub const EXP_MIN: f32 = f32::from_bits(0xc2cf_f1b5);
/// 1 / ln 2.
pub const EXP_LOG2E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln 2, its upper 16 bits: `n * EXP_LN2_HI` is exact for every n that occurs.
pub const EXP_LN2_HI: f32 = f32::from_bits(0x3f31_7200);
/// ln 2 - [`EXP_LN2_HI`].
pub const EXP_LN2_LO: f32 = f32::from_bits(0x35bf_be8e);
/// Adding and subtracting it rounds to the nearest integer, half to even.
pub const EXP_ROUND: f32 = 12_582_912.0; // 1.5 * 2^23
/// `exp(r) = 1 + r * (1 + r * (c[0] + r * (c[1] + ...)))`, |r| <= ln 2 / 2.
pub const EXP_POLY: [f32; 6] = [
    f32::from_bits(0x3f00_0000), // 1/2
    f32::from_bits(0x3e2a_aaab), // 1/6
    f32::from_bits(0x3d2a_aaab), // 1/24
    f32::from_bits(0x3c08_8889), // 1/120
    f32::from_bits(0x3ab6_0b61), // 1/720
    f32::from_bits(0x3950_0d01), // 1/5040
];

/// e to the `x`: at most 1 ulp from the true value, overflow to infinity,
/// gradual underflow. Each line is one rounding; backends repeat it as written.
#[inline]
pub fn exp(x: f32) -> f32 {
    if x.is_nan() {
        return f32::from_bits(NAN_F32);
    }
    if x > EXP_MAX {
        return f32::INFINITY;
    }
    if x < EXP_MIN {
        return 0.0;
    }
    let n = x.mul_add(EXP_LOG2E, EXP_ROUND) - EXP_ROUND;
    let r = n.mul_add(-EXP_LN2_HI, x);
    let r = n.mul_add(-EXP_LN2_LO, r);
    let mut p = EXP_POLY[5];
    p = p.mul_add(r, EXP_POLY[4]);
    p = p.mul_add(r, EXP_POLY[3]);
    p = p.mul_add(r, EXP_POLY[2]);
    p = p.mul_add(r, EXP_POLY[1]);
    p = p.mul_add(r, EXP_POLY[0]);
    p = p.mul_add(r, 1.0);
    p = p.mul_add(r, 1.0);
    // 2^n in two factors: the first product stays normal, the second rounds once.
    let n = n as i32;
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n - half)
}

/// 2^n for n in -126..=127, by its bits.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// `(g / (1 + exp(-g))) * u`.
#[inline]
pub fn swiglu(g: f32, u: f32) -> f32 {
    canonical(silu(g) * u)
}

/// `g / (1 + exp(-g))`.
#[inline]
pub fn silu(g: f32) -> f32 {
    g / (1.0 + exp(-g))
}

/// `1 / (1 + exp(-x))`.
#[inline]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in representable values; both of one sign.
    fn ulps(a: f32, b: f32) -> u32 {
        a.to_bits().abs_diff(b.to_bits())
    }

    #[test]
    fn exp_is_within_one_ulp() {
        let mut worst = 0.0f64;
        // Every 97th float: 44 million values of both signs.
        for bits in (0..=u32::MAX).step_by(97) {
            let x = f32::from_bits(bits);
            if x.is_nan() {
                continue;
            }
            let got = exp(x);
            let want = f64::from(x).exp();
            if want > f64::from(f32::MAX) * (1.0 + 1e-8) {
                assert!(got == f32::INFINITY || ulps(got, f32::INFINITY) <= 1, "exp({x:e})");
                continue;
            }
            // The spacing of f32 at the true value, subnormals included.
            let exponent = (want.to_bits() >> 52) as i32 - 1023;
            let spacing = 2f64.powi(exponent.max(-126) - 23);
            let error = (f64::from(got) - want).abs() / spacing;
            worst = worst.max(error);
            assert!(error <= 1.0, "exp({x:e}) = {got:e}, true {want:e}: {error} ulp");
        }
        println!("exp: at most {worst:.3} ulp");
    }

    #[test]
    fn exp_at_its_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::NAN).to_bits(), NAN_F32);
        assert!(exp(EXP_MAX).is_finite());
        assert_eq!(exp(EXP_MAX.next_up()), f32::INFINITY);
        assert_eq!(exp(EXP_MIN.next_down()), 0.0);
    }

    #[test]
    fn codes_round_half_away_from_zero() {
        for (x, q) in [
            (0.5, 1),
            (-0.5, -1),
            (1.5, 2),
            (2.5, 3),
            (-2.5, -3),
            (0.49999997, 0),
            (126.5, 127),
            (127.4, 127),
            (1e30, 127),
            (f32::NEG_INFINITY, -127),
            (f32::NAN, 0),
        ] {
            assert_eq!(round_code(x), q, "{x}");
        }
    }
}
