//! What each phase took, and what it had to move and compute.

use std::time::Duration;

use crate::Result;
use crate::backend::{Backend, Mark};

/// A phase of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Router scores.
    Router,
    /// Top-k and weights.
    TopK,
    /// The routing map.
    Map,
    /// Quantization of the input.
    Quantize,
    /// Gate and up products.
    GateUp,
    /// SwiGLU alone.
    SwiGlu,
    /// Quantization of the hidden activations alone.
    QuantizeHidden,
    /// SwiGLU and quantization in one.
    SwiGluQuantize,
    /// Down product.
    Down,
    /// The shared expert, all of it.
    Shared,
    /// Weighted sum.
    Combine,
}

impl Phase {
    /// The name, as `gate+up`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::TopK => "top-k",
            Self::Map => "map",
            Self::Quantize => "quantize",
            Self::GateUp => "gate+up",
            Self::SwiGlu => "swiglu",
            Self::QuantizeHidden => "quantize hidden",
            Self::SwiGluQuantize => "swiglu+quantize",
            Self::Down => "down",
            Self::Shared => "shared expert",
            Self::Combine => "combine",
        }
    }
}

/// One phase, summed over the chunks.
#[derive(Debug, Clone, Copy)]
pub struct PhaseTime {
    /// Which.
    pub phase: Phase,
    /// How long, on the device's clock.
    pub time: Duration,
    /// Bytes it must read and write at least: inputs once, outputs once.
    pub bytes: u64,
    /// Multiplications and additions of its products; 0 for the rest.
    pub ops: u64,
}

/// All phases of one run, in order.
#[derive(Debug, Clone, Default)]
pub struct Timings {
    /// The phases; empty unless timed.
    pub phases: Vec<PhaseTime>,
    /// Chunks it took.
    pub chunks: usize,
    /// Tokens of the largest chunk.
    pub chunk: usize,
}

impl Timings {
    /// The sum of all phases.
    pub fn total(&self) -> Duration {
        self.phases.iter().map(|p| p.time).sum()
    }
}

/// Marks between phases, read when the run is over.
pub(super) struct Timeline<'a> {
    backend: &'a dyn Backend,
    marks: Option<Vec<Box<dyn Mark>>>,
    spans: Vec<(Phase, u64, u64)>,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(backend: &'a dyn Backend, timed: bool) -> Result<Self> {
        let marks = if timed { Some(vec![backend.mark()?]) } else { None };
        Ok(Self { backend, marks, spans: Vec::new() })
    }

    /// What was launched since the last call is `phase`.
    pub(super) fn end(&mut self, phase: Phase, bytes: usize, ops: usize) -> Result<()> {
        if let Some(marks) = &mut self.marks {
            marks.push(self.backend.mark()?);
            self.spans.push((phase, bytes as u64, ops as u64));
        }
        Ok(())
    }

    pub(super) fn finish(self, chunks: usize, chunk: usize) -> Result<Timings> {
        let mut timings = Timings { phases: Vec::new(), chunks, chunk };
        let marks = self.marks.unwrap_or_default();
        for (pair, (phase, bytes, ops)) in marks.windows(2).zip(self.spans) {
            let time = self.backend.elapsed(&*pair[0], &*pair[1])?;
            match timings.phases.iter_mut().find(|p| p.phase == phase) {
                Some(sum) => {
                    sum.time += time;
                    sum.bytes += bytes;
                    sum.ops += ops;
                }
                None => timings.phases.push(PhaseTime { phase, time, bytes, ops }),
            }
        }
        Ok(timings)
    }
}
