//! What `strata raw` and `prefill --input` read: shapes, sizes, ids, values, headers.
//!
//! Accepted jobs are small, run on the CPU, and are compared with the plain reference.

#![no_main]

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use strata::backend::{Backend, BackendKind};
use strata::device::{DeviceName, OpenOptions};
use strata::npy::Header;
use strata::raw::{ActivationFormat, Dequantize, Mmq, Quantize, Routed};
use strata::rows::RowFormat;
use strata::{Device, Layout, WeightType, reference};

/// The most bytes a file of an accepted job may have.
const MOST: usize = 1 << 16;

thread_local! {
    // The fuzzer runs as many processes as there are cores.
    static CPU: Box<dyn Backend> = {
        let options = OpenOptions { threads: Some(1) };
        let cpu = DeviceName::Index(BackendKind::Cpu, 0);
        Device::open_with(cpu, &options).expect("always there").0
    };
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    // Bytes that end too early make no job.
    let _ = match input.int_in_range(0..=3) {
        Ok(0) => npy(&mut input),
        Ok(1) => quantize(&mut input),
        Ok(2) => dequantize(&mut input),
        _ => mmq(&mut input),
    };
});

/// A dimension: small, anything, or one of those at which sums overflow.
fn dimension(input: &mut Unstructured<'_>) -> Result<usize> {
    Ok(match input.int_in_range(0..=15)? {
        0 => usize::arbitrary(input)?,
        1 => usize::MAX >> input.int_in_range(0..=63)?,
        2 => 0,
        3..=8 => 32 * input.int_in_range(1..=24)?,
        _ => input.int_in_range(1..=40)?,
    })
}

/// A file of so many bytes, or nearly so many.
fn file(input: &mut Unstructured<'_>, bytes: usize) -> Result<Vec<u8>> {
    let len = match input.int_in_range(0..=20)? {
        0 => bytes.saturating_sub(1),
        1 => bytes + 1,
        _ => bytes,
    };
    let seed = input.bytes(input.len().min(64))?;
    let mut state = seed.iter().fold(1u64, |s, &b| (s ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    Ok((0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

fn npy(input: &mut Unstructured<'_>) -> Result<()> {
    let len = u64::arbitrary(input)?;
    let bytes = input.bytes(input.len())?;
    for len in [len, bytes.len() as u64] {
        match Header::parse("fuzzed", bytes, len) {
            Ok(header) => assert_eq!((header.data + header.rows * header.cols * 4) as u64, len),
            Err(error) => assert!(error.to_string().starts_with("fuzzed: ")),
        }
    }
    Ok(())
}

fn quantize(input: &mut Unstructured<'_>) -> Result<()> {
    let format = match input.int_in_range(0..=5)? {
        i @ 0..=2 => ActivationFormat::Product(Layout::ALL[i]),
        i => ActivationFormat::Rows(RowFormat::ALL[i - 3]),
    };
    let (rows, cols) = (dimension(input)?, dimension(input)?);
    let Ok(job) = Quantize::new(format, rows, cols) else { return Ok(()) };
    if job.input_bytes().max(job.output_bytes()) > MOST {
        return Ok(());
    }
    let x = file(input, job.input_bytes())?;
    let out = CPU.with(|cpu| job.run(&**cpu, &x));
    assert_eq!(out.is_ok(), x.len() == job.input_bytes());
    if let (Ok(out), ActivationFormat::Product(layout)) = (out, format) {
        let expected = reference::quantize(&floats(&x), rows, cols, cols, None, layout);
        assert!(out == expected, "{layout}, {rows} x {cols}");
    }
    Ok(())
}

fn weight_type(input: &mut Unstructured<'_>) -> Result<WeightType> {
    input.choose(WeightType::ALL).copied()
}

fn dequantize(input: &mut Unstructured<'_>) -> Result<()> {
    let (ty, rows, cols) = (weight_type(input)?, dimension(input)?, dimension(input)?);
    let Ok(job) = Dequantize::new(ty, rows, cols) else { return Ok(()) };
    if job.input_bytes().max(job.output_bytes()) > MOST {
        return Ok(());
    }
    let blocks = file(input, job.input_bytes())?;
    match job.run(&blocks) {
        Ok(out) => assert_eq!(out.len(), job.output_bytes()),
        Err(_) => assert_ne!(blocks.len(), job.input_bytes()),
    }
    Ok(())
}

fn mmq(input: &mut Unstructured<'_>) -> Result<()> {
    let ty = weight_type(input)?;
    let (rows, cols, tokens) = (dimension(input)?, dimension(input)?, dimension(input)?);
    let routed = match bool::arbitrary(input)? {
        true => Some(Routed { experts: dimension(input)?, k: dimension(input)? }),
        false => None,
    };
    let Ok(job) = Mmq::new(ty, rows, cols, tokens, routed) else { return Ok(()) };
    let sizes = [job.weight_bytes(), job.input_bytes(), job.ids_bytes(), job.output_bytes()];
    if sizes.into_iter().max() > Some(MOST) {
        return Ok(());
    }
    let weights = file(input, job.weight_bytes())?;
    let x = file(input, job.input_bytes())?;
    let mut ids = Vec::new();
    let experts = routed.map_or(1, |routed| routed.experts);
    for _ in 0..job.ids_bytes() / 4 {
        let id = match input.int_in_range(0..=200)? {
            0 => i32::arbitrary(input)?,
            _ => (input.int_in_range(0..=u16::MAX)? as usize % experts) as i32,
        };
        ids.extend(id.to_le_bytes());
    }
    let out = CPU.with(|cpu| job.run(&**cpu, weights.clone().into(), &x, &ids));
    let Ok(out) = out else { return Ok(()) };
    let q8 = reference::quantize(&floats(&x), tokens, cols, cols, None, ty.layout());
    let row = ty.row_bytes(cols).expect("accepted");
    let mut expected: Vec<u8> = Vec::new();
    let mut product = |expert: usize, read: &[usize]| {
        let matrix = &weights[expert * rows * row..][..rows * row];
        let y = reference::mmq(ty, matrix, rows, cols, row, &q8, tokens, read);
        expected.extend(y.iter().flat_map(|v| v.to_le_bytes()));
    };
    match routed {
        Some(Routed { k, .. }) => {
            for (i, id) in ids.as_chunks().0.iter().enumerate() {
                product(i32::from_le_bytes(*id) as usize, &[i / k]);
            }
        }
        None => product(0, &(0..tokens).collect::<Vec<_>>()),
    }
    assert!(out == expected, "{ty}, {rows} x {cols}, {tokens} rows, {routed:?}");
    Ok(())
}
