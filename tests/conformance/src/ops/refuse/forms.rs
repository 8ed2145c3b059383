//! Routers, biases, scales and activations that must be refused.

use strata_core::activation::Activation;
use strata_core::backend::ops::{
    Combine, GateUp, GateUpOrder, Matrix, MatrixMut, PerExpert, SwiGlu, TopK,
};
use strata_core::backend::{Backend, DeviceRoutes};
use strata_core::format::random_blocks;
use strata_core::prefill::{
    ExpertOptions, GateUpWeights, MoeLayer, Options, Router, Routing, SharedExpert, Tensor,
    Workspace,
};
use strata_core::routing::{Gating, GroupScore, Groups, Norm, RouterOptions};
use strata_core::{Result, WeightType};

use super::{Bench, RefuseCase};

const SIGMOID: RouterOptions =
    RouterOptions { gating: Gating::Sigmoid, ..RouterOptions::SOFTMAX_OF_CHOSEN };
const SPARSEMIXER: RouterOptions =
    RouterOptions { gating: Gating::Sparsemixer { near: 0.02 }, ..SIGMOID };

/// Experts, values of a token, hidden values of the layers below; each token uses two experts.
const EXPERTS: usize = 3;
const WIDTH: usize = 64;
const FFN: usize = 32;

/// A top-k of `k` of `experts`, with biases of so many values.
fn top_k(
    b: &mut Bench<'_>,
    (k, experts): (usize, usize),
    options: RouterOptions,
    biases: [Option<usize>; 2],
) -> Result<()> {
    let scores = Matrix::dense("scores", &b.floats, 4, experts)?;
    let mut routes = DeviceRoutes::with_capacity(b.backend, 4, k, experts)?;
    let [score, selection] = biases;
    let bias = |count: Option<usize>| count.map(|count| b.floats.slice(..count)).transpose();
    TopK::new(scores, &options, &mut routes)?
        .bias(bias(score)?, bias(selection)?)?
        .launch(b.backend)
}

fn grouped(count: usize, used: usize) -> RouterOptions {
    RouterOptions { groups: Some(Groups { count, used, score: GroupScore::Max }), ..SIGMOID }
}

/// Hidden values of 8 rows of 3 experts, with scales and biases of these shapes.
fn hidden(
    b: &mut Bench<'_>,
    order: GateUpOrder,
    activation: Activation,
    scale: Option<(usize, usize)>,
    bias: Option<(usize, usize)>,
) -> Result<()> {
    let x = Matrix::dense("x", &b.floats, 8, order.parts() * FFN)?;
    let of = |shape: Option<(usize, usize)>| {
        shape.map(|(rows, cols)| Matrix::dense("values", &b.floats, rows, cols)).transpose()
    };
    let per_expert = PerExpert { scale: of(scale)?, bias: of(bias)?, map: Some(&b.mapped.map) };
    let gate_up = GateUp::new(x, order)?.activation(activation)?.per_expert(per_expert)?;
    let out = MatrixMut::dense("hidden", b.out.view(), 8, FFN)?;
    SwiGlu::new(gate_up, out)?.launch(b.backend)
}

fn combine(
    b: &mut Bench<'_>,
    scale: Option<(usize, usize)>,
    bias: Option<(usize, usize)>,
) -> Result<()> {
    let y = Matrix::dense("y", &b.floats, 8, 16)?;
    let out = MatrixMut::dense("out", b.out.view(), 4, 16)?;
    let of = |shape: Option<(usize, usize)>| {
        shape.map(|(rows, cols)| Matrix::dense("values", &b.floats, rows, cols)).transpose()
    };
    Combine::new(y, &b.mapped.map, b.mapped.routes.view(), None, out)?
        .per_expert(of(scale)?, of(bias)?)?
        .launch(b.backend)
}

fn tensor(
    backend: &dyn Backend,
    name: &str,
    experts: usize,
    rows: usize,
    cols: usize,
) -> Result<Tensor> {
    let ty = WeightType::Q8_0;
    let blocks = random_blocks(ty, 1, experts * rows * cols / ty.block_values());
    Tensor::dense(backend, name, blocks.into(), ty, experts, rows, cols)
}

fn gate_up(backend: &dyn Backend, experts: usize) -> Result<GateUpWeights> {
    Ok(GateUpWeights::Separate {
        gate: tensor(backend, "gate", experts, FFN, WIDTH)?,
        up: tensor(backend, "up", experts, FFN, WIDTH)?,
    })
}

/// A layer of 3 experts.
fn layer(b: &Bench<'_>) -> Result<MoeLayer> {
    MoeLayer::new(gate_up(b.backend, EXPERTS)?, tensor(b.backend, "down", EXPERTS, WIDTH, FFN)?, 2)
}

fn with_experts(b: &Bench<'_>, options: &ExpertOptions) -> Result<()> {
    layer(b)?.with_experts(b.backend, options).map(drop)
}

fn with_shared(b: &Bench<'_>, options: &ExpertOptions) -> Result<()> {
    let down = tensor(b.backend, "shared down", 1, WIDTH, FFN)?;
    let shared = SharedExpert { gate_up: gate_up(b.backend, 1)?, down, gate: None };
    layer(b)?.with_shared(shared)?.with_shared_options(b.backend, options).map(drop)
}

fn router(b: &Bench<'_>, score: Option<usize>, selection: Option<usize>) -> Result<Router> {
    let values = |count: Option<usize>| count.map(|count| vec![0.0; count]);
    let router = Router::new(b.backend, &[0.0; EXPERTS * WIDTH], EXPERTS, WIDTH)?;
    router.biased(b.backend, values(score).as_deref(), values(selection).as_deref())
}

/// A call of a layer, whose router reads an input of its own or that of the experts, with an
/// input for the router of this shape.
fn forward(b: &mut Bench<'_>, own: bool, input: Option<(usize, usize)>) -> Result<()> {
    let router = router(b, None, None)?;
    let router = if own { router.with_own_input() } else { router };
    let layer = layer(b)?.with_router(router, &SIGMOID)?;
    let mut workspace = Workspace::new(b.backend, &layer, 4, Options::default())?;
    let x = Matrix::dense("x", &b.floats, 4, WIDTH)?;
    let routing = match input {
        Some((rows, cols)) => Routing::Input(Matrix::dense("input", &b.floats, rows, cols)?),
        None => Routing::Router,
    };
    let mut out = MatrixMut::dense("out", b.out.view(), 4, WIDTH)?;
    layer.forward(b.backend, &mut workspace, x, routing, &mut out).map(drop)
}

/// `count` values of one operand.
fn values(count: usize) -> Option<Vec<f32>> {
    Some(vec![1.0; count])
}

pub(super) fn table() -> Vec<RefuseCase> {
    let case = |name, call, error| RefuseCase { name, call, error };
    let mut cases = vec![
        case(
            "top-k/experts-above-1024",
            |b| top_k(b, (2, 1025), SIGMOID, [None; 2]),
            "router: given 2 of 1025 experts, expected at most 32 of 1024 with a router that is more than softmax",
        ),
        case(
            "top-k/bias-of-experts-above-1024",
            |b| top_k(b, (2, 1025), RouterOptions::SOFTMAX, [None, Some(1025)]),
            "router: given 2 of 1025 experts, expected at most 32 of 1024 with a router that is more than softmax",
        ),
        case(
            "top-k/k-above-32",
            |b| top_k(b, (33, 64), SIGMOID, [None; 2]),
            "router: given 33 of 64 experts, expected at most 32 of 1024 with a router that is more than softmax",
        ),
        case(
            "top-k/short-bias-of-scores",
            |b| top_k(b, (2, 12), SIGMOID, [Some(11), None]),
            "top-k: bias of the scores: given 11, expected 12",
        ),
        case(
            "top-k/long-bias-of-choice",
            |b| top_k(b, (2, 12), SIGMOID, [Some(12), Some(13)]),
            "top-k: bias of the choice: given 13, expected 12",
        ),
        case(
            "top-k/groups-that-do-not-divide",
            |b| top_k(b, (2, 12), grouped(5, 2), [None; 2]),
            "router: groups: given 5, expected 1 to 64, a divisor of 12",
        ),
        case(
            "top-k/no-groups",
            |b| top_k(b, (2, 12), grouped(0, 0), [None; 2]),
            "router: groups: given 0, expected 1 to 64, a divisor of 12",
        ),
        case(
            "top-k/groups-above-64",
            |b| top_k(b, (2, 130), grouped(65, 2), [None; 2]),
            "router: groups: given 65, expected 1 to 64, a divisor of 130",
        ),
        case(
            "top-k/no-group-used",
            |b| top_k(b, (2, 12), grouped(4, 0), [None; 2]),
            "router: groups used: given 0, expected 1 to 4, the groups",
        ),
        case(
            "top-k/more-groups-used-than-there-are",
            |b| top_k(b, (2, 12), grouped(4, 5), [None; 2]),
            "router: groups used: given 5, expected 1 to 4, the groups",
        ),
        case(
            "top-k/k-above-the-experts-of-groups",
            |b| top_k(b, (4, 12), grouped(4, 1), [None; 2]),
            "top-k: k: given 4, expected at most 3, the experts of 1 groups",
        ),
        case(
            "top-k/groups-of-sparsemixer",
            |b| {
                let groups = grouped(4, 2).groups;
                top_k(b, (2, 12), RouterOptions { groups, ..SPARSEMIXER }, [None; 2])
            },
            "router: groups: given 4, expected none with sparsemixer",
        ),
        case(
            "top-k/norm-of-softmax-of-chosen",
            |b| {
                let norm = Norm::Sum { epsilon: 0.0, least: 0.0 };
                let options = RouterOptions { norm, ..RouterOptions::SOFTMAX_OF_CHOSEN };
                top_k(b, (2, 12), options, [None; 2])
            },
            "router: norm: given Sum { epsilon: 0.0, least: 0.0 }, expected none with a gating that has its own",
        ),
        case(
            "top-k/scale-of-nan",
            |b| top_k(b, (2, 12), SIGMOID.scaled(f32::NAN), [None; 2]),
            "router: scale: given NaN, expected a finite number",
        ),
        case(
            "top-k/infinite-epsilon",
            |b| {
                let norm = Norm::Sum { epsilon: f32::INFINITY, least: 0.0 };
                top_k(b, (2, 12), RouterOptions { norm, ..SIGMOID }, [None; 2])
            },
            "router: epsilon: given inf, expected 0 or above",
        ),
        case(
            "top-k/negative-softcap",
            |b| top_k(b, (2, 12), RouterOptions { softcap: -1.0, ..SIGMOID }, [None; 2]),
            "router: softcap: given -1, expected 0 or above",
        ),
        case(
            "top-k/nearness-of-nan",
            |b| {
                let gating = Gating::Sparsemixer { near: f32::NAN };
                top_k(b, (2, 12), RouterOptions { gating, ..SIGMOID }, [None; 2])
            },
            "router: nearness: given NaN, expected 0 or above",
        ),
    ];
    cases.extend(experts());
    cases.extend(layers());
    cases
}

/// What stands between and behind products.
fn experts() -> Vec<RefuseCase> {
    let case = |name, call, error| RefuseCase { name, call, error };
    vec![
        case(
            "swiglu/scales-of-other-experts",
            |b| hidden(b, GateUpOrder::Split, Activation::SwiGlu, Some((4, 2)), None),
            "scales of gate and up: rows: given 4, expected 3",
        ),
        case(
            "swiglu/scales-of-gates-that-are-absent",
            |b| hidden(b, GateUpOrder::UpOnly, Activation::Relu, Some((3, 2)), None),
            "scales of gate and up: columns: given 2, expected 1",
        ),
        case(
            "swiglu/biases-of-other-experts",
            |b| hidden(b, GateUpOrder::Split, Activation::SwiGlu, None, Some((2, 64))),
            "biases of gate and up: rows: given 2, expected 3",
        ),
        case(
            "swiglu/biases-of-gates-alone",
            |b| hidden(b, GateUpOrder::Interleaved, Activation::SwiGlu, None, Some((3, 32))),
            "biases of gate and up: columns: given 32, expected 64",
        ),
        case(
            "swiglu/limit-of-zero",
            |b| {
                let activation = Activation::SwiGluClamped { limit: 0.0 };
                hidden(b, GateUpOrder::Split, activation, None, None)
            },
            "activation: limit: given 0, expected above 0",
        ),
        case(
            "swiglu/alpha-of-nan",
            |b| {
                let activation = Activation::SwiGluOai { alpha: f32::NAN, limit: 7.0 };
                hidden(b, GateUpOrder::Split, activation, None, None)
            },
            "activation: alpha: given NaN, expected above 0",
        ),
        case(
            "swiglu/no-gates-to-clamp",
            |b| {
                let activation = Activation::SwiGluLimited { limit: 7.0 };
                hidden(b, GateUpOrder::UpOnly, activation, None, None)
            },
            "activation without gates: given swiglu-limited-7, expected one that has none",
        ),
        case(
            "combine/scales-of-other-experts",
            |b| combine(b, Some((2, 1)), None),
            "combine: rows of the scales: given 2, expected 3",
        ),
        case(
            "combine/two-scales-each",
            |b| combine(b, Some((3, 2)), None),
            "combine: columns of the scales: given 2, expected 1",
        ),
        case(
            "combine/biases-of-other-experts",
            |b| combine(b, None, Some((4, 16))),
            "combine: rows of the biases: given 4, expected 3",
        ),
        case(
            "combine/biases-of-another-width",
            |b| combine(b, None, Some((3, 15))),
            "combine: columns of the biases: given 15, expected 16",
        ),
    ]
}

/// A layer's own.
fn layers() -> Vec<RefuseCase> {
    let case = |name, call, error| RefuseCase { name, call, error };
    vec![
        case(
            "layer/scales",
            |b| with_experts(b, &ExpertOptions { scale: values(5), ..Default::default() }),
            "scales of gate and up: given 5, expected 6",
        ),
        case(
            "layer/biases",
            |b| with_experts(b, &ExpertOptions { bias: values(96), ..Default::default() }),
            "biases of gate and up: given 96, expected 192",
        ),
        case(
            "layer/scales-of-down",
            |b| with_experts(b, &ExpertOptions { down_scale: values(6), ..Default::default() }),
            "scales of down: given 6, expected 3",
        ),
        case(
            "layer/biases-of-down",
            |b| with_experts(b, &ExpertOptions { down_bias: values(96), ..Default::default() }),
            "biases of down: given 96, expected 192",
        ),
        case(
            "layer/limit-below-zero",
            |b| {
                let activation = Activation::SwiGluLimited { limit: -7.0 };
                with_experts(b, &ExpertOptions { activation, ..Default::default() })
            },
            "activation: limit: given -7, expected above 0",
        ),
        case(
            "layer/options-of-no-shared-expert",
            |b| layer(b)?.with_shared_options(b.backend, &ExpertOptions::default()).map(drop),
            "shared expert's options: given no shared expert, expected one",
        ),
        case(
            "layer/shared-scales",
            |b| with_shared(b, &ExpertOptions { scale: values(1), ..Default::default() }),
            "scales of gate and up: given 1, expected 2",
        ),
        case(
            "layer/shared-biases-of-down",
            |b| with_shared(b, &ExpertOptions { down_bias: values(64), ..Default::default() }),
            "scales and biases of the shared expert's down product: given some, expected none",
        ),
        case(
            "layer/router-bias",
            |b| router(b, Some(2), None).map(drop),
            "router: bias: given 2, expected 3",
        ),
        case(
            "layer/router-bias-of-choice",
            |b| router(b, None, Some(4)).map(drop),
            "router: bias of the choice: given 4, expected 3",
        ),
        case(
            "layer/router-of-too-many",
            |b| {
                let router = router(b, None, Some(3))?;
                let groups = Some(Groups { count: 3, used: 1, score: GroupScore::Max });
                layer(b)?.with_router(router, &RouterOptions { groups, ..SIGMOID }).map(drop)
            },
            "top-k: k: given 2, expected at most 1, the experts of 1 groups",
        ),
        case(
            "layer/router-without-its-input",
            |b| forward(b, true, None),
            "routing: given the layer's router, expected the input of the router, which is not that of the experts",
        ),
        case(
            "layer/router-input-of-other-tokens",
            |b| forward(b, true, Some((3, WIDTH))),
            "router's input: rows: given 3, expected 4",
        ),
        case(
            "layer/router-input-of-another-width",
            |b| forward(b, false, Some((4, 32))),
            "router's input: columns: given 32, expected 64",
        ),
    ]
}
