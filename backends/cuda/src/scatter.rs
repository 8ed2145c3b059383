//! q8_1 of tokens, each quantized once and written to all its rows.

use strata_core::Result;
use strata_core::backend::ops::QuantizeScatter;
use strata_core::backend::{Checked, Scatter};
use strata_core::q8_1;
use strata_kernels_cuda::{args, shapes};

use crate::backend::CudaBackend;
use crate::operand::{self, Rows, TURNS};
use crate::quantize;
use crate::stream::Grid;

/// The kernels, by layout.
const NAMES: [&str; 3] =
    ["strata_quantize_scatter_D4", "strata_quantize_scatter_DS4", "strata_quantize_scatter_D2S6"];

/// From so many bytes of output on, tokens are quantized aside and their blocks
/// copied to the rows: rows that are neighbours are then written together, which
/// saves memory more than the second launch costs.
const ASIDE: usize = 24 << 20;

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
        let aside = match bytes >= ASIDE && map.k() > 1 {
            true => self.scratch(q8_1::bytes(x.rows, x.cols)?).ok(),
            false => None,
        };
        // Where there is no room aside, the rows are written directly.
        let (aside, here) = (aside.is_some(), aside.unwrap_or(out));
        let args = args::Quantize {
            x: x.address,
            src: 0,
            tokens: 0,
            slot: if aside { 0 } else { operand::at(map.slot()) },
            out: here,
            report,
            items: x.rows as i64,
            out_rows: if aside { x.rows } else { out_rows } as i64,
            cols: x.cols as i64,
            stride: x.stride as i64,
            k: map.k() as u32,
            k_blocks: k_blocks as u32,
            vector: x.aligned().into(),
            aligned: operand::aligned(here).into(),
        };
        let names = if aside { quantize::NAMES } else { NAMES };
        // SAFETY: the operands were checked: a map gives every token k rows below
        // `out_rows`, which `out` has; all of it lives until the call returns. Aside
        // there is room for the tokens' own rows.
        unsafe { self.launch_quantize(operand::of_layout(layout, names), &args)? };
        if !aside {
            return Ok(());
        }
        let [threads, pieces] = self.shape("quantize", shapes::COPY_BLOCKS)?;
        let kernel = self.kernel("quantize", "strata_copy_blocks", threads)?;
        let args = args::CopyBlocks {
            from: here,
            src: operand::at(map.src()),
            out,
            tokens: x.rows as i64,
            out_rows: out_rows as i64,
            k_blocks: k_blocks as u32,
            aligned: operand::aligned(out).into(),
        };
        let steps = (out_rows as u64 * (q8_1::BLOCK_BYTES / 16) as u64).div_ceil(pieces.into());
        let grid = Grid::UpTo(steps * k_blocks as u64, TURNS);
        // SAFETY: every row's token is one of those that were just quantized, and
        // the kernel takes one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }
}
