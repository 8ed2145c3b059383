//! q8_1 of tokens, each quantized once and written to all its rows.

use strata_core::backend::ops::QuantizeScatter;
use strata_core::backend::{Checked, Scatter};
use strata_core::{Layout, Result};
use strata_gpu::chunks::{Chunks, IN_ORDER_FROM};
use strata_gpu::shapes::{self, ScatterShape};

use crate::backend::CudaBackend;
use crate::module::Kernel;
use crate::operand;
use crate::stream::Grid;

/// The kernels that write a token's rows at once, by layout.
const NAMES: [&str; 3] =
    ["strata_quantize_scatter_D4", "strata_quantize_scatter_DS4", "strata_quantize_scatter_D2S6"];

/// The kernels that write in the order of the output, by layout.
const IN_ORDER: [&str; 3] = ["strata_scatter_D4", "strata_scatter_DS4", "strata_scatter_D2S6"];

impl Scatter for CudaBackend {
    fn quantize_scatter(&self, op: &mut Checked<QuantizeScatter<'_>>) -> Result<()> {
        let (tokens, k) = (op.x().rows(), op.map().k());
        let out = op.out();
        let (layout, k_blocks, bytes) = (out.layout(), out.k_blocks(), out.data().len());
        let from = self.options.scatter_in_order_from.unwrap_or(IN_ORDER_FROM);
        let in_order = match bytes >= from && k > 1 {
            true => self.scatter_in_order(layout, tokens, k, k_blocks)?,
            false => None,
        };
        if let Some((kernel, chunks)) = in_order {
            let args = operand::scatter_in_order(op, chunks);
            let grid = Grid::UpTo(u64::from(chunks.count) * k_blocks as u64, 1);
            // SAFETY: the operands were checked: the rows of a map are as many as the
            // bounds say, ascending in their tokens, which are rows of x; a chunk fits
            // the shared memory that the kernel is launched with.
            return unsafe { self.stream.launch(&kernel, grid, &args) };
        }
        let args = operand::scatter(op);
        // SAFETY: the operands were checked: a map gives every token k rows below
        // `out_rows`, which `out` has; all of it lives until the call returns.
        unsafe { self.launch_quantize(operand::of_layout(layout, NAMES), &args) }
    }
}

impl CudaBackend {
    /// The kernel that writes in the order of the output, and the chunks of its
    /// tokens; none where shared memory is too small for a chunk worth it, or the
    /// driver does not give what the device said.
    fn scatter_in_order(
        &self,
        layout: Layout,
        tokens: usize,
        k: usize,
        k_blocks: usize,
    ) -> Result<Option<(Kernel, Chunks)>> {
        let shape = ScatterShape::from(self.shape("scatter", shapes::SCATTER)?);
        let (device, name) = (self.gpu(), operand::of_layout(layout, IN_ORDER));
        let most = device.limits.shared;
        let Ok(kernel) = device.modules.kernel(device, "scatter", name, shape.threads, most) else {
            return Ok(None);
        };
        let room = self.options.shared_bytes.unwrap_or(most).min(most);
        let chunks = Chunks::within(room, shape, tokens, k, k_blocks, kernel.resident);
        // No more than a chunk takes: what is left caches the rows that are read.
        Ok(chunks.map(|chunks| {
            let shared = chunks.shared_bytes(shape, k);
            (Kernel { shared, ..kernel }, chunks)
        }))
    }
}
