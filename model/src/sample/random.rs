//! Random numbers that depend on (seed, index) alone.

/// Multipliers and key increments of Philox4x32 (Salmon and others, "Parallel random numbers: as
/// easy as 1, 2, 3", 2011).
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const INCREMENTS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// Philox4x32 with 10 rounds: four words of a counter, under a key.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let product = |i: usize| u64::from(MULTIPLIERS[i]) * u64::from(counter[2 * i]);
        let (a, b) = (product(0), product(1));
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(INCREMENTS[0]), key[1].wrapping_add(INCREMENTS[1])];
    }
    counter
}

/// The `index`-th number of a seed, in [0, 1): the upper 53 bits of the first two words of
/// Philox4x32-10 with the seed as key and the index as counter, times 2^-53.
pub fn uniform(seed: u64, index: u64) -> f64 {
    let counter = [index as u32, (index >> 32) as u32, 0, 0];
    let [low, high, ..] = philox(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = u64::from(high) << 32 | u64::from(low);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the generator's authors (Random123, `kat_vectors`).
    #[test]
    fn philox_gives_the_known_answers() {
        let answer = philox([0; 4], [0; 2]);
        assert_eq!(answer, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let answer = philox([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(answer, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let answer = philox(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
        );
        assert_eq!(answer, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn numbers_are_of_seed_and_index() {
        assert_eq!(uniform(7, 3), uniform(7, 3));
        assert_ne!(uniform(7, 3), uniform(3, 7));
        assert_ne!(uniform(7, 3), uniform(7, 4));
        assert_ne!(uniform(7, 1 << 32), uniform(7, 0));
        assert_ne!(uniform(1 << 32, 0), uniform(0, 0));
        // 0xe169c58d6627e8d5 >> 11, of 2^53.
        assert_eq!(uniform(0, 0), 7_931_020_870_206_717_f64 / 9_007_199_254_740_992_f64);
        let all: Vec<f64> = (0..4096).map(|index| uniform(1, index)).collect();
        assert!(all.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = all.iter().sum::<f64>() / 4096.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
