//! What architectures compute, where their files do not say it.
//!
//! A file names its architecture and leaves activations, and often the router,
//! to programs that know it. So a layer is loaded only where it is known to be
//! what [`MoeLayer`](super::MoeLayer) computes: an architecture that is not
//! listed here is refused, not guessed at. `docs/formats.md` has the table.

use crate::activation::Activation;
use crate::routing::{Gating, Norm};
use crate::{Error, Result};

/// Whether the chosen ones' weights are brought to a sum of 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Normalised {
    /// As `expert_weights_norm` says; this without it.
    Key(bool),
    /// Whatever the file says.
    Fixed(bool),
}

/// How a block's limit of `swiglu_clamp_exp` is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clamp {
    /// To silu of the gate.
    Behind,
    /// To the gate, before silu.
    Before,
}

/// What an architecture computes where its files do not say it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Recipe {
    /// What a score is worth without `expert_gating_func`.
    pub gating: Gating,
    /// Whether the file's `expert_gating_func` counts.
    pub gating_key: bool,
    pub normalised: Normalised,
    /// What the sum of the weights is brought to before it divides: the authors' number.
    pub sum: Norm,
    pub activation: Activation,
    /// Whether experts have gates.
    pub gates: bool,
    pub clamp: Clamp,
    /// The experts' limit is the shared expert's too, where the file has none for it.
    pub one_limit: bool,
    /// The router reads another input than the experts, which the caller hands in.
    pub own_input: bool,
    /// Weights multiply the experts' inputs.
    pub weigh_input: bool,
    /// The block's dense network is a shared expert, and the sum is multiplied by sqrt(1/2).
    pub dense_beside: bool,
    /// The sum with the shared expert is halved.
    pub halved: bool,
    /// `router_logit_softcapping`, where the file has it, caps the scores.
    pub softcap: bool,
    /// Groups are worth their two best experts with softmax too.
    pub groups_by_two: bool,
    /// `.scale`s of weights count whatever their type; else those of NVFP4 alone, whose blocks mean
    /// nothing without.
    pub scaled: bool,
}

/// Or what is different about experts that are not computed here.
type Experts = Result<Recipe, &'static str>;

const EPSILON: Norm = Norm::Sum { epsilon: 1e-20, least: 0.0 };
const PLAIN_SUM: Norm = Norm::Sum { epsilon: 0.0, least: 0.0 };

/// Softmax, normalised unless the file says otherwise, SwiGLU.
const BASE: Recipe = Recipe {
    gating: Gating::Softmax,
    gating_key: true,
    normalised: Normalised::Key(true),
    sum: PLAIN_SUM,
    activation: Activation::SwiGlu,
    gates: true,
    clamp: Clamp::Behind,
    one_limit: false,
    own_input: false,
    weigh_input: false,
    dense_beside: false,
    halved: false,
    softcap: false,
    groups_by_two: false,
    scaled: false,
};
const SIGMOID_BASE: Recipe =
    Recipe { gating: Gating::Sigmoid, normalised: Normalised::Key(false), sum: EPSILON, ..BASE };
const NORMALISED: Experts = Ok(BASE);
const SCALED: Experts = Ok(Recipe { scaled: true, ..BASE });
const NOT_NORMALISED: Experts = Ok(Recipe { normalised: Normalised::Key(false), ..BASE });
const SIGMOID: Experts = Ok(SIGMOID_BASE);
const SIGMOID_SCALED: Experts = Ok(Recipe { scaled: true, ..SIGMOID_BASE });
const SIGMOID_NORMALISED: Experts =
    Ok(Recipe { normalised: Normalised::Key(true), ..SIGMOID_BASE });
const LIMITED: Experts = Ok(Recipe { clamp: Clamp::Before, ..SIGMOID_BASE });
const OAI: Activation = Activation::SwiGluOai { alpha: 1.702, limit: 7.0 };

/// Architectures with experts: those of llama.cpp's `src/models`.
const EXPERTS: [(&str, Experts); 63] = [
    ("afmoe", SIGMOID_NORMALISED),
    ("arctic", NORMALISED),
    ("bailingmoe", NOT_NORMALISED),
    ("bailingmoe2", SIGMOID),
    ("bailingmoe3", SIGMOID),
    ("cohere2moe", Ok(Recipe { halved: true, scaled: true, ..SIGMOID_BASE })),
    ("dbrx", NORMALISED),
    ("deepseek", NOT_NORMALISED),
    ("deepseek2", Ok(Recipe { normalised: Normalised::Key(false), sum: EPSILON, ..BASE })),
    ("deepseek2-ocr", Ok(Recipe { normalised: Normalised::Key(false), sum: EPSILON, ..BASE })),
    ("deepseek32", SIGMOID_SCALED),
    (
        "deepseek4",
        Ok(Recipe {
            gating: Gating::SqrtSoftplus,
            normalised: Normalised::Key(true),
            clamp: Clamp::Before,
            one_limit: true,
            ..SIGMOID_BASE
        }),
    ),
    ("dflash", Err("a draft for another model, whose activations it reads")),
    ("dots1", SIGMOID),
    ("dots3note", SIGMOID_SCALED),
    (
        "ernie4_5-moe",
        Ok(Recipe {
            gating_key: false,
            normalised: Normalised::Fixed(true),
            sum: Norm::Sum { epsilon: 0.0, least: 1e-12 },
            ..BASE
        }),
    ),
    ("exaone-moe", SIGMOID),
    (
        "gemma4",
        Ok(Recipe {
            gating_key: false,
            normalised: Normalised::Fixed(true),
            activation: Activation::GeluTanh,
            own_input: true,
            scaled: true,
            ..BASE
        }),
    ),
    ("glm-dsa", SIGMOID_SCALED),
    ("glm4moe", SIGMOID),
    ("glm5-next", Ok(Recipe { clamp: Clamp::Before, one_limit: true, ..SIGMOID_BASE })),
    (
        "gpt-oss",
        Ok(Recipe {
            gating: Gating::SoftmaxOfChosen,
            gating_key: false,
            normalised: Normalised::Fixed(false),
            activation: OAI,
            ..BASE
        }),
    ),
    ("granite", NORMALISED),
    ("granite_swa", NORMALISED),
    ("granitehybrid", NORMALISED),
    ("granitemoe", NORMALISED),
    (
        "grok",
        Ok(Recipe {
            gating_key: false,
            normalised: Normalised::Key(false),
            activation: Activation::GeluTanh,
            dense_beside: true,
            softcap: true,
            ..BASE
        }),
    ),
    ("grovemoe", Err("further experts for groups of experts")),
    ("hunyuan-moe", NORMALISED),
    ("hy_v3", Ok(Recipe { normalised: Normalised::Key(true), scaled: true, ..SIGMOID_BASE })),
    ("hy_v4", LIMITED),
    ("jamba", NOT_NORMALISED),
    ("kimi-k3", Err("a latent space around experts, with a norm")),
    ("kimi-linear", SIGMOID_NORMALISED),
    (
        "laguna",
        Ok(Recipe {
            normalised: Normalised::Key(true),
            sum: PLAIN_SUM,
            softcap: true,
            ..SIGMOID_BASE
        }),
    ),
    (
        "lfm2moe",
        Ok(Recipe {
            normalised: Normalised::Fixed(true),
            sum: Norm::Sum { epsilon: 1e-6, least: 0.0 },
            ..SIGMOID_BASE
        }),
    ),
    ("llada-moe", NOT_NORMALISED),
    ("llama", SCALED),
    ("llama-embed", NORMALISED),
    (
        "llama4",
        Ok(Recipe {
            gating_key: false,
            normalised: Normalised::Fixed(false),
            weigh_input: true,
            ..SIGMOID_BASE
        }),
    ),
    ("maple", Ok(Recipe { normalised: Normalised::Fixed(true), clamp: Clamp::Before, ..BASE })),
    ("mellum", SCALED),
    (
        "mimo2",
        Ok(Recipe { gating_key: false, normalised: Normalised::Fixed(true), ..SIGMOID_BASE }),
    ),
    ("minicpm", NORMALISED),
    ("minimax-01", NORMALISED),
    (
        "minimax-m2",
        Ok(Recipe { normalised: Normalised::Fixed(true), sum: PLAIN_SUM, ..SIGMOID_BASE }),
    ),
    (
        "minimax-m3",
        Ok(Recipe {
            normalised: Normalised::Key(true),
            sum: PLAIN_SUM,
            activation: OAI,
            ..SIGMOID_BASE
        }),
    ),
    ("mistral3", SCALED),
    ("mistral4", Ok(Recipe { normalised: Normalised::Key(false), groups_by_two: true, ..BASE })),
    (
        "nemotron_h_moe",
        Ok(Recipe {
            gating_key: false,
            activation: Activation::ReluSquared,
            gates: false,
            scaled: true,
            ..SIGMOID_BASE
        }),
    ),
    (
        "nomic-bert-moe",
        Ok(Recipe {
            gating_key: false,
            normalised: Normalised::Fixed(false),
            activation: Activation::GeluErf,
            gates: false,
            ..BASE
        }),
    ),
    ("olmoe", NOT_NORMALISED),
    (
        "phimoe",
        Ok(Recipe {
            gating: Gating::Sparsemixer { near: 0.02 },
            gating_key: false,
            normalised: Normalised::Fixed(false),
            ..BASE
        }),
    ),
    ("qwen2moe", NOT_NORMALISED),
    ("qwen35moe", SCALED),
    ("qwen3moe", SCALED),
    ("qwen3next", SCALED),
    ("qwen3vlmoe", NORMALISED),
    ("qwen4exp", SCALED),
    ("refact", NORMALISED),
    ("rnd1", NORMALISED),
    (
        "smallthinker",
        Ok(Recipe {
            gating: Gating::Softmax,
            sum: EPSILON,
            activation: Activation::Relu,
            own_input: true,
            ..BASE
        }),
    ),
    ("step35", SIGMOID),
];

/// Architectures whose dense networks are SwiGLU of a gate and an up tensor.
const DENSE: [&str; 79] = [
    "afmoe",
    "arctic",
    "arwkv7",
    "baichuan",
    "bailingmoe",
    "bailingmoe2",
    "bitnet",
    "chameleon",
    "cogvlm",
    "cohere2",
    "cohere2moe",
    "command-r",
    "deci",
    "deepseek",
    "deepseek2",
    "deepseek2-ocr",
    "deepseek32",
    "dots1",
    "dream",
    "ernie4_5",
    "ernie4_5-moe",
    "eurobert",
    "exaone",
    "exaone-moe",
    "exaone4",
    "falcon-h1",
    "glm-dsa",
    "glm4moe",
    "granite",
    "granitehybrid",
    "granitemoe",
    "hunyuan-dense",
    "hunyuan-moe",
    "hunyuan_vl",
    "hy_v3",
    "internlm2",
    "jais",
    "jamba",
    "kimi-linear",
    "laguna",
    "lfm2",
    "lfm2moe",
    "llada",
    "llama",
    "llama-embed",
    "llama4",
    "maincoder",
    "mimo2",
    "minicpm",
    "minicpm3",
    "mistral3",
    "mistral4",
    "nanbeige",
    "nomic-bert",
    "olmo",
    "olmo2",
    "openelm",
    "orion",
    "paddleocr",
    "pangu-embedded",
    "plamo",
    "qwen",
    "qwen2",
    "qwen2moe",
    "qwen2vl",
    "qwen3",
    "qwen35",
    "qwen35moe",
    "qwen3moe",
    "qwen3next",
    "qwen3vl",
    "refact",
    "rwkv6qwen2",
    "seed_oss",
    "smollm3",
    "stablelm",
    "step35",
    "talkie",
    "xverse",
];

/// What an architecture computes.
///
/// # Errors
/// [`Error::Invalid`] for one that is refused or not known.
pub(super) fn experts(architecture: &str) -> Result<Recipe> {
    match EXPERTS.iter().find(|(name, _)| *name == architecture) {
        Some((_, Err(why))) => Err(Error::invalid(
            "general.architecture",
            format!("{architecture} ({why})"),
            "one whose experts are computed here: docs/formats.md lists them",
        )),
        Some((_, Ok(recipe))) => Ok(*recipe),
        None => {
            let runs = EXPERTS.iter().filter(|(_, how)| how.is_ok());
            Err(unknown(architecture, runs.map(|(name, _)| *name)))
        }
    }
}

/// Whether the dense networks of an architecture are SwiGLU of gate and up.
///
/// # Errors
/// [`Error::Invalid`] for one where they are not, or that is not known.
pub(super) fn dense(architecture: &str) -> Result<()> {
    match DENSE.contains(&architecture) {
        true => Ok(()),
        false => Err(unknown(architecture, DENSE.into_iter())),
    }
}

fn unknown<'a>(architecture: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<_> = known.collect();
    Error::invalid(
        "general.architecture",
        architecture.escape_debug(),
        format!("one that is known: {}", known.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_name_no_architecture_twice() {
        assert!(EXPERTS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(DENSE.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_reason_is_told() {
        for (name, how) in EXPERTS {
            match (how, experts(name)) {
                (Err(why), Err(error)) => {
                    let given = format!("general.architecture: given {name} ({why}), expected");
                    assert!(error.to_string().starts_with(&given), "{error}");
                }
                (how, found) => assert_eq!(found.ok(), how.ok(), "{name}"),
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for error in [experts("gemma2").unwrap_err(), dense("gemma2").unwrap_err()] {
            let message = error.to_string();
            assert!(
                message
                    .starts_with("general.architecture: given gemma2, expected one that is known")
            );
            assert!(message.contains(" llama,"), "{message}");
        }
        assert!(!experts("a\nb").unwrap_err().to_string().contains('\n'));
        assert!(dense("llama4").is_ok() && experts("grovemoe").is_err());
    }
}
