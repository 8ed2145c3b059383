//! Inputs, made from a seed: the same on every machine.

use strata_core::WeightType;
use strata_core::format::random::SplitMix64;
use strata_core::format::random_blocks;
use strata_core::prefill::normals;
use strata_core::routing::Routes;

/// What a matrix of f32 holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Close to normally distributed, variance 1.
    Normal,
    /// Normal, but one row in the middle is all zeros.
    ZeroRow,
    /// Normal, but every second group of 32 is all zeros.
    ZeroGroups,
    /// All +0.
    Zero,
    /// All -0.
    NegativeZero,
    /// Largest magnitude about 1e-38: a normal number whose inverse is finite, but whose scale is not.
    Tiny,
    /// Subnormal: multiples of 1e-45.
    Subnormal,
    /// Up to the largest f32.
    Huge,
    /// Normal, with an infinity in some groups, of either sign.
    Infinities,
    /// Normal, but one value of one row is NaN.
    OneNan,
    /// NaN of several bit patterns: single ones, and whole groups.
    Nans,
    /// Exactly half-way between two codes, of either sign.
    Ties,
    /// Normal, and a single value of 1e4 in every row.
    Spike,
    /// Every value 2048: sums of 32 overflow f16.
    SumOverflow,
    /// Up to 3e6: scales of f16 overflow too.
    ScaleOverflow,
    /// Normal values of very different sizes from group to group.
    Wide,
    /// All of the above, a group of 32 each.
    Mixed,
}

impl Values {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Normal,
        Self::ZeroRow,
        Self::ZeroGroups,
        Self::Zero,
        Self::NegativeZero,
        Self::Tiny,
        Self::Subnormal,
        Self::Huge,
        Self::Infinities,
        Self::OneNan,
        Self::Nans,
        Self::Ties,
        Self::Spike,
        Self::SumOverflow,
        Self::ScaleOverflow,
        Self::Wide,
        Self::Mixed,
    ];

    /// The name, as in a case's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::ZeroRow => "zero-row",
            Self::ZeroGroups => "zero-groups",
            Self::Zero => "zero",
            Self::NegativeZero => "negative-zero",
            Self::Tiny => "tiny",
            Self::Subnormal => "subnormal",
            Self::Huge => "huge",
            Self::Infinities => "infinities",
            Self::OneNan => "one-nan",
            Self::Nans => "nans",
            Self::Ties => "ties",
            Self::Spike => "spike",
            Self::SumOverflow => "sum-overflow",
            Self::ScaleOverflow => "scale-overflow",
            Self::Wide => "wide",
            Self::Mixed => "mixed",
        }
    }

    /// `rows` rows of `cols`, without gaps.
    pub fn fill(self, seed: u64, rows: usize, cols: usize) -> Vec<f32> {
        let mut values = normals(seed, rows * cols);
        if cols == 0 {
            return values;
        }
        let mut random = SplitMix64::new(!seed);
        match self {
            Self::Normal => {}
            Self::ZeroRow => {
                values[rows / 2 * cols..].iter_mut().take(cols).for_each(|v| *v = 0.0);
            }
            Self::OneNan => {
                if let Some(value) = values.get_mut(rows / 2 * cols + cols / 3) {
                    *value = f32::NAN;
                }
            }
            Self::Spike => {
                for row in values.chunks_exact_mut(cols) {
                    row[random.next_u64() as usize % cols] = 1e4;
                }
            }
            Self::Mixed => {
                let kinds = Self::ALL.into_iter().filter(|v| *v != Self::Mixed);
                let kinds: Vec<Self> = kinds.collect();
                for row in values.chunks_exact_mut(cols) {
                    for group in row.chunks_mut(32) {
                        kinds[random.next_u64() as usize % kinds.len()].group(group, &mut random);
                    }
                }
            }
            _ => {
                for row in values.chunks_exact_mut(cols) {
                    row.chunks_mut(32).for_each(|group| self.group(group, &mut random));
                }
            }
        }
        values
    }

    /// Makes one group of normal values into this kind.
    fn group(self, group: &mut [f32], random: &mut SplitMix64) {
        let draw = random.next_u64();
        let at = draw as usize % group.len();
        let sign = |v: f32| if draw >> 63 == 1 { -v } else { v };
        match self {
            Self::Normal | Self::Mixed => {}
            Self::ZeroRow | Self::Zero => group.fill(0.0),
            Self::ZeroGroups if draw >> 62 & 1 == 1 => group.fill(0.0),
            Self::ZeroGroups => {}
            Self::NegativeZero => group.fill(-0.0),
            Self::Tiny => group.iter_mut().for_each(|v| *v *= 2e-39),
            Self::Subnormal => {
                for v in group {
                    let bits = random.next_u64();
                    *v = f32::from_bits(bits as u32 & 0x8000_0007);
                }
            }
            Self::Huge => {
                group.iter_mut().for_each(|v| *v = (*v * 6.9e37).clamp(-f32::MAX, f32::MAX))
            }
            Self::Infinities if draw >> 62 & 1 == 1 => group[at] = sign(f32::INFINITY),
            Self::Infinities => {}
            Self::OneNan => group[at] = f32::NAN,
            Self::Nans => {
                // Quiet and signalling, both signs, several payloads.
                let nan = |bits: u64| f32::from_bits(bits as u32 | 0x7f80_0001);
                match draw >> 61 & 3 {
                    0 => group.iter_mut().for_each(|v| *v = nan(random.next_u64())),
                    1 => group[at] = nan(draw),
                    _ => {}
                }
            }
            Self::Ties => {
                // With a largest magnitude of 127 the scale is 1: halves are ties.
                for v in group.iter_mut() {
                    *v = (random.next_u64() % 254) as f32 - 126.5;
                }
                group[at] = sign(127.0);
            }
            Self::Spike => group[at] = 1e4,
            Self::SumOverflow => group.fill(2048.0),
            Self::ScaleOverflow => group.iter_mut().for_each(|v| *v *= 3e6),
            Self::Wide => {
                let exponent = (draw % 61) as i32 - 30;
                let factor = 2f32.powi(exponent);
                group.iter_mut().for_each(|v| *v *= factor);
            }
        }
    }
}

impl std::fmt::Display for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Which experts tokens choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Any k different experts.
    Random,
    /// k different experts, low ids far more often: few long runs, many short ones.
    Skewed,
    /// Every choice of every token is this expert.
    Only(i32),
    /// Only experts with an odd id.
    Odd,
    /// Any k experts, the same one allowed again.
    Repeats,
    /// All experts in ascending order; k is the number of experts.
    All,
    /// These ids for every token.
    Fixed(&'static [i32]),
}

/// Tokens, choices and experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routing {
    /// Experts.
    pub experts: usize,
    /// Choices of each token.
    pub k: usize,
    /// Tokens.
    pub tokens: usize,
    /// Which experts.
    pub choice: Choice,
}

impl Routing {
    /// `tokens` tokens that choose `k` of `experts`.
    pub const fn new(experts: usize, k: usize, tokens: usize, choice: Choice) -> Self {
        Self { experts, k, tokens, choice }
    }

    /// Rows in expert order.
    pub const fn rows(&self) -> usize {
        self.tokens * self.k
    }

    /// The routes, with normal weights.
    ///
    /// # Panics
    /// Where a table has more different choices than experts.
    pub fn routes(&self, seed: u64) -> Routes {
        let Self { experts, k, tokens, choice } = *self;
        let mut random = SplitMix64::new(seed ^ 0x726f_7574);
        let mut ids = Vec::with_capacity(tokens * k);
        for _ in 0..tokens {
            let first = ids.len();
            for j in 0..k {
                let id = match choice {
                    Choice::Only(e) => e,
                    Choice::Fixed(fixed) => fixed[j % fixed.len()],
                    Choice::All => j as i32,
                    Choice::Repeats => (random.next_u64() % experts as u64) as i32,
                    Choice::Random => loop {
                        let id = (random.next_u64() % experts as u64) as i32;
                        if !ids[first..].contains(&id) {
                            break id;
                        }
                    },
                    Choice::Odd => loop {
                        let id = (random.next_u64() % (experts as u64 / 2)) as i32 * 2 + 1;
                        if !ids[first..].contains(&id) {
                            break id;
                        }
                    },
                    Choice::Skewed => loop {
                        // The smallest of three draws.
                        let draw = (0..3).map(|_| random.next_u64() % experts as u64).min();
                        let id = draw.unwrap_or(0) as i32;
                        if !ids[first..].contains(&id) {
                            break id;
                        }
                    },
                };
                ids.push(id);
            }
        }
        let weights = normals(seed, tokens * k);
        Routes::new(ids, weights, k, experts).expect("the table's routes are valid")
    }
}

impl std::fmt::Display for Routing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "E={},k={},", self.experts, self.k)?;
        match self.choice {
            Choice::Random => f.write_str("random")?,
            Choice::Skewed => f.write_str("skewed")?,
            Choice::Only(e) => write!(f, "only-{e}")?,
            Choice::Odd => f.write_str("odd")?,
            Choice::Repeats => f.write_str("repeats")?,
            Choice::All => f.write_str("all")?,
            Choice::Fixed(_) => f.write_str("fixed")?,
        }
        write!(f, "/T={}", self.tokens)
    }
}

/// What quantized weights hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightValues {
    /// Random codes and scales; every weight is at most 1 in magnitude.
    Random,
    /// Random bits: scales of any size, infinite and NaN ones too.
    Bits,
    /// Random codes, and f16 scales of 65504: products of scales leave f16 behind.
    LargeScales,
    /// The golden vector that ggml quantized.
    GoldenQuantized,
    /// The golden vector of random bits.
    GoldenRandom,
}

impl WeightValues {
    /// The blocks, one after the other.
    pub fn blocks(self, ty: WeightType, seed: u64, blocks: usize) -> Vec<u8> {
        match self {
            Self::Random => random_blocks(ty, seed, blocks),
            Self::Bits => {
                let mut bytes = vec![0; blocks * ty.block_bytes()];
                SplitMix64::new(seed).fill(&mut bytes);
                bytes
            }
            Self::LargeScales => {
                let mut bytes = random_blocks(ty, seed, blocks);
                for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                    for &at in f16_scales(ty) {
                        block[at..at + 2].copy_from_slice(&0x7bff_u16.to_le_bytes());
                    }
                }
                bytes
            }
            Self::GoldenQuantized => crate::ops::golden::weights(ty, "quantized").0.to_vec(),
            Self::GoldenRandom => crate::ops::golden::weights(ty, "random").0.to_vec(),
        }
    }
}

impl std::fmt::Display for WeightValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Random => "random",
            Self::Bits => "bits",
            Self::LargeScales => "large-scales",
            Self::GoldenQuantized => "golden-quantized",
            Self::GoldenRandom => "golden-random",
        })
    }
}

/// Where a block of a type with minimums keeps its f16 scales.
fn f16_scales(ty: WeightType) -> &'static [usize] {
    match ty {
        WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K => &[0, 2],
        WeightType::Q2_K => &[80, 82],
        WeightType::Q6_K => &[208],
        WeightType::Q3_K => &[108],
        _ => &[0],
    }
}
