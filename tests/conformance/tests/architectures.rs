//! Layers of each form of router and experts, loaded from GGUF files of F32 weights, against models
//! in f64 written from their authors' code: what quantizing to Q8_0 costs, and what another router
//! gives beside it. `docs/formats.md` has the figures.

use strata_conformance::ReferenceBackend;
use strata_core::backend::Backend;
use strata_core::backend::ops::{Matrix, MatrixMut};
use strata_core::gguf::{Gguf, GgufFile, MetaValue, TensorType, Writer};
use strata_core::prefill::{Options, QuantMode, Routing, Workspace, load_moe, normals};

const WIDTH: usize = 64;
const FFN: usize = 96;
const EXPERTS: usize = 16;
const TOKENS: usize = 24;

/// What a score is worth, in the authors' words.
#[derive(Clone, Copy, PartialEq)]
enum Score {
    Softmax,
    Sigmoid,
    SqrtSoftplus,
    Sparsemixer,
}

#[derive(Clone, Copy)]
struct Form {
    architecture: &'static str,
    k: usize,
    score: Score,
    normalised: bool,
    scale: f64,
    cap: f64,
    selection_bias: bool,
    /// Groups, used, whether by two best.
    groups: Option<(usize, usize, bool)>,
    weigh_input: bool,
    gates: bool,
    biases: bool,
    scales: bool,
    own_input: bool,
    /// 0 none, 1 plain, 2 gated, 3 the dense network.
    shared: usize,
    sum: f64,
    hidden: fn(f64, f64) -> f64,
    /// `expert_gating_func`, `expert_weights_norm`, and the limit of SwiGLU in the file.
    keys: (Option<u32>, Option<bool>, Option<f32>),
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn swiglu(g: f64, u: f64) -> f64 {
    silu(g) * u
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

fn erf(x: f64) -> f64 {
    let (x, mut term, mut sum) = (x.clamp(-5.5, 5.5), x.clamp(-5.5, 5.5), x.clamp(-5.5, 5.5));
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn oai(g: f64, u: f64) -> f64 {
    let (g, u) = (g.min(7.0), u.clamp(-7.0, 7.0));
    g * sigmoid(1.702 * g) * (u + 1.0)
}

const BASE: Form = Form {
    architecture: "qwen3moe",
    k: 4,
    score: Score::Softmax,
    normalised: true,
    scale: 1.0,
    cap: 0.0,
    selection_bias: false,
    groups: None,
    weigh_input: false,
    gates: true,
    biases: false,
    scales: false,
    own_input: false,
    shared: 0,
    sum: 1.0,
    hidden: swiglu,
    keys: (None, None, None),
};

fn forms() -> Vec<Form> {
    let sigmoid = Form {
        score: Score::Sigmoid,
        selection_bias: true,
        keys: (Some(2), Some(true), None),
        ..BASE
    };
    let shared = Form { shared: 1, scale: 2.5, ..sigmoid };
    let named = |architecture, form: Form| Form { architecture, ..form };
    let llama4 =
        Form { score: Score::Sigmoid, normalised: false, weigh_input: true, shared: 1, ..BASE };
    let mut forms = vec![
        BASE,
        named("nvfp4 qwen3moe", Form { scales: true, ..BASE }),
        named("qwen2moe", Form { normalised: false, shared: 2, ..BASE }),
        named("qwen3next", Form { shared: 2, ..BASE }),
        named("deepseek2", Form { groups: Some((4, 2, true)), ..shared }),
        named(
            "deepseek2",
            Form {
                score: Score::Softmax,
                groups: Some((4, 2, false)),
                normalised: false,
                selection_bias: false,
                keys: (Some(1), Some(false), None),
                ..shared
            },
        ),
        named("bailingmoe2", Form { groups: Some((8, 4, true)), ..shared }),
        named("ernie4_5-moe", Form { selection_bias: true, shared: 1, ..BASE }),
        named("lfm2moe", Form { keys: (None, None, None), ..sigmoid }),
        named("mimo2", Form { keys: (None, None, None), ..sigmoid }),
        named("minimax-m2", Form { keys: (Some(2), None, None), ..sigmoid }),
        named("minimax-m3", Form { hidden: oai, ..shared }),
        named("gpt-oss", Form { biases: true, hidden: oai, ..BASE }),
        named("llama4", Form { k: 1, ..llama4 }),
        // No release has more than one; such files there are.
        named("llama4", Form { k: 3, ..llama4 }),
        named("phimoe", Form { k: 2, score: Score::Sparsemixer, normalised: false, ..BASE }),
        named(
            "grok",
            Form {
                k: 2,
                normalised: false,
                cap: 3.0,
                shared: 3,
                sum: 0.5f64.sqrt(),
                hidden: |g, u| gelu_tanh(g) * u,
                ..BASE
            },
        ),
        named(
            "gemma4",
            Form { scales: true, own_input: true, hidden: |g, u| gelu_tanh(g) * u, ..BASE },
        ),
        named(
            "smallthinker",
            Form {
                score: Score::Sigmoid,
                own_input: true,
                hidden: |g, u| g.max(0.0) * u,
                keys: (Some(2), None, None),
                ..BASE
            },
        ),
        named("nemotron_h_moe", Form { gates: false, hidden: |_, u| u.max(0.0).powi(2), ..shared }),
        named(
            "nomic-bert-moe",
            Form {
                k: 2,
                normalised: false,
                gates: false,
                hidden: |_, u| 0.5 * u * (1.0 + erf(u / 2f64.sqrt())),
                ..BASE
            },
        ),
        named(
            "step35",
            Form {
                hidden: |g, u| silu(g).min(0.7) * u.clamp(-0.7, 0.7),
                keys: (None, Some(true), Some(0.7)),
                ..shared
            },
        ),
        named(
            "deepseek4",
            Form {
                score: Score::SqrtSoftplus,
                hidden: |g, u| silu(g.min(0.7)) * u.clamp(-0.7, 0.7),
                keys: (Some(4), Some(true), Some(0.7)),
                ..shared
            },
        ),
        named(
            "glm5-next",
            Form {
                hidden: |g, u| silu(g.min(0.7)) * u.clamp(-0.7, 0.7),
                keys: (None, Some(true), Some(0.7)),
                ..shared
            },
        ),
        // What their authors do where a file does not say it.
        named("minimax-m3", Form { hidden: oai, keys: (Some(2), None, None), ..shared }),
        named("hy_v3", Form { keys: (None, None, None), ..shared }),
        named("laguna", Form { cap: 3.0, keys: (None, None, None), ..shared }),
        named(
            "mistral4",
            Form {
                score: Score::Softmax,
                groups: Some((4, 2, true)),
                selection_bias: false,
                keys: (None, Some(true), None),
                ..shared
            },
        ),
        named("cohere2moe", Form { selection_bias: false, shared: 1, sum: 0.5, ..sigmoid }),
    ];
    forms.extend(
        [
            "glm4moe",
            "dots1",
            "exaone-moe",
            "afmoe",
            "hy_v3",
            "laguna",
            "glm-dsa",
            "deepseek32",
            "kimi-linear",
        ]
        .map(|name| named(name, shared)),
    );
    forms
}

/// Random values that F32 files hold.
fn values(seed: u64, len: usize, scale: f32) -> Vec<f32> {
    normals(seed, len).into_iter().map(|v| v * scale).collect()
}

struct Weights {
    router: Vec<f32>,
    score_bias: Vec<f32>,
    selection_bias: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    down: Vec<f32>,
    gate_bias: Vec<f32>,
    up_bias: Vec<f32>,
    down_bias: Vec<f32>,
    scales: [Vec<f32>; 3],
    router_scale: Vec<f32>,
    shared: [Vec<f32>; 3],
    shared_gate: Vec<f32>,
}

impl Weights {
    fn new() -> Self {
        let near = |seed| values(seed, EXPERTS, 0.2).into_iter().map(|v| v + 1.0).collect();
        Self {
            router: values(1, EXPERTS * WIDTH, 0.2),
            score_bias: values(2, EXPERTS, 0.3),
            selection_bias: values(3, EXPERTS, 0.1),
            gate: values(4, EXPERTS * FFN * WIDTH, 0.15),
            up: values(5, EXPERTS * FFN * WIDTH, 0.15),
            down: values(6, EXPERTS * WIDTH * FFN, 0.15),
            gate_bias: values(7, EXPERTS * FFN, 0.5),
            up_bias: values(8, EXPERTS * FFN, 0.5),
            down_bias: values(9, EXPERTS * WIDTH, 0.5),
            scales: [near(10), near(11), near(12)],
            router_scale: values(13, WIDTH, 1.0).into_iter().map(|v| 8.0 + v).collect(),
            shared: [14, 15, 16].map(|seed| values(seed, FFN * WIDTH, 0.15)),
            shared_gate: values(17, WIDTH, 0.2),
        }
    }

    fn file(&self, form: &Form) -> Gguf {
        let architecture = form.architecture.rsplit(' ').next().unwrap();
        let mut writer = Writer::new();
        writer.value("general.architecture", architecture);
        let mut key = |name: &str, value: MetaValue| {
            writer.value(format!("{architecture}.{name}"), value);
        };
        key("block_count", 1u32.into());
        key("embedding_length", (WIDTH as u32).into());
        key("expert_count", (EXPERTS as u32).into());
        key("expert_used_count", (form.k as u32).into());
        if let Some(gating) = form.keys.0 {
            key("expert_gating_func", gating.into());
        }
        if let Some(norm) = form.keys.1 {
            key("expert_weights_norm", norm.into());
        }
        if let Some(limit) = form.keys.2 {
            key("swiglu_clamp_exp", limit.into());
            // These have one limit for both.
            if !["deepseek4", "glm5-next"].contains(&architecture) {
                key("swiglu_clamp_shexp", limit.into());
            }
        }
        if form.scale != 1.0 {
            key("expert_weights_scale", (form.scale as f32).into());
        }
        if form.cap > 0.0 {
            key("router_logit_softcapping", (form.cap as f32).into());
        }
        if let Some((count, used, _)) = form.groups {
            key("expert_group_count", (count as u32).into());
            key("expert_group_used_count", (used as u32).into());
        }
        let mut tensor = |name: &str, dims: &[usize], values: &[f32]| {
            let dims: Vec<u64> = dims.iter().map(|&d| d as u64).collect();
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            writer.tensor(format!("blk.0.{name}"), &dims, TensorType::F32, bytes);
        };
        tensor("ffn_gate_inp.weight", &[WIDTH, EXPERTS], &self.router);
        if form.gates {
            tensor("ffn_gate_exps.weight", &[WIDTH, FFN, EXPERTS], &self.gate);
        }
        tensor("ffn_up_exps.weight", &[WIDTH, FFN, EXPERTS], &self.up);
        tensor("ffn_down_exps.weight", &[FFN, WIDTH, EXPERTS], &self.down);
        if form.selection_bias {
            tensor("exp_probs_b.bias", &[EXPERTS], &self.selection_bias);
        }
        if form.biases {
            tensor("ffn_gate_inp.bias", &[EXPERTS], &self.score_bias);
            tensor("ffn_gate_exps.bias", &[FFN, EXPERTS], &self.gate_bias);
            tensor("ffn_up_exps.bias", &[FFN, EXPERTS], &self.up_bias);
            tensor("ffn_down_exps.bias", &[WIDTH, EXPERTS], &self.down_bias);
        }
        if form.scales {
            for (name, scale) in ["gate", "up", "down"].iter().zip(&self.scales) {
                tensor(&format!("ffn_{name}_exps.scale"), &[EXPERTS], scale);
            }
        }
        if form.architecture == "gemma4" {
            tensor("ffn_gate_inp.scale", &[WIDTH], &self.router_scale);
        }
        if form.shared > 0 {
            let of = if form.shared == 3 { "" } else { "_shexp" };
            if form.gates {
                tensor(&format!("ffn_gate{of}.weight"), &[WIDTH, FFN], &self.shared[0]);
            }
            tensor(&format!("ffn_up{of}.weight"), &[WIDTH, FFN], &self.shared[1]);
            tensor(&format!("ffn_down{of}.weight"), &[FFN, WIDTH], &self.shared[2]);
        }
        if form.shared == 2 {
            tensor("ffn_gate_inp_shexp.weight", &[WIDTH], &self.shared_gate);
        }
        let bytes = writer.to_bytes().unwrap();
        let file = GgufFile::from_bytes("test", std::sync::Arc::new(bytes)).unwrap();
        Gguf::from_parts(vec![file]).unwrap()
    }

    /// The layer in f64, on tokens `x` whose router reads `r`.
    fn model(&self, form: &Form, x: &[f32], r: &[f32]) -> Vec<f64> {
        let mut out = Vec::new();
        for (x, r) in x.chunks_exact(WIDTH).zip(r.chunks_exact(WIDTH)) {
            let x: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
            let r: Vec<f64> = r.iter().map(|&v| f64::from(v)).collect();
            let chosen = self.chosen(form, &r);
            let mut sum = vec![0.0; WIDTH];
            for (e, w) in chosen {
                let factor = if form.weigh_input { w } else { 1.0 };
                let input: Vec<f64> = x.iter().map(|v| v * factor).collect();
                let y = self.expert(form, e, &input);
                let w = if form.weigh_input { 1.0 } else { w };
                sum.iter_mut().zip(y).for_each(|(sum, y)| *sum += w * y);
            }
            if form.shared > 0 {
                let [gate, up, down] = &self.shared;
                let w = match form.shared {
                    2 => sigmoid(dot(&self.shared_gate, &x)),
                    _ => 1.0,
                };
                let h: Vec<f64> = (0..FFN)
                    .map(|c| {
                        let row = c * WIDTH..(c + 1) * WIDTH;
                        (form.hidden)(dot(&gate[row.clone()], &x), dot(&up[row], &x))
                    })
                    .collect();
                for (c, sum) in sum.iter_mut().enumerate() {
                    *sum += w * dot(&down[c * FFN..(c + 1) * FFN], &h);
                }
            }
            out.extend(sum.into_iter().map(|v| v * form.sum));
        }
        out
    }

    fn expert(&self, form: &Form, e: usize, x: &[f64]) -> Vec<f64> {
        let value = |w: &[f32], bias: &[f32], scale: &[f32], c: usize| {
            let scale = if form.scales { f64::from(scale[e]) } else { 1.0 };
            let at = e * FFN + c;
            let bias = if form.biases { f64::from(bias[at]) } else { 0.0 };
            dot(&w[at * WIDTH..(at + 1) * WIDTH], x) * scale + bias
        };
        let h: Vec<f64> = (0..FFN)
            .map(|c| {
                let g = value(&self.gate, &self.gate_bias, &self.scales[0], c);
                (form.hidden)(g, value(&self.up, &self.up_bias, &self.scales[1], c))
            })
            .collect();
        (0..WIDTH)
            .map(|c| {
                let at = e * WIDTH + c;
                let scale = if form.scales { f64::from(self.scales[2][e]) } else { 1.0 };
                let bias = if form.biases { f64::from(self.down_bias[at]) } else { 0.0 };
                dot(&self.down[at * FFN..(at + 1) * FFN], &h) * scale + bias
            })
            .collect()
    }

    fn chosen(&self, form: &Form, r: &[f64]) -> Vec<(usize, f64)> {
        let r: Vec<f64> = match form.architecture {
            "gemma4" => r
                .iter()
                .zip(&self.router_scale)
                .map(|(r, s)| r * f64::from(*s) / (WIDTH as f64).sqrt())
                .collect(),
            _ => r.to_vec(),
        };
        let mut s: Vec<f64> = self.router.chunks_exact(WIDTH).map(|w| dot(w, &r)).collect();
        if form.biases {
            s.iter_mut().zip(&self.score_bias).for_each(|(s, b)| *s += f64::from(*b));
        }
        if form.cap > 0.0 {
            s.iter_mut().for_each(|s| *s = form.cap * (*s / form.cap).tanh());
        }
        if form.score == Score::Sparsemixer {
            return sparsemixer(&s);
        }
        let total: f64 = s.iter().map(|s| s.exp()).sum();
        let p: Vec<f64> = s
            .iter()
            .map(|&s| match form.score {
                Score::Softmax => s.exp() / total,
                Score::Sigmoid => sigmoid(s),
                _ => (1.0 + s.exp()).ln().sqrt(),
            })
            .collect();
        let mut by = p.clone();
        if form.selection_bias {
            by.iter_mut().zip(&self.selection_bias).for_each(|(p, b)| *p += f64::from(*b));
        }
        if let Some((count, used, two)) = form.groups {
            let each = EXPERTS / count;
            let worth: Vec<f64> = by
                .chunks_exact(each)
                .map(|group| {
                    let mut group = group.to_vec();
                    group.sort_by(|a, b| b.total_cmp(a));
                    if two { group[0] + group[1] } else { group[0] }
                })
                .collect();
            let best = descending(&worth);
            for (e, by) in by.iter_mut().enumerate() {
                if !best[..used].contains(&(e / each)) {
                    *by = f64::NEG_INFINITY;
                }
            }
        }
        let ids = descending(&by)[..form.k].to_vec();
        let sum: f64 = if form.normalised { ids.iter().map(|&e| p[e]).sum() } else { 1.0 };
        ids.into_iter().map(|e| (e, p[e] / sum * form.scale)).collect()
    }
}

/// phimoe's, as its authors wrote it: two choices, jitter 0.01.
fn sparsemixer(s: &[f64]) -> Vec<(usize, f64)> {
    let mut s = s.to_vec();
    (0..2)
        .map(|_| {
            let best = descending(&s)[0];
            let max = s[best];
            let sum: f64 = s
                .iter()
                .filter(|s| s.is_finite() && (max - **s) / s.abs().max(max) <= 0.02)
                .map(|s| (s - max).exp())
                .sum();
            s[best] = f64::NEG_INFINITY;
            (best, 1.0 / sum)
        })
        .collect()
}

fn descending(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    order
}

fn dot(w: &[f32], x: &[f64]) -> f64 {
    w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()
}

/// The relative rms distance.
fn distance(given: &[f32], truth: &[f64]) -> f64 {
    let error: f64 = given.iter().zip(truth).map(|(g, t)| (f64::from(*g) - t).powi(2)).sum();
    (error / truth.iter().map(|t| t * t).sum::<f64>()).sqrt()
}

#[test]
fn every_form_is_its_authors_model() {
    let weights = Weights::new();
    let (x, other) = (values(20, TOKENS * WIDTH, 1.0), values(21, TOKENS * WIDTH, 1.0));
    let backend: &dyn Backend = &ReferenceBackend::new();
    for form in forms() {
        let gguf = weights.file(&form);
        let layer = load_moe(&gguf, 0, backend, &mut |at| assert!(at.quantized.is_some()))
            .unwrap_or_else(|error| panic!("{}: {error}", form.architecture));
        let on = backend.from_slice(&x).unwrap();
        let router_on = backend.from_slice(&other).unwrap();
        let mut out = backend.from_slice(&vec![0.0f32; x.len()]).unwrap();
        let routing = match form.own_input {
            true => Routing::Input(Matrix::dense("router", &router_on, TOKENS, WIDTH).unwrap()),
            false => Routing::Router,
        };
        let read = if form.own_input { &other } else { &x };
        let matrix = Matrix::dense("x", &on, TOKENS, WIDTH).unwrap();
        let mut by_mode =
            [QuantMode::Scatter, QuantMode::Gather, QuantMode::Indexed].map(|quant| {
                let options = Options { checked: true, quant, ..Options::default() };
                let mut workspace = Workspace::new(backend, &layer, TOKENS, options).unwrap();
                let mut to = MatrixMut::dense("out", &mut out, TOKENS, WIDTH).unwrap();
                layer.forward(backend, &mut workspace, matrix, routing, &mut to).unwrap();
                backend.download(&out).unwrap()
            });
        let bits = |values: &[f32]| Vec::from_iter(values.iter().map(|value| value.to_bits()));
        assert!(by_mode.windows(2).all(|two| bits(&two[0]) == bits(&two[1])));
        let given = std::mem::take(&mut by_mode[0]);
        let right = distance(&given, &weights.model(&form, &x, read));
        // The softmax of the chosen, or where it is that, the softmax over all.
        let plain = Form {
            score: Score::Softmax,
            normalised: form.score != Score::Softmax || !form.normalised,
            selection_bias: false,
            groups: None,
            ..form
        };
        let wrong = distance(&given, &weights.model(&plain, &x, read));
        println!("| {} | {:.2}% | {:.0}% |", form.architecture, 100.0 * right, 100.0 * wrong);
        assert!(right <= 0.02, "{}: {right}", form.architecture);
        assert!(wrong >= 0.04, "{}: another router is as near: {wrong}", form.architecture);
    }
}
