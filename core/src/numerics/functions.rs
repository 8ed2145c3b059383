//! Functions that whole models need beside `exp`, each at most 1 ulp from the
//! true value. Every line is one rounding; backends repeat it as written.

use super::{EXP_LN2_HI, EXP_LN2_LO, EXP_LOG2E, EXP_POLY, EXP_ROUND, NAN_F32, exp, power_of_two};

/// From here on `exp2` is infinite.
pub const EXP2_MAX: f32 = 128.0;
/// Down to here `exp2` is zero: half the smallest subnormal, a tie to even.
pub const EXP2_MIN: f32 = -150.0;
/// `exp2(r) = 1 + r * (c[0] + r * (c[1] + ...))`, |r| <= 1/2.
pub const EXP2_POLY: [f32; 6] = [
    f32::from_bits(0x3f31_7218), // 0.69314718
    f32::from_bits(0x3e75_fdf0), // 0.24022651
    f32::from_bits(0x3d63_57b6), // 0.05550357
    f32::from_bits(0x3c1d_952a), // 0.00961808
    f32::from_bits(0x3aaf_8448), // 0.00133909
    f32::from_bits(0x3922_09c5), // 0.00015453
];

/// 2 to the `x`: powers of two exactly, overflow to infinity, gradual underflow.
#[inline]
pub fn exp2(x: f32) -> f32 {
    if x.is_nan() {
        return f32::from_bits(NAN_F32);
    }
    if x >= EXP2_MAX {
        return f32::INFINITY;
    }
    if x <= EXP2_MIN {
        return 0.0;
    }
    let n = (x + EXP_ROUND) - EXP_ROUND;
    let r = x - n;
    let mut p = EXP2_POLY[5];
    p = p.mul_add(r, EXP2_POLY[4]);
    p = p.mul_add(r, EXP2_POLY[3]);
    p = p.mul_add(r, EXP2_POLY[2]);
    p = p.mul_add(r, EXP2_POLY[1]);
    p = p.mul_add(r, EXP2_POLY[0]);
    p = p.mul_add(r, 1.0);
    // 2^n in two factors, as in exp.
    let n = n as i32;
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n - half)
}

/// `exp(x)` as a sum of two f32, the second below half a unit of the first; for x in -21..=21.
#[inline]
fn exp_pair(x: f32) -> (f32, f32) {
    let n = x.mul_add(EXP_LOG2E, EXP_ROUND) - EXP_ROUND;
    let r0 = n.mul_add(-EXP_LN2_HI, x);
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
    let power = power_of_two(n as i32);
    (high * power, low * power)
}

/// Below this magnitude `tanh` is an odd polynomial.
pub const TANH_SMALL: f32 = 0.5625;
/// From this magnitude on `tanh` is 1.
pub const TANH_ONE: f32 = 9.0625;
/// `tanh(a) = a + a^3 * (c[0] + a^2 * (c[1] + ...))`, a < [`TANH_SMALL`].
pub const TANH_POLY: [f32; 6] = [
    f32::from_bits(0xbeaa_aaab), // -1/3
    f32::from_bits(0x3e08_8880), //  0.13333321
    f32::from_bits(0xbd5d_08fa), // -0.05396364
    f32::from_bits(0x3cb2_a602), //  0.02180767
    f32::from_bits(0xbc0a_f9a0), // -0.00848237
    f32::from_bits(0x3b21_8002), //  0.00246430
];

/// The hyperbolic tangent.
#[inline]
pub fn tanh(x: f32) -> f32 {
    if x.is_nan() {
        return f32::from_bits(NAN_F32);
    }
    let a = x.abs();
    let t = if a < TANH_SMALL {
        let u = a * a;
        let mut p = TANH_POLY[5];
        p = p.mul_add(u, TANH_POLY[4]);
        p = p.mul_add(u, TANH_POLY[3]);
        p = p.mul_add(u, TANH_POLY[2]);
        p = p.mul_add(u, TANH_POLY[1]);
        p = p.mul_add(u, TANH_POLY[0]);
        (a * u).mul_add(p, a)
    } else if a < TANH_ONE {
        // 1 - 2 / (exp(2a) + 1), the quotient as a sum of two.
        let (high, low) = exp_pair(a + a);
        let d = high + 1.0;
        let d_low = (1.0 - (d - high)) + low;
        let q = 2.0 / d;
        let e = (-q).mul_add(d, 2.0);
        let e = (-q).mul_add(d_low, e);
        let q_low = e * (q * 0.5);
        let t = 1.0 - q;
        let t_low = (1.0 - t) - q;
        t + (t_low - q_low)
    } else {
        1.0
    };
    t.copysign(x)
}

/// Above this `softplus(x)` is x.
pub const SOFTPLUS_MAX: f32 = 20.0;
/// Below this `softplus(x)` is `exp(x)`.
pub const SOFTPLUS_MIN: f32 = -20.0;
/// `exp(-|x|)` above this is halved around 1 before its logarithm is taken: sqrt(2) - 1.
pub const SOFTPLUS_SPLIT: f32 = f32::from_bits(0x3ed4_13cd);
/// ln 2, rounded.
pub const LN2: f32 = f32::from_bits(0x3f31_7218);
/// ln 2 - [`LN2`].
pub const LN2_REST: f32 = f32::from_bits(0xb102_e308);
/// `ln(1 + f) = f + f^2 * (-1/2 + f * (c[0] + f * (c[1] + ...)))`, f in 1/sqrt(2) - 1 ..= sqrt(2) - 1.
pub const LOG1P_POLY: [f32; 9] = [
    f32::from_bits(0x3eaa_aaaa), //  0.33333331
    f32::from_bits(0xbe7f_fffe), // -0.24999997
    f32::from_bits(0x3e4c_ceae), //  0.20000717
    f32::from_bits(0xbe2a_ada9), // -0.16667809
    f32::from_bits(0x3e11_e8ec), //  0.14249009
    f32::from_bits(0xbdfe_7956), // -0.12425487
    f32::from_bits(0x3def_52d3), //  0.11685720
    f32::from_bits(0xbdeb_2402), // -0.11481477
    f32::from_bits(0x3d8e_cef9), //  0.06973070
];

/// `ln(1 + exp(x))`.
#[inline]
pub fn softplus(x: f32) -> f32 {
    if x.is_nan() {
        return f32::from_bits(NAN_F32);
    }
    if x > SOFTPLUS_MAX {
        return x;
    }
    if x < SOFTPLUS_MIN {
        return exp(x);
    }
    // max(x, 0) + ln(1 + y), y = exp(-|x|) = high + low.
    let (high, low) = exp_pair(-x.abs());
    let (f, f_low, ln2, rest) = if high > SOFTPLUS_SPLIT {
        let f = high - 1.0;
        let f_low = (high - (f + 1.0)) + low;
        (f * 0.5, f_low * 0.5, LN2, LN2_REST)
    } else {
        (high, low, 0.0, 0.0)
    };
    let mut p = LOG1P_POLY[8];
    for c in LOG1P_POLY[..8].iter().rev() {
        p = p.mul_add(f, *c);
    }
    p = p.mul_add(f, -0.5);
    let g = (f * f).mul_add(p, (-f).mul_add(f_low, f_low));
    let (t, e) = two_sum(if x > 0.0 { x } else { 0.0 }, ln2);
    let (t, e2) = two_sum(t, f);
    t + ((e + (e2 + rest)) + g)
}

/// `a + b` rounded, and what the rounding lost.
#[inline]
fn two_sum(a: f32, b: f32) -> (f32, f32) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// `cap * tanh(x / cap)`.
#[inline]
pub fn softcap(x: f32, cap: f32) -> f32 {
    cap * tanh(x / cap)
}

/// 2 * sqrt(2 / pi).
pub const GELU_SCALE: f32 = f32::from_bits(0x3fcc_422a);
/// [`GELU_SCALE`] * 0.044715.
pub const GELU_CUBE: f32 = f32::from_bits(0x3d92_2279);

/// The tanh form of GELU, `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`, written as
/// `x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3)))`, which is the same and loses nothing for negative x.
#[inline]
pub fn gelu(x: f32) -> f32 {
    let u = x * (x * x).mul_add(GELU_CUBE, GELU_SCALE);
    x / (1.0 + exp(-u))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance of `f` from `want`, in units of the last place of `want`.
    fn within_one_ulp(name: &str, f: fn(f32) -> f32, want: fn(f64) -> f64) {
        let mut worst = (0.0f64, 0.0f32);
        // Every 97th float: 44 million values of both signs.
        for bits in (0..=u32::MAX).step_by(97) {
            let x = f32::from_bits(bits);
            if x.is_nan() {
                continue;
            }
            let (got, want) = (f(x), want(f64::from(x)));
            if want.abs() > f64::from(f32::MAX) * (1.0 + 1e-8) {
                assert!(got.abs() >= f32::MAX, "{name}({x:e}) = {got:e}");
                continue;
            }
            // The spacing of f32 at the true value, subnormals included.
            let exponent = ((want.to_bits() >> 52) & 0x7ff) as i32 - 1023;
            let spacing = 2f64.powi(exponent.max(-126) - 23);
            let error = (f64::from(got) - want).abs() / spacing;
            if error > worst.0 {
                worst = (error, x);
            }
            assert!(error <= 1.0, "{name}({x:e}) = {got:e}, true {want:e}: {error} ulp");
        }
        println!("{name}: at most {:.3} ulp, at {:e}", worst.0, worst.1);
    }

    #[test]
    fn exp2_is_within_one_ulp() {
        within_one_ulp("exp2", exp2, f64::exp2);
        assert_eq!(exp2(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp2(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp2(f32::NAN).to_bits(), NAN_F32);
        assert!(exp2(EXP2_MAX.next_down()).is_finite());
        assert_eq!(exp2(EXP2_MIN.next_up()), f32::from_bits(1));
        for n in -149..128 {
            assert_eq!(f64::from(exp2(n as f32)), 2f64.powi(n), "2^{n}");
        }
    }

    #[test]
    fn tanh_is_within_one_ulp() {
        within_one_ulp("tanh", tanh, f64::tanh);
        for (x, bits) in [(0.0f32, 0u32), (-0.0, 1 << 31), (f32::INFINITY, 0x3f80_0000)] {
            assert_eq!(tanh(x).to_bits(), bits, "tanh({x})");
        }
        assert_eq!(tanh(f32::NAN).to_bits(), NAN_F32);
        for x in [TANH_SMALL, TANH_ONE] {
            assert!(tanh(x.next_down()) <= tanh(x), "monotone at {x}");
        }
    }

    #[test]
    fn softplus_is_within_one_ulp() {
        within_one_ulp("softplus", softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p());
        assert_eq!(softplus(f32::NEG_INFINITY), 0.0);
        assert_eq!(softplus(f32::INFINITY), f32::INFINITY);
        assert_eq!(softplus(f32::NAN).to_bits(), NAN_F32);
    }

    #[test]
    fn gelu_as_its_tanh_form() {
        let tanh_form = |x: f64| {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x / (1.0 + (-2.0 * u).exp())
        };
        for bits in (0..=u32::MAX).step_by(9973) {
            let x = f32::from_bits(bits);
            if !x.is_finite() || x < -8.0 {
                continue;
            }
            let (got, want) = (f64::from(gelu(x)), tanh_form(f64::from(x)));
            // The exponent's own roundings are worth |2u| ulp each.
            let u = 1.6 * f64::from(x) * (1.0 + 0.045 * f64::from(x) * f64::from(x));
            let bound = (want.abs() * 2f64.powi(-23) * (3.0 + 2.0 * u.abs())).max(2f64.powi(-149));
            assert!((got - want).abs() <= bound, "gelu({x:e}) = {got:e}, true {want:e}");
        }
        assert_eq!(gelu(f32::INFINITY), f32::INFINITY);
        assert_eq!(gelu(-1e30), 0.0);
    }
}
