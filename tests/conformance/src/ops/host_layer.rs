//! The layer by hand, and its tensors.

use strata_core::backend::ops::GateUpOrder;
use strata_core::format::random_blocks;
use strata_core::prefill::ExpertOptions;
use strata_core::q8_1::Sums;
use strata_core::routing::{Map, RouterBias, RouterOptions, Routes};
use strata_core::{WeightType, reference};

use super::form::{Form, Operand};
use super::layer::{LayerCase, LayerShape, SharedCase, Source};

/// One tensor of random blocks.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) what: &'static str,
    pub(super) ty: WeightType,
    pub(super) experts: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
    seed: u64,
}

impl Part {
    pub(super) const fn new(
        what: &'static str,
        ty: WeightType,
        experts: usize,
        rows: usize,
        cols: usize,
        seed: u64,
    ) -> Self {
        Self { what, ty, experts, rows, cols, seed }
    }

    pub(super) fn blocks(&self) -> Vec<u8> {
        let blocks = self.experts * self.rows * self.cols / self.ty.block_values();
        random_blocks(self.ty, self.seed, blocks)
    }

    /// The product with one expert's matrix by the reference, on `x` rows of `cols`.
    fn multiply(&self, expert: usize, x: &[f32], sums: Sums) -> Vec<f32> {
        let row = self.ty.row_bytes(self.cols).expect("the table's columns are whole blocks");
        let rows = x.len() / self.cols;
        let headers = self.ty.layout().with(sums);
        let q8 = reference::quantize(x, rows, self.cols, self.cols, None, headers);
        let read: Vec<usize> = (0..rows).collect();
        let weights = &self.blocks()[expert * self.rows * row..][..self.rows * row];
        reference::mmq(self.ty, weights, self.rows, self.cols, row, &q8, rows, &read)
    }
}

/// The layer by hand, from the functions of the reference alone, token after
/// token: neither the pipeline nor the reference backend has a part in it.
pub fn host_layer(case: &LayerCase) -> Vec<f32> {
    let LayerShape { experts, k, width, ffn, .. } = case.shape;
    let Form { factors, .. } = case.form;
    let x = case.input();
    let routes = match case.source {
        Source::Routes(choice) => case.routes(choice),
        source => {
            let read = if case.form.own_input { case.own_input() } else { x.clone() };
            let scores = match source {
                Source::Scores => case.scores(),
                _ => reference::router_scores(&read, &case.router_weights(), width),
            };
            // A layer without a router normalises over the chosen, unscaled.
            let options = match source {
                Source::Router => case.router,
                _ => RouterOptions::SOFTMAX_OF_CHOSEN,
            };
            let [score, selection] = match source {
                Source::Router => case.router_biases(),
                _ => [None, None],
            };
            let bias = RouterBias { score: score.as_deref(), selection: selection.as_deref() };
            Routes::top_k(&scores, experts, k, &options, bias).expect("shapes fit")
        }
    };
    let (parts, down, order) = case.parts();
    let options = case.expert_options(experts, ffn, false);
    let map = Map::new(&routes);
    let mut y = Vec::new();
    let mut expert_of_row = Vec::new();
    for (e, bounds) in map.bounds.windows(2).enumerate() {
        let mut rows: Vec<f32> = Vec::new();
        for row in bounds[0]..bounds[1] {
            let token = map.src[row as usize] as usize;
            let x = &x[token * width..][..width];
            let choice = map.slot.iter().position(|&at| at == row).expect("a row of the map");
            let weight = routes.weights()[choice];
            match factors.weighed {
                true => rows.extend(x),
                false => rows.extend(x.iter().map(|x| weight.mul_add(*x, 0.0))),
            }
            expert_of_row.push(e);
        }
        if !rows.is_empty() {
            y.extend(network((&parts, order, &down), e, &rows, &options, case.sums));
        }
    }
    let shared = case.shared.map(|shared| {
        let (parts, down) = shared_parts(&shared, case);
        let order = if case.form.up_only { GateUpOrder::UpOnly } else { GateUpOrder::Split };
        let options = case.expert_options(1, shared.ffn, true);
        let y = network((&parts, order, &down), 0, &x, &options, case.sums);
        let gate = case.operand(Operand::SharedGate, width);
        (y, shared.gated.then(|| reference::router_scores(&x, &gate, width)))
    });
    let shared = shared.as_ref().map(|(y, score)| (&y[..], score.as_deref()));
    let affine = reference::Affine {
        expert: expert_of_row,
        scale: options.down_scale,
        bias: options.down_bias,
    };
    let with = reference::CombineWith { shared, affine, options: factors };
    reference::combine(&y, width, &map.slot, routes.weights(), k, &with)
}

/// One expert's network on the rows given.
fn network(
    (parts, order, down): (&[Part], GateUpOrder, &Part),
    expert: usize,
    x: &[f32],
    options: &ExpertOptions,
    sums: Sums,
) -> Vec<f32> {
    let rows = x.len() / down.rows;
    let cols: usize = parts.iter().map(|part| part.rows).sum();
    let mut gate_up = vec![0.0; rows * cols];
    let mut column = 0;
    for part in parts {
        let y = part.multiply(expert, x, sums);
        for (row, y) in y.chunks_exact(part.rows).enumerate() {
            gate_up[row * cols + column..][..part.rows].copy_from_slice(y);
        }
        column += part.rows;
    }
    let affine = reference::Affine {
        expert: vec![expert; rows],
        scale: options.scale.clone(),
        bias: options.bias.clone(),
    };
    let hidden = reference::hidden(&gate_up, down.cols, order, options.activation, &affine);
    down.multiply(expert, &hidden, sums)
}

/// The shared expert's tensors: gate (where there is one) and up, and down.
pub(super) fn shared_parts(shared: &SharedCase, case: &LayerCase) -> (Vec<Part>, Part) {
    let SharedCase { ffn, ty, .. } = *shared;
    let width = case.shape.width;
    let mut parts = vec![
        Part::new("shared gate", ty, 1, ffn, width, 12),
        Part::new("shared up", ty, 1, ffn, width, 13),
    ];
    if case.form.up_only {
        parts.remove(0);
    }
    (parts, Part::new("shared down", ty, 1, width, ffn, 14))
}

impl LayerCase {
    /// The experts' tensors in the order of their products, down, and the order of the columns.
    pub(super) fn parts(&self) -> (Vec<Part>, Part, GateUpOrder) {
        let LayerShape { experts, width, ffn, gate, up, down, order, .. } = self.shape;
        let (parts, order) = match up {
            _ if self.form.up_only => {
                (vec![Part::new("up", gate, experts, ffn, width, 10)], GateUpOrder::UpOnly)
            }
            Some(up) => (
                vec![
                    Part::new("gate", gate, experts, ffn, width, 9),
                    Part::new("up", up, experts, ffn, width, 10),
                ],
                GateUpOrder::Split,
            ),
            None => (vec![Part::new("gate and up", gate, experts, 2 * ffn, width, 9)], order),
        };
        (parts, Part::new("down", down, experts, width, ffn, 11), order)
    }
}
