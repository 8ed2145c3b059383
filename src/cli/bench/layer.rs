//! A whole layer, phase by phase, in every mode.

use std::time::Duration;

use serde_json::json;
use strata::WeightType;
use strata::backend::ops::{GateUpOrder, Matrix, MatrixMut};
use strata::prefill::{Options, QuantMode, Routing, Synthetic, Timings, Workspace};

use super::{Bench, Growth, Table, ratio, shown};
use crate::cli::measure::{self, POISON};
use crate::cli::report::{bytes, ms, ops_rate, significant};
use crate::cli::{Outcome, args};

impl Bench<'_> {
    pub(super) fn layer(&self) -> Outcome<Table> {
        let mut table =
            Table::new(vec!["phase", "ms", "bytes", "floor", "x floor", "rate", "x tokens"]);
        for &ty in &self.types {
            for &experts in &self.experts {
                let mut growth = Growth(None);
                for &tokens in &self.tokens {
                    for mode in QuantMode::ALL {
                        self.bar.set_message(format!("{ty}, {tokens} tokens, {mode}"));
                        self.layer_with(ty, experts, tokens, mode, &mut growth, &mut table)?;
                    }
                }
            }
        }
        Ok(table)
    }

    /// The layer that is measured, of a type.
    pub(super) fn synthetic(&self, ty: WeightType, experts: usize) -> Outcome<Synthetic> {
        let (width, ffn) = (self.args.cols, self.args.rows / 2);
        args::host_room(
            ty.row_bytes(width)?.checked_mul(3 * ffn).and_then(|b| b.checked_mul(experts)),
        )?;
        let fits = ffn.is_multiple_of(ty.block_values());
        Ok(Synthetic {
            experts,
            k: self.k,
            width,
            ffn,
            gate_up: ty,
            order: GateUpOrder::Split,
            down: if fits { ty } else { WeightType::Q8_0 },
            seed: self.args.seed,
        })
    }

    fn layer_with(
        &self,
        ty: WeightType,
        experts: usize,
        tokens: usize,
        quant: QuantMode,
        growth: &mut Growth,
        table: &mut Table,
    ) -> Outcome {
        let (backend, width, ffn) = (self.backend, self.args.cols, self.args.rows / 2);
        let synthetic = self.synthetic(ty, experts)?;
        let layer = synthetic.layer(backend)?;
        let options = Options { quant, timed: true, ..Options::default() };
        let mut workspace = Workspace::new(backend, &layer, tokens, options)?;
        args::host_room(tokens.checked_mul(width).and_then(|n| n.checked_mul(8)))?;
        let x = backend.from_slice(&synthetic.try_input(tokens)?)?;
        let x = Matrix::dense("input", &x, tokens, width)?;
        let mut y = backend.alloc::<f32>(tokens * width)?;
        let mut runs = Vec::new();
        for run in 0..=self.args.runs {
            backend.fill(&mut y, POISON)?;
            let mut to = MatrixMut::dense("output", &mut y, tokens, width)?;
            let timings = layer.forward(backend, &mut workspace, x, Routing::Router, &mut to)?;
            if run > 0 {
                runs.push(timings);
            }
        }
        let Some(first) = runs.first() else { return Ok(()) };
        let title = format!("{ty}, {experts} experts, {tokens} tokens, {quant}");
        table.rows.push(vec![title]);
        let mut phases = Vec::new();
        for (i, phase) in first.phases.iter().enumerate() {
            let mut times: Vec<Duration> =
                runs.iter().filter_map(|run| Some(run.phases.get(i)?.time)).collect();
            let time = measure::median(&mut times).unwrap_or_default();
            let floor = self.bandwidth.floor(phase.cost.bytes);
            table.rows.push(vec![
                format!("  {}", phase.phase.name()),
                ms(time),
                bytes(phase.cost.bytes),
                ms(floor),
                significant(ratio(time, floor)),
                if phase.cost.ops > 0 { ops_rate(phase.cost.ops, time) } else { String::new() },
                String::new(),
            ]);
            phases.push(json!({
                "phase": phase.phase.name(),
                "seconds": time.as_secs_f64(),
                "bytes": phase.cost.bytes,
                "floor_seconds": floor.as_secs_f64(),
                "ops": phase.cost.ops,
            }));
        }
        let mut totals: Vec<Duration> = runs.iter().map(Timings::total).collect();
        let total = measure::median(&mut totals).unwrap_or_default();
        let moved: u64 = first.phases.iter().map(|p| p.cost.bytes).sum();
        let ops: u64 = first.phases.iter().map(|p| p.cost.ops).sum();
        let floor = self.bandwidth.floor(moved);
        // Growth compares one mode with itself.
        let grown = (quant == QuantMode::Scatter).then(|| growth.next(tokens, total)).flatten();
        table.rows.push(vec![
            "  total".to_owned(),
            ms(total),
            bytes(moved),
            ms(floor),
            significant(ratio(total, floor)),
            ops_rate(ops, total),
            shown(grown),
        ]);
        table.json.push(json!({
            "type": ty.name(), "down_type": synthetic.down.name(), "experts": experts,
            "tokens": tokens, "width": width, "ffn": ffn, "quant": quant.name(),
            "phases": phases,
            "seconds": total.as_secs_f64(),
            "growth": grown,
        }));
        Ok(())
    }
}
