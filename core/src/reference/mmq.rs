//! The product with quantized weights.

use crate::format::{Decoded, WeightType};
use crate::numerics::{canonical, f16_to_f32};
use crate::q8_1::{BLOCK_BYTES, HEADER_BYTES, Layout};

/// One matrix: `out[r][i]` for `act_rows` rows of q8_1 and the weight rows in
/// `weights`, `row_stride` bytes apart.
///
/// `read[r]` is the activation row of output row r; `activations` holds
/// `act_rows` rows of `cols` values in the type's layout.
#[allow(clippy::too_many_arguments)] // a plain function over plain memory
pub fn mmq(
    ty: WeightType,
    weights: &[u8],
    rows: usize,
    cols: usize,
    row_stride: usize,
    activations: &[u8],
    act_rows: usize,
    read: &[usize],
) -> Vec<f32> {
    let mut out = vec![0.0; read.len() * rows];
    for i in 0..rows {
        let blocks = decode_row(ty, &weights[i * row_stride..], cols);
        for (r, &act_row) in read.iter().enumerate() {
            let act = Activations {
                bytes: activations,
                rows: act_rows,
                row: act_row,
                layout: ty.layout(),
            };
            out[r * rows + i] = canonical(element(ty, &blocks, &act));
        }
    }
    out
}

fn decode_row(ty: WeightType, row: &[u8], cols: usize) -> Vec<Decoded> {
    row.chunks_exact(ty.block_bytes())
        .take(cols / ty.block_values())
        .map(|block| {
            let mut decoded = Decoded::default();
            ty.decode(block, &mut decoded);
            decoded
        })
        .collect()
}

/// One output element: one accumulator, ascending k.
fn element(ty: WeightType, blocks: &[Decoded], act: &Activations<'_>) -> f32 {
    let group = ty.group();
    let sub = group.min(32);
    let mut acc = 0.0f32;
    for (b, block) in blocks.iter().enumerate() {
        let k0 = b * ty.block_values();
        for g in 0..ty.block_values() / group {
            let mut t = 0.0f32;
            for s in (g * group..(g + 1) * group).step_by(sub) {
                let isum: i32 =
                    (s..s + sub).map(|i| i32::from(block.iw[i]) * act.code(k0 + i)).sum();
                t = (isum as f32).mul_add(act.scale(k0 + s), t);
            }
            acc = t.mul_add(block.dw[g], acc);
        }
        if let Some(values) = ty.min_group() {
            let mut u = 0.0f32;
            for m in 0..ty.block_values() / values {
                let sx = act.sum(k0 + m * values, values);
                u = f32::from(block.mn[m]).mul_add(sx, u);
            }
            acc = u.mul_add(block.dm, acc);
        }
    }
    acc
}

/// One row of a q8_1 matrix.
struct Activations<'a> {
    bytes: &'a [u8],
    rows: usize,
    row: usize,
    layout: Layout,
}

impl Activations<'_> {
    fn block(&self, k: usize) -> &[u8] {
        &self.bytes[(k / 128 * self.rows + self.row) * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    fn code(&self, k: usize) -> i32 {
        i32::from(self.block(k)[HEADER_BYTES + k % 128] as i8)
    }

    fn f16_at(&self, k: usize, index: usize) -> f32 {
        let block = self.block(k);
        f16_to_f32(u16::from_le_bytes([block[2 * index], block[2 * index + 1]]))
    }

    fn scale(&self, k: usize) -> f32 {
        let group = k % 128 / self.layout.group();
        match self.layout {
            Layout::D4 => {
                let block = self.block(k);
                f32::from_le_bytes(std::array::from_fn(|i| block[4 * group + i]))
            }
            Layout::DS4 => self.f16_at(k, 2 * group),
            Layout::D2S6 => self.f16_at(k, group),
        }
    }

    /// The sum of the x behind `values` codes from k: stored, or for the
    /// values 96..128 of D2S6 the sum of the codes times their scale.
    fn sum(&self, k: usize, values: usize) -> f32 {
        match self.layout {
            Layout::D4 => unreachable!("types with a minimum are not multiplied in D4"),
            Layout::DS4 => self.f16_at(k, 2 * (k % 128 / 32) + 1),
            Layout::D2S6 if k % 128 < 96 => self.f16_at(k, 2 + k % 128 / 16),
            Layout::D2S6 => {
                let codes: i32 = (k..k + values).map(|k| self.code(k)).sum();
                codes as f32 * self.scale(k)
            }
        }
    }
}
