//! q8_1, as `docs/numerics.md` words it.

use crate::numerics::{canonical, f16_bits, largest_magnitude, round_code};
use crate::q8_1::{BLOCK_BYTES, BLOCK_VALUES, HEADER_BYTES, Headers, Layout, Sums, k_blocks};

/// q8_1 of rows of `x`, `stride` values apart: row r of the output is row
/// `src[r]`, or row r of `rows` where there is no `src`.
pub fn quantize(
    x: &[f32],
    rows: usize,
    cols: usize,
    stride: usize,
    src: Option<&[u32]>,
    headers: impl Into<Headers>,
) -> Vec<u8> {
    let headers = headers.into();
    let out_rows = src.map_or(rows, <[u32]>::len);
    let mut out = vec![0; k_blocks(cols) * out_rows * BLOCK_BYTES];
    for row in 0..out_rows {
        let from = src.map_or(row, |src| src[row] as usize);
        let blocks = quantize_row(&x[from * stride..][..cols], headers);
        for (k_block, block) in blocks.chunks_exact(BLOCK_BYTES).enumerate() {
            out[(k_block * out_rows + row) * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(block);
        }
    }
    out
}

/// The blocks of one row, in ascending k.
pub fn quantize_row(x: &[f32], headers: impl Into<Headers>) -> Vec<u8> {
    let headers = headers.into();
    let mut padded = x.to_vec();
    padded.resize(k_blocks(x.len()) * BLOCK_VALUES, 0.0);
    padded.chunks_exact(BLOCK_VALUES).flat_map(|x| block(x, headers)).collect()
}

fn block(x: &[f32], headers: Headers) -> [u8; BLOCK_BYTES] {
    let Headers { layout, sums } = headers;
    let sum = |x: &[f32], q: &[i8], d: f32| match sums {
        Sums::Values => sum_of_values(x),
        Sums::Codes => sum_of_codes(q, d),
    };
    let mut out = [0; BLOCK_BYTES];
    let (header, codes) = out.split_at_mut(HEADER_BYTES);
    let group = layout.group();
    for (g, x) in x.chunks_exact(group).enumerate() {
        let (d, q) = scale_and_codes(x);
        for (to, q) in codes[g * group..].iter_mut().zip(&q) {
            *to = *q as u8;
        }
        match layout {
            Layout::D4 => header[4 * g..][..4].copy_from_slice(&canonical(d).to_le_bytes()),
            Layout::DS4 => {
                header[4 * g..][..2].copy_from_slice(&f16_bits(d).to_le_bytes());
                header[4 * g + 2..][..2].copy_from_slice(&f16_bits(sum(x, &q, d)).to_le_bytes());
            }
            Layout::D2S6 => {
                header[2 * g..][..2].copy_from_slice(&f16_bits(d).to_le_bytes());
                let sixteens = x.chunks_exact(16).zip(q.chunks_exact(16));
                for (j, (x, q)) in sixteens.enumerate().take(6 - 4 * g) {
                    let at = 4 + 2 * (4 * g + j);
                    header[at..][..2].copy_from_slice(&f16_bits(sum(x, q, d)).to_le_bytes());
                }
            }
        }
    }
    out
}

/// d and the codes of one group.
fn scale_and_codes(x: &[f32]) -> (f32, Vec<i8>) {
    let amax = largest_magnitude(x).unwrap_or(f32::NAN);
    if amax == 0.0 {
        return (0.0, vec![0; x.len()]);
    }
    let d_inv = 127.0 / amax;
    (1.0 / d_inv, x.iter().map(|&v| round_code(v * d_inv)).collect())
}

/// The sum of 16 or 32 values: four at a time in order, then halves.
fn sum_of_values(x: &[f32]) -> f32 {
    let mut parts: Vec<f32> = x.chunks_exact(4).map(|v| ((v[0] + v[1]) + v[2]) + v[3]).collect();
    while parts.len() > 1 {
        let half = parts.len() / 2;
        for i in 0..half {
            parts[i] += parts[i + half];
        }
        parts.truncate(half);
    }
    parts[0]
}

/// What codes of one scale stand for, summed; the sum of the integers is exact.
fn sum_of_codes(codes: &[i8], d: f32) -> f32 {
    codes.iter().map(|&q| i32::from(q)).sum::<i32>() as f32 * d
}
