//! Products with quantized weights.

use std::sync::Arc;

use strata_core::backend::ops::{Product, Q8Rows, Rows, Strides, Weights};
use strata_core::backend::{Backend, HostBytes};
use strata_core::format::random::SplitMix64;
use strata_core::{Layout, WeightType, reference};

use super::Mapped;
use crate::poisoned::OutMatrix;
use crate::values::{Choice, Routing, Values, WeightValues};
use crate::{Op, Outputs, Stage};

/// Which activation rows a product reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowMode {
    /// One expert, row after row.
    Dense,
    /// Activations in expert order.
    Experts,
    /// Activations by token, read through `src`.
    Indexed,
}

impl RowMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Dense, Self::Experts, Self::Indexed];

    /// The name, as `indexed`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Experts => "experts",
            Self::Indexed => "indexed",
        }
    }
}

/// Where rows of weights and outputs stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gaps {
    /// Bytes of NaN bits between weight rows, a multiple of the type's alignment.
    pub weight_row: usize,
    /// Bytes of NaN bits between experts.
    pub expert: usize,
    /// Bytes before the first expert.
    pub weight_offset: usize,
    /// Values between output rows.
    pub output: usize,
    /// Values before the output.
    pub output_offset: usize,
    /// Experts overlap, each starting this many rows after the one before:
    /// the shape of a large tensor in a small one's memory.
    pub overlap: Option<usize>,
}

impl Gaps {
    /// No gaps.
    pub const NONE: Self = Self {
        weight_row: 0,
        expert: 0,
        weight_offset: 0,
        output: 0,
        output_offset: 0,
        overlap: None,
    };
}

/// A product.
#[derive(Debug, Clone, Copy)]
pub struct MmqCase {
    /// Weight type.
    pub ty: WeightType,
    /// Which rows are read.
    pub mode: RowMode,
    /// Tokens and experts; dense products have the tokens' rows only.
    pub routing: Routing,
    /// Weight rows.
    pub m: usize,
    /// Columns.
    pub cols: usize,
    /// What the activations are made from.
    pub values: Values,
    /// What the weights hold.
    pub weights: WeightValues,
    /// Gaps.
    pub gaps: Gaps,
    /// Launches on the same buffers.
    pub launches: usize,
    /// What everything follows from.
    pub seed: u64,
}

impl MmqCase {
    /// Normal values, random weights, no gaps.
    pub const fn new(
        ty: WeightType,
        mode: RowMode,
        routing: Routing,
        m: usize,
        cols: usize,
    ) -> Self {
        let (values, weights) = (Values::Normal, WeightValues::Random);
        Self { ty, mode, routing, m, cols, values, weights, gaps: Gaps::NONE, launches: 1, seed: 1 }
    }

    /// One expert and `rows` rows.
    pub const fn dense(ty: WeightType, rows: usize, m: usize, cols: usize) -> Self {
        Self::new(ty, RowMode::Dense, Routing::new(1, 1, rows, Choice::Only(0)), m, cols)
    }

    /// Bytes from one weight row, and from one expert, to the next.
    fn strides(&self) -> (usize, usize) {
        let row = self.ty.row_bytes(self.cols).expect("the table's columns are whole blocks");
        let row = row + self.gaps.weight_row;
        let expert = match self.gaps.overlap {
            Some(rows) => rows * row,
            None => self.m * row + self.gaps.expert,
        };
        (row, expert)
    }

    /// All experts' bytes, gaps included, and the offset of the first.
    fn weight_bytes(&self) -> Vec<u8> {
        let row_bytes = self.ty.row_bytes(self.cols).expect("whole blocks");
        let (row, expert) = self.strides();
        let rows = match self.gaps.overlap {
            Some(step) => (self.routing.experts - 1) * step + self.m,
            None => self.routing.experts * self.m,
        };
        let blocks =
            self.weights.blocks(self.ty, self.seed, rows * row_bytes / self.ty.block_bytes());
        // Behind the last row there is a gap too: no more than a tile's worth may be read, and none used.
        let gaps = self.gaps.expert * self.routing.experts;
        let mut bytes = vec![0xff; self.gaps.weight_offset + rows * row + gaps + 4096];
        for (r, from) in blocks.chunks_exact(row_bytes).enumerate() {
            let at = match self.gaps.overlap {
                Some(_) => r * row,
                None => r / self.m * expert + r % self.m * row,
            };
            bytes[self.gaps.weight_offset + at..][..row_bytes].copy_from_slice(from);
        }
        bytes
    }
}

impl std::fmt::Display for MmqCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mmq/{}/{}/", self.ty, self.mode.name())?;
        match self.mode {
            RowMode::Dense => write!(f, "T={}", self.routing.tokens)?,
            _ => write!(f, "{}", self.routing)?,
        }
        write!(f, "/m={},K={}", self.m, self.cols)?;
        let Gaps { weight_row, expert, weight_offset, output, output_offset, overlap } = self.gaps;
        let gaps = [
            ("row-gap", weight_row),
            ("expert-gap", expert),
            ("offset", weight_offset),
            ("ld", if output > 0 { self.m + output } else { 0 }),
            ("dst-offset", output_offset),
            ("overlap", overlap.unwrap_or(0)),
        ];
        for (name, bytes) in gaps.into_iter().filter(|(_, n)| *n > 0) {
            write!(f, ",{name}={bytes}")?;
        }
        write!(f, "/{}", self.values)?;
        if self.weights != WeightValues::Random {
            write!(f, "/weights={}", self.weights)?;
        }
        if self.launches > 1 {
            write!(f, "/launches={}", self.launches)?;
        }
        Ok(())
    }
}

/// The blocks of `x`, by the reference: a product is tested on its own.
pub(super) fn q8_rows(x: &[f32], cols: usize, src: Option<&[u32]>, layout: Layout) -> Vec<u8> {
    reference::quantize(x, x.len() / cols, cols, cols, src, layout)
}

impl Op for MmqCase {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        let no = !backend.supports(self.ty);
        no.then(|| format!("{} does not multiply {}", backend.id(), self.ty))
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Self { ty, mode, routing, m, cols, gaps, .. } = *self;
        let x = self.values.fill(self.seed, routing.tokens, cols);
        let host = routing.routes(self.seed);
        let mapped = match mode {
            RowMode::Dense => None,
            RowMode::Experts | RowMode::Indexed => Some(Mapped::new(backend, &host)?),
        };
        let (act_rows, src) = match mode {
            RowMode::Experts => (routing.rows(), Some(strata_core::routing::Map::new(&host).src)),
            _ => (routing.tokens, None),
        };
        let q8 = q8_rows(&x, cols, src.as_deref(), ty.layout());
        // Behind the activations: bytes whose scales are NaN.
        let mut act = vec![0xff; q8.len() + 4096];
        act[..q8.len()].copy_from_slice(&q8);
        let act = backend.from_slice(&act)?;

        // A mapped file's tensors start anywhere: three bytes into the host's memory.
        let host = [vec![0xff; 3], self.weight_bytes()].concat();
        let bytes = host.len();
        let weights = backend.import(HostBytes::new(Arc::new(host), 3..bytes)?)?;
        let weights = weights.slice(gaps.weight_offset..)?;
        let (row, expert) = self.strides();
        let experts = if mode == RowMode::Dense { 1 } else { routing.experts };
        let weights =
            Weights::strided("weights", weights, ty, experts, m, cols, Strides { row, expert })?;
        let out_rows = mapped.as_ref().map_or(act_rows, |mapped| mapped.map.rows());
        let mut out = OutMatrix::new(backend, out_rows, m, m + gaps.output, gaps.output_offset)?;
        for _ in 0..self.launches {
            let rows = match (mode, &mapped) {
                (RowMode::Experts, Some(mapped)) => Rows::Experts(&mapped.map),
                (RowMode::Indexed, Some(mapped)) => Rows::Indexed(&mapped.map),
                _ => Rows::Dense,
            };
            let act = Q8Rows::new(&act, ty.layout(), act_rows, cols)?;
            Product::new(weights, act, rows, out.view()?)?.launch(backend)?;
        }
        Ok(vec![out.read(backend, "product")?])
    }

    fn yardstick_key(&self) -> Option<String> {
        // Activations in expert order or by token: the product is the same.
        let mode = if self.mode == RowMode::Dense { RowMode::Dense } else { RowMode::Experts };
        Some(format!("{:?}", Self { mode, launches: 1, ..*self }))
    }
}

/// Random bytes that are not f32 values: for tables that need them.
pub(super) fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    SplitMix64::new(seed).fill(&mut bytes);
    bytes
}
