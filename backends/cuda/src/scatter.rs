//! q8_1 of tokens, each quantized once and written to all its rows.

use strata_core::backend::ops::QuantizeScatter;
use strata_core::backend::{Checked, Scatter};
use strata_core::{Layout, Result};
use strata_kernels_cuda::{args, shapes};

use crate::backend::CudaBackend;
use crate::module::Kernel;
use crate::operand::{self, Rows};
use crate::stream::Grid;

/// The kernels that write a token's rows at once, by layout.
const NAMES: [&str; 3] =
    ["strata_quantize_scatter_D4", "strata_quantize_scatter_DS4", "strata_quantize_scatter_D2S6"];

/// The kernels that write in the order of the output, by layout.
const IN_ORDER: [&str; 3] = ["strata_scatter_D4", "strata_scatter_DS4", "strata_scatter_D2S6"];

/// From so many bytes of output on it is written in its order: neighbouring rows
/// together, which saves more of the memory's time than listing the rows takes.
const IN_ORDER_FROM: usize = 80 << 20;

impl Scatter for CudaBackend {
    fn quantize_scatter(&self, op: &mut Checked<QuantizeScatter<'_>>) -> Result<()> {
        let x = Rows::from(op.x());
        let map = op.map();
        let report = operand::report(op.report_to());
        let out = op.out();
        let (layout, out_rows, k_blocks) = (out.layout(), out.rows(), out.k_blocks());
        let out = out.data();
        let bytes = out.len();
        let out = operand::at_mut(out);
        let from = self.options.scatter_in_order_from.unwrap_or(IN_ORDER_FROM);
        let in_order = match bytes >= from && map.k() > 1 && x.rows > 0 {
            true => self.scatter_in_order(layout, x.rows, map.k(), k_blocks)?,
            false => None,
        };
        if let Some((kernel, chunks)) = in_order {
            let args = args::Scatter {
                x: x.address,
                src: operand::at(map.src()),
                bounds: operand::at(map.bounds()),
                out,
                report,
                out_rows: out_rows as i64,
                cols: x.cols as i64,
                stride: x.stride as i64,
                tokens: x.rows as u32,
                k: map.k() as u32,
                experts: map.experts() as u32,
                k_blocks: k_blocks as u32,
                chunks: chunks.count,
                chunk_tokens: chunks.tokens,
                vector: x.aligned().into(),
                aligned: operand::aligned(out).into(),
            };
            let grid = Grid::UpTo(u64::from(chunks.count) * k_blocks as u64, 1);
            // SAFETY: the operands were checked: the rows of a map are as many as the
            // bounds say, ascending in their tokens, which are rows of x; a chunk fits
            // the shared memory that the kernel is launched with.
            return unsafe { self.stream.launch(&kernel, grid, &args) };
        }
        let args = args::Quantize {
            x: x.address,
            src: 0,
            tokens: 0,
            slot: operand::at(map.slot()),
            out,
            report,
            items: x.rows as i64,
            out_rows: out_rows as i64,
            cols: x.cols as i64,
            stride: x.stride as i64,
            k: map.k() as u32,
            k_blocks: k_blocks as u32,
            vector: x.aligned().into(),
            aligned: operand::aligned(out).into(),
        };
        // SAFETY: the operands were checked: a map gives every token k rows below
        // `out_rows`, which `out` has; all of it lives until the call returns.
        unsafe { self.launch_quantize(operand::of_layout(layout, NAMES), &args) }
    }
}

impl CudaBackend {
    /// The kernel that writes in the order of the output, and the chunks of its
    /// tokens; none where shared memory is too small for a chunk worth it.
    fn scatter_in_order(
        &self,
        layout: Layout,
        tokens: usize,
        k: usize,
        k_blocks: usize,
    ) -> Result<Option<(Kernel, Chunks)>> {
        let [threads, fixed, token, route] = self.shape("scatter", shapes::SCATTER)?;
        let (device, name) = (self.gpu(), operand::of_layout(layout, IN_ORDER));
        let most = device.limits.shared;
        let kernel = device.modules.kernel(device, "scatter", name, threads, most)?;
        let shared = self.options.shared_bytes.unwrap_or(most).min(most);
        let each = u64::from(token) + u64::from(route) * k as u64;
        let fit = u64::from(shared.saturating_sub(fixed)) / each;
        let chunks = Chunks::new(tokens as u64, fit, k_blocks as u64, kernel.resident);
        // No more than a chunk takes: what is left caches the rows that are read.
        Ok(chunks.map(|chunks| {
            let shared = fixed + chunks.tokens * each as u32;
            (Kernel { shared, ..kernel }, chunks)
        }))
    }
}

/// Chunks that tokens are cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunks {
    count: u32,
    tokens: u32,
}

impl Chunks {
    /// The fewest that give the blocks of a grid the same number of turns, where a
    /// chunk has at most `fit` tokens, which 16 bits number.
    fn new(tokens: u64, fit: u64, k_blocks: u64, blocks: u64) -> Option<Self> {
        let fit = fit.min(u64::from(u16::MAX));
        // Fewer tokens have hardly two rows that are neighbours.
        if fit < 16 {
            return None;
        }
        let turns = (tokens.div_ceil(fit) * k_blocks).div_ceil(blocks);
        let even = (turns * blocks / k_blocks).max(tokens.div_ceil(fit));
        let each = tokens.div_ceil(even);
        Some(Self { count: tokens.div_ceil(each) as u32, tokens: each as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fit_and_cover_all_tokens() {
        for tokens in [1, 2, 15, 16, 17, 599, 2_048, 32_768, 1 << 20, u64::from(u32::MAX)] {
            for fit in [16, 100, 993, u64::MAX] {
                for (k_blocks, blocks) in [(4, 1), (4, 132), (20, 132), (8_192, 264)] {
                    let Chunks { count, tokens: each } =
                        Chunks::new(tokens, fit, k_blocks, blocks).unwrap();
                    let (count, each) = (u64::from(count), u64::from(each));
                    assert!(each <= fit && each <= u64::from(u16::MAX), "{tokens} {fit}");
                    assert!(count * each >= tokens && (count - 1) * each < tokens);
                }
            }
        }
        assert_eq!(Chunks::new(32_768, 993, 20, 132), Some(Chunks { count: 33, tokens: 993 }));
        assert_eq!(Chunks::new(32_768, 15, 20, 132), None);
    }
}
