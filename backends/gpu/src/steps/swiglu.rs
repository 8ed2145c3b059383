//! What experts do between their products: hidden values, alone and as q8_1.

use strata_core::Result;
use strata_core::backend::Checked;
use strata_core::backend::ops::{GateUp, GateUpOrder, PerExpert, SwiGlu, SwiGluQuantize};
use strata_core::q8_1::Headers;

use crate::args::{Address, Arguments, Layout, ReportTo, arguments};
use crate::backend::GpuBackend;
use crate::driver::Driver;
use crate::operand::{self, Rows, at, at_mut};
use crate::stream::{Grid, TURNS};

/// The source of these kernels.
const UNIT: &str = "swiglu";

/// Threads of a block, 128-value blocks they make at a time.
const SHAPE: &str = "strata_swiglu_shape";

/// The fused kernels, by layout.
const SWIGLU_QUANTIZE: [&str; 3] =
    ["strata_swiglu_quantize_D4", "strata_swiglu_quantize_DS4", "strata_swiglu_quantize_D2S6"];

/// The same by any activation, with scales and biases of experts.
const HIDDEN_QUANTIZE: [&str; 3] =
    ["strata_hidden_quantize_D4", "strata_hidden_quantize_DS4", "strata_hidden_quantize_D2S6"];

pub(super) const LAYOUTS: &[Layout] =
    &[ExpertsArgs::LAYOUT, SwiGluArgs::LAYOUT, SwiGluQuantizeArgs::LAYOUT];

arguments! {
    /// What experts do between their products.
    ExpertsArgs in "activation.cuh" {
        /// Scales of gate and up, or of up alone: a row per expert; null: 1.
        scale: Address,
        /// Biases of every column: a row per expert; null: +0.
        bias: Address,
        /// Rows of the experts; null: all are of expert 0.
        bounds: Address,
        /// Values from row to row of the scales.
        scale_stride: i64,
        /// Values from row to row of the biases.
        bias_stride: i64,
        /// Experts.
        experts: u32,
        /// The activation's number.
        kind: u32,
        /// Its first parameter.
        limit: f32,
        /// Its second.
        alpha: f32,
    }
}

arguments! {
    /// `swiglu`: `strata_swiglu`, `strata_hidden`.
    SwiGluArgs in "swiglu.cu" {
        /// Gate and up.
        gate_up: Address,
        /// Hidden values.
        out: Address,
        /// Rows.
        rows: i64,
        /// Hidden values of a row.
        ffn: i64,
        /// Values from row to row of gate and up.
        stride: i64,
        /// Values from row to row of the output.
        out_stride: i64,
        /// 1: gate and up in turns; 0: all gate, then all up; 2: up alone.
        interleaved: u32,
        /// Of `strata_hidden` alone.
        experts: ExpertsArgs,
    }
}

arguments! {
    /// `swiglu`: `strata_swiglu_quantize_{layout}`, `strata_hidden_quantize_{layout}`.
    SwiGluQuantizeArgs in "swiglu.cu" {
        /// Gate and up.
        gate_up: Address,
        /// Token of each row; null: the row.
        tokens: Address,
        /// q8_1 blocks.
        out: Address,
        /// Report.
        report: ReportTo,
        /// Rows.
        rows: i64,
        /// Hidden values of a row.
        ffn: i64,
        /// Values from row to row of gate and up.
        stride: i64,
        /// Blocks along k.
        k_blocks: u32,
        /// 1: gate and up in turns; 2: up alone.
        interleaved: u32,
        /// 1 where every row's halves are 16-aligned.
        vector: u32,
        /// 1 where `out` is 16-aligned.
        aligned: u32,
        /// 1 where sums are of the codes, 0 where they are of the values.
        of_codes: u32,
        /// Of `strata_hidden_quantize_{layout}` alone.
        experts: ExpertsArgs,
    }
}

impl<D: Driver> GpuBackend<D> {
    pub(super) fn launch_swiglu(&self, op: &mut Checked<SwiGlu<'_>>) -> Result<()> {
        let [threads, _] = self.shape(UNIT, SHAPE)?;
        let (gate_up, out) = (op.gate_up(), Rows::from(op.out()));
        let (experts, any) = experts(gate_up);
        let name = if any { "strata_hidden" } else { "strata_swiglu" };
        let kernel = self.kernel(UNIT, name, threads)?;
        let rows = Rows::from(gate_up.matrix());
        let args = SwiGluArgs {
            gate_up: rows.address,
            out: out.address,
            rows: rows.rows as i64,
            ffn: gate_up.ffn() as i64,
            stride: rows.stride as i64,
            out_stride: out.stride as i64,
            interleaved: order(gate_up),
            experts,
        };
        let values = rows.rows as u64 * gate_up.ffn() as u64;
        let grid = Grid::UpTo(values.div_ceil(threads.into()), TURNS);
        // SAFETY: the operands were checked; the kernel takes one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }

    pub(super) fn launch_swiglu_quantize(
        &self,
        op: &mut Checked<SwiGluQuantize<'_>>,
    ) -> Result<()> {
        let [threads, blocks] = self.shape(UNIT, SHAPE)?;
        let gate_up = op.gate_up();
        let (rows, ffn) = (Rows::from(gate_up.matrix()), gate_up.ffn());
        let tokens = operand::at_or_null(op.tokens());
        let report = operand::report(op.report_to());
        let out = op.out();
        let (Headers { layout, sums }, k_blocks) = (out.headers(), out.k_blocks());
        let out = at_mut(out.data());
        let (experts, any) = experts(gate_up);
        let names = if any { HIDDEN_QUANTIZE } else { SWIGLU_QUANTIZE };
        let kernel = self.kernel(UNIT, operand::of_layout(layout, names), threads)?;
        let args = SwiGluQuantizeArgs {
            gate_up: rows.address,
            tokens,
            out,
            report,
            rows: rows.rows as i64,
            ffn: ffn as i64,
            stride: rows.stride as i64,
            k_blocks: k_blocks as u32,
            interleaved: order(gate_up),
            vector: (rows.aligned() && ffn.is_multiple_of(4)).into(),
            aligned: operand::aligned(out).into(),
            of_codes: sums as u32,
            experts,
        };
        let work = rows.rows as u64 * k_blocks as u64;
        let grid = Grid::UpTo(work.div_ceil(blocks.into()), TURNS);
        // SAFETY: the operands were checked; the kernels take one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }
}

/// What experts do between their products, and whether that is more than SwiGLU.
fn experts(gate_up: GateUp<'_>) -> (ExpertsArgs, bool) {
    let (kind, limit, alpha) = gate_up.function().parameters();
    let affine = gate_up.affine();
    let PerExpert { scale, bias, map } = affine.unwrap_or_default();
    let experts = ExpertsArgs {
        scale: scale.map_or(0, |m| at(m.data())),
        bias: bias.map_or(0, |m| at(m.data())),
        bounds: map.map_or(0, |map| at(map.bounds())),
        scale_stride: scale.map_or(0, |m| m.stride() as i64),
        bias_stride: bias.map_or(0, |m| m.stride() as i64),
        experts: map.map_or(1, |map| map.experts() as u32),
        kind,
        limit,
        alpha,
    };
    (experts, kind != 0 || affine.is_some() || gate_up.order() == GateUpOrder::UpOnly)
}

/// The number of an order of gate and up.
fn order(gate_up: GateUp<'_>) -> u32 {
    match gate_up.order() {
        GateUpOrder::Split => 0,
        GateUpOrder::Interleaved => 1,
        GateUpOrder::UpOnly => 2,
    }
}
