//! Quantization, map and products, each alone.

use std::time::Duration;

use serde_json::json;
use strata::backend::ops::{
    Cost, MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows, QuantizeScatter,
    Rows, Weights,
};
use strata::backend::{DeviceRoutes, RoutingMap};
use strata::format::try_random_blocks;
use strata::prefill::{QuantMode, try_normals};
use strata::{Layout, WeightType, q8_1};

use super::{Bench, Fewer, Growth, Table, ratio, shown};
use crate::cli::measure::{self, POISON};
use crate::cli::report::{self, bytes, ms, ops_rate, significant};
use crate::cli::{Outcome, args};

impl Bench<'_> {
    pub(super) fn quantize(&self) -> Outcome<Table> {
        let mut table = Table::new(vec![
            "layout",
            "experts",
            "tokens",
            "scatter ms",
            "floor",
            "x floor",
            "gather ms",
            "gather/scatter",
            "indexed ms",
            "floor",
            "x floor",
            "x tokens",
        ]);
        let (backend, cols) = (self.backend, self.args.cols);
        for layout in Layout::ALL {
            for &experts in &self.experts {
                let mut growth = Growth(None);
                for &tokens in &self.tokens {
                    self.bar.set_message(format!("{layout}, {tokens} tokens"));
                    args::host_room(tokens.checked_mul(cols).and_then(|n| n.checked_mul(8)))?;
                    let (_routes, map) = self.mapped(tokens, experts)?;
                    let x = backend.from_slice(&try_normals(self.args.seed, tokens * cols)?)?;
                    let x = Matrix::dense("input", &x, tokens, cols)?;
                    let mut out = backend.alloc::<u8>(q8_1::bytes(map.rows(), cols)?)?;
                    let poison = |out: &mut _| backend.fill(&mut *out, POISON);
                    let mut time = |mode: QuantMode| {
                        measure::time(backend, self.args.runs, &mut out, poison, |out, run| {
                            let rows = if mode == QuantMode::Indexed { tokens } else { map.rows() };
                            let to = Q8RowsMut::new(&mut *out, layout, rows, cols)?;
                            match mode {
                                QuantMode::Scatter => {
                                    run.launch(QuantizeScatter::new(x, &map, to)?)
                                }
                                QuantMode::Gather => run.launch(QuantizeRows::gather(x, &map, to)?),
                                QuantMode::Indexed => run.launch(QuantizeRows::new(x, to)?),
                            }
                        })
                    };
                    let (scatter, cost) = time(QuantMode::Scatter)?;
                    let (gather, _) = time(QuantMode::Gather)?;
                    let (indexed, cost_once) = time(QuantMode::Indexed)?;
                    let floor = self.bandwidth.floor(cost.bytes);
                    let once = self.bandwidth.floor(cost_once.bytes);
                    let grown = growth.next(tokens, scatter);
                    table.rows.push(vec![
                        layout.to_string(),
                        experts.to_string(),
                        tokens.to_string(),
                        ms(scatter),
                        ms(floor),
                        significant(ratio(scatter, floor)),
                        ms(gather),
                        significant(ratio(gather, scatter)),
                        ms(indexed),
                        ms(once),
                        significant(ratio(indexed, once)),
                        shown(grown),
                    ]);
                    table.json.push(json!({
                        "layout": layout.name(), "experts": experts, "tokens": tokens, "cols": cols,
                        "scatter_seconds": scatter.as_secs_f64(),
                        "gather_seconds": gather.as_secs_f64(),
                        "indexed_seconds": indexed.as_secs_f64(),
                        "floor_seconds": floor.as_secs_f64(),
                        "indexed_floor_seconds": once.as_secs_f64(),
                        "growth": grown,
                    }));
                }
            }
        }
        Ok(table)
    }

    pub(super) fn map(&self) -> Outcome<Table> {
        let head =
            vec!["experts", "tokens", "ms", "bytes", "floor", "x floor", "x tokens", "x experts"];
        let mut table = Table::new(head);
        let backend = self.backend;
        let mut fewer = Fewer::default();
        for &experts in &self.experts {
            let mut growth = Growth(None);
            for (i, &tokens) in self.tokens.iter().enumerate() {
                self.bar.set_message(format!("{experts} experts, {tokens} tokens"));
                let routes = DeviceRoutes::upload(backend, &self.routes(tokens, experts)?)?;
                // A map cannot be poisoned from outside: each run gets one that maps nothing.
                let mut map = RoutingMap::with_capacity(backend, tokens, self.k, experts)?;
                let fresh = |_: &mut _| Ok(());
                let runs = self.args.runs;
                let (time, cost) = measure::time(backend, runs, &mut map, fresh, |map, run| {
                    run.launch(MapRoutes::new(routes.view(), map)?)
                })?;
                let moved = cost.bytes;
                let floor = self.bandwidth.floor(moved);
                let (grown, wider) = (growth.next(tokens, time), fewer.next(i, time));
                table.rows.push(vec![
                    experts.to_string(),
                    tokens.to_string(),
                    ms(time),
                    bytes(moved),
                    ms(floor),
                    significant(ratio(time, floor)),
                    shown(grown),
                    shown(wider),
                ]);
                table.json.push(json!({
                    "experts": experts, "tokens": tokens,
                    "seconds": time.as_secs_f64(),
                    "bytes": moved,
                    "floor_seconds": floor.as_secs_f64(),
                    "growth": grown,
                    "growth_with_experts": wider,
                }));
            }
        }
        Ok(table)
    }

    pub(super) fn mmq(&self) -> Outcome<Table> {
        let mut table = Table::new(vec![
            "type",
            "experts",
            "tokens",
            "ms",
            "rate",
            "bytes",
            "floor",
            "x floor",
            "x tokens",
            "x experts",
        ]);
        for &ty in &self.types {
            let mut fewer = Fewer::default();
            for &experts in &self.experts {
                let mut growth = Growth(None);
                for (i, &tokens) in self.tokens.iter().enumerate() {
                    self.bar.set_message(format!("{ty}, {experts} experts, {tokens} tokens"));
                    let (time, Cost { bytes: moved, ops }) = self.product(ty, experts, tokens)?;
                    let floor = self.bandwidth.floor(moved);
                    let (grown, wider) = (growth.next(tokens, time), fewer.next(i, time));
                    table.rows.push(vec![
                        ty.to_string(),
                        experts.to_string(),
                        tokens.to_string(),
                        ms(time),
                        ops_rate(ops, time),
                        bytes(moved),
                        ms(floor),
                        significant(ratio(time, floor)),
                        shown(grown),
                        shown(wider),
                    ]);
                    table.json.push(json!({
                        "type": ty.name(), "experts": experts, "tokens": tokens,
                        "rows": self.args.rows, "cols": self.args.cols,
                        "seconds": time.as_secs_f64(),
                        "ops": ops,
                        "gops": ops as f64 / report::seconds(time) / 1e9,
                        "bytes": moved,
                        "floor_seconds": floor.as_secs_f64(),
                        "growth": grown,
                        "growth_with_experts": wider,
                    }));
                }
            }
        }
        Ok(table)
    }

    /// One product over all experts: its time and what it costs.
    fn product(&self, ty: WeightType, experts: usize, tokens: usize) -> Outcome<(Duration, Cost)> {
        let (backend, rows, cols) = (self.backend, self.args.rows, self.args.cols);
        let weight_bytes =
            ty.row_bytes(cols)?.checked_mul(rows).and_then(|bytes| bytes.checked_mul(experts));
        args::host_room(weight_bytes)?;
        let blocks = weight_bytes.unwrap_or(0) / ty.block_bytes();
        let weights = backend.import(try_random_blocks(ty, self.args.seed, blocks)?.into())?;
        let weights = Weights::dense("weights", &weights, ty, experts, rows, cols)?;
        args::host_room(tokens.checked_mul(cols).and_then(|n| n.checked_mul(8)))?;
        let (_routes, map) = self.mapped(tokens, experts)?;
        let x = backend.from_slice(&try_normals(self.args.seed, tokens * cols)?)?;
        let x = Matrix::dense("input", &x, tokens, cols)?;
        let mut q8 = backend.alloc::<u8>(q8_1::bytes(map.rows(), cols)?)?;
        let to = Q8RowsMut::new(&mut q8, ty.layout(), map.rows(), cols)?;
        QuantizeScatter::new(x, &map, to)?.launch(backend)?;
        let activations = Q8Rows::new(&q8, ty.layout(), map.rows(), cols)?;
        let mut y = backend.alloc::<f32>(map.rows() * rows)?;
        let poison = |y: &mut _| backend.fill(&mut *y, POISON);
        Ok(measure::time(backend, self.args.runs, &mut y, poison, |y, run| {
            let to = MatrixMut::dense("output", &mut *y, map.rows(), rows)?;
            run.launch(Product::new(weights, activations, Rows::Experts(&map), to)?)
        })?)
    }
}
