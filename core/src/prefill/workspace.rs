//! The buffers of one chunk, allocated once and reused.

use super::ffn::FfnSpace;
use super::layer::MoeLayer;
use super::options::{Chunk, Options};
use super::sizes::{Part, Shape, Sizes};
use super::timing::{Phase, Timeline};
use crate::backend::RoutesView;
use crate::backend::ops::{By, Combine, MapRoutes, Matrix, MatrixMut, Pointwise};
use crate::backend::{Backend, Buffer, DeviceId, DeviceRoutes, MemoryInfo, Report, RoutingMap};
use crate::routing::Routes;
use crate::{Error, Result};

/// The buffers that a layer needs for up to `chunk` tokens at once.
///
/// One workspace serves one stream; layers of the same shape can share it, one
/// after the other.
#[derive(Debug)]
pub struct Workspace {
    pub(super) chunk: usize,
    pub(super) options: Options,
    pub(super) device: DeviceId,
    shape: Shape,
    pub(super) scores: Buffer<f32>,
    pub(super) routes: DeviceRoutes,
    pub(super) map: RoutingMap,
    pub(super) experts: FfnSpace,
    pub(super) shared: Option<SharedSpace>,
    pub(super) weighed: Option<WeighedSpace>,
    pub(super) report: Report,
}

/// The shared expert's buffers.
#[derive(Debug)]
pub(super) struct SharedSpace {
    pub(super) ffn: FfnSpace,
    pub(super) score: Buffer<f32>,
}

/// Choices of tokens times their weights, for layers with weights on the experts' inputs: row t*k+j
/// is that of choice j of token t.
#[derive(Debug)]
pub(super) struct WeighedSpace {
    rows: Buffer<f32>,
    /// Tokens k times each, where k is more than 1.
    copies: Buffer<f32>,
    k: usize,
    width: usize,
    /// Every row to one expert, and the map of it: row r is row r.
    routes: DeviceRoutes,
    identity: RoutingMap,
    /// The experts' rows, of rows as tokens.
    map: RoutingMap,
}

impl WeighedSpace {
    fn new(backend: &dyn Backend, sizes: &Sizes<'_>) -> Result<Self> {
        let Shape { width, k, experts, .. } = sizes.shape;
        let rows = sizes.tokens.saturating_mul(k);
        Ok(Self {
            rows: sizes.alloc(backend, Part::Weighed)?,
            copies: sizes.alloc(backend, Part::Copies)?,
            k,
            width,
            routes: DeviceRoutes::upload(backend, &Routes::all(rows, 1)?)?,
            identity: RoutingMap::with_capacity(backend, rows, 1, 1)?,
            map: RoutingMap::with_capacity(backend, rows, 1, experts)?,
        })
    }

    /// A row of `x` for each choice of `routes`, times its weight, and the map of these rows: it has
    /// the slots of the map of `routes`.
    pub(super) fn weigh<'a>(
        &'a mut self,
        timeline: &mut Timeline<'_>,
        x: Matrix<'_>,
        routes: RoutesView<'_>,
    ) -> Result<(Matrix<'a>, &'a RoutingMap)> {
        let Self { rows, copies, k, width, .. } = self;
        let (k, width, count) = (*k, *width, x.rows() * *k);
        let phase = Phase::Quantize;
        timeline.launch(phase, MapRoutes::new(routes.each(), &mut self.map)?)?;
        let identity = MapRoutes::new(self.routes.tokens(0..count)?, &mut self.identity)?;
        timeline.launch(phase, identity)?;
        let read = match k {
            1 => x,
            _ => {
                for choice in 0..k {
                    let every = copies.slice_mut(choice * width..count * width)?;
                    let every = MatrixMut::new("copies", every, x.rows(), width, k * width)?;
                    timeline.launch(phase, Pointwise::new(every, By::Copy(x))?)?;
                }
                Matrix::dense("copies", &*copies, count, width)?
            }
        };
        let out = MatrixMut::dense("weighed tokens", &mut *rows, count, width)?;
        timeline.launch(phase, Combine::new(read, &self.identity, routes.each(), None, out)?)?;
        Ok((Matrix::dense("weighed tokens", &*rows, count, width)?, &self.map))
    }
}

impl Workspace {
    /// Buffers for `tokens` tokens of `layer`, in chunks as the options say.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], also where not even one token fits for `auto:N`, or
    /// where a host has not enough memory for all buffers together;
    /// [`Error::Invalid`] where a size overflows.
    pub fn new(
        backend: &dyn Backend,
        layer: &MoeLayer,
        tokens: usize,
        options: Options,
    ) -> Result<Self> {
        let tokens = tokens.max(1);
        let full = |chunk, memory: MemoryInfo| Error::OutOfMemory {
            device: backend.id().to_string(),
            asked: Self::bytes(layer, chunk, &options).map_or(u64::MAX, |b| b as u64),
            free: memory.free,
            total: memory.total,
        };
        let fits = |chunk, memory: MemoryInfo| {
            Self::bytes(layer, chunk, &options).is_ok_and(|b| b as u64 <= memory.free)
        };
        let chunk = match options.chunk {
            Chunk::Tokens(n) => tokens.min(n.max(1)),
            Chunk::Auto(most) => {
                let memory = backend.memory()?;
                equal_chunks(tokens, most.max(1), |chunk| fits(chunk, memory))
                    .ok_or_else(|| full(1, memory))?
            }
        };
        let sizes = Sizes::of(layer, chunk, &options);
        sizes.bytes()?;
        // A host takes memory when it is written, not when it is allocated: buffers that fit one
        // by one, but not together, would only be found out when the system ends the process.
        if backend.device().host_memory {
            let memory = backend.memory()?;
            if !fits(chunk, memory) {
                return Err(full(chunk, memory));
            }
        }
        let shape = sizes.shape;
        let space = |[input, gate_up, hidden, hidden_q8, down]: [Part; 5]| -> Result<FfnSpace> {
            Ok(FfnSpace {
                input: sizes.alloc(backend, input)?,
                gate_up: sizes.alloc(backend, gate_up)?,
                hidden: sizes.alloc(backend, hidden)?,
                hidden_q8: sizes.alloc(backend, hidden_q8)?,
                down: sizes.alloc(backend, down)?,
            })
        };
        use Part::{Down, GateUp, Hidden, HiddenQ8, Input};
        use Part::{SharedDown, SharedGateUp, SharedHidden, SharedHiddenQ8, SharedInput};
        Ok(Self {
            chunk,
            device: backend.id(),
            shape,
            // A caller may hand scores or routes in; the router's are allocated only where it has one.
            scores: sizes.alloc(backend, Part::Scores)?,
            routes: DeviceRoutes::with_capacity(backend, chunk, shape.k, shape.experts)?,
            map: RoutingMap::with_capacity(backend, chunk, shape.k, shape.experts)?,
            experts: space([Input, GateUp, Hidden, HiddenQ8, Down])?,
            shared: match shape.has_shared() {
                false => None,
                true => Some(SharedSpace {
                    ffn: space([
                        SharedInput,
                        SharedGateUp,
                        SharedHidden,
                        SharedHiddenQ8,
                        SharedDown,
                    ])?,
                    score: sizes.alloc(backend, Part::SharedScore)?,
                }),
            },
            weighed: match shape.weighs_input {
                true => Some(WeighedSpace::new(backend, &sizes)?),
                false => None,
            },
            report: Report::new(backend)?,
            options,
        })
    }

    /// Bytes of all buffers for chunks of `chunk` tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they overflow.
    pub fn bytes(layer: &MoeLayer, chunk: usize, options: &Options) -> Result<usize> {
        Sizes::of(layer, chunk, options).bytes()
    }

    /// Tokens per chunk.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// How layers are run in it.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether `layer`'s buffers are these.
    pub(super) fn check(&self, layer: &MoeLayer) -> Result<()> {
        if Shape::of(layer) == self.shape && (!layer.has_router() || self.has_scores()) {
            return Ok(());
        }
        Err(Error::invalid(
            "workspace",
            format!("one made for {:?}", self.shape),
            format!("one made for {:?}", Shape::of(layer)),
        ))
    }

    fn has_scores(&self) -> bool {
        self.scores.len() >= self.chunk * self.shape.experts
    }
}

/// The largest chunk of at most `most` tokens that `fits`, all chunks equal but
/// for the last one's remainder.
fn equal_chunks(tokens: usize, most: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let mut chunks = tokens.div_ceil(most);
    loop {
        let chunk = tokens.div_ceil(chunks);
        if fits(chunk) {
            return Some(chunk);
        }
        if chunk == 1 {
            return None;
        }
        // The fewest chunks that are really smaller.
        chunks = tokens.div_ceil(chunk - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::equal_chunks;

    #[test]
    fn chunks_are_equal_and_as_large_as_fit() {
        assert_eq!(equal_chunks(100, 1000, |_| true), Some(100));
        assert_eq!(equal_chunks(100, 60, |_| true), Some(50));
        assert_eq!(equal_chunks(100, 1000, |c| c <= 49), Some(34));
        assert_eq!(equal_chunks(7, 7, |c| c <= 1), Some(1));
        assert_eq!(equal_chunks(7, 7, |_| false), None);
        assert_eq!(equal_chunks(1, 32768, |_| true), Some(1));
    }
}
