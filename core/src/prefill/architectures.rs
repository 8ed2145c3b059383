//! What architectures compute, where their files do not say it.
//!
//! A file names its architecture and leaves activations, and often the router,
//! to programs that know it. So a layer is loaded only where it is known to be
//! what [`MoeLayer`](super::MoeLayer) computes: an architecture that is not
//! listed here is refused, not guessed at. `docs/formats.md` has the table.

use crate::{Error, Result};

/// How the experts of an architecture are weighed, where the file does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weighing {
    /// By sigmoid instead of softmax, without `expert_gating_func`.
    pub sigmoid: bool,
    /// Whether the chosen ones' weights are brought to a sum of 1, without `expert_weights_norm`.
    pub normalised: bool,
}

/// How, or what is different about experts that are not computed here.
type Experts = Result<Weighing, &'static str>;

const NORMALISED: Experts = Ok(Weighing { sigmoid: false, normalised: true });
const NOT_NORMALISED: Experts = Ok(Weighing { sigmoid: false, normalised: false });
const SIGMOID: Experts = Ok(Weighing { sigmoid: true, normalised: false });
const SIGMOID_NORMALISED: Experts = Ok(Weighing { sigmoid: true, normalised: true });

/// Architectures with experts.
const EXPERTS: [(&str, Experts); 52] = [
    ("afmoe", SIGMOID),
    ("arctic", Err("experts with a norm of their own")),
    ("bailingmoe", NOT_NORMALISED),
    ("bailingmoe2", SIGMOID),
    ("cohere2moe", Err("sigmoid, and half of the sum with the shared expert")),
    ("dbrx", NORMALISED),
    ("deepseek", NOT_NORMALISED),
    ("deepseek2", NOT_NORMALISED),
    ("deepseek2-ocr", NOT_NORMALISED),
    ("deepseek32", SIGMOID),
    ("deepseek4", Err("root of softplus, clamped SwiGLU")),
    ("dots1", SIGMOID),
    ("ernie4_5-moe", NORMALISED),
    ("exaone-moe", SIGMOID),
    ("gemma4", Err("GELU, and a router with an input of its own")),
    ("glm-dsa", SIGMOID),
    ("glm4moe", SIGMOID),
    ("gpt-oss", Err("clamped SwiGLU, biases")),
    ("granite", NORMALISED),
    ("granitehybrid", NORMALISED),
    ("granitemoe", NORMALISED),
    ("grok", Err("GELU")),
    ("grovemoe", Err("sigmoid to choose, and further experts for groups")),
    ("hunyuan-moe", NORMALISED),
    ("hy_v3", SIGMOID),
    ("jamba", NOT_NORMALISED),
    ("kimi-linear", SIGMOID_NORMALISED),
    ("laguna", SIGMOID),
    ("lfm2moe", SIGMOID_NORMALISED),
    ("llada-moe", NOT_NORMALISED),
    ("llama", NORMALISED),
    ("llama-embed", NORMALISED),
    ("llama4", Err("sigmoid, on the experts' inputs")),
    ("mellum", NORMALISED),
    ("mimo2", Err("sigmoid")),
    ("minicpm", NORMALISED),
    ("minimax-m2", SIGMOID_NORMALISED),
    ("minimax-m3", Err("clamped SwiGLU")),
    ("mistral3", NORMALISED),
    ("mistral4", NOT_NORMALISED),
    ("nemotron_h_moe", Err("squared ReLU without gates")),
    ("nomic-bert-moe", Err("GELU without gates")),
    ("olmoe", NOT_NORMALISED),
    ("phimoe", NORMALISED),
    ("qwen2moe", NOT_NORMALISED),
    ("qwen35moe", NORMALISED),
    ("qwen3moe", NORMALISED),
    ("qwen3next", NORMALISED),
    ("qwen3vlmoe", NORMALISED),
    ("rnd1", NORMALISED),
    ("smallthinker", Err("ReLU, and a router that reads another input")),
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

/// How the experts of an architecture are weighed.
///
/// # Errors
/// [`Error::Invalid`] for one that is refused or not known.
pub(super) fn experts(architecture: &str) -> Result<Weighing> {
    match EXPERTS.iter().find(|(name, _)| *name == architecture) {
        Some((_, Err(why))) => Err(Error::invalid(
            "general.architecture",
            format!("{architecture} ({why})"),
            "one whose experts are weighed by softmax and compute SwiGLU of gate and up",
        )),
        Some((_, Ok(weighing))) => Ok(*weighing),
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
        format!("one known to compute SwiGLU: {}", known.join(", ")),
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
            assert!(message.starts_with("general.architecture: given gemma2, expected one known"));
            assert!(message.contains(" llama,"), "{message}");
        }
        assert!(!experts("a\nb").unwrap_err().to_string().contains('\n'));
        assert!(dense("llama4").is_ok() && experts("llama4").is_err());
    }
}
