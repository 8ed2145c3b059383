//! The steps of a whole model around its products and its attention.

use half::{bf16, f16};

use crate::numerics::{self, canonical, sigmoid};

/// The sum of `f(x[c])` as norms take it: 256 partial sums over columns c = l mod 256, then halves.
fn lanes(x: &[f32], add: impl Fn(f32, f32) -> f32) -> f32 {
    let mut p = [0.0f32; 256];
    for (c, x) in x.iter().enumerate() {
        p[c % 256] = add(*x, p[c % 256]);
    }
    let mut half = 128;
    while half > 0 {
        for l in 0..half {
            p[l] += p[l + half];
        }
        half /= 2;
    }
    p[0]
}

/// `x / sqrt(mean of squares + eps)`, times `weight` where there is one.
pub fn rms_norm(x: &[f32], weight: Option<&[f32]>, eps: f32) -> Vec<f32> {
    let mean = lanes(x, |x, p| x.mul_add(x, p)) / x.len() as f32;
    let r = 1.0 / (mean + eps).sqrt();
    let one = |c: usize| match weight {
        Some(w) => (x[c] * r) * w[c],
        None => x[c] * r,
    };
    (0..x.len()).map(|c| canonical(one(c))).collect()
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias`.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Vec<f32> {
    let n = x.len() as f32;
    let mean = lanes(x, |x, p| p + x) / n;
    let d: Vec<f32> = x.iter().map(|x| x - mean).collect();
    let r = 1.0 / (lanes(&d, |d, p| d.mul_add(d, p)) / n + eps).sqrt();
    d.iter().zip(weight).zip(bias).map(|((d, w), b)| canonical((d * r).mul_add(*w, *b))).collect()
}

/// Which values of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// 2 i and 2 i + 1.
    Interleaved,
    /// i and i + half of the turned values.
    Halves,
}

/// Turns the first `2 * cos.len()` values of a head.
pub fn rope(x: &mut [f32], cos: &[f32], sin: &[f32], pairs: Pairs) {
    let n = cos.len();
    for i in 0..n {
        let (a, b) = match pairs {
            Pairs::Interleaved => (2 * i, 2 * i + 1),
            Pairs::Halves => (i, i + n),
        };
        let (x0, x1, c, s) = (x[a], x[b], cos[i], sin[i]);
        x[a] = canonical(x0.mul_add(c, -(x1 * s)));
        x[b] = canonical(x0.mul_add(s, x1 * c));
    }
}

/// `x + y`.
pub fn add(x: f32, y: f32) -> f32 {
    canonical(x + y)
}

/// `x * factor`.
pub fn scale(x: f32, factor: f32) -> f32 {
    canonical(x * factor)
}

/// `cap * tanh(x / cap)`.
pub fn softcap(x: f32, cap: f32) -> f32 {
    canonical(numerics::softcap(x, cap))
}

/// `x * (1 / (1 + exp(-gate)))`.
pub fn gate(x: f32, gate: f32) -> f32 {
    canonical(x * sigmoid(gate))
}

/// How the values of a matrix that is not quantized are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FloatType {
    /// 32 bits.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
}

impl FloatType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::BF16];

    /// Bytes of a value.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// Little-endian values, each exactly.
    pub fn widen(self, bytes: &[u8]) -> Vec<f32> {
        let halves = |f: fn(u16) -> f32| {
            bytes.as_chunks::<2>().0.iter().map(|b| f(u16::from_le_bytes(*b))).collect()
        };
        match self {
            Self::F32 => bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            Self::F16 => halves(|bits| f16::from_bits(bits).to_f32()),
            Self::BF16 => halves(|bits| bf16::from_bits(bits).to_f32()),
        }
    }
}

/// `out[r][i]`: fma over ascending k from +0, weights widened first.
pub fn float_product(x: &[f32], weights: &[u8], ty: FloatType, width: usize) -> Vec<f32> {
    super::router_scores(x, &ty.widen(weights), width)
}
