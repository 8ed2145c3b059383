//! The part of a block that mixes tokens.

use strata_core::{Error, Result};

use super::arch::{GateRule, QkRule, Recurrent, RopeLayers, WindowRule};
use super::build::Model;
use super::rope::{Rope, Scaling};
use super::tensors::Presence;
use super::types::{
    Attention, DeltaInput, DeltaNet, DeltaRates, Gate, Mask, Mixer, Mla, MlaExpand, MlaQuery,
    QkNorm, Qkv, ShortConv, Temperature,
};

/// Positions of a chunk, and of a step of the temperature, of llama4's attention.
pub(super) const CHUNK: usize = 8192;

impl Model<'_> {
    /// What mixes tokens in a block.
    pub fn mixer(&self, block: usize) -> Result<Mixer> {
        let recurrent = match self.arch.recurrent {
            Recurrent::None => false,
            Recurrent::ShortConv => self.kv_heads[block] == 0,
            Recurrent::DeltaNet | Recurrent::DeltaNetModulo => self.is_delta(block)?,
        };
        match self.arch.recurrent {
            Recurrent::ShortConv if recurrent => {
                self.short_conv(block).map(|conv| Mixer::ShortConv(Box::new(conv)))
            }
            _ if recurrent => self.delta_net(block).map(|net| Mixer::DeltaNet(Box::new(net))),
            _ if self.arch.mla => self.mla(block).map(|mla| Mixer::Mla(Box::new(mla))),
            _ => self.attention(block).map(|attention| Mixer::Attention(Box::new(attention))),
        }
    }

    /// Whether a block is a delta net: by `recurrent_layers`, or but every so many.
    fn is_delta(&self, block: usize) -> Result<bool> {
        let listed = self.keys.of_blocks("attention.recurrent_layers", self.blocks)?;
        let interval = self.keys.size("full_attention_interval")?.unwrap_or(4);
        Ok(listed.map_or(!(block + 1).is_multiple_of(interval), |listed| listed[block] != 0))
    }

    /// The rotation of a block's queries and keys.
    fn rope_of(&self, block: usize, sliding: bool) -> Result<Option<Rope>> {
        let keys = &self.keys;
        let turned = match self.arch.rope {
            RopeLayers::All => true,
            RopeLayers::Finetuned => {
                let pattern = keys.of_blocks("attention.rope_pattern", self.blocks)?;
                let finetuned = keys.flag("rope.scaling.finetuned")?.unwrap_or(true);
                pattern.map_or(finetuned, |pattern| pattern[block] != 0)
            }
            RopeLayers::NotFourth => {
                let everywhere = self.arch.window == WindowRule::Chunked && self.window == 0;
                everywhere || !(block + 1).is_multiple_of(4)
            }
            RopeLayers::Sliding => sliding,
        };
        let dims = keys.size("rope.dimension_count")?.unwrap_or(self.key_size);
        let window_dims = keys.size("rope.dimension_count_swa")?;
        let window_base = keys.factor("rope.freq_base_swa")?.map(f64::from);
        if !turned {
            return Ok(None);
        }
        let own = sliding && self.arch.own_window_base;
        let dims = if sliding { window_dims.unwrap_or(dims) } else { dims };
        let base = match (sliding, own) {
            (true, true) => window_base.unwrap_or(10_000.0),
            (true, false) => window_base.unwrap_or(self.base),
            _ => self.base,
        };
        if dims > self.key_size {
            let expected = format!("at most {}, the values of a head", self.key_size);
            return Err(Error::invalid(keys.name("rope.dimension_count"), dims, expected));
        }
        self.rope.rope(dims, base, !own, true).map(Some)
    }

    fn attention(&self, block: usize) -> Result<Attention> {
        let Self { arch, keys, tensors, width, key_size, value_size, .. } = self;
        let (width, key_size, value_size) = (*width, *key_size, *value_size);
        let name = |stem: &str| format!("blk.{block}.{stem}");
        let (heads, kv_heads) = (self.heads[block], self.kv_heads[block]);
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
            let given = format!("{kv_heads} in block {block}");
            let expected = format!("a divisor of {heads}, the head_count");
            return Err(Error::invalid(keys.name("attention.head_count_kv"), given, expected));
        }
        let gated = arch.gate == GateRule::Interleaved;
        let query_rows = heads * key_size * if gated { 2 } else { 1 };
        let (key_rows, value_rows) = (kv_heads * key_size, kv_heads * value_size);
        let bias = if arch.qkv_extras { Presence::May } else { Presence::No };
        let scaled = arch.qkv_extras;
        let take = |stem: &str, rows| tensors.projection(&name(stem), [width, rows], bias, scaled);
        let qkv = match tensors.has(&name("attn_qkv.weight")) {
            true => Qkv::Fused(take("attn_qkv", query_rows + key_rows + value_rows)?),
            false => Qkv::Split {
                query: take("attn_q", query_rows)?,
                key: take("attn_k", key_rows)?,
                value: take("attn_v", value_rows)?,
            },
        };
        let sliding = self.sliding[block];
        let mask = match arch.window {
            WindowRule::Sliding { .. } if sliding => Mask::Sliding { window: self.window },
            WindowRule::Chunked if sliding => Mask::Chunked { chunk: CHUNK },
            _ => Mask::Full,
        };
        let rope = self.rope_of(block, sliding)?;
        let turns_by_chunk = arch.window == WindowRule::Chunked && rope.is_none();
        let temperature =
            turns_by_chunk.then_some(Temperature { scale: 0.1, length: CHUNK, offset: 1 });
        let value_scale = match arch.name {
            "mimo2" => keys.factor("attention.value_scale")?.filter(|&scale| scale != 1.0),
            _ => None,
        };
        Ok(Attention {
            heads,
            kv_heads,
            key_size,
            value_size,
            qkv,
            output: tensors.projection(
                &name("attn_output"),
                [heads * value_size, width],
                arch.output_bias,
                true,
            )?,
            mask,
            scale: self.attention_scale(heads)?,
            softcap: match arch.grok {
                true => Some(keys.factor("attn_logit_softcapping")?.unwrap_or(30.0)),
                false => None,
            },
            sinks: tensors.take(arch.sinks, &name("attn_sinks.weight"), &[heads])?,
            qk_norm: self.qk_norm(block, rope.is_some())?,
            rope,
            gate: match arch.gate {
                GateRule::None => None,
                GateRule::Interleaved => Some(Gate::Interleaved),
                GateRule::Projection => {
                    let dims = [width, heads * value_size];
                    let gate = tensors.projection(&name("attn_gate"), dims, Presence::No, false)?;
                    Some(Gate::Projection(gate))
                }
            },
            value_scale,
            temperature,
        })
    }

    /// What scores are multiplied by.
    fn attention_scale(&self, heads: usize) -> Result<f32> {
        let by_size = 1.0 / (self.key_size as f32).sqrt();
        match self.arch.name {
            // 27B: by the width of a head that the embedding would give.
            "gemma3" if self.blocks == 62 => Ok(1.0 / ((self.width / heads) as f32).sqrt()),
            "gemma3" => Ok(by_size),
            "grok" => Ok(self.keys.factor("attention.output_scale")?.unwrap_or(0.088_388_35)),
            "llama" | "granitemoe" | "qwen3next" | "qwen35moe" => {
                Ok(self.keys.factor("attention.scale")?.unwrap_or(by_size))
            }
            _ => Ok(by_size),
        }
    }

    fn qk_norm(&self, block: usize, turned: bool) -> Result<Option<QkNorm>> {
        let names = ["attn_q_norm", "attn_k_norm"].map(|stem| format!("blk.{block}.{stem}.weight"));
        let (heads, kv_heads) = (self.heads[block], self.kv_heads[block]);
        let take = |sizes: [usize; 2]| -> Result<Option<[String; 2]>> {
            let query = self.tensors.must(&names[0], &[sizes[0]])?;
            Ok(Some([query, self.tensors.must(&names[1], &[sizes[1]])?]))
        };
        let head = [self.key_size; 2];
        let (weights, whole, after_rope) = match self.arch.qk_norm {
            QkRule::None => return Ok(None),
            QkRule::HeadIfThere if !self.tensors.has(&names[0]) => return Ok(None),
            QkRule::Head | QkRule::HeadIfThere => (take(head)?, false, false),
            QkRule::HeadAfter => (take(head)?, false, true),
            QkRule::Plain if !turned || self.experts == 128 => return Ok(None),
            QkRule::Plain => (None, false, true),
            QkRule::Whole => {
                (take([heads * self.key_size, kv_heads * self.key_size])?, true, false)
            }
        };
        Ok(Some(QkNorm { weights, whole, after_rope }))
    }

    fn mla(&self, block: usize) -> Result<Mla> {
        let Self { keys, tensors, width, .. } = self;
        let width = *width;
        let name = |stem: &str| format!("blk.{block}.{stem}");
        let heads = self.heads[block];
        let rank = keys.need("attention.kv_lora_rank")?;
        let [key_mla, value_mla] =
            [keys.size("attention.key_length_mla")?, keys.size("attention.value_length_mla")?];
        let (size, value_size) = match (key_mla, value_mla) {
            (Some(key), Some(value)) => (key, value),
            _ => (self.key_size, self.value_size),
        };
        let turned = keys.need("rope.dimension_count")?;
        let plain_size = size.checked_sub(turned).filter(|&size| size > 0).ok_or_else(|| {
            let expected = format!("less than {size}, the values of a head");
            Error::invalid(keys.name("rope.dimension_count"), turned, expected)
        })?;
        let take = |stem: &str, dims| tensors.projection(&name(stem), dims, Presence::No, false);
        let query_rows = heads * size;
        let low = keys.size("attention.q_lora_rank")?;
        let query = match low.filter(|_| tensors.has(&name("attn_q_a.weight"))) {
            None => MlaQuery::Direct(take("attn_q", [width, query_rows])?),
            Some(low) => MlaQuery::LowRank {
                down: take("attn_q_a", [width, low])?,
                norm: self.norm(&name("attn_q_a_norm"), low)?,
                up: take("attn_q_b", [low, query_rows])?,
            },
        };
        let expand = match tensors.has(&name("attn_k_b.weight")) {
            true => MlaExpand::Absorbed {
                key: tensors.must(&name("attn_k_b.weight"), &[plain_size, rank, heads])?,
                value: tensors.must(&name("attn_v_b.weight"), &[rank, value_size, heads])?,
            },
            false => {
                MlaExpand::Joint(take("attn_kv_b", [rank, heads * (plain_size + value_size)])?)
            }
        };
        let mut rope = self.rope.rope(turned, self.base, true, true)?;
        let mut scale = 1.0 / (size as f64).sqrt();
        if let Scaling::Yarn { factor, log_multiplier, .. } = self.rope.scaling {
            // The files' programs put the magnitude into the scale, for queries and keys each.
            let log = libm::log(factor);
            let m = match log_multiplier {
                0.0 => 1.0 + 0.1 * log,
                given => 1.0 + given * log,
            };
            scale *= libm::pow(self.rope.attn_factor * m, 2.0);
            if log_multiplier != 0.0 {
                rope.magnitude = self.rope.attn_factor;
            }
        }
        Ok(Mla {
            heads,
            plain_size,
            value_size,
            rank,
            query,
            compress: take("attn_kv_a_mqa", [width, rank + turned])?,
            compress_norm: self.norm(&name("attn_kv_a_norm"), rank)?,
            expand,
            output: tensors.projection(
                &name("attn_output"),
                [heads * value_size, width],
                Presence::No,
                true,
            )?,
            scale: scale as f32,
            rope,
        })
    }

    fn delta_net(&self, block: usize) -> Result<DeltaNet> {
        let Self { keys, tensors, width, arch, .. } = self;
        let width = *width;
        let name = |stem: &str| format!("blk.{block}.{stem}");
        let [key_size, key_heads, value_heads, inner, kernel] = [
            keys.need("ssm.state_size")?,
            keys.need("ssm.group_count")?,
            keys.need("ssm.time_step_rank")?,
            keys.need("ssm.inner_size")?,
            keys.need("ssm.conv_kernel")?,
        ];
        if !inner.is_multiple_of(value_heads) || !value_heads.is_multiple_of(key_heads) {
            let given = format!("inner_size {inner}, {value_heads} and {key_heads} heads");
            let expected = "heads of equal size, value heads a multiple of key heads";
            return Err(Error::invalid(keys.name("ssm"), given, expected));
        }
        let scaled = arch.scales[1];
        let take = |stem: &str, dims| tensors.projection(&name(stem), dims, Presence::No, scaled);
        let channels = 2 * key_heads * key_size + inner;
        let input = match tensors.has(&name("attn_qkv.weight")) {
            true => DeltaInput::Split {
                qkv: take("attn_qkv", [width, channels])?,
                gate: take("attn_gate", [width, inner])?,
            },
            false => DeltaInput::Interleaved(take("ssm_in", [width, channels + inner])?),
        };
        let rates = match tensors.has(&name("ssm_ba.weight")) {
            true => DeltaRates::Interleaved(take("ssm_ba", [width, 2 * value_heads])?),
            false => DeltaRates::Split {
                beta: take("ssm_beta", [width, value_heads])?,
                alpha: take("ssm_alpha", [width, value_heads])?,
            },
        };
        Ok(DeltaNet {
            key_heads,
            value_heads,
            key_size,
            value_size: inner / value_heads,
            modulo: arch.recurrent == Recurrent::DeltaNetModulo,
            input,
            rates,
            conv: tensors.must(&name("ssm_conv1d.weight"), &[kernel, channels])?,
            kernel,
            decay_bias: tensors.must(&name("ssm_dt.bias"), &[value_heads])?,
            decay: tensors.must(&name("ssm_a"), &[value_heads])?,
            norm: tensors.norm(&name("ssm_norm"), inner / value_heads, false)?,
            output: take("ssm_out", [inner, width])?,
        })
    }

    fn short_conv(&self, block: usize) -> Result<ShortConv> {
        let name = |stem: &str| format!("blk.{block}.shortconv.{stem}");
        let (width, kernel) = (self.width, self.keys.need("shortconv.l_cache")?);
        let take =
            |stem: &str, dims| self.tensors.projection(&name(stem), dims, Presence::No, false);
        Ok(ShortConv {
            input: take("in_proj", [width, 3 * width])?,
            conv: self.tensors.must(&name("conv.weight"), &[kernel, width])?,
            kernel,
            output: take("out_proj", [width, width])?,
        })
    }
}
