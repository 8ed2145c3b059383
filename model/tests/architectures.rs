//! Every architecture: how far the logits of a small model are from llama.cpp's, and how far one wrong detail puts them.
//!
//! The models are written here (`made/every.rs`); `vectors/architectures` has llama.cpp's logits of the same values in
//! F32, and how far from those it is itself with the Q8_0 file, and says how they were made.

mod made;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use made::cpu;
use made::every::{FORMS, VOCAB, write};
use strata_core::backend::Backend;
use strata_core::gguf::{Gguf, GgufFile};
use strata_core::routing::{Gating, Norm, RouterOptions};
use strata_model::config::{
    Attention, Config, DeltaRates, Ffn, Gate, Mask, Mixer, Pairing, Projection, Qkv, Rope,
};
use strata_model::{Model, Session, Space, Token};

/// Tokens, and those whose logits are kept.
const TOKENS: usize = 48;
const KEPT: [usize; 8] = [0, 3, 9, 17, 26, 35, 43, 47];

fn ids() -> Vec<u32> {
    let id = |at: usize| (at * at * at * 5 + at * at * 3 + at * 13 + 7) % VOCAB as usize;
    (0..TOKENS).map(|at| id(at) as u32).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/architectures")
}

fn file_name(form: &str) -> String {
    form.replace(':', "-")
}

/// The logits of the kept tokens, and the distance that the other program has from them.
fn reference(form: &str) -> (Vec<f32>, f64) {
    let path = folder().join(format!("{}.npy", file_name(form)));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    assert!(String::from_utf8_lossy(&bytes[..header]).contains("'<f4'"), "{form}");
    let values: Vec<f32> =
        bytes[header..].as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    assert_eq!(values.len(), KEPT.len() * VOCAB as usize, "{form}");
    let text = std::fs::read_to_string(folder().join("reference.json")).unwrap();
    let all: BTreeMap<String, f64> = serde_json::from_str(&text).unwrap();
    (values, all[form])
}

fn open(form: &str) -> Gguf {
    let file = GgufFile::from_bytes(form, write(form, false)).unwrap();
    Gguf::from_parts(vec![file]).unwrap()
}

fn logits(backend: &dyn Backend, gguf: &Gguf, config: Config) -> strata_core::Result<Vec<f32>> {
    let model = Model::of(config, gguf, backend, &mut |_| ())?;
    let mut session = Session::new(backend, &model, Space::new(TOKENS))?;
    let kept = |at: usize| KEPT.contains(&at);
    let tokens = ids().into_iter().enumerate();
    let tokens = tokens.map(|(at, id)| Token { id, sequence: 0, logits: kept(at) });
    let rows = session.append(backend, &model, &tokens.collect::<Vec<_>>())?;
    Ok(rows.concat())
}

fn distance(given: &[f32], truth: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let off: f64 =
        given.iter().zip(truth).map(|(x, y)| square(f64::from(*x) - f64::from(*y))).sum();
    let all: f64 = truth.iter().map(|y| square(f64::from(*y))).sum();
    (off / all).sqrt()
}

/// A detail, and how to get it wrong: whether the model has it.
type Detail = (&'static str, fn(&mut Config) -> bool);

fn attentions(config: &mut Config, change: impl Fn(&mut Attention) -> bool) -> bool {
    let layers = config.layers.iter_mut().map(|layer| match &mut layer.mixer {
        Mixer::Attention(attention) => change(attention),
        _ => false,
    });
    layers.fold(false, |any, changed| any | changed)
}

fn ropes(config: &mut Config, change: impl Fn(&mut Rope)) -> bool {
    let layers = config.layers.iter_mut().filter_map(|layer| match &mut layer.mixer {
        Mixer::Attention(attention) => attention.rope.as_mut(),
        Mixer::Mla(mla) => Some(&mut mla.rope),
        _ => None,
    });
    layers.map(change).count() > 0
}

fn routers(config: &mut Config, change: impl Fn(&mut RouterOptions) -> bool) -> bool {
    let layers = config.layers.iter_mut().map(|layer| match &mut layer.ffn {
        Ffn::Moe(moe) => change(&mut moe.router),
        Ffn::Dense(_) => false,
    });
    layers.fold(false, |any, changed| any | changed)
}

fn unbias(projection: &mut Projection) -> bool {
    projection.bias.take().is_some()
}

const DETAILS: &[Detail] = &[
    ("rope's other form", |config| {
        ropes(config, |rope| {
            rope.pairing = match rope.pairing {
                Pairing::Halves => Pairing::Interleaved,
                Pairing::Interleaved => Pairing::Halves,
            };
        })
    }),
    ("rope's base ten times as large", |config| {
        // The models' base is 1000.
        ropes(config, |rope| rope.frequencies.iter_mut().for_each(|f| *f = f.powf(4.0 / 3.0)))
    }),
    ("no norm of queries and keys", |config| {
        attentions(config, |of| {
            !matches!(of.gate, Some(Gate::Interleaved)) && of.qk_norm.take().is_some()
        })
    }),
    ("that norm on the rotation's other side", |config| {
        attentions(config, |of| match &mut of.qk_norm {
            Some(norm) if !matches!(of.gate, Some(Gate::Interleaved)) && norm.weights.is_some() => {
                norm.after_rope = !norm.after_rope;
                true
            }
            _ => false,
        })
    }),
    ("no biases of queries, keys and values", |config| {
        attentions(config, |of| match &mut of.qkv {
            Qkv::Fused(all) => unbias(all),
            Qkv::Split { query, key, value } => unbias(query) | unbias(key) | unbias(value),
        })
    }),
    ("no bias of attention's output", |config| attentions(config, |of| unbias(&mut of.output))),
    ("no window", |config| {
        attentions(config, |of| {
            let sliding = matches!(of.mask, Mask::Sliding { .. });
            of.mask = if sliding { Mask::Full } else { of.mask };
            sliding
        })
    }),
    ("a window one key shorter", |config| {
        attentions(config, |of| match &mut of.mask {
            Mask::Sliding { window } => {
                *window -= 1;
                true
            }
            _ => false,
        })
    }),
    ("no sinks", |config| attentions(config, |of| of.sinks.take().is_some())),
    ("no gate", |config| {
        attentions(config, |of| match of.gate {
            Some(Gate::Projection(_)) => of.gate.take().is_some(),
            _ => false,
        })
    }),
    ("no factor on values", |config| attentions(config, |of| of.value_scale.take().is_some())),
    ("no cap of scores", |config| attentions(config, |of| of.softcap.take().is_some())),
    ("scores by the whole compressed row", |config| {
        let layers = config.layers.iter_mut().map(|layer| match &mut layer.mixer {
            Mixer::Mla(of) => {
                of.scale = 1.0 / ((of.rank + of.rope.dims) as f32).sqrt();
                true
            }
            _ => false,
        });
        layers.fold(false, |any, changed| any | changed)
    }),
    ("heads of keys in the other order", |config| {
        let layers = config.layers.iter_mut().map(|layer| match &mut layer.mixer {
            Mixer::DeltaNet(net) => {
                net.modulo = !net.modulo;
                true
            }
            _ => false,
        });
        layers.fold(false, |any, changed| any | changed)
    }),
    ("strengths and decays exchanged", |config| {
        let layers = config.layers.iter_mut().map(|layer| match &mut layer.mixer {
            Mixer::DeltaNet(net) => match &mut net.rates {
                DeltaRates::Split { beta, alpha } => {
                    std::mem::swap(beta, alpha);
                    true
                }
                DeltaRates::Interleaved(_) => false,
            },
            _ => false,
        });
        layers.fold(false, |any, changed| any | changed)
    }),
    ("convolutions' matrices exchanged", |config| {
        let mut all = config.layers.iter_mut().filter_map(|layer| match &mut layer.mixer {
            Mixer::ShortConv(conv) => Some(conv),
            _ => None,
        });
        match (all.next(), all.next()) {
            (Some(one), Some(other)) => {
                std::mem::swap(&mut one.conv, &mut other.conv);
                true
            }
            _ => false,
        }
    }),
    ("no norm behind branches", |config| {
        let layers = config.layers.iter_mut();
        let taken = layers.map(|layer| {
            layer.mixer_post_norm.take().is_some() | layer.ffn_post_norm.take().is_some()
        });
        taken.fold(false, |any, taken| any | taken)
    }),
    ("weights brought to a sum of 1, or not", |config| {
        // A factor on all weights of a token is nothing where a norm of their sum follows.
        config.architecture != "grok"
            && routers(config, |router| {
                (router.gating, router.norm) = match (router.gating, router.norm) {
                    (Gating::SoftmaxOfChosen, _) => (Gating::Softmax, Norm::None),
                    (gating, Norm::None) => (gating, Norm::Sum { epsilon: 0.0, least: 1e-6 }),
                    (gating, _) => (gating, Norm::None),
                };
                true
            })
    }),
    ("no factor on weights", |config| {
        routers(config, |router| std::mem::replace(&mut router.scale, 1.0) != 1.0)
    }),
    ("no groups of experts", |config| routers(config, |router| router.groups.take().is_some())),
    ("softmax for sigmoid, or the other way round", |config| {
        routers(config, |router| {
            router.gating = match router.gating {
                Gating::Sigmoid => Gating::Softmax,
                Gating::Softmax | Gating::SoftmaxOfChosen => Gating::Sigmoid,
                other => other,
            };
            true
        })
    }),
    ("no factor on the embedding", |config| config.embedding_scale.take().is_some()),
    ("no factor on branches", |config| {
        let layers = config.layers.iter_mut().map(|layer| layer.residual_scale.take().is_some());
        layers.fold(false, |any, taken| any | taken)
    }),
    ("no factor on logits", |config| {
        config.logit_scale.take().is_some() | config.logit_divisor.take().is_some()
    }),
    ("no cap of logits", |config| config.logit_softcap.take().is_some()),
];

#[test]
fn every_architecture_is_near_llama_cpp_and_a_wrong_detail_is_not() {
    let backend = cpu(2);
    let mut wrong = Vec::new();
    println!("| model | Strata | llama.cpp | nearest wrong detail |\n|---|---|---|---|");
    for form in FORMS {
        let gguf = open(form);
        let config = Config::load(&gguf, None).unwrap();
        let (truth, theirs) = reference(form);
        let ours = distance(&logits(&*backend, &gguf, config.clone()).unwrap(), &truth);
        if ours.is_nan() || ours > 1.5 * theirs {
            wrong.push(format!("{form}: {ours:.4}, llama.cpp {theirs:.4}"));
        }
        let mut details = Vec::new();
        for (detail, change) in DETAILS {
            let mut changed = config.clone();
            if !change(&mut changed) {
                continue;
            }
            let off = match logits(&*backend, &gguf, changed) {
                Ok(values) => distance(&values, &truth),
                Err(error) => panic!("{form}: {detail}: {error}"),
            };
            details.push((off, *detail));
        }
        details.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Told even where it is not what the test is for.
        let all: Vec<String> =
            details.iter().map(|(off, what)| format!("{what} {off:.3}")).collect();
        println!("| {form} | {ours:.4} | {theirs:.4} | {} |", all.join(", "));
        for (off, detail) in &details {
            if *off < 1.5 * theirs {
                wrong.push(format!("{form}: {detail}: {off:.4}, as near as {ours:.4}"));
            }
        }
        assert!(details.len() >= 2, "{form}: {}", details.len());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Writes the models for the other program: see `vectors/architectures/reference.py`.
#[test]
fn models_for_another_program() {
    let Some(to) = std::env::var_os("STRATA_MADE_MODELS").map(PathBuf::from) else {
        println!("skipped: STRATA_MADE_MODELS is not set; it names the folder to write to");
        return;
    };
    std::fs::create_dir_all(&to).unwrap();
    for form in FORMS {
        for (floats, ending) in [(true, "f32"), (false, "q8_0")] {
            let path = to.join(format!("{}.{ending}.gguf", file_name(form)));
            std::fs::write(path, write(form, floats)).unwrap();
        }
    }
    let forms: BTreeMap<&str, String> = FORMS.iter().map(|form| (*form, file_name(form))).collect();
    let told = serde_json::json!({ "ids": ids(), "kept": KEPT, "forms": forms });
    std::fs::write(to.join("models.json"), told.to_string()).unwrap();
}
