//! q8_1 of rows, in place or gathered.

use std::ops::Range;

use strata_core::Result;
use strata_core::backend::ops::QuantizeRows;
use strata_core::backend::{Checked, Quantize};
use strata_core::q8_1::{BLOCK_BYTES, BLOCK_VALUES, Headers, k_blocks};

use crate::CpuBackend;
use crate::memory::{self, Parts};
use crate::q8::{self, Reporter, Seen};
use crate::simd::{Simd, SimdWork};

/// Rows of a task: their blocks of one k are one run of memory.
const TASK_ROWS: usize = 16;

impl Quantize for CpuBackend {
    fn quantize(&self, op: &mut Checked<QuantizeRows<'_>>) -> Result<()> {
        let host = &*self.shared;
        let reporter = op.report_to().map(|to| Reporter::new(to));
        let (x, src, tokens) = (op.x(), op.src(), op.tokens());
        let (out_rows, headers) = (op.out().rows(), op.out().headers());
        {
            let mut out = op.out().data();
            let out = memory::values_mut(&mut out)?;
            let out = Parts::new(out);
            let x = Input { values: memory::values(x.data()), stride: x.stride(), cols: x.cols() };
            host.parallel(out_rows.div_ceil(TASK_ROWS), |task| {
                let rows = task * TASK_ROWS..out_rows.min((task + 1) * TASK_ROWS);
                host.cpu.run_simd(Rows {
                    x,
                    src: src.map(memory::values),
                    tokens: tokens.map(memory::values),
                    out,
                    out_rows,
                    headers,
                    rows,
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

/// Rows of f32.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) cols: usize,
}

impl<'a> Input<'a> {
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> &'a [f32] {
        &self.values[row * self.stride..][..self.cols]
    }
}

/// Block `k_block` of a row, zeros past its end.
///
/// # Safety
/// Inside a `run` of S.
#[inline(always)]
pub(crate) unsafe fn block_of_row<S: Simd>(
    row: &[f32],
    k_block: usize,
    headers: Headers,
    out: &mut [u8; BLOCK_BYTES],
) -> Seen {
    let rest = row.get(k_block * BLOCK_VALUES..).unwrap_or_default();
    match rest.first_chunk() {
        // SAFETY: the caller's.
        Some(x) => unsafe { q8::block::<S>(x, headers, out) },
        None => {
            let mut x = [0.0; BLOCK_VALUES];
            x[..rest.len()].copy_from_slice(rest);
            // SAFETY: the caller's.
            unsafe { q8::block::<S>(&x, headers, out) }
        }
    }
}

struct Rows<'a> {
    x: Input<'a>,
    src: Option<&'a [u32]>,
    tokens: Option<&'a [u32]>,
    out: Parts<'a, u8>,
    out_rows: usize,
    headers: Headers,
    rows: Range<usize>,
    reporter: Option<&'a Reporter>,
}

impl SimdWork for Rows<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        for row in self.rows {
            let from = self.src.map_or(row, |src| src[row] as usize);
            let x = self.x.row(from);
            for k_block in 0..k_blocks(self.x.cols) {
                let at = (k_block * self.out_rows + row) * BLOCK_BYTES;
                // SAFETY: every block belongs to one row, and every row to one task.
                let out = unsafe { self.out.part(at, BLOCK_BYTES) };
                let out = out.as_mut_array().expect("a part as long as a block");
                // SAFETY: inside a `run` of S.
                let seen = unsafe { block_of_row::<S>(x, k_block, self.headers, out) };
                if let Some(reporter) = self.reporter {
                    reporter.block(self.tokens.map_or(from, |tokens| tokens[from] as usize), seen);
                }
            }
        }
    }
}
