//! Values of matrices that are not quantized.

use crate::format::scale::f16;

/// How such a value is stored, little-endian.
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

    /// The name, as in GGUF files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
        }
    }

    /// Widens as many values as `out` has room for, each exactly.
    #[inline(always)]
    pub fn widen_to(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => {
                for (to, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *to = f32::from_le_bytes(*b);
                }
            }
            Self::F16 => {
                for (to, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *to = f16(u16::from_le_bytes(*b));
                }
            }
            Self::BF16 => {
                for (to, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *to = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
                }
            }
        }
    }

    /// All values of `bytes`.
    pub fn widen(self, bytes: &[u8]) -> Vec<f32> {
        let mut out = vec![0.0; bytes.len() / self.bytes()];
        self.widen_to(bytes, &mut out);
        out
    }
}

impl std::fmt::Display for FloatType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
