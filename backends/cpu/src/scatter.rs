//! q8_1 of tokens, each quantized once and written to all its rows.
//!
//! A task is one block along k of all tokens. It quantizes them into memory of
//! its own, which the second cache holds up to some thousand tokens, and then
//! writes the output's rows in their order, each from its token. Written the
//! other way round, token by token, the rows would be 144 bytes here and
//! there: half-filled lines that are fetched, evicted and fetched again.

use strata_core::Result;
use strata_core::backend::ops::QuantizeScatter;
use strata_core::backend::{Checked, Scatter};
use strata_core::q8_1::{BLOCK_BYTES, Headers, k_blocks};

use crate::CpuBackend;
use crate::memory::{self, Parts};
use crate::q8::Reporter;
use crate::quantize::{Input, block_of_row};
use crate::simd::{Simd, SimdWork};

/// Outputs from here on go past the caches: they would not be found there
/// later, and what is not cached need not be fetched before it is written.
const PAST_CACHES: usize = 24 << 20;

impl Scatter for CpuBackend {
    fn quantize_scatter(&self, op: &mut Checked<QuantizeScatter<'_>>) -> Result<()> {
        let host = &*self.shared;
        let reporter = op.report_to().map(|to| Reporter::new(to));
        let (x, src) = (op.x(), memory::values(op.map().src()));
        let headers = op.out().headers();
        {
            let mut out = op.out().data();
            let out = memory::values_mut(&mut out)?;
            let past_caches = out.len() >= PAST_CACHES;
            let out = Parts::new(out);
            let tokens = x.rows();
            let x = Input { values: memory::values(x.data()), stride: x.stride(), cols: x.cols() };
            let loan = || {
                let mut blocks = host.blocks.take();
                host.reserve(&mut blocks, tokens)?;
                blocks.resize(tokens, [0; BLOCK_BYTES]);
                Ok(blocks)
            };
            host.parallel_with(k_blocks(x.cols), loan, |blocks, k_block| {
                host.cpu.run_simd(KBlock {
                    x,
                    src,
                    blocks,
                    // SAFETY: one task per block along k, and its rows are one run of the output.
                    out: unsafe {
                        out.part(k_block * src.len() * BLOCK_BYTES, src.len() * BLOCK_BYTES)
                    },
                    headers,
                    k_block,
                    past_caches,
                    reporter: reporter.as_ref(),
                });
            })?;
        }
        match (reporter, op.report_to()) {
            (Some(reporter), Some(to)) => reporter.finish(to),
            _ => Ok(()),
        }
    }
}

struct KBlock<'a> {
    x: Input<'a>,
    src: &'a [u32],
    blocks: &'a mut [[u8; BLOCK_BYTES]],
    out: &'a mut [u8],
    headers: Headers,
    k_block: usize,
    past_caches: bool,
    reporter: Option<&'a Reporter>,
}

impl SimdWork for KBlock<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        for (token, block) in self.blocks.iter_mut().enumerate() {
            let x = self.x.row(token);
            // SAFETY: inside a `run` of S.
            let seen = unsafe { block_of_row::<S>(x, self.k_block, self.headers, block) };
            if let Some(reporter) = self.reporter {
                reporter.block(token, seen);
            }
        }
        let out = self.out.as_chunks_mut().0;
        match self.past_caches {
            true => {
                for (out, &token) in out.iter_mut().zip(self.src) {
                    stream(&self.blocks[token as usize], out);
                }
                fence();
            }
            false => {
                for (out, &token) in out.iter_mut().zip(self.src) {
                    *out = self.blocks[token as usize];
                }
            }
        }
    }
}

/// Writes a block past the caches.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn stream(from: &[u8; BLOCK_BYTES], to: &mut [u8; BLOCK_BYTES]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    // Buffers start at a multiple of 256, and blocks are a multiple of 16; a view into one may not.
    if !to.as_ptr().cast::<u128>().is_aligned() {
        *to = *from;
        return;
    }
    for (from, to) in from.as_chunks::<16>().0.iter().zip(to.as_chunks_mut::<16>().0) {
        // SAFETY: 16 bytes each, `to` aligned; SSE2 is part of x86-64.
        unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), _mm_loadu_si128(from.as_ptr().cast())) }
    }
}

/// Makes streamed writes visible before anything that follows.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn fence() {
    // SAFETY: SSE is part of x86-64.
    unsafe { std::arch::x86_64::_mm_sfence() }
}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn stream(from: &[u8; BLOCK_BYTES], to: &mut [u8; BLOCK_BYTES]) {
    *to = *from;
}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn fence() {}
