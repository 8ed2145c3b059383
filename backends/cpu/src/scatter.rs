//! q8_1 of tokens, each quantized once and written to all its rows.

use std::ops::Range;

use strata_core::Result;
use strata_core::backend::Scatter;
use strata_core::backend::ops::QuantizeScatter;
use strata_core::q8_1::{BLOCK_BYTES, Layout, k_blocks};

use crate::CpuBackend;
use crate::isa::Work;
use crate::memory::{self, Parts};
use crate::q8::Reporter;
use crate::quantize::{Input, block_of_row};

/// Blocks along k of a task. The rows of an expert fill up in ascending
/// tokens, so a task writes one stream per expert and block along k: few
/// enough that the lines they end in stay in the second cache.
const TASK_K_BLOCKS: usize = 4;
/// Tokens of a task.
const TASK_TOKENS: usize = 512;

impl Scatter for CpuBackend {
    fn quantize_scatter(&self, op: &mut QuantizeScatter<'_>) -> Result<()> {
        let reporter = op.report_to().map(|to| Reporter::new(to));
        let (x, map) = (op.x(), op.map());
        let (out_rows, layout) = (op.out().rows(), op.out().layout());
        let slot = memory::values(map.slot());
        {
            let mut out = op.out().data();
            let out = memory::values_mut(&mut out)?;
            let out = Parts::new(out);
            let x_rows = x.rows();
            let x = Input { values: memory::values(x.data()), stride: x.stride(), cols: x.cols() };
            let along_k = k_blocks(x.cols).div_ceil(TASK_K_BLOCKS);
            self.shared.parallel(along_k * x_rows.div_ceil(TASK_TOKENS), |task| {
                let (tokens, k) = (task / along_k * TASK_TOKENS, task % along_k * TASK_K_BLOCKS);
                self.shared.cpu.run(Tokens {
                    x,
                    slot,
                    k: map.k(),
                    out,
                    out_rows,
                    layout,
                    tokens: tokens..x_rows.min(tokens + TASK_TOKENS),
                    k_blocks: k..k_blocks(x.cols).min(k + TASK_K_BLOCKS),
                    reporter: reporter.as_ref(),
                });
            });
        }
        match (reporter, op.report_to()) {
            (Some(reporter), Some(to)) => reporter.finish(to),
            _ => Ok(()),
        }
    }
}

struct Tokens<'a> {
    x: Input<'a>,
    slot: &'a [u32],
    k: usize,
    out: Parts<'a, u8>,
    out_rows: usize,
    layout: Layout,
    tokens: Range<usize>,
    k_blocks: Range<usize>,
    reporter: Option<&'a Reporter>,
}

impl Work for Tokens<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut block = [0; BLOCK_BYTES];
        for token in self.tokens {
            let x = self.x.row(token);
            let slot = &self.slot[token * self.k..][..self.k];
            for k_block in self.k_blocks.clone() {
                let seen = block_of_row(x, k_block, self.layout, &mut block);
                for &row in slot {
                    let at = (k_block * self.out_rows + row as usize) * BLOCK_BYTES;
                    // SAFETY: the map gives every row to one choice of one token, and every token
                    // and block along k belongs to one task.
                    let out = unsafe { self.out.part(at, BLOCK_BYTES) };
                    out.copy_from_slice(&block);
                }
                if let Some(reporter) = self.reporter {
                    reporter.block(token, seen);
                }
            }
        }
    }
}
