//! From keys and tensors to a [`Config`].

use strata_core::gguf::Gguf;
use strata_core::prefill::plan_moe;
use strata_core::{Error, Result};

use super::arch::{ARCHITECTURES, Architecture, Blocks, MoeRule, WindowRule};
use super::keys::Keys;
use super::mixer::CHUNK;
use super::rope::RopeRule;
use super::tensors::Presence::{self, Must, No};
use super::tensors::{Norm, Projection, Tensors};
use super::types::{Config, Dense, Ffn, Layer, Moe};

/// What the blocks of a model have in common.
pub(super) struct Model<'a> {
    gguf: &'a Gguf,
    pub arch: &'static Architecture,
    pub keys: Keys<'a>,
    pub tensors: Tensors<'a>,
    pub width: usize,
    pub blocks: usize,
    pub heads: Vec<usize>,
    pub kv_heads: Vec<usize>,
    pub key_size: usize,
    pub value_size: usize,
    pub experts: usize,
    pub rope: RopeRule,
    pub base: f64,
    /// Whether each block has a window, and its size.
    pub sliding: Vec<bool>,
    pub window: usize,
}

impl Config {
    /// Reads a model, for texts of up to `context` tokens (that chooses between two tables of
    /// frequency factors, where a model has them); without it, of as many as it was trained for.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an architecture that is not known, a key that is missing or out of
    /// range, a tensor that is missing, of another shape, or left over.
    pub fn load(gguf: &Gguf, context: Option<usize>) -> Result<Self> {
        let name = gguf.head().str("general.architecture")?.ok_or_else(|| {
            Error::invalid("general.architecture", "nothing", "the name of an architecture")
        })?;
        let arch = ARCHITECTURES.iter().find(|arch| arch.name == name).ok_or_else(|| {
            let known: Vec<&str> = ARCHITECTURES.iter().map(|arch| arch.name).collect();
            let expected = format!("one of {}", known.join(", "));
            Error::invalid("general.architecture", name.escape_debug(), expected)
        })?;
        Model::new(gguf, arch, context)?.config()
    }
}

impl<'a> Model<'a> {
    fn new(gguf: &'a Gguf, arch: &'static Architecture, context: Option<usize>) -> Result<Self> {
        let keys = Keys::new(gguf, arch.name);
        let tensors = Tensors::new(gguf);
        let width = keys.need("embedding_length")?;
        let all = keys.need("block_count")?;
        // Before there is memory for each of them: a block has a tensor at least.
        let most = gguf.tensors().count();
        if all > most {
            let expected = format!("at most {most}, the tensors of the file");
            return Err(Error::invalid(keys.name("block_count"), all, expected));
        }
        let extra = keys.size("nextn_predict_layers")?.unwrap_or(0);
        let blocks = all.checked_sub(extra).filter(|&blocks| blocks > 0).ok_or_else(|| {
            let what = keys.name("nextn_predict_layers");
            Error::invalid(what, extra, format!("less than {all}, the block_count"))
        })?;
        let heads = keys.of_blocks("attention.head_count", blocks)?.ok_or_else(|| {
            Error::invalid(keys.name("attention.head_count"), "nothing", "the heads of a block")
        })?;
        let kv_heads = keys.of_blocks("attention.head_count_kv", blocks)?;
        let kv_heads = kv_heads.unwrap_or_else(|| heads.clone());
        let most = heads.iter().copied().max().unwrap_or(0).max(1);
        let size = |key| -> Result<usize> { Ok(keys.size(key)?.unwrap_or(width / most)) };
        let (key_size, value_size) =
            (size("attention.key_length")?, size("attention.value_length")?);
        let trained = keys.need("context_length")?;
        let dims = keys.size("rope.dimension_count")?.unwrap_or(key_size);
        let lengths = [dims, context.unwrap_or(trained), trained];
        let rope = RopeRule::load(gguf, &keys, &tensors, arch, lengths)?;
        let base = f64::from(keys.factor("rope.freq_base")?.unwrap_or(10_000.0));
        let mut model = Self {
            gguf,
            experts: keys.size("expert_count")?.unwrap_or(0),
            arch,
            keys,
            tensors,
            width,
            blocks,
            heads,
            kv_heads,
            key_size,
            value_size,
            rope,
            base,
            sliding: vec![false; blocks],
            window: 0,
        };
        model.windows()?;
        Ok(model)
    }

    /// Which blocks have a window.
    fn windows(&mut self) -> Result<()> {
        let (period, stated) = match self.arch.window {
            WindowRule::Full => return Ok(()),
            WindowRule::Sliding { period, stated } => (period, stated),
            WindowRule::Chunked => (4, false),
        };
        let name = "attention.sliding_window";
        let window = match self.keys.size(name)? {
            None if self.keys.has(name) => None,
            None if stated => {
                let expected = "the keys that a layer with a window sees";
                return Err(Error::invalid(self.keys.name(name), "nothing", expected));
            }
            None if self.arch.window == WindowRule::Chunked => Some(CHUNK),
            window => window,
        };
        let sizes = [("key_length_swa", self.key_size), ("value_length_swa", self.value_size)];
        for (key, expected) in sizes {
            let key = format!("attention.{key}");
            if let Some(given) = self.keys.size(&key)?.filter(|&given| given != expected) {
                let expected = format!("{expected}, as in layers without a window");
                return Err(Error::invalid(self.keys.name(&key), given, expected));
            }
        }
        let key = "attention.sliding_window_pattern";
        let array = self.keys.is_array(key);
        let pattern = if array { self.keys.of_blocks(key, self.blocks)? } else { None };
        let period = if array { period } else { self.keys.size(key)?.unwrap_or(period) };
        let Some(window) = window else {
            return Ok(());
        };
        self.window = window;
        self.sliding = match pattern {
            Some(pattern) => pattern.into_iter().map(|sliding| sliding != 0).collect(),
            None if period == 0 => {
                let expected = "one value for each block";
                return Err(Error::invalid(self.keys.name(key), "nothing", expected));
            }
            None => (0..self.blocks).map(|block| block % period < period - 1).collect(),
        };
        Ok(())
    }

    fn config(self) -> Result<Config> {
        let Self { arch, keys, tensors, width, .. } = &self;
        let (arch, width) = (*arch, *width);
        let embedding = "token_embd.weight";
        let vocab = tensors.dims(embedding)?.get(1).copied().unwrap_or(1);
        let embedding = tensors.must(embedding, &[width, vocab])?;
        if let Some(stated) = keys.size("vocab_size")?
            && stated != vocab
        {
            let expected = format!("{vocab}, the rows of {embedding}");
            return Err(Error::invalid(keys.name("vocab_size"), stated, expected));
        }
        let head = self.head(&embedding, vocab)?;
        let output_norm = self.norm(arch.final_norm, width)?;
        let eps = keys.number("attention.layer_norm_rms_epsilon")?.filter(|&eps| eps > 0.0);
        let eps = eps.ok_or_else(|| {
            let name = keys.name("attention.layer_norm_rms_epsilon");
            Error::invalid(name, "nothing above 0", "the eps of the norms")
        })?;
        let layers = (0..self.blocks).map(|block| self.layer(block)).collect::<Result<_>>()?;
        let granite = |key| -> Result<Option<f32>> {
            if arch.granite_scales { keys.factor(key) } else { Ok(None) }
        };
        let grok = |key, default| -> Result<Option<f32>> {
            if arch.grok { Ok(Some(keys.factor(key)?.unwrap_or(default))) } else { Ok(None) }
        };
        let by_width = arch.embedding_by_width.then(|| (width as f32).sqrt());
        let embedding_scale =
            by_width.or(granite("embedding_scale")?).or(grok("embedding_scale", 78.383_67)?);
        let softcap = "final_logit_softcapping";
        let blocks = self.blocks;
        let skipped = tensors.rest(|name| left_out(arch, blocks, name))?;
        Ok(Config {
            architecture: arch.name.to_owned(),
            vocab,
            width,
            context: keys.need("context_length")?,
            eps,
            embedding,
            embedding_scale,
            layers,
            output_norm,
            head,
            logit_scale: grok("logit_scale", 0.577_350_26)?,
            logit_divisor: granite("logit_scale")?,
            logit_softcap: if arch.final_softcap { keys.factor(softcap)? } else { None },
            scaling: self.rope.scaling,
            factors: self.rope.factors,
            unread: keys.unread(),
            skipped,
        })
    }

    fn head(&self, embedding: &str, vocab: usize) -> Result<Projection> {
        let dims = [self.width, vocab];
        let bias = self.arch.head_bias;
        if self.tensors.has("output.weight") || self.arch.head == Presence::Must {
            return self.tensors.projection("output", dims, bias, true);
        }
        Ok(Projection {
            weight: embedding.to_owned(),
            cols: self.width,
            rows: vocab,
            scale: None,
            bias: self.tensors.take(bias, "output.bias", &[vocab])?,
            bias_first: false,
        })
    }

    pub fn norm(&self, stem: &str, size: usize) -> Result<Norm> {
        self.tensors.norm(stem, size, self.arch.norm_bias)
    }

    fn layer(&self, block: usize) -> Result<Layer> {
        let name = |stem: &str| format!("blk.{block}.{stem}");
        let [mixer_post_norm, ffn_post_norm] = match self.arch.post_norms {
            None => [None, None],
            Some(names) => {
                let norm = |names: &[&str]| -> Result<Option<Norm>> {
                    let there = |stem: &&&str| self.tensors.has(&name(&format!("{stem}.weight")));
                    let stem = names.iter().find(there).unwrap_or(&names[0]);
                    self.norm(&name(stem), self.width).map(Some)
                };
                [norm(names[0])?, norm(names[1])?]
            }
        };
        let residual = self.arch.granite_scales;
        Ok(Layer {
            mixer_norm: self.norm(&name("attn_norm"), self.width)?,
            mixer: self.mixer(block)?,
            mixer_post_norm,
            ffn_norm: self.norm(&name(self.arch.ffn_norm), self.width)?,
            ffn: self.ffn(block)?,
            ffn_post_norm,
            residual_scale: if residual { self.keys.factor("residual_scale")? } else { None },
        })
    }

    fn ffn(&self, block: usize) -> Result<Ffn> {
        let Some(rule) = self.arch.moe else {
            return self.dense(block).map(|dense| Ffn::Dense(Box::new(dense)));
        };
        let leading = self.keys.size("leading_dense_block_count")?.unwrap_or(0);
        let step =
            || -> Result<usize> { Ok(self.keys.size("interleave_moe_layer_step")?.unwrap_or(1)) };
        let moe = match rule.blocks {
            Blocks::All => true,
            Blocks::IfAny => self.experts > 0,
            Blocks::Leading => block >= leading,
            Blocks::LeadingStep => block >= leading && (block + 1).is_multiple_of(step()?),
            Blocks::Step => (block + 1).is_multiple_of(step()?),
            Blocks::Router => self.tensors.has(&format!("blk.{block}.ffn_gate_inp.weight")),
        };
        match moe {
            true => self.moe(block, &rule).map(|moe| Ffn::Moe(Box::new(moe))),
            false => self.dense(block).map(|dense| Ffn::Dense(Box::new(dense))),
        }
    }

    /// The block's dense network.
    fn dense(&self, block: usize) -> Result<Dense> {
        let name = |part: &str| format!("blk.{block}.ffn_{part}");
        let down = name("down");
        let ffn = self.tensors.dims(&format!("{down}.weight"))?.first().copied().unwrap_or(1);
        let key = "feed_forward_length";
        let stated = self.keys.of_blocks(key, self.blocks)?.map(|all| all[block]);
        if let Some(stated) = stated.filter(|&stated| stated > 0 && stated != ffn) {
            let expected = format!("{ffn}, the columns of {down}");
            return Err(Error::invalid(self.keys.name(key), stated, expected));
        }
        let take = |part, dims| -> Result<Projection> {
            let (bias, scaled) = (self.arch.ffn_bias, self.arch.scales[0]);
            let projection = self.tensors.projection(&name(part), dims, bias, scaled)?;
            Ok(Projection { bias_first: true, ..projection })
        };
        Ok(Dense {
            gate: take("gate", [self.width, ffn])?,
            up: take("up", [self.width, ffn])?,
            down: take("down", [ffn, self.width])?,
            activation: self.arch.activation,
        })
    }

    /// Experts: what they compute, and whether what the architecture has to have is there.
    fn moe(&self, block: usize, rule: &MoeRule) -> Result<Moe> {
        self.keys.taken(&EXPERT_KEYS);
        let plan = plan_moe(self.gguf, block)?;
        let name = |stem: &str| format!("blk.{block}.{stem}");
        let parts = [
            (rule.bias, "exp_probs_b.bias"),
            (rule.shared, "ffn_down_shexp.weight"),
            (if rule.shared_gate { rule.shared } else { No }, "ffn_gate_inp_shexp.weight"),
        ];
        for (presence, stem) in parts {
            let name = name(stem);
            let there = plan.reads.contains(&name);
            let (given, expected) = match presence {
                Must if !there => ("nothing", "a part of every block of this architecture"),
                No if there => ("a tensor", "nothing: this architecture has none"),
                _ => continue,
            };
            return Err(Error::invalid(format!("tensor {name}"), given, expected));
        }
        let key = "expert_shared_feed_forward_length";
        // Bailing's key may hold the width of one shared expert or of all.
        let stated = self.keys.size(key)?.filter(|_| self.arch.name != "bailingmoe2");
        if let (Some(stated), Some(shared)) = (stated, &plan.tensors.shared)
            && stated != shared.ffn
        {
            let expected = format!("{}, the columns of {}", shared.ffn, name("ffn_down_shexp"));
            return Err(Error::invalid(self.keys.name(key), stated, expected));
        }
        let moe = Moe::of(&plan);
        self.tensors.taken(plan.reads);
        Ok(Moe { router: rule.router.unwrap_or(moe.router), ..moe })
    }
}

/// What `plan_moe` reads.
const EXPERT_KEYS: [&str; 12] = [
    "expert_count",
    "expert_used_count",
    "expert_shared_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_weights_norm",
    "expert_weights_scale",
    "expert_group_count",
    "expert_group_used_count",
    "router_logit_softcapping",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
];

/// Why a tensor is left out, if that is known.
fn left_out(arch: &Architecture, blocks: usize, name: &str) -> Option<&'static str> {
    let block = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let block = block.and_then(|(no, stem)| Some((no.parse::<usize>().ok()?, stem)));
    let mimo = arch.name == "mimo2";
    match block {
        Some((no, _)) if no >= blocks => Some("a block that predicts further tokens"),
        _ if name.ends_with(".input_scale") => {
            Some("the scale of an input that is not quantized so")
        }
        Some((_, stem)) if stem.ends_with(".scale") => {
            Some("a scale that this architecture's programs leave out")
        }
        Some((_, "attn_q.bias" | "attn_k.bias" | "attn_v.bias")) if mimo => {
            Some("a bias that this architecture's programs leave out")
        }
        Some((_, "attn_output.bias")) if arch.name == "ernie4_5-moe" => {
            Some("a bias that this architecture's programs leave out")
        }
        Some((_, "ffn_gate.weight" | "ffn_up.weight" | "ffn_down.weight")) if mimo => {
            Some("a dense network in a block of experts")
        }
        Some((_, "ssm_in.weight")) if arch.name == "qwen3next" => {
            Some("another form of attn_qkv and attn_gate")
        }
        None if name == "cls.output.weight" => Some("the head of a classifier"),
        _ => None,
    }
}
