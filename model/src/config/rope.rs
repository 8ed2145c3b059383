//! Rotary positions: which values turn, how fast, and the tables of cosines and sines.

use strata_core::gguf::{Gguf, TensorType};
use strata_core::{Error, Result};

use super::arch::Architecture;
use super::keys::Keys;
use super::tensors::Tensors;

/// Which two values of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// 2i and 2i + 1.
    Interleaved,
    /// i and i + dims/2.
    Halves,
}

/// The rotary positions of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Values of a head that turn: the first ones. Even.
    pub dims: usize,
    /// Which of them turn together.
    pub pairing: Pairing,
    /// What pair i turns by from one position to the next, in radians; `dims / 2` of them.
    pub frequencies: Vec<f64>,
    /// A factor on all cosines and sines.
    pub magnitude: f64,
}

/// How a model's positions are stretched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// Positions are divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Slow pairs are divided by a factor, fast ones are not (YaRN).
    Yarn {
        /// The factor.
        factor: f64,
        /// The context length that the model was first trained on.
        original: usize,
        /// Turns over the original context from which pairs count as fast.
        beta_fast: f64,
        /// Turns up to which pairs count as slow.
        beta_slow: f64,
        /// `yarn_log_multiplier`: what the model was trained to take of the magnitude.
        log_multiplier: f64,
    },
}

/// Which frequency factors a model of two tables uses; chosen when it is loaded, by the context
/// that was asked for, never by how long a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factors {
    /// `rope_factors_short`.
    Short,
    /// `rope_factors_long`.
    Long,
}

/// What all layers' rotary positions have in common.
#[derive(Debug)]
pub(super) struct RopeRule {
    pub pairing: Pairing,
    pub scaling: Scaling,
    /// Divisors of the frequencies.
    pub divisors: Option<Vec<f32>>,
    pub factors: Option<Factors>,
    /// `rope.scaling.attn_factor`.
    pub attn_factor: f64,
}

impl RopeRule {
    /// Reads the keys; `dims` values turn, `context` was asked for, the model was trained for
    /// `trained`.
    pub fn load(
        gguf: &Gguf,
        keys: &Keys<'_>,
        tensors: &Tensors<'_>,
        arch: &Architecture,
        [dims, context, trained]: [usize; 3],
    ) -> Result<Self> {
        let (pairing, betas_by_key) = (arch.pairing, arch.grok.then_some(8.0));
        let kind = keys.text("rope.scaling.type")?;
        let factor = keys.factor("rope.scaling.factor")?;
        let factor = match factor {
            Some(factor) => Some(factor),
            None => keys.factor("rope.scale_linear")?,
        };
        let factor = f64::from(factor.unwrap_or(1.0));
        let original = keys.size("rope.scaling.original_context_length")?.unwrap_or(trained);
        let log_multiplier = keys.number("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
        let (mut beta_fast, mut beta_slow) = (32.0, 1.0);
        if let Some(default) = betas_by_key {
            let beta = |key: &str| -> Result<Option<f64>> { Ok(keys.factor(key)?.map(f64::from)) };
            beta_fast = beta("rope.scaling.yarn_beta_fast")?.unwrap_or(default);
            beta_slow = beta("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0);
        }
        let scaling = match kind {
            None | Some("linear") if factor != 1.0 => Scaling::Linear { factor },
            None | Some("none" | "linear" | "longrope") => Scaling::None,
            Some("yarn") => {
                let log_multiplier = f64::from(log_multiplier);
                Scaling::Yarn { factor, original, beta_fast, beta_slow, log_multiplier }
            }
            Some(given) => {
                let expected = "none, linear, yarn or longrope";
                let name = keys.name("rope.scaling.type");
                return Err(Error::invalid(name, given.escape_debug(), expected));
            }
        };
        if factor <= 0.0 {
            let name = keys.name("rope.scaling.factor");
            return Err(Error::invalid(name, factor, "a number above 0"));
        }
        let half = [dims / 2];
        let long = tensors.may("rope_factors_long.weight", &half)?;
        let short = tensors.may("rope_factors_short.weight", &half)?;
        let plain = tensors.may("rope_freqs.weight", &half)?;
        let (name, factors) = match (long, short, context > original) {
            (Some(long), Some(_), true) => (Some(long), Some(Factors::Long)),
            (Some(_), Some(short), false) => (Some(short), Some(Factors::Short)),
            (None, None, _) => (plain, None),
            _ => {
                let given = "one of rope_factors_long and rope_factors_short";
                return Err(Error::invalid("tensors", given, "both, or none"));
            }
        };
        let divisors = name.map(|name| floats(gguf, &name)).transpose()?;
        let attn_factor = f64::from(keys.factor("rope.scaling.attn_factor")?.unwrap_or(1.0));
        Ok(Self { pairing, scaling, divisors, factors, attn_factor })
    }

    /// The rotary positions of a layer that turns `dims` values by a base.
    pub fn rope(&self, dims: usize, base: f64, scaled: bool, divided: bool) -> Result<Rope> {
        if dims == 0 || !dims.is_multiple_of(2) {
            return Err(Error::invalid("rope.dimension_count", dims, "an even number above 0"));
        }
        if !(base.is_finite() && base > 1.0) {
            return Err(Error::invalid("rope.freq_base", base, "a number above 1"));
        }
        let scaling = if scaled { self.scaling } else { Scaling::None };
        let mut frequencies: Vec<f64> =
            (0..dims / 2).map(|i| libm::pow(base, -2.0 * i as f64 / dims as f64)).collect();
        if let Some(divisors) = self.divisors.as_ref().filter(|_| divided) {
            if divisors.len() != frequencies.len() {
                let expected = format!("{} factors", frequencies.len());
                return Err(Error::invalid("rope factors", divisors.len(), expected));
            }
            for (frequency, &divisor) in frequencies.iter_mut().zip(divisors) {
                *frequency /= f64::from(divisor);
            }
        }
        let mut magnitude = self.attn_factor;
        match scaling {
            Scaling::None => {}
            Scaling::Linear { factor } => frequencies.iter_mut().for_each(|f| *f /= factor),
            Scaling::Yarn { factor, original, beta_fast, beta_slow, log_multiplier } => {
                let ramp = ramp(dims, base, original, [beta_fast, beta_slow]);
                for (i, frequency) in frequencies.iter_mut().enumerate() {
                    let fast = ramp(i);
                    *frequency = *frequency / factor * (1.0 - fast) + *frequency * fast;
                }
                let log = libm::log(factor);
                magnitude *= match log_multiplier {
                    0.0 => 1.0 + 0.1 * log,
                    given => (1.0 + 0.1 * log) / (1.0 + 0.1 * given * log),
                };
            }
        }
        Ok(Rope { dims, pairing: self.pairing, frequencies, magnitude })
    }
}

/// How much of a pair counts as fast under YaRN, 0 to 1, by its index.
fn ramp(dims: usize, base: f64, original: usize, betas: [f64; 2]) -> impl Fn(usize) -> f64 {
    let last = dims as f64 - 1.0;
    let turns = |beta: f64| {
        let length = original as f64 / (2.0 * std::f64::consts::PI * beta);
        dims as f64 * libm::log(length) / (2.0 * libm::log(base))
    };
    let low = libm::floor(turns(betas[0])).clamp(0.0, last);
    let high = libm::ceil(turns(betas[1])).clamp(0.0, last);
    move |i| 1.0 - ((i as f64 - low) / f64::max(0.001, high - low)).clamp(0.0, 1.0)
}

impl Rope {
    /// The cosines and sines of a position, `dims / 2` of each: in f64 by the `libm` crate, times
    /// the magnitude, rounded to f32 at the end.
    pub fn table(&self, position: usize) -> (Vec<f32>, Vec<f32>) {
        let of = |function: fn(f64) -> f64| {
            let value =
                |&frequency: &f64| (function(position as f64 * frequency) * self.magnitude) as f32;
            self.frequencies.iter().map(value).collect()
        };
        (of(libm::cos), of(libm::sin))
    }
}

/// The values of a tensor of f32.
fn floats(gguf: &Gguf, name: &str) -> Result<Vec<f32>> {
    let tensor = gguf
        .tensor(name)
        .ok_or_else(|| Error::invalid(format!("tensor {name}"), "nothing", "it to be there"))?;
    if tensor.tensor_type() != TensorType::F32 {
        return Err(Error::invalid(format!("tensor {name}: type"), tensor.tensor_type(), "f32"));
    }
    let bytes = gguf.tensor_bytes(tensor)?;
    let float = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap_or_default());
    let values: Vec<f32> = bytes.chunks_exact(4).map(float).collect();
    match values.iter().position(|value| !value.is_normal()) {
        Some(at) => {
            let what = format!("tensor {name}: value {at}");
            Err(Error::invalid(what, values[at], "a finite number, not 0"))
        }
        None => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(scaling: Scaling) -> RopeRule {
        let pairing = Pairing::Halves;
        RopeRule { pairing, scaling, divisors: None, factors: None, attn_factor: 1.0 }
    }

    const YARN: Scaling = Scaling::Yarn {
        factor: 32.0,
        original: 4096,
        beta_fast: 32.0,
        beta_slow: 1.0,
        log_multiplier: 0.0,
    };

    #[test]
    fn tables_are_the_f64_values_rounded() {
        let rope = rule(Scaling::None).rope(64, 10_000.0, true, true).unwrap();
        for position in [0, 1, 255, 256, 257, 16_001, 262_143, 1_048_575] {
            let (cos, sin) = rope.table(position);
            for (i, (&c, &s)) in cos.iter().zip(&sin).enumerate() {
                let angle = position as f64 * libm::pow(10_000.0, -(2.0 * i as f64) / 64.0);
                assert_eq!((c, s), (libm::cos(angle) as f32, libm::sin(angle) as f32));
            }
        }
        assert_eq!(rope.table(0).0, vec![1.0; 32]);
        assert_eq!(rope.frequencies[0], 1.0);
    }

    #[test]
    fn linear_scaling_divides_positions() {
        let plain = rule(Scaling::None).rope(8, 10_000.0, true, true).unwrap();
        let scaled = rule(Scaling::Linear { factor: 8.0 });
        assert_eq!(scaled.rope(8, 10_000.0, true, true).unwrap().table(80), plain.table(10));
        assert_eq!(scaled.rope(8, 10_000.0, false, true).unwrap(), plain);
    }

    /// gpt-oss: 64 dims, base 150,000. d(32) = 8.09.., d(1) = 17.39..: pairs 0..=8 are left, pairs
    /// 18.. are divided by 32.
    #[test]
    fn yarn_leaves_fast_pairs_and_divides_slow_ones() {
        let plain = rule(Scaling::None).rope(64, 150_000.0, true, true).unwrap();
        let yarn = rule(YARN).rope(64, 150_000.0, true, true).unwrap();
        for i in 0..32 {
            let (f, y) = (plain.frequencies[i], yarn.frequencies[i]);
            match i {
                0..=8 => assert_eq!(y, f, "{i}"),
                18.. => assert_eq!(y, f / 32.0, "{i}"),
                _ => {
                    let fast = 1.0 - (i as f64 - 8.0) / 10.0;
                    assert_eq!(y, f / 32.0 * (1.0 - fast) + f * fast, "{i}");
                }
            }
        }
        assert!((yarn.magnitude - 1.346_573_590_279_97).abs() < 1e-12);
    }

    #[test]
    fn factors_divide_frequencies() {
        let mut divided = rule(Scaling::None);
        divided.divisors = Some(vec![1.0, 2.0, 4.0, 8.0]);
        let rope = divided.rope(8, 10_000.0, true, true).unwrap();
        let plain = divided.rope(8, 10_000.0, true, false).unwrap();
        for i in 0..4 {
            assert_eq!(rope.frequencies[i], plain.frequencies[i] / f64::from(1u32 << i));
        }
        assert!(divided.rope(6, 10_000.0, true, true).is_err());
        assert!(divided.rope(7, 10_000.0, true, false).is_err());
        assert!(divided.rope(8, 0.0, true, false).is_err());
    }
}
