//! What each phase took, and what it had to move and compute.

use std::time::Duration;

use crate::Result;
use crate::backend::ops::{Cost, Launch};
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
    /// What its operations must move and compute at least.
    pub cost: Cost,
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

/// Launches the operations of a run, with marks between them that are read when it is over.
pub(super) struct Timeline<'a> {
    backend: &'a dyn Backend,
    marks: Option<Vec<Box<dyn Mark>>>,
    spans: Vec<(Phase, Cost)>,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(backend: &'a dyn Backend, timed: bool) -> Result<Self> {
        let marks = if timed { Some(vec![backend.mark()?]) } else { None };
        Ok(Self { backend, marks, spans: Vec::new() })
    }

    /// Launches an operation as a part of `phase`.
    pub(super) fn launch(&mut self, phase: Phase, op: impl Launch) -> Result<()> {
        let Some(marks) = &mut self.marks else { return op.launch(self.backend) };
        self.spans.push((phase, op.cost()));
        op.launch(self.backend)?;
        marks.push(self.backend.mark()?);
        Ok(())
    }

    pub(super) fn finish(self, chunks: usize, chunk: usize) -> Result<Timings> {
        let mut timings = Timings { phases: Vec::new(), chunks, chunk };
        let marks = self.marks.unwrap_or_default();
        for (pair, (phase, cost)) in marks.windows(2).zip(self.spans) {
            let time = self.backend.elapsed(&*pair[0], &*pair[1])?;
            match timings.phases.iter_mut().find(|p| p.phase == phase) {
                Some(sum) => {
                    sum.time += time;
                    sum.cost += cost;
                }
                None => timings.phases.push(PhaseTime { phase, time, cost }),
            }
        }
        Ok(timings)
    }
}
