//! Products with quantized weights, over all experts in one launch.
//!
//! The unit of work is some weight rows of one expert and some of its routed
//! rows. Inside, the weights of a tile of rows are decoded once per *slab* of
//! 256 values of k, all rows of a vector side by side ([`lanes`]), into words that
//! kernels read in order ([`weights`]); every routed row then multiplies them
//! while they are in the first cache ([`tile`]). The routed rows' own codes were
//! spread once before ([`activations`]).
//!
//! | file | what it holds |
//! |---|---|
//! | [`plan`] | units of work, heavy ones first |
//! | [`lanes`] | blocks of many rows, a row a lane: one decoder per type |
//! | [`weights`] | a slab of a tile of rows, decoded |
//! | [`activations`] | routed rows: codes as words, scales and sums as f32 |
//! | [`row`] | one routed row: weights are multiplied as they are decoded |
//! | [`tile`] | the kernel: integer sums, then the order of `docs/numerics.md` |

mod activations;
mod lanes;
mod plan;
mod row;
mod tile;
mod weights;

use std::ops::Range;

use strata_core::backend::ops::{Product, Rows};
use strata_core::backend::{Checked, Mmq};
use strata_core::format::dispatch;
use strata_core::{Result, WeightType};

use crate::CpuBackend;
use crate::device::Shared;
use crate::memory::{self, Parts};
use crate::scratch::Bytes;
use crate::simd::{Simd, WithSimd};
use activations::{Activations, RoutedRows, Source};
use plan::{Plan, Unit};
use row::{MOST_ROWS, OneRow};
use tile::{Kernels, StoreTile};
use weights::{Decoder, TileRows, WeightTile};

/// Values of k that a tile of weight rows is decoded for at a time: the
/// largest block.
const SLAB: usize = 256;
/// Vectors of weight rows in a tile.
const VECTORS: usize = 2;

impl Mmq for CpuBackend {
    fn supports(&self, _ty: WeightType) -> bool {
        true
    }

    fn multiply(&self, op: &mut Checked<Product<'_>>) -> Result<()> {
        self.shared.cpu.with_simd(Multiply { shared: &self.shared, op })
    }
}

struct Multiply<'a, 'b> {
    shared: &'a Shared,
    op: &'a mut Checked<Product<'b>>,
}

impl WithSimd for Multiply<'_, '_> {
    type Output = Result<()>;

    fn call<S: Simd>(self, simd: S) -> Result<()> {
        multiply(self.shared, simd, self.op)
    }
}

/// What one thread works in.
#[derive(Default)]
pub(crate) struct Worker {
    weights: WeightTile,
    rows: RoutedRows,
    /// Which routed rows `rows` holds, in this launch.
    held: Option<Range<usize>>,
    /// Sums of a tile: a row of the tile's weight rows per routed row.
    acc: Vec<f32>,
}

impl Bytes for Worker {
    fn bytes(&self) -> usize {
        self.weights.bytes() + self.rows.bytes() + self.acc.bytes()
    }
}

/// What does not change in a launch.
struct Launch<'a, S: Simd> {
    simd: S,
    decoder: Decoder<S>,
    kernels: Kernels<S>,
    one: OneRow<S>,
    activations: Activations<'a>,
    weights: &'a [u8],
    weight_rows: usize,
    cols: usize,
    row_bytes: usize,
    row_stride: usize,
    expert_stride: usize,
    dst: Parts<'a, f32>,
    dst_stride: usize,
}

fn multiply<S: Simd>(shared: &Shared, simd: S, op: &mut Checked<Product<'_>>) -> Result<()> {
    let (weights, rows, q8) = (op.weights(), op.rows(), op.activations());
    let dense = [0, q8.rows() as u32];
    let (bounds, source) = match rows {
        Rows::Dense => (&dense[..], Source::Same),
        Rows::Experts(map) => (memory::values(map.bounds()), Source::Same),
        Rows::Indexed(map) => (memory::values(map.bounds()), Source::Of(memory::values(map.src()))),
    };
    let tile_rows = VECTORS * S::LANES;
    let mut parts = Vec::new();
    shared.reserve(&mut parts, Plan::most_parts(bounds, weights.cols()))?;
    let plan =
        Plan::new(parts, bounds, weights.rows(), weights.cols(), tile_rows, shared.threads());
    let decoder = dispatch!(weights.ty(), F => Decoder::<S>::of::<F>());
    let kernels = dispatch!(weights.ty(), F => Kernels::<S>::of::<F>());
    let one = dispatch!(weights.ty(), F => OneRow::<S>::of::<F>());
    let dst_stride = op.dst().stride();
    let mut dst = op.dst().data();
    let dst = memory::values_mut(&mut dst)?;
    {
        let launch = Launch {
            simd,
            decoder,
            kernels,
            one,
            activations: Activations {
                blocks: memory::values(q8.data()),
                rows: q8.rows(),
                cols: q8.cols(),
                source,
            },
            weights: memory::values(weights.data()),
            weight_rows: weights.rows(),
            cols: weights.cols(),
            row_bytes: weights.ty().row_bytes(weights.cols())?,
            row_stride: weights.row_stride(),
            expert_stride: weights.expert_stride(),
            dst: Parts::new(dst),
            dst_stride,
        };
        let worker = || {
            let mut worker = shared.workers.take();
            worker.held = None;
            worker.rows.reserve(shared, plan.most_rows(), q8.cols(), launch.kernels.shape)?;
            worker.weights.size(tile_rows, launch.kernels.shape);
            shared.reserve(&mut worker.acc, plan.most_rows() * tile_rows)?;
            Ok(worker)
        };
        let (tasks, units) = match plan.is_small() {
            true => (1, plan.units()),
            false => (plan.units(), 1),
        };
        shared.parallel_with(tasks, worker, |worker, task| {
            for i in task * units..(task + 1) * units {
                launch.unit(&plan.unit(i), worker);
            }
        })
    }
}

impl<S: Simd> Launch<'_, S> {
    fn unit(&self, unit: &Unit, worker: &mut Worker) {
        let one = unit.rows.len() == 1;
        if worker.held.as_ref() != Some(&unit.rows) {
            let shape = if one { self.one.shape } else { self.kernels.shape };
            worker.rows.spread(self.simd, &self.activations, unit.rows.clone(), shape);
            worker.held = Some(unit.rows.clone());
        }
        let expert = &self.weights[unit.expert * self.expert_stride..];
        let tile_rows = VECTORS * S::LANES;
        for first in unit.weight_rows.clone().step_by(tile_rows) {
            let count = tile_rows.min(self.weight_rows - first);
            let rows = &expert[first * self.row_stride..];
            let rows = TileRows::new(rows, self.row_stride, self.row_bytes, count);
            if one {
                let mut acc = [0.0; MOST_ROWS];
                self.one.run(self.simd, &rows, &worker.rows, self.cols, &mut acc);
                self.store(&acc[..tile_rows], unit, first, count);
                continue;
            }
            worker.acc.clear();
            worker.acc.resize(unit.rows.len() * tile_rows, 0.0);
            for slab in 0..self.cols.div_ceil(SLAB) {
                let values = SLAB.min(self.cols - slab * SLAB);
                self.decoder.run(self.simd, &mut worker.weights, &rows, slab, values);
                self.kernels.run(
                    self.simd,
                    &worker.weights,
                    &worker.rows,
                    slab,
                    values,
                    &mut worker.acc,
                );
            }
            self.store(&worker.acc, unit, first, count);
        }
    }

    /// Stores the sums of `count` weight rows from `first` on.
    fn store(&self, acc: &[f32], unit: &Unit, first: usize, count: usize) {
        self.simd.run(StoreTile {
            acc,
            tile_rows: VECTORS * S::LANES,
            count,
            dst: self.dst,
            at: unit.rows.start * self.dst_stride + first,
            stride: self.dst_stride,
        });
    }
}
