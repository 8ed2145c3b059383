//! Order, state and concurrency: the same case many times, on two streams, on
//! two threads, and memory that is let go of while it is in use.

use strata_core::backend::ops::{
    MapRoutes, Matrix, Product, Q8Rows, QuantizeScatter, Rows, TopK, Weights,
};
use strata_core::backend::{Backend, DeviceRoutes, RoutingMap};
use strata_core::prefill::{Options, Workspace};
use strata_core::routing::RouterOptions;
use strata_core::{Error, Layout, WeightType};

use super::LayerCase;
use super::mmq::{q8_rows, random_bytes};
use crate::output::{Output, Shape};
use crate::poisoned::{OutMatrix, OutQ8, POISON, Poisoned};
use crate::values::{Routing, Values, WeightValues};
use crate::{Op, Outputs, Stage, Stop};

/// Whether two runs gave the same buffers.
fn same(what: &str, first: &[Output], again: &[Output]) -> Result<(), Stop> {
    for (first, again) in first.iter().zip(again) {
        if let Some(mismatch) = again.compare(&first.bytes) {
            return Err(Stop::Differs(format!("{what}: {}: {mismatch}", again.what)));
        }
    }
    match first.len() == again.len() {
        true => Ok(()),
        false => Err(Stop::Differs(format!("{what}: another number of outputs"))),
    }
}

/// A case many times: one answer.
pub struct Runs {
    /// The case.
    pub op: Box<dyn Op>,
    /// How often.
    pub runs: usize,
}

impl Op for Runs {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        self.op.unsupported(backend)
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let first = self.op.run(stage)?;
        if stage.plain {
            return Ok(first);
        }
        for run in 1..self.runs {
            same(&format!("run {} of {}", run + 1, self.runs), &first, &self.op.run(stage)?)?;
        }
        Ok(first)
    }

    fn guarded(&self) -> bool {
        // A guard would keep the memory of every run.
        false
    }
}

/// Cases on streams and threads of their own, all at once.
pub struct Concurrent {
    /// A thread and a stream for each.
    pub ops: Vec<Box<dyn Op>>,
    /// How often each thread runs its case.
    pub rounds: usize,
}

impl Op for Concurrent {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        self.ops.iter().find_map(|op| op.unsupported(backend))
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        if stage.plain {
            let runs = self.ops.iter().map(|op| op.run(stage));
            return Ok(runs.collect::<Result<Vec<_>, _>>()?.concat());
        }
        let forks: Vec<_> =
            self.ops.iter().map(|_| stage.backend.fork()).collect::<Result<_, _>>()?;
        let results: Vec<Outputs> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .ops
                .iter()
                .zip(forks)
                .map(|(op, fork)| {
                    scope.spawn(move || {
                        let stage = Stage { backend: &*fork, plain: false };
                        let first = op.run(&stage)?;
                        for round in 1..self.rounds {
                            let what = format!("round {} beside others", round + 1);
                            same(&what, &first, &op.run(&stage)?)?;
                        }
                        fork.synchronize()?;
                        Ok(first)
                    })
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Outputs>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        Ok(results.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn guarded(&self) -> bool {
        false
    }
}

/// Two layers on two streams from one thread, launched in turns without waiting.
pub struct Streams {
    /// A stream for each; unchecked, or a call would wait.
    pub cases: [LayerCase; 2],
    /// Calls of each, in one workspace.
    pub calls: usize,
}

impl Op for Streams {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        self.cases.iter().find_map(|case| case.unsupported(backend))
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        if stage.plain {
            let runs = self.cases.iter().map(|case| case.run(stage));
            return Ok(runs.collect::<Result<Vec<_>, _>>()?.concat());
        }
        let mut running = Vec::new();
        for case in &self.cases {
            let backend = stage.backend.fork()?;
            let LayerCase { mode, chunk, fused, tokens, .. } = *case;
            let options = Options { quant: mode, chunk, fused, checked: false, timed: false };
            let layer = case.layer(&*backend)?;
            let workspace = Workspace::new(&*backend, &layer, tokens, options)?;
            let call = case.prepare(&*backend)?;
            running.push((case, layer, workspace, call, backend));
        }
        for _ in 0..self.calls {
            for (case, layer, workspace, call, backend) in &mut running {
                call.forward(case, &**backend, layer, workspace)?;
            }
        }
        let mut outputs = Vec::new();
        for (_, _, _, call, backend) in &running {
            backend.synchronize()?;
            outputs.push(call.out.read(&**backend, "tokens")?);
        }
        Ok(outputs)
    }
}

/// A copy on the device, whose source is overwritten before anyone has waited for it.
#[derive(Debug, Clone, Copy)]
pub struct CopyCase {
    /// Bytes.
    pub bytes: usize,
    /// Where they begin, in the source and past an aligned address of the target.
    pub from: usize,
    /// As above.
    pub to: usize,
}

impl std::fmt::Display for CopyCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "copy/bytes={}/from={},to={}", self.bytes, self.from, self.to)
    }
}

impl Op for CopyCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let (backend, Self { bytes, from, to }) = (stage.backend, *self);
        let source = random_bytes(1, from + bytes + 5);
        let mut out = Poisoned::<u8>::new(backend, bytes, to)?;
        match stage.plain {
            true => backend.upload(out.view(), &source[from..from + bytes])?,
            false => {
                let mut source = backend.from_slice(&source)?;
                backend.copy(out.view(), source.slice(from..from + bytes)?)?;
                backend.fill(&mut source, 0)?;
            }
        }
        // All of it: what was not copied to is poison on both sides.
        let all = out.read(backend, "target", Shape::Untouched)?;
        let shape = Shape::Blocks { block: 1, bytes: all.bytes.len() };
        Ok(vec![Output { shape, ..all }])
    }
}

/// One map that two streams take in turns, each waited for before the other.
pub struct HandedOver {
    /// What it maps.
    pub routing: Routing,
    /// Turns.
    pub turns: usize,
    /// Whether the streams wait for each other's events on the device, and not the host for them.
    pub by_event: bool,
}

impl Op for HandedOver {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        const COLS: usize = 128;
        const LONG: usize = 64 << 20;
        let backend = stage.backend;
        let other = backend.fork()?;
        let Routing { tokens, k, experts, .. } = self.routing;
        let x = backend.from_slice(&Values::Normal.fill(1, tokens, COLS))?;
        let x = Matrix::dense("input", &x, tokens, COLS)?;
        let rows = tokens * k;
        let mut map = RoutingMap::with_capacity(backend, tokens, k, experts)?;
        let mut long = backend.alloc::<u8>(if self.by_event && !stage.plain { LONG } else { 0 })?;
        let (mut outs, mut outputs) = (Vec::new(), Vec::new());
        // The other stream may use what this one has written.
        other.wait(&backend.record()?)?;
        for turn in 0..self.turns {
            let (makes, reads) =
                if turn % 2 == 0 { (backend, &*other) } else { (&*other, backend) };
            let routes = DeviceRoutes::upload(makes, &self.routing.routes(turn as u64))?;
            let mut out = OutQ8::new(reads, Layout::D4, rows, COLS)?;
            if self.by_event && !stage.plain {
                // Something for the map to stand behind, so that it is not there too early.
                makes.fill(&mut long, turn as u8)?;
            }
            MapRoutes::new(routes.view(), &mut map)?.launch(makes)?;
            match self.by_event {
                true => reads.wait(&makes.record()?)?,
                false => makes.synchronize()?,
            }
            QuantizeScatter::new(x, &map, out.view()?)?.launch(reads)?;
            // The stream that reads makes the next map.
            match self.by_event {
                true => outs.push((out, reads)),
                false => outputs.push(out.read(reads, "q8_1 rows")?),
            }
        }
        for (out, reads) in outs {
            outputs.push(out.read(reads, "q8_1 rows")?);
        }
        Ok(outputs)
    }
}

/// Scores that another stream writes over while a top-k reads them: the weights may be anything,
/// the ids name experts all the same, as maps and products index by them.
pub struct ScoresOverwritten {
    /// Tokens, experts and k.
    pub routing: Routing,
    /// Launches.
    pub rounds: usize,
}

impl Op for ScoresOverwritten {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let other = backend.fork()?;
        let Routing { tokens, k, experts, .. } = self.routing;
        let values = Values::Normal.fill(1, tokens, experts);
        let (mut outside, rounds) = (0, if stage.plain { 1 } else { self.rounds });
        for _ in 0..rounds {
            let mut scores = backend.from_slice(&values)?;
            let mut routes = DeviceRoutes::with_capacity(backend, tokens, k, experts)?;
            routes.wipe(backend, POISON)?;
            backend.synchronize()?;
            let view = Matrix::dense("scores", &scores, tokens, experts)?;
            TopK::new(view, &RouterOptions::SOFTMAX_OF_CHOSEN, &mut routes)?.launch(backend)?;
            // Buffers of values are not tracked: nothing orders these behind the launch. First all
            // are the same, then NaN, then minus infinity and large by turns.
            for byte in [0x00, 0xff, 0x7f, 0x00, 0xff] {
                other.fill(&mut scores, byte)?;
            }
            other.synchronize()?;
            let ids = backend.download(routes.view().ids())?;
            outside += ids.iter().filter(|&&id| id < 0 || id as usize >= experts).count();
        }
        Ok(vec![Output::text("ids outside", &outside.to_string(), "0")])
    }

    fn guarded(&self) -> bool {
        false
    }
}

/// A product whose inputs are dropped, and their memory asked for again and
/// overwritten, before anyone has waited for it.
pub struct DropInFlight {
    /// Weight type.
    pub ty: WeightType,
    /// Rows of activations.
    pub rows: usize,
    /// Weight rows.
    pub m: usize,
    /// Columns.
    pub cols: usize,
    /// Products launched one after the other.
    pub rounds: usize,
}

impl Op for DropInFlight {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        let no = !backend.supports(self.ty);
        no.then(|| format!("{} does not multiply {}", backend.id(), self.ty))
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Self { ty, rows, m, cols, .. } = *self;
        let x = Values::Normal.fill(1, rows, cols);
        let q8 = q8_rows(&x, cols, None, ty.layout());
        let blocks = WeightValues::Random.blocks(ty, 1, m * cols / ty.block_values());
        let mut outs = Vec::new();
        for _ in 0..self.rounds {
            let mut out = OutMatrix::new(backend, rows, m, m, 0)?;
            let (act, weights) = (backend.from_slice(&q8)?, backend.from_slice(&blocks)?);
            let view = Weights::dense("weights", &weights, ty, 1, m, cols)?;
            let act_view = Q8Rows::new(&act, ty.layout(), rows, cols)?;
            Product::new(view, act_view, Rows::Dense, out.view()?)?.launch(backend)?;
            drop((act, weights));
            // Likely the same memory; on another stream nothing orders it but the backend's own care.
            let other = backend.fork()?;
            for bytes in [q8.len(), blocks.len()] {
                let mut again = other.alloc::<u8>(bytes)?;
                other.upload(&mut again, &random_bytes(bytes as u64, bytes))?;
                other.fill(&mut again, POISON)?;
            }
            outs.push(out);
        }
        let read = |out: &OutMatrix| out.read(backend, "product");
        Ok(outs.iter().map(read).collect::<Result<_, _>>()?)
    }

    fn guarded(&self) -> bool {
        false
    }
}

/// More memory than the device has: refused with what was asked for and what
/// there is, and the device is as good as before.
pub struct TooMuch;

impl Op for TooMuch {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        match backend.memory() {
            Ok(memory) if memory.total == u64::MAX => Some("the device knows no limit".into()),
            _ => None,
        }
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let has = backend.memory()?.total;
        let wanted = has + (1 << 40);
        let given = match backend.alloc::<u8>(wanted as usize) {
            Err(Error::OutOfMemory { device, asked, free, total })
                if asked >= wanted && free <= total && total < wanted =>
            {
                format!("{device} has no {wanted} bytes")
            }
            Err(error) => error.to_string(),
            Ok(_) => format!("{wanted} bytes of {has}"),
        };
        let expected = format!("{} has no {wanted} bytes", backend.id());
        let small = backend.from_slice(&[1u8, 2, 3])?;
        let small = backend.download(&small)?;
        Ok(vec![
            Output::text("error", &given, &expected),
            Output::blocks("a small buffer afterwards", small, 1, vec![1, 2, 3]),
        ])
    }

    fn guarded(&self) -> bool {
        false
    }
}
