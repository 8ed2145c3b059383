//! The weight types: properties, golden vectors, and what random bits may decode to.

use std::collections::BTreeSet;
use std::path::PathBuf;

use strata_core::format::scale::{UE4M3_HALF, e8m0_half, f16};
use strata_core::format::{
    Decoded, Format, MAX_BLOCK, WeightType, dequantize, dispatch, random_blocks,
};
use strata_core::{Error, Layout};

fn vectors() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance/vectors/weights")
}

fn read(name: &str) -> Vec<u8> {
    let path = vectors().join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The types whose zeros may have another sign than the reference's: it scales
/// by a negative sub-scale or shift before a zero code or scale comes in.
/// (IQ4_XS could, where a sub-scale is zero; no such one is in the vectors.)
const ZERO_SIGN: [WeightType; 3] = [WeightType::Q3_K, WeightType::Q6_K, WeightType::IQ1_S];

#[test]
fn golden_vectors() {
    let index = String::from_utf8(read("index.tsv")).expect("index.tsv is text");
    let mut seen = BTreeSet::new();
    let mut zero_signs = BTreeSet::new();
    for line in index.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, id, values, bytes, rows, cols, source] = fields[..] else {
            panic!("index.tsv: {line}");
        };
        let number = |s: &str| s.parse::<usize>().expect("index.tsv holds numbers");
        let ty: WeightType = name.parse().unwrap();
        assert_eq!(ty.to_string(), name);
        assert_eq!(ty.ggml_id() as usize, number(id), "{name}");
        assert_eq!(ty.block_values(), number(values), "{name}");
        assert_eq!(ty.block_bytes(), number(bytes), "{name}");

        let blocks = read(&format!("{name}.{source}.blocks"));
        let expected = read(&format!("{name}.{source}.f32"));
        let count = number(rows) * number(cols);
        assert_eq!(blocks.len(), number(rows) * ty.row_bytes(number(cols)).unwrap(), "{name}");
        assert_eq!(expected.len(), 4 * count, "{name}");

        let mut given = vec![f32::NAN; count];
        dequantize(ty, &blocks, &mut given).unwrap();
        let expected = expected.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
        for (i, (given, expected)) in given.iter().zip(expected).enumerate() {
            if given.to_bits() == expected.to_bits() {
                continue;
            }
            assert!(
                ZERO_SIGN.contains(&ty) && *given == 0.0 && expected == 0.0,
                "{name} {source}, value {i}: {given:e} ({:#010x}), expected {expected:e} ({:#010x})",
                given.to_bits(),
                expected.to_bits(),
            );
            zero_signs.insert(ty);
        }
        seen.insert((ty, source.to_owned()));
    }
    assert_eq!(seen.len(), 2 * WeightType::ALL.len(), "every type, quantized and random");
    // The list is not longer than it must be.
    assert_eq!(zero_signs, BTreeSet::from(ZERO_SIGN));
}

#[test]
fn properties() {
    let mut before = None;
    for &ty in WeightType::ALL {
        assert!(before < Some(ty.ggml_id()), "{ty}: ids ascend");
        before = Some(ty.ggml_id());
        assert_eq!(WeightType::from_ggml_id(ty.ggml_id()), Some(ty));

        assert!([32, 64, 128, 256].contains(&ty.block_values()), "{ty}");
        let group = if ty == WeightType::NVFP4 { 16 } else { ty.block_values() };
        assert_eq!(ty.group(), group, "{ty}");
        let minimum = match ty {
            WeightType::Q4_1 | WeightType::Q5_1 => Some(32),
            WeightType::Q4_K | WeightType::Q5_K | WeightType::IQ1_S => Some(32),
            WeightType::Q2_K => Some(16),
            _ => None,
        };
        assert_eq!(ty.min_group(), minimum, "{ty}");
        // A minimum needs the sums that its layout carries.
        if minimum.is_some() {
            assert_ne!(ty.layout(), Layout::D4, "{ty}");
        }
        if let Some(sub) = ty.sub_scale() {
            assert!(sub == 16 || sub == 32, "{ty}");
            assert_eq!(ty.block_values(), 256, "{ty}");
        }
        // An isum of 32 values must be exact in f32.
        assert!(32 * ty.max_iw() * 127 <= 1 << 24, "{ty}");

        dispatch!(ty, F => {
            assert_eq!(F::TYPE, ty);
            assert_eq!(F::BLOCK, ty.block_values());
            assert_eq!(F::BYTES, ty.block_bytes());
            assert_eq!(F::LAYOUT, ty.layout());
            assert_eq!(F::GROUP, ty.group());
            assert_eq!(F::MIN_GROUP, ty.min_group());
            assert_eq!(F::SUB_SCALE, ty.sub_scale());
            assert_eq!(F::MAX_IW, ty.max_iw());
        });
    }
    // f32, f16, q8_1, retired and future ids are no weight types.
    for id in [0, 1, 4, 5, 9, 15, 24, 30, 31, 36, 43, u32::MAX] {
        assert_eq!(WeightType::from_ggml_id(id), None, "{id}");
    }
}

#[test]
fn names() {
    for &ty in WeightType::ALL {
        let name = ty.to_string();
        assert_eq!(name.parse::<WeightType>().unwrap(), ty);
        assert_eq!(name.to_uppercase().parse::<WeightType>().unwrap(), ty);
        assert_eq!(name.to_lowercase().parse::<WeightType>().unwrap(), ty);
        assert_eq!(format!("{ty:?}").to_lowercase(), name.to_lowercase());
        assert_eq!(format!("{ty:>9}").len(), 9);
    }
    for wrong in ["", "q4", "q4_k_m", " q4_0", "f16", "Ｑ4_0"] {
        let error = wrong.parse::<WeightType>().unwrap_err();
        assert!(matches!(&error, Error::UnknownType { given, .. } if given == wrong));
        for &ty in WeightType::ALL {
            assert!(error.to_string().contains(ty.name()), "{error}");
        }
    }
}

#[test]
fn rows_must_be_whole_blocks() {
    for &ty in WeightType::ALL {
        let block = ty.block_values();
        assert_eq!(ty.row_bytes(0).unwrap(), 0);
        assert_eq!(ty.row_bytes(3 * block).unwrap(), 3 * ty.block_bytes());
        for cols in [1, block - 1, block + 1, usize::MAX] {
            let error = ty.row_bytes(cols).unwrap_err().to_string();
            assert!(error.contains(ty.name()) && error.contains(&cols.to_string()), "{error}");
        }
    }
    // The only types with more bytes than values; their rows can overflow.
    let cols = usize::MAX / 32 * 32;
    assert!(WeightType::Q8_0.row_bytes(cols).is_err());
    assert_eq!(WeightType::MXFP4.row_bytes(cols).unwrap(), cols / 32 * 17);
}

#[test]
fn dequantize_checks_sizes() {
    for &ty in WeightType::ALL {
        let blocks = random_blocks(ty, 1, 3);
        let mut out = vec![0.0; 3 * ty.block_values() + 1];
        let (whole, longer) = (3 * ty.block_values(), 3 * ty.block_values() + 1);
        dequantize(ty, &blocks, &mut out[..whole]).unwrap();
        for (bytes, values) in
            [(blocks.len() - 1, whole), (blocks.len(), whole - 1), (blocks.len(), longer), (0, 1)]
        {
            let error = dequantize(ty, &blocks[..bytes], &mut out[..values]).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }));
            assert!(error.to_string().contains(ty.name()), "{error}");
        }
        dequantize(ty, &[], &mut []).unwrap();
    }
}

/// A second, slower way to random bits than the library's own.
fn random_bits(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

#[test]
fn integers_stay_within_max_iw() {
    const BLOCKS: usize = 100_000;
    for &ty in WeightType::ALL {
        let bits = random_bits(0x5eed + u64::from(ty.ggml_id()), BLOCKS * ty.block_bytes());
        let mut largest = 0;
        let mut minimum = 0;
        let mut out = Decoded::ZERO;
        for block in bits.chunks_exact(ty.block_bytes()) {
            ty.decode(block, &mut out);
            let iw = out.iw[..ty.block_values()].iter();
            largest = iw.map(|&iw| i32::from(iw).abs()).max().unwrap().max(largest);
            if let Some(group) = ty.min_group() {
                let mn = out.mn[..ty.block_values() / group].iter();
                minimum = mn.map(|&mn| i32::from(mn).abs()).max().unwrap().max(minimum);
            }
        }
        // So many random blocks reach the bound: it is not merely an upper one.
        assert_eq!(largest, ty.max_iw(), "{ty}");
        assert!(minimum <= 63, "{ty}: minimum {minimum}");
    }
}

#[test]
fn decoders_leave_the_rest_alone() {
    const MARK: i16 = 0x5a5a;
    let stale = Decoded { iw: [MARK; MAX_BLOCK], dw: [f32::MAX; 4], mn: [MARK; 16], dm: f32::MIN };
    for &ty in WeightType::ALL {
        let block = random_blocks(ty, 7, 1);
        let mut out = stale.clone();
        ty.decode(&block, &mut out);
        let groups = ty.block_values() / ty.group();
        let minimums = ty.min_group().map_or(0, |group| ty.block_values() / group);
        assert!(out.iw[..ty.block_values()].iter().all(|&iw| iw != MARK), "{ty}");
        assert!(out.iw[ty.block_values()..].iter().all(|&iw| iw == MARK), "{ty}");
        assert!(out.dw[..groups].iter().all(|&dw| dw != f32::MAX), "{ty}");
        assert!(out.dw[groups..].iter().all(|&dw| dw == f32::MAX), "{ty}");
        assert!(out.mn[..minimums].iter().all(|&mn| mn != MARK), "{ty}");
        assert!(out.mn[minimums..].iter().all(|&mn| mn == MARK), "{ty}");
        assert_eq!(out.dm == f32::MIN, minimums == 0, "{ty}");
        // Bytes after the block are not the block's.
        let mut longer = block.clone();
        longer.extend_from_slice(&[0xff; 300]);
        let mut again = stale.clone();
        ty.decode(&longer, &mut again);
        assert_eq!(again, out, "{ty}");
    }
}

#[test]
#[should_panic(expected = "q6_K: a whole block")]
fn a_short_block_is_refused() {
    let mut out = Decoded::ZERO;
    WeightType::Q6_K.decode(&[0; 209], &mut out);
}

#[test]
fn random_weights_are_sane() {
    const BLOCKS: usize = 4000;
    for &ty in WeightType::ALL {
        let blocks = random_blocks(ty, 42, BLOCKS);
        assert_eq!(blocks.len(), BLOCKS * ty.block_bytes());
        assert_eq!(blocks, random_blocks(ty, 42, BLOCKS), "{ty}: equal seeds");
        assert_ne!(blocks, random_blocks(ty, 43, BLOCKS), "{ty}: other seeds");
        assert!(random_blocks(ty, 42, 0).is_empty());

        let mut out = Decoded::ZERO;
        for block in blocks.chunks_exact(ty.block_bytes()) {
            ty.decode(block, &mut out);
            let dw = &out.dw[..ty.block_values() / ty.group()];
            assert!(dw.iter().all(|dw| dw.is_normal()), "{ty}: {dw:?}");
            if ty.min_group().is_some() {
                assert!(out.dm.is_normal(), "{ty}: {}", out.dm);
            }
        }

        let mut values = vec![0.0; BLOCKS * ty.block_values()];
        dequantize(ty, &blocks, &mut values).unwrap();
        let mut squares = 0.0;
        let mut sum = 0.0;
        for &value in &values {
            assert!(value.abs() <= 1.0, "{ty}: {value}");
            squares += f64::from(value) * f64::from(value);
            sum += f64::from(value);
        }
        let rms = (squares / values.len() as f64).sqrt();
        let mean = sum / values.len() as f64;
        assert!((0.02..1.0).contains(&rms), "{ty}: rms {rms}");
        assert!(mean.abs() < 0.5 * rms, "{ty}: mean {mean}, rms {rms}");
        println!("{ty:>8}: rms {rms:.3}, mean {mean:+.3}");
    }
}

#[test]
fn random_bytes_are_the_same_on_every_machine() {
    // The first outputs of splitmix64 from seed 0, as published with the generator.
    let mut generator = strata_core::format::random::SplitMix64::new(0);
    assert_eq!(generator.next_u64(), 0xe220_a839_7b1d_cdaf);
    assert_eq!(generator.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    let blocks = random_blocks(WeightType::Q8_0, 0, 1);
    // The scale keeps its sign and mantissa bits (0xcdaf) and gets the exponent 2^-8: 7 of bias 15.
    let scale = 0xcdaf & 0x83ff | 7 << 10;
    assert_eq!(blocks[..2], u16::to_le_bytes(scale));
    assert_eq!(blocks[2..8], 0xe220_a839_7b1d_cdaf_u64.to_le_bytes()[2..]);
    assert_eq!(blocks[8..16], 0x6e78_9e6a_a1b9_65f4_u64.to_le_bytes());
}

#[test]
fn every_f16_widens_exactly() {
    for bits in 0..=u16::MAX {
        let expected = half::f16::from_bits(bits).to_f32();
        assert_eq!(f16(bits).is_nan(), expected.is_nan(), "{bits:#06x}");
        if !expected.is_nan() {
            assert_eq!(f16(bits).to_bits(), expected.to_bits(), "{bits:#06x}");
        }
    }
}

#[test]
fn every_byte_scale_widens_exactly() {
    for e in 0..=u8::MAX {
        assert_eq!(f64::from(e8m0_half(e)), (f64::from(e) - 128.0).exp2(), "{e}");
    }
    for code in 0..=u8::MAX {
        let (exponent, mantissa) = (f64::from(code >> 3 & 15), f64::from(code & 7));
        let whole = match code {
            0x7f => 0.0, // the format's NaN
            _ if exponent == 0.0 => mantissa * (-9f64).exp2(),
            _ => (1.0 + mantissa / 8.0) * (exponent - 7.0).exp2(),
        };
        assert_eq!(f64::from(UE4M3_HALF[usize::from(code)]), whole / 2.0, "{code:#04x}");
    }
}
