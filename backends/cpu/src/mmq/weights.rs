//! A slab of a tile of weight rows, decoded and turned into words.

use strata_core::format::{Decoded, Format};

use super::tile::Shape;
use super::{Launch, SLAB, VECTORS};
use crate::isa::Work;
use crate::scratch::Bytes;
use crate::simd::Simd;

/// One slab of a tile of rows. `R` rows stand next to each other in every
/// array; rows that the matrix does not have are zeros.
#[derive(Default)]
pub(super) struct WeightTile {
    /// The rows as their decoder wrote them.
    decoded: Vec<Decoded>,
    /// `R` words for every two (wide) or four (narrow) values of k.
    pub words: Vec<u32>,
    /// Narrow only: for every sub-block, `-128` times the row's sum of
    /// integers, which the 128 added to every code brings in too much.
    pub start: Vec<i32>,
    /// `R` scales per group.
    pub dw: Vec<f32>,
    /// `R` minimums per group of them.
    pub mn: Vec<f32>,
    /// `R` scales of minimums per group.
    pub dm: Vec<f32>,
}

impl Bytes for WeightTile {
    fn bytes(&self) -> usize {
        let scales = self.dw.bytes() + self.mn.bytes() + self.dm.bytes();
        self.decoded.bytes() + self.words.bytes() + self.start.bytes() + scales
    }
}

/// The decoder of one type.
#[derive(Clone, Copy)]
pub(super) struct Decoder<S> {
    decode: fn(S, &mut WeightTile, Source<'_>),
    block_values: usize,
    block_bytes: usize,
}

/// The bytes of the rows, `stride` apart; row 0 begins at its slab.
#[derive(Clone, Copy)]
struct Source<'a> {
    bytes: &'a [u8],
    stride: usize,
    count: usize,
    blocks: usize,
}

impl<S: Simd> Decoder<S> {
    pub(super) fn of<F: Format>() -> Self {
        Self {
            decode: |simd, tile, source| {
                simd.run(Decode::<S, F> { tile, source, types: Default::default() })
            },
            block_values: F::BLOCK,
            block_bytes: F::BYTES,
        }
    }
}

impl WeightTile {
    /// Takes over `values` values from slab `slab` of the first `count` rows of `rows`.
    pub(super) fn decode<S: Simd>(
        &mut self,
        launch: &Launch<'_, S>,
        rows: &[u8],
        count: usize,
        slab: usize,
        values: usize,
    ) {
        let decoder = launch.decoder;
        let source = Source {
            bytes: &rows[slab * SLAB / decoder.block_values * decoder.block_bytes..],
            stride: launch.row_stride,
            count,
            blocks: values / decoder.block_values,
        };
        (decoder.decode)(launch.simd, self, source);
    }
}

struct Decode<'a, S, F> {
    tile: &'a mut WeightTile,
    source: Source<'a>,
    types: std::marker::PhantomData<(S, F)>,
}

impl<S: Simd, F: Format> Work for Decode<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { tile, source, .. } = self;
        let tile_rows = VECTORS * S::LANES;
        let shape = Shape::of::<S, F>();
        tile.resize::<F>(tile_rows, shape);
        for r in 0..source.count {
            let row = &source.bytes[r * source.stride..][..source.blocks * F::BYTES];
            tile.decode_row::<F>(row, r, tile_rows);
        }
        for r in source.count..tile_rows {
            tile.clear_row(r, tile_rows);
        }
        // SAFETY: inside a `run` of S; `resize` made room for all rows.
        unsafe {
            match shape.narrow {
                true => tile.turn_narrow::<S>(shape),
                false => tile.turn_wide::<S>(),
            }
        }
    }
}

impl WeightTile {
    #[inline(always)]
    fn resize<F: Format>(&mut self, tile_rows: usize, shape: Shape) {
        if self.decoded.len() != tile_rows || self.words.len() != tile_rows * shape.words() {
            self.decoded.resize(tile_rows, Decoded::ZERO);
            self.words.resize(tile_rows * shape.words(), 0);
        }
        let groups = SLAB / F::GROUP;
        self.start.resize(tile_rows * SLAB / 16, 0);
        self.dw.resize(tile_rows * groups, 0.0);
        self.mn.resize(tile_rows * shape.sums(), 0.0);
        self.dm.resize(tile_rows * groups, 0.0);
    }

    #[inline(always)]
    fn decode_row<F: Format>(&mut self, row: &[u8], r: usize, tile_rows: usize) {
        if F::BLOCK == SLAB {
            F::decode(row, &mut self.decoded[r]);
            let block = &self.decoded[r];
            self.dw[r] = block.dw[0];
            if let Some(values) = F::MIN_GROUP {
                for m in 0..SLAB / values {
                    self.mn[m * tile_rows + r] = f32::from(block.mn[m]);
                }
                self.dm[r] = block.dm;
            }
            return;
        }
        let mut block = Decoded::ZERO;
        let groups = F::BLOCK / F::GROUP;
        for (b, bytes) in row.chunks_exact(F::BYTES).enumerate() {
            F::decode(bytes, &mut block);
            self.decoded[r].iw[b * F::BLOCK..][..F::BLOCK].copy_from_slice(&block.iw[..F::BLOCK]);
            for g in 0..groups {
                self.dw[(b * groups + g) * tile_rows + r] = block.dw[g];
            }
            // Blocks smaller than a slab have one group and one minimum, or none.
            if F::MIN_GROUP.is_some() {
                self.mn[b * tile_rows + r] = f32::from(block.mn[0]);
                self.dm[b * tile_rows + r] = block.dm;
            }
        }
    }

    #[inline(always)]
    fn clear_row(&mut self, r: usize, tile_rows: usize) {
        self.decoded[r] = Decoded::ZERO;
        for values in [&mut self.dw, &mut self.mn, &mut self.dm] {
            values.iter_mut().skip(r).step_by(tile_rows).for_each(|v| *v = 0.0);
        }
    }

    /// Words of two i16.
    ///
    /// # Safety
    /// Inside a `run` of S.
    #[inline(always)]
    unsafe fn turn_wide<S: Simd>(&mut self) {
        let tile_rows = VECTORS * S::LANES;
        assert!(self.decoded.len() == tile_rows && self.words.len() == tile_rows * SLAB / 2);
        for (r, rows) in self.decoded.as_chunks::<8>().0.iter().enumerate() {
            for word in (0..SLAB / 2).step_by(8) {
                let from = std::array::from_fn(|i| rows[i].iw[2 * word..][..16].as_ptr().cast());
                // SAFETY: 8 words of each row were sliced; the output's rows `word..word + 8` and
                // columns `8 * r..8 * r + 8` lie inside by the assertion.
                unsafe {
                    let to = self.words.as_mut_ptr().add(word * tile_rows + 8 * r);
                    S::transpose(from, to, tile_rows);
                }
            }
        }
    }

    /// Words of four i8, and the sums that take the codes' 128 off again.
    ///
    /// # Safety
    /// Inside a `run` of S.
    #[inline(always)]
    unsafe fn turn_narrow<S: Simd>(&mut self, shape: Shape) {
        let tile_rows = VECTORS * S::LANES;
        assert!(self.decoded.len() == tile_rows && self.words.len() == tile_rows * SLAB / 4);
        for (r, rows) in self.decoded.as_chunks::<8>().0.iter().enumerate() {
            let mut bytes = [[0i8; SLAB]; 8];
            for (bytes, row) in bytes.iter_mut().zip(rows) {
                for (byte, iw) in bytes.iter_mut().zip(&row.iw) {
                    *byte = *iw as i8;
                }
            }
            for word in (0..SLAB / 4).step_by(8) {
                let from = std::array::from_fn(|i| bytes[i][4 * word..][..32].as_ptr().cast());
                // SAFETY: as in `turn_wide`.
                unsafe {
                    let to = self.words.as_mut_ptr().add(word * tile_rows + 8 * r);
                    S::transpose(from, to, tile_rows);
                }
            }
        }
        let words = shape.sub / 4;
        assert!(self.start.len() >= SLAB / shape.sub * tile_rows);
        for s in 0..SLAB / shape.sub {
            for v in 0..VECTORS {
                // SAFETY: word rows up to SLAB / 4 and as many starts as sub-blocks, asserted above.
                unsafe {
                    let mut sum = S::zero_i();
                    let bias = [S::splat_i(0x8080_8080); 2];
                    for word in (s * words..(s + 1) * words).step_by(2) {
                        let at = self.words.as_ptr().add(word * tile_rows + v * S::LANES);
                        let w = [S::load_i(at), S::load_i(at.add(tile_rows))];
                        sum = S::dot_narrow(sum, w, bias);
                    }
                    let to = self.start.as_mut_ptr().add(s * tile_rows + v * S::LANES);
                    S::store_i(to.cast(), S::sub_i(S::zero_i(), sum));
                }
            }
        }
    }
}
