//! What stands between an expert's products: hidden values from gate and up.

use crate::numerics::{canonical, exp, gelu, gelu_erf, sigmoid, silu, tanh};
use crate::{Error, Result};

/// How hidden values come from gate values g and up values u, or from u alone
/// where an expert has no gates. `docs/numerics.md` has the formulas, one rounding a step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Activation {
    /// `silu(g) * u`; without gates `silu(u)`.
    #[default]
    SwiGlu,
    /// `min(silu(g), limit) * clamp(u, -limit, limit)`.
    SwiGluClamped {
        /// The limit, above 0.
        limit: f32,
    },
    /// `silu(min(g, limit)) * clamp(u, -limit, limit)`.
    SwiGluLimited {
        /// The limit, above 0.
        limit: f32,
    },
    /// `g' * sigmoid(alpha * g') * (u' + 1)`, g' = `min(g, limit)`, u' = `clamp(u, -limit, limit)`.
    SwiGluOai {
        /// The factor of the sigmoid's argument.
        alpha: f32,
        /// The limit, above 0.
        limit: f32,
    },
    /// `gelu(g) * u` in GELU's tanh form; without gates `gelu(u)`.
    GeluTanh,
    /// `gelu(g) * u` in GELU's erf form; without gates `gelu(u)`.
    GeluErf,
    /// `relu(g) * u`; without gates `relu(u)`.
    Relu,
    /// `relu(g)^2 * u`; without gates `relu(u)^2`.
    ReluSquared,
    /// `beta * tanh(g / beta) * sigmoid(g) * linear * tanh(u / linear)`; u itself where `linear` is 0.
    Situ {
        /// The bound of the gate's values, above 0.
        beta: f32,
        /// The bound of the up values; 0 for none.
        linear: f32,
    },
}

impl Activation {
    /// The number and the two parameters by which kernels know it.
    pub fn parameters(self) -> (u32, f32, f32) {
        match self {
            Self::SwiGlu => (0, 0.0, 0.0),
            Self::SwiGluClamped { limit } => (1, limit, 0.0),
            Self::SwiGluLimited { limit } => (2, limit, 0.0),
            Self::SwiGluOai { alpha, limit } => (3, limit, alpha),
            Self::GeluTanh => (4, 0.0, 0.0),
            Self::GeluErf => (5, 0.0, 0.0),
            Self::Relu => (6, 0.0, 0.0),
            Self::ReluSquared => (7, 0.0, 0.0),
            Self::Situ { beta, linear } => (8, beta, linear),
        }
    }

    /// Whether it is defined for up values alone.
    pub fn works_without_gates(self) -> bool {
        matches!(
            self,
            Self::SwiGlu | Self::GeluTanh | Self::GeluErf | Self::Relu | Self::ReluSquared
        )
    }

    /// Whether its parameters are in range.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a limit or bound that is not a positive number.
    pub fn check(self) -> Result<()> {
        let bound = |what: &str, value: f32, zero: bool| match value.is_finite()
            && (value > 0.0 || zero && value == 0.0)
        {
            true => Ok(()),
            false => Err(Error::invalid(format!("activation: {what}"), value, "above 0")),
        };
        match self {
            Self::SwiGluClamped { limit } | Self::SwiGluLimited { limit } => {
                bound("limit", limit, false)
            }
            Self::SwiGluOai { alpha, limit } => {
                bound("alpha", alpha, false)?;
                bound("limit", limit, false)
            }
            Self::Situ { beta, linear } => {
                bound("beta", beta, false)?;
                bound("linear bound", linear, true)
            }
            _ => Ok(()),
        }
    }

    /// Whether its bounds could turn what is not finite into a number: it is NaN instead.
    pub fn is_bounded(self) -> bool {
        !matches!(self, Self::SwiGlu | Self::GeluTanh | Self::GeluErf)
    }

    /// The hidden value of a gate and an up value.
    pub fn of(self, g: f32, u: f32) -> f32 {
        if self.is_bounded() && !(g.is_finite() && u.is_finite()) {
            return f32::NAN;
        }
        let value = match self {
            Self::SwiGlu => silu(g) * u,
            Self::SwiGluClamped { limit } => at_most(silu(g), limit) * within(u, limit),
            Self::SwiGluLimited { limit } => silu(at_most(g, limit)) * within(u, limit),
            Self::SwiGluOai { alpha, limit } => {
                let (g, u) = (at_most(g, limit), within(u, limit));
                g / (1.0 + exp(-(alpha * g))) * (u + 1.0)
            }
            Self::GeluTanh => gelu(g) * u,
            Self::GeluErf => gelu_erf(g) * u,
            Self::Relu => relu(g) * u,
            Self::ReluSquared => relu(g) * relu(g) * u,
            Self::Situ { beta, linear } => {
                let g = beta * tanh(g / beta) * sigmoid(g);
                g * if linear > 0.0 { linear * tanh(u / linear) } else { u }
            }
        };
        canonical(value)
    }

    /// The hidden value of an up value where there are no gates.
    pub fn of_up(self, u: f32) -> f32 {
        if self.is_bounded() && !u.is_finite() {
            return f32::NAN;
        }
        let value = match self {
            Self::GeluTanh => gelu(u),
            Self::GeluErf => gelu_erf(u),
            Self::Relu => relu(u),
            Self::ReluSquared => relu(u) * relu(u),
            _ => silu(u),
        };
        canonical(value)
    }
}

impl std::fmt::Display for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SwiGlu => f.write_str("swiglu"),
            Self::SwiGluClamped { limit } => write!(f, "swiglu-clamped-{limit}"),
            Self::SwiGluLimited { limit } => write!(f, "swiglu-limited-{limit}"),
            Self::SwiGluOai { alpha, limit } => write!(f, "swiglu-oai-{alpha}-{limit}"),
            Self::GeluTanh => f.write_str("gelu-tanh"),
            Self::GeluErf => f.write_str("gelu-erf"),
            Self::Relu => f.write_str("relu"),
            Self::ReluSquared => f.write_str("relu-squared"),
            Self::Situ { beta, linear } => write!(f, "situ-{beta}-{linear}"),
        }
    }
}

/// `min(x, limit)`.
fn at_most(x: f32, limit: f32) -> f32 {
    if x > limit { limit } else { x }
}

/// x clamped to `-limit..=limit`.
fn within(x: f32, limit: f32) -> f32 {
    if x < -limit { -limit } else { at_most(x, limit) }
}

/// 0 for what is below it; -0 stays.
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_at_their_ends() {
        let clamped = Activation::SwiGluClamped { limit: 7.0 };
        assert_eq!(clamped.of(100.0, 100.0), 49.0);
        assert_eq!(clamped.of(100.0, -100.0), -49.0);
        let oai = Activation::SwiGluOai { alpha: 1.702, limit: 7.0 };
        assert_eq!(oai.of(100.0, -1.0), 0.0);
        assert_eq!(oai.of(100.0, 100.0), oai.of(7.0, 7.0));
        assert_eq!(oai.of(f32::NEG_INFINITY, 1.0).to_bits(), 0x7fc0_0000);
        assert_eq!(Activation::ReluSquared.of_up(-3.0), 0.0);
        assert_eq!(Activation::ReluSquared.of_up(3.0), 9.0);
        assert!(Activation::Relu.of_up(f32::NAN).is_nan());
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for bounded in [
                clamped,
                oai,
                Activation::SwiGluLimited { limit: 7.0 },
                Activation::Relu,
                Activation::ReluSquared,
                Activation::Situ { beta: 2.0, linear: 3.0 },
            ] {
                let values = [bounded.of(bad, 1.0), bounded.of(1.0, bad), bounded.of(-1.0, bad)];
                assert!(values.iter().all(|v| v.to_bits() == 0x7fc0_0000), "{bounded} of {bad}");
            }
            for alone in [Activation::Relu, Activation::ReluSquared] {
                assert_eq!(alone.of_up(bad).to_bits(), 0x7fc0_0000);
            }
            // Those without bounds keep it themselves.
            for free in [Activation::SwiGlu, Activation::GeluTanh, Activation::GeluErf] {
                assert!(!free.of(bad, 1.0).is_finite() && !free.of(1.0, bad).is_finite());
                assert!(!free.of_up(bad).is_finite(), "{free} of {bad}");
            }
        }
        let situ = Activation::Situ { beta: 2.0, linear: 0.0 };
        assert_eq!(situ.of(1e9, 3.0), 6.0);
        assert!(Activation::SwiGluClamped { limit: 0.0 }.check().is_err());
        assert!(Activation::Situ { beta: 1.0, linear: f32::NAN }.check().is_err());
        assert!(!oai.works_without_gates() && Activation::GeluErf.works_without_gates());
    }
}
