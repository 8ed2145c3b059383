//! The error function, and the GELU that is made of it. Every line is one
//! rounding; backends repeat it as written.

use super::{NAN_F32, exp};

/// Below this magnitude `erf` is an odd polynomial.
pub const ERF_SMALL: f32 = f32::from_bits(0x3f73_3333); // 0.95
/// From this magnitude on `erf` is 1.
pub const ERF_ONE: f32 = f32::from_bits(0x407a_d445); // 3.9192059
/// `erf(a) = a + a * (c[0] + a^2 * (c[1] + ...))`, a < [`ERF_SMALL`].
pub const ERF_POLY: [f32; 7] = [
    f32::from_bits(0x3e03_75d4), //  2/sqrt(pi) - 1
    f32::from_bits(0xbec0_93a1), // -0.37612629
    f32::from_bits(0x3de7_16f0), //  0.11283672
    f32::from_bits(0xbcdc_0593), // -0.02685812
    f32::from_bits(0x3baa_5311), //  0.00519789
    f32::from_bits(0xba54_85bc), // -0.00081071
    f32::from_bits(0x38ac_6265), //  0.00008220
];
/// `ln(1 - erf(a)) = -a + a * (c[0] + a * (c[1] + ...))`, from [`ERF_SMALL`] to [`ERF_ONE`].
pub const ERFC_POLY: [f32; 8] = [
    f32::from_bits(0xbe03_c0c7), // -0.12866503
    f32::from_bits(0xbf22_9647), // -0.63510555
    f32::from_bits(0xbdd9_9f5d), // -0.10626099
    f32::from_bits(0x3cc2_44ba), //  0.02371441
    f32::from_bits(0xbb69_a0c3), // -0.00356488
    f32::from_bits(0x3990_d459), //  0.00027624
    f32::from_bits(0x35e8_d714), //  0.00000173
    f32::from_bits(0xb5bb_134f), // -0.00000139
];

/// The error function.
#[inline]
pub fn erf(x: f32) -> f32 {
    if x.is_nan() {
        return f32::from_bits(NAN_F32);
    }
    let a = x.abs();
    let value = if a < ERF_SMALL {
        let u = a * a;
        let mut p = ERF_POLY[6];
        p = p.mul_add(u, ERF_POLY[5]);
        p = p.mul_add(u, ERF_POLY[4]);
        p = p.mul_add(u, ERF_POLY[3]);
        p = p.mul_add(u, ERF_POLY[2]);
        p = p.mul_add(u, ERF_POLY[1]);
        p = p.mul_add(u, ERF_POLY[0]);
        a.mul_add(p, a)
    } else if a < ERF_ONE {
        let mut p = ERFC_POLY[7];
        p = p.mul_add(a, ERFC_POLY[6]);
        p = p.mul_add(a, ERFC_POLY[5]);
        p = p.mul_add(a, ERFC_POLY[4]);
        p = p.mul_add(a, ERFC_POLY[3]);
        p = p.mul_add(a, ERFC_POLY[2]);
        p = p.mul_add(a, ERFC_POLY[1]);
        p = p.mul_add(a, ERFC_POLY[0]);
        1.0 - exp(p.mul_add(a, -a))
    } else {
        1.0
    };
    value.copysign(x)
}

/// 1 / sqrt(2).
pub const SQRT_HALF: f32 = f32::from_bits(0x3f35_04f3);

/// The erf form of GELU: `h + h * erf(x / sqrt(2))`, h = x/2.
#[inline]
pub fn gelu_erf(x: f32) -> f32 {
    let h = 0.5 * x;
    h.mul_add(erf(x * SQRT_HALF), h)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `erf` in f64: its series, which for magnitudes up to 4 loses 7 of 16 digits at most.
    fn truth(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn erf_is_within_one_ulp() {
        let mut worst = (0.0f64, 0.0f32);
        for bits in (0..4.0f32.to_bits()).step_by(97) {
            let x = f32::from_bits(bits);
            let (got, want) = (erf(x), truth(f64::from(x)));
            assert_eq!(erf(-x), -got);
            let exponent = ((want.to_bits() >> 52) & 0x7ff) as i32 - 1023;
            let error = (f64::from(got) - want).abs() / 2f64.powi(exponent.max(-126) - 23);
            if error > worst.0 {
                worst = (error, x);
            }
        }
        println!("erf: at most {:.3} ulp, at {:e}", worst.0, worst.1);
        assert!(worst.0 <= 1.0, "{worst:?}");
        for x in [ERF_SMALL, ERF_ONE] {
            assert!(erf(x.next_down()) <= erf(x), "monotone at {x}");
        }
        assert_eq!((erf(4.0), erf(f32::INFINITY), erf(f32::NEG_INFINITY)), (1.0, 1.0, -1.0));
        assert_eq!(erf(-0.0).to_bits(), 1 << 31);
        assert_eq!(erf(f32::NAN).to_bits(), NAN_F32);
    }

    #[test]
    fn gelu_erf_is_near_the_true_one() {
        for step in -800..=800 {
            let x = step as f32 / 100.0;
            let want =
                f64::from(x) / 2.0 * (1.0 + truth(f64::from(x).clamp(-5.6, 5.6) / 2f64.sqrt()));
            assert!((f64::from(gelu_erf(x)) - want).abs() <= 2e-7 * f64::from(x.abs()), "{x}");
        }
    }
}
