//! Quantizers against the reference, byte for byte.

mod support;

use proptest::prelude::*;
use strata_core::backend::ops::{Matrix, Q8RowsMut, QuantizeRows, QuantizeScatter};
use strata_core::backend::{Backend, Report};
use strata_core::error::NonFinite;
use strata_core::format::random::SplitMix64;
use strata_core::q8_1::{self, Headers, Sums};
use strata_core::{Error, Layout, reference};
use support::{backends, below, routing, values};

/// Rows of everything: normal, tiny, huge, half-way, zeros, not finite.
fn input(random: &mut SplitMix64, rows: usize, cols: usize, finite: bool) -> Vec<f32> {
    let mut x = values(random, rows * cols);
    for row in x.chunks_exact_mut(cols) {
        let size = match below(random, 8) {
            0 => 0.0,
            1 => 1e-45,
            2 => 1e-38,
            3 => 3.4e38,
            4 => 60000.0,
            // Codes fall on halves: the largest value is 127, the others n / 2.
            5 => {
                row.iter_mut().for_each(|v| *v = (*v * 254.0).round() * 0.5);
                row[0] = 127.0;
                1.0
            }
            6 => -0.0,
            _ => 1.0,
        };
        row.iter_mut().for_each(|v| *v *= size);
        if !finite {
            for _ in 0..below(random, 4) {
                let signalling = f32::from_bits(0x7f80_0001);
                let special =
                    [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -f32::NAN, signalling];
                row[below(random, cols)] = special[below(random, 6)];
            }
            // A group of nothing but NaN.
            if below(random, 4) == 0 {
                row[..cols.min(64)].fill(f32::NAN);
            }
        }
    }
    x
}

/// The report that the values and the reference's blocks call for.
fn expected_report(
    x: &[f32],
    cols: usize,
    headers: Headers,
    tokens: impl Fn(usize) -> usize,
    kinds: [NonFinite; 2],
) -> Option<(usize, NonFinite)> {
    let mut least = None;
    for (row, x) in x.chunks_exact(cols).enumerate() {
        let value = x.iter().any(|v| !v.is_finite());
        let header = reference::quantize_row(x, headers).chunks_exact(q8_1::BLOCK_BYTES).any(|b| {
            let header = &b[..q8_1::HEADER_BYTES];
            match headers.layout {
                Layout::D4 => header
                    .chunks_exact(4)
                    .any(|d| !f32::from_le_bytes(d.try_into().unwrap()).is_finite()),
                _ => header.chunks_exact(2).any(|h| h[1] & 0x7c == 0x7c),
            }
        });
        if value || header {
            let report = (tokens(row), if value { kinds[0] } else { kinds[1] });
            least = Some(least.map_or(report, |l: (usize, NonFinite)| l.min(report)));
        }
    }
    least
}

fn reported(backend: &dyn Backend, report: &Report) -> Option<(usize, NonFinite)> {
    match report.check(backend, 0) {
        Ok(()) => None,
        Err(Error::NonFinite { token, what }) => Some((token, what)),
        Err(other) => panic!("{other}"),
    }
}

fn run(backend: &dyn Backend, headers: Headers, seed: u64, shape: [usize; 5], finite: bool) {
    let [tokens, k, experts, cols, gap] = shape;
    let what = format!(
        "{} of {} {shape:?} seed {seed} with {}",
        headers.layout,
        headers.sums,
        backend.device().arch
    );
    let mut random = SplitMix64::new(seed);
    let x = input(&mut random, tokens, cols, finite);
    let stride = cols + gap;
    // One value in front, so that rows start at odd offsets; NaN between them.
    let mut strided = vec![f32::NAN; 1 + tokens * stride];
    for (to, from) in strided[1..].chunks_exact_mut(stride).zip(x.chunks_exact(cols)) {
        to[..cols].copy_from_slice(from);
    }
    let strided = backend.from_slice(&strided).unwrap();
    let strided = Matrix::new("x", strided.slice(1..).unwrap(), tokens, cols, stride).unwrap();
    let (map, _, _, device_map) = routing(backend, &mut random, tokens, k, experts);
    let kinds = [NonFinite::Input, NonFinite::InputHeader];
    let expected_seen = expected_report(&x, cols, headers, |row| row, kinds);

    // Poisoned buffers with room behind: every byte of the blocks is written, none after.
    let check = |name: &str,
                 rows: usize,
                 expected: Vec<u8>,
                 launch: &mut dyn FnMut(Q8RowsMut<'_>, &mut Report)| {
        let mut out = backend.from_slice(&vec![0xa5u8; expected.len() + 32]).unwrap();
        let mut report = Report::new(backend).unwrap();
        launch(Q8RowsMut::new(&mut out, headers, rows, cols).unwrap(), &mut report);
        let given = backend.download(&out).unwrap();
        assert!(given[..expected.len()] == expected, "{name} {what}: blocks differ");
        assert!(given[expected.len()..].iter().all(|&b| b == 0xa5), "{name} {what}: past the end");
        reported(backend, &report)
    };

    let expected = reference::quantize(&x, tokens, cols, cols, None, headers);
    let seen = check("rows", tokens, expected.clone(), &mut |out, report| {
        QuantizeRows::new(strided, out).unwrap().report(Some(report)).launch(backend).unwrap();
    });
    assert_eq!(seen, expected_seen, "rows {what}");
    let seen = check("unchecked", tokens, expected, &mut |out, _| {
        QuantizeRows::new(strided, out).unwrap().launch(backend).unwrap();
    });
    assert_eq!(seen, None);

    let expected = reference::quantize(&x, tokens, cols, cols, Some(&map.src), headers);
    let seen = check("gather", tokens * k, expected.clone(), &mut |out, report| {
        let op = QuantizeRows::gather(strided, &device_map, out).unwrap();
        op.report(Some(report)).launch(backend).unwrap();
    });
    assert_eq!(seen, expected_seen, "gather {what}");
    let seen = check("scatter", tokens * k, expected, &mut |out, report| {
        let op = QuantizeScatter::new(strided, &device_map, out).unwrap();
        op.report(Some(report)).launch(backend).unwrap();
    });
    assert_eq!(seen, expected_seen, "scatter {what}");

    // Hidden rows in expert order report the token they belong to.
    let hidden = input(&mut random, tokens * k, cols, finite);
    let expected = reference::quantize(&hidden, tokens * k, cols, cols, None, headers);
    let seen = expected_report(
        &hidden,
        cols,
        headers,
        |row| map.src[row] as usize,
        [NonFinite::Hidden; 2],
    );
    let hidden = backend.from_slice(&hidden).unwrap();
    let hidden = Matrix::dense("hidden", &hidden, tokens * k, cols).unwrap();
    let given = check("hidden", tokens * k, expected, &mut |out, report| {
        let op = QuantizeRows::new(hidden, out).unwrap();
        op.report_hidden(Some(report), Some(&device_map)).unwrap().launch(backend).unwrap();
    });
    assert_eq!(given, seen, "hidden {what}");
}

/// Every layout, with sums of either kind.
fn all_headers() -> impl Iterator<Item = Headers> {
    Layout::ALL.into_iter().flat_map(|layout| Sums::ALL.map(|sums| layout.with(sums)))
}

#[test]
fn every_layout_and_isa() {
    for (_, backend) in backends() {
        for headers in all_headers() {
            for (seed, shape) in [
                [1, 1, 1, 1, 0],
                [7, 1, 3, 32, 0],
                [33, 3, 5, 127, 1],
                [40, 2, 4, 516, 4],
                [3, 10, 512, 2560, 0],
                [600, 4, 16, 130, 3],
            ]
            .into_iter()
            .enumerate()
            {
                run(&*backend, headers, seed as u64, shape, true);
                run(&*backend, headers, seed as u64 + 100, shape, false);
            }
        }
    }
}

/// A signalling NaN is left out of the largest magnitude as any other is, wherever it stands. The
/// scale is written out: the reference shares the processor's instructions.
#[test]
fn signalling_nan_is_left_out() {
    for nan in [0x7f80_0001u32, 0xff80_0001, 0x7fbf_ffff, 0x7fc0_0000] {
        for at in [0, 3, 4, 5, 31] {
            let mut x = [1.0f32; 128];
            x[4] = 100.0;
            x[if at == 4 { 6 } else { at }] = f32::from_bits(nan);
            let mut expected = 1.0f32 / (127.0 / 100.0);
            let block = reference::quantize(&x, 1, 128, 128, None, Layout::D4);
            assert_eq!(block[..4], expected.to_le_bytes(), "the reference, {nan:#x} at {at}");
            for (isa, backend) in backends() {
                let host = backend.from_slice(&x).unwrap();
                let mut out = backend.alloc::<u8>(block.len()).unwrap();
                let to = Q8RowsMut::new(&mut out, Layout::D4, 1, 128).unwrap();
                let x = Matrix::dense("x", &host, 1, 128).unwrap();
                QuantizeRows::new(x, to).unwrap().launch(&*backend).unwrap();
                assert_eq!(backend.download(&out).unwrap(), block, "{isa}, {nan:#x} at {at}");
            }
            expected = 100.0 / 127.0;
            let row = strata_core::rows::RowFormat::Q8_0.quantize(&x[..32], 32).unwrap();
            let bits = strata_core::numerics::f16_bits(expected);
            assert_eq!(row[..2], bits.to_le_bytes(), "q8_0, {nan:#x} at {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_shape(
        headers in proptest::sample::select(all_headers().collect::<Vec<_>>()),
        tokens in 1usize..50,
        k in 1usize..6,
        experts in 1usize..20,
        cols in 1usize..700,
        gap in 0usize..9,
        seed in any::<u64>(),
        finite in any::<bool>(),
    ) {
        for (_, backend) in backends() {
            run(&*backend, headers, seed, [tokens, k, experts, cols, gap], finite);
        }
    }
}
