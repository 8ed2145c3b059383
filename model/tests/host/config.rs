//! Configurations of small models that are written here: keys, tensors, and what is wrong with them.

use strata_core::gguf::{Gguf, GgufFile, MetaValue, TensorType, ValueType, Writer};
use strata_core::routing::{Gating, GroupScore, Groups, Norm};
use strata_model::config::{
    Config, DeltaInput, Factors, Ffn, Mask, Mixer, MlaQuery, Pairing, Qkv, Rope, Scaling,
    Temperature,
};

/// A model to be written: keys without the architecture's name, tensors of f32.
#[derive(Clone)]
struct Model {
    architecture: &'static str,
    keys: Vec<(&'static str, MetaValue)>,
    tensors: Vec<(String, Vec<u64>)>,
}

fn array(values: &[u32]) -> MetaValue {
    MetaValue::Array(ValueType::U32, values.iter().map(|&value| MetaValue::U32(value)).collect())
}

impl Model {
    /// Two blocks of attention with 4 heads of 16 on 2, width 64, 50 words.
    fn new(architecture: &'static str) -> Self {
        let mut model = Self { architecture, keys: Vec::new(), tensors: Vec::new() }
            .key("block_count", 2u32)
            .key("embedding_length", 64u32)
            .key("context_length", 128u32)
            .key("attention.head_count", 4u32)
            .key("attention.head_count_kv", 2u32)
            .key("attention.layer_norm_rms_epsilon", 1e-5f32)
            .tensor("token_embd.weight", &[64, 50])
            .tensor("output_norm.weight", &[64])
            .blocks("attn_norm.weight", &[64]);
        for (stem, dims) in
            [("q", [64, 64]), ("k", [64, 32]), ("v", [64, 32]), ("output", [64, 64])]
        {
            model = model.blocks(&format!("attn_{stem}.weight"), &dims);
        }
        model
    }

    fn llama() -> Self {
        Self::new("llama").blocks("ffn_norm.weight", &[64]).dense("")
    }

    fn dense(self, suffix: &str) -> Self {
        let part = |part: &str| format!("ffn_{part}{suffix}.weight");
        self.blocks(&part("gate"), &[64, 96])
            .blocks(&part("up"), &[64, 96])
            .blocks(&part("down"), &[96, 64])
    }

    fn experts(self) -> Self {
        self.key("expert_count", 8u32)
            .key("expert_used_count", 2u32)
            .blocks("ffn_norm.weight", &[64])
            .blocks("ffn_gate_inp.weight", &[64, 8])
            .blocks("ffn_gate_exps.weight", &[64, 96, 8])
            .blocks("ffn_up_exps.weight", &[64, 96, 8])
            .blocks("ffn_down_exps.weight", &[96, 64, 8])
    }

    fn key(mut self, key: &'static str, value: impl Into<MetaValue>) -> Self {
        self.keys.retain(|(known, _)| *known != key);
        self.keys.push((key, value.into()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.keys.retain(|(key, _)| *key != name);
        self.tensors.retain(|(tensor, _)| tensor != name);
        self
    }

    fn tensor(mut self, name: &str, dims: &[u64]) -> Self {
        self.tensors.push((name.to_owned(), dims.to_vec()));
        self
    }

    fn blocks(self, stem: &str, dims: &[u64]) -> Self {
        self.tensor(&format!("blk.0.{stem}"), dims).tensor(&format!("blk.1.{stem}"), dims)
    }

    fn gguf(&self) -> Gguf {
        let mut writer = Writer::new();
        writer.value("general.architecture", self.architecture);
        for (key, value) in &self.keys {
            writer.value(format!("{}.{key}", self.architecture), value.clone());
        }
        for (name, dims) in &self.tensors {
            let values = dims.iter().product::<u64>() as usize;
            let bytes: Vec<u8> =
                std::iter::repeat_n(2f32.to_le_bytes(), values).flatten().collect();
            writer.tensor(name, dims, TensorType::F32, bytes);
        }
        let file = GgufFile::from_bytes("memory", writer.to_bytes().unwrap()).unwrap();
        Gguf::from_parts(vec![file]).unwrap()
    }

    fn load(&self) -> Config {
        Config::load(&self.gguf(), None).unwrap()
    }

    fn refused(&self) -> String {
        Config::load(&self.gguf(), None).unwrap_err().to_string()
    }
}

fn attention(config: &Config, block: usize) -> &strata_model::config::Attention {
    match &config.layers[block].mixer {
        Mixer::Attention(attention) => attention,
        other => panic!("{other:?}"),
    }
}

fn moe(config: &Config, block: usize) -> &strata_model::config::Moe {
    match &config.layers[block].ffn {
        Ffn::Moe(moe) => moe,
        other => panic!("{other:?}"),
    }
}

fn rope(config: &Config, block: usize) -> &Rope {
    attention(config, block).rope.as_ref().unwrap()
}

#[test]
fn a_dense_llama() {
    let config = Model::llama().load();
    assert_eq!((config.vocab, config.width, config.context, config.layers.len()), (50, 64, 128, 2));
    assert_eq!(config.head.weight, "token_embd.weight", "the head is tied");
    let attention = attention(&config, 1);
    assert_eq!((attention.heads, attention.kv_heads, attention.key_size), (4, 2, 16));
    assert_eq!((attention.mask, attention.scale), (Mask::Full, 0.25));
    assert!(matches!(&attention.qkv, Qkv::Split { query, .. } if query.bias.is_none()));
    let rope = rope(&config, 0);
    assert_eq!((rope.dims, rope.pairing, rope.magnitude), (16, Pairing::Interleaved, 1.0));
    assert!(matches!(&config.layers[0].ffn, Ffn::Dense(dense) if dense.gate.rows == 96));
    assert!(config.unread.is_empty() && config.skipped.is_empty());
    assert!(config.logit_scale.is_none() && config.embedding_scale.is_none());
}

#[test]
fn every_tensor_is_needed_in_its_shape_and_none_is_left_over() {
    let moe = Model::new("qwen3moe")
        .experts()
        .blocks("attn_q_norm.weight", &[16])
        .blocks("attn_k_norm.weight", &[16]);
    for model in [Model::llama(), moe] {
        model.load();
        for (at, (name, dims)) in model.tensors.clone().into_iter().enumerate() {
            let message = model.clone().without(&name).refused();
            assert!(message.contains(&name) || name.starts_with("blk"), "{name}: {message}");
            assert!(
                message.contains("given nothing") || message.contains("given blk"),
                "{message}"
            );
            let mut other = model.clone();
            let last = dims.len() - 1;
            other.tensors[at].1[last] += 1;
            // More rows of the embedding are more words.
            if name != "token_embd.weight" {
                let message = other.refused();
                assert!(
                    message.contains(&name) || message.contains("columns"),
                    "{name}: {message}"
                );
            }
        }
        let message = model.clone().tensor("blk.1.attn_q_b.weight", &[4]).refused();
        assert!(message.starts_with("tensors: given blk.1.attn_q_b.weight, expected"), "{message}");
        let message = model.clone().tensor("rope_freqs.weight", &[7]).refused();
        assert!(message.contains("rope_freqs.weight: dims: given [7], expected [8]"), "{message}");
    }
}

#[test]
fn optional_tensors_are_taken_where_they_are() {
    let config = Model::llama()
        .tensor("output.weight", &[64, 50])
        .blocks("attn_q.bias", &[64])
        .blocks("attn_k.scale", &[1])
        .blocks("attn_output.bias", &[64])
        .blocks("ffn_up.bias", &[96])
        .blocks("ffn_up.scale", &[1])
        .blocks("ffn_up.input_scale", &[1])
        .load();
    assert_eq!(config.head.weight, "output.weight");
    let attention = attention(&config, 1);
    let Qkv::Split { query, key, value } = &attention.qkv else { panic!() };
    assert_eq!(query.bias.as_deref(), Some("blk.1.attn_q.bias"));
    assert_eq!(key.scale.as_deref(), Some("blk.1.attn_k.scale"));
    assert!(value.bias.is_none() && value.scale.is_none());
    assert_eq!(attention.output.bias.as_deref(), Some("blk.1.attn_output.bias"));
    assert_eq!(config.skipped.len(), 2, "input scales: {:?}", config.skipped);
    // Where an architecture has none, a bias is left over.
    let qwen = Model { architecture: "qwen2", ..Model::llama() };
    qwen.load();
    let message = qwen.blocks("attn_output.bias", &[64]).refused();
    assert!(message.starts_with("tensors: given blk.0.attn_output.bias"), "{message}");
    let olmoe = Model::new("olmoe").experts();
    assert!(olmoe.refused().starts_with("tensor output.weight: given nothing"));
}

#[test]
fn keys_are_needed_or_told() {
    for key in [
        "block_count",
        "embedding_length",
        "context_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ] {
        let message = Model::llama().without(key).refused();
        assert!(message.starts_with(&format!("llama.{key}: given nothing")), "{message}");
    }
    let model = Model::llama()
        .key("made_up", 1u32)
        .key("attention.sliding_window", 16u32)
        .key("rope.freq_base", 5e5f32);
    assert_eq!(model.load().unread, ["llama.made_up", "llama.attention.sliding_window"]);
    let message = |model: Model| model.refused();
    assert!(
        message(Model::llama().key("vocab_size", 49u32)).starts_with("llama.vocab_size: given 49")
    );
    assert!(
        message(Model::llama().key("attention.head_count_kv", 3u32)).contains("a divisor of 4")
    );
    assert!(
        message(Model::llama().key("feed_forward_length", 95u32)).contains("given 95, expected 96")
    );
    assert!(
        message(Model::llama().key("rope.freq_base", "x"))
            .contains("given a string, expected an f32")
    );
    assert!(message(Model::llama().key("rope.freq_base", f32::NAN)).contains("given NaN"));
    assert!(
        message(Model::llama().key("rope.dimension_count", 32u32)).contains("expected at most 16")
    );
    assert!(
        message(Model::llama().key("rope.scaling.type", "sideways")).contains("given sideways")
    );
    assert!(
        message(Model::llama().key("attention.head_count", array(&[4]))).contains("an array of 1")
    );
    assert!(message(Model::llama().key("nextn_predict_layers", 2u32)).contains("less than 2"));
    // Before there is memory for as many.
    let message = message(Model::llama().key("block_count", u32::MAX));
    assert!(message.contains("block_count: given 4294967295, expected at most "), "{message}");
    let unknown = Model { architecture: "gpt5", ..Model::llama() };
    assert!(
        unknown.refused().starts_with("general.architecture: given gpt5, expected one of llama")
    );
    // A tensor of the next blocks is left out.
    let extra = Model::llama().key("nextn_predict_layers", 1u32).load();
    assert_eq!(extra.layers.len(), 1);
    assert!(
        !extra.skipped.is_empty()
            && extra.skipped.iter().all(|(name, _)| name.starts_with("blk.1"))
    );
}

#[test]
fn each_rope_key_changes_the_layers_that_own_it() {
    let plain = Model::llama().load();
    let change = |model: Model| {
        let config = model.load();
        assert_ne!(rope(&config, 0), rope(&plain, 0));
        assert_eq!(rope(&config, 0), rope(&config, 1));
        config
    };
    change(Model::llama().key("rope.freq_base", 5e5f32));
    change(Model::llama().key("rope.dimension_count", 8u32));
    change(Model::llama().key("rope.scale_linear", 4f32));
    change(Model::llama().tensor("rope_freqs.weight", &[8]));
    change(Model::llama().key("rope.scaling.attn_factor", 1.5f32));
    let linear = Model::llama().key("rope.scaling.type", "linear").key("rope.scaling.factor", 4f32);
    let config = change(linear.clone());
    assert_eq!(config.scaling, Scaling::Linear { factor: 4.0 });
    assert_eq!(rope(&config, 0).table(8), rope(&plain, 0).table(2));
    assert_eq!(rope(&linear.key("rope.scaling.type", "none").load(), 0), rope(&plain, 0));
    let yarn = Model::llama()
        .key("rope.scaling.type", "yarn")
        .key("rope.scaling.factor", 4f32)
        .key("rope.scaling.original_context_length", 32u32);
    let config = change(yarn.clone());
    let longer = yarn.key("rope.scaling.original_context_length", 64u32).load();
    assert_ne!(rope(&longer, 0), rope(&config, 0));
    // Writers put 0 where there is none.
    let zero = Model::llama().key("rope.scaling.type", "linear").key("rope.scaling.factor", 0f32);
    assert_eq!(rope(&zero.load(), 0), rope(&plain, 0));
    let off = Model::new("granitemoe").blocks("ffn_norm.weight", &[64]).dense("");
    assert!(attention(&off.load(), 0).rope.is_some());
    let off = off.key("rope.scaling.finetuned", false);
    assert!(attention(&off.load(), 0).rope.is_none());
    let one = off.key("attention.rope_pattern", array(&[0, 1])).load();
    assert!(attention(&one, 0).rope.is_none() && attention(&one, 1).rope.is_some());
}

#[test]
fn windows_by_period_by_pattern_and_with_bases_of_their_own() {
    let gemma = Model::new("gemma3")
        .blocks("ffn_norm.weight", &[64])
        .dense("")
        .blocks("attn_q_norm.weight", &[16])
        .blocks("attn_k_norm.weight", &[16])
        .blocks("post_attention_norm.weight", &[64])
        .blocks("post_ffw_norm.weight", &[64])
        .key("rope.freq_base", 1e6f32)
        .key("rope.scaling.type", "linear")
        .key("rope.scaling.factor", 8f32);
    let full = gemma.load();
    assert_eq!([0, 1].map(|block| attention(&full, block).mask), [Mask::Full; 2]);
    assert_eq!(full.embedding_scale, Some(8.0));
    let gemma = gemma.key("attention.sliding_window", 16u32);
    let masks = |model: &Model| {
        let config = model.load();
        [0, 1].map(|block| attention(&config, block).mask)
    };
    let window = Mask::Sliding { window: 16 };
    assert_eq!(masks(&gemma), [window; 2], "a period of 6");
    assert_eq!(
        masks(&gemma.clone().key("attention.sliding_window_pattern", 2u32)),
        [window, Mask::Full]
    );
    let model = gemma.key("attention.sliding_window_pattern", array(&[0, 1]));
    assert_eq!(masks(&model), [Mask::Full, window]);
    let config = model.load();
    let plain = Model::llama().load();
    assert_eq!(rope(&config, 1).frequencies, rope(&plain, 0).frequencies, "base 10000, unscaled");
    assert_eq!(rope(&config, 0).frequencies, rope(&full, 0).frequencies);
    let own = model.key("rope.freq_base_swa", 500f32).load();
    assert_ne!(rope(&own, 1), rope(&config, 1));
    assert_eq!(rope(&own, 0), rope(&config, 0));
    assert!(config.layers[0].mixer_post_norm.is_some() && config.layers[0].ffn_post_norm.is_some());
}

#[test]
fn two_tables_of_factors_are_chosen_by_the_context_that_was_asked_for() {
    let mut model = Model::new("phimoe")
        .experts()
        .tensor("output.weight", &[64, 50])
        .tensor("output.bias", &[50])
        .tensor("output_norm.bias", &[64])
        .tensor("rope_factors_long.weight", &[8])
        .blocks("attn_norm.bias", &[64])
        .blocks("ffn_norm.bias", &[64])
        .blocks("attn_output.bias", &[64])
        .key("rope.scaling.original_context_length", 32u32)
        .key("rope.scaling.attn_factor", 1.25f32);
    assert!(model.refused().contains("one of rope_factors_long and rope_factors_short"));
    model = model.tensor("rope_factors_short.weight", &[8]);
    let gguf = model.gguf();
    let chosen = |context| Config::load(&gguf, context).unwrap().factors;
    assert_eq!(chosen(Some(32)), Some(Factors::Short));
    assert_eq!(chosen(Some(33)), Some(Factors::Long));
    assert_eq!(chosen(None), Some(Factors::Long), "128, what it was trained for");
    assert_eq!(rope(&Config::load(&gguf, None).unwrap(), 0).magnitude, 1.25);
}

#[test]
fn experts_their_router_and_what_stands_beside_them() {
    let qwen = Model::new("qwen2moe")
        .experts()
        .tensor("output.weight", &[64, 50])
        .dense("_shexp")
        .blocks("ffn_gate_inp_shexp.weight", &[64]);
    let config = qwen.load();
    let block = moe(&config, 1);
    assert_eq!((block.experts, block.used, block.ffn), (8, 2, 96));
    assert_eq!((block.router.gating, block.router.norm), (Gating::Softmax, Norm::None));
    let plan = block.plan(&qwen.gguf()).unwrap();
    let shared = plan.tensors.shared.unwrap();
    assert!(shared.ffn == 96 && shared.router.is_some() && block.router.groups.is_none());
    let missing = qwen.clone().without("blk.1.ffn_gate_inp_shexp.weight").refused();
    assert!(
        missing.starts_with("tensor blk.1.ffn_gate_inp_shexp.weight: given nothing"),
        "{missing}"
    );
    assert!(
        qwen.clone().key("expert_shared_feed_forward_length", 95u32).refused().contains("given 95")
    );
    let many = qwen.clone().key("expert_used_count", 9u32).refused();
    assert!(many.contains("given 9, expected at most 8"), "{many}");
    assert!(
        qwen.key("expert_feed_forward_length", 95u32).refused().contains("given 95, expected 96")
    );

    let glm = Model::new("glm4moe")
        .experts()
        .without("blk.0.ffn_norm.weight")
        .without("blk.1.ffn_norm.weight")
        .blocks("post_attention_norm.weight", &[64])
        .blocks("exp_probs_b.bias", &[8])
        .key("expert_weights_norm", true)
        .key("expert_weights_scale", 2.5f32)
        .key("expert_group_count", 4u32)
        .key("expert_group_used_count", 2u32);
    let config = glm.load();
    let block = moe(&config, 0);
    assert_eq!(block.router.gating, Gating::Sigmoid);
    assert!(matches!(block.router.norm, Norm::Sum { .. }));
    let groups = Groups { count: 4, used: 2, score: GroupScore::TopTwo };
    assert_eq!((block.router.scale, block.router.groups), (2.5, Some(groups)));
    let plan = block.plan(&glm.gguf()).unwrap();
    assert_eq!(plan.selection_bias, Some(vec![2.0; 8]));
    let softmax = glm.clone().key("expert_gating_func", 1u32).load();
    assert_eq!(moe(&softmax, 0).router.gating, Gating::Softmax);
    let missing = glm.clone().without("blk.1.exp_probs_b.bias").refused();
    assert!(missing.starts_with("tensor blk.1.exp_probs_b.bias: given nothing"), "{missing}");
    let unknown = glm.clone().key("expert_gating_func", 9u32).refused();
    assert!(unknown.contains("given 9"), "{unknown}");
    let uneven = glm.key("expert_group_count", 3u32).refused();
    assert!(uneven.contains("given 3"), "{uneven}");
}

#[test]
fn scales_of_experts_count_where_programs_read_them() {
    let scaled = |model: Model| model.blocks("ffn_down_exps.scale", &[8]);
    let qwen2 = Model::new("qwen2moe")
        .experts()
        .tensor("output.weight", &[64, 50])
        .dense("_shexp")
        .blocks("ffn_gate_inp_shexp.weight", &[64]);
    let (idle, config) = (scaled(qwen2.clone()), scaled(qwen2).load());
    assert_eq!(moe(&config, 0).plan(&idle.gguf()).unwrap().experts.down_scale, None);
    let skipped: Vec<_> = config.skipped.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(skipped, ["blk.0.ffn_down_exps.scale", "blk.1.ffn_down_exps.scale"]);
    let qwen3 = scaled(Model::new("qwen3moe").experts())
        .blocks("attn_q_norm.weight", &[16])
        .blocks("attn_k_norm.weight", &[16]);
    let config = qwen3.load();
    let plan = moe(&config, 1).plan(&qwen3.gguf()).unwrap();
    assert_eq!((plan.experts.down_scale, config.skipped.len()), (Some(vec![2.0; 8]), 0));
}

#[test]
fn layers_that_are_no_attention() {
    let mut next = Model::new("qwen3next")
        .experts()
        .dense("_shexp")
        .blocks("ffn_gate_inp_shexp.weight", &[64])
        .key("full_attention_interval", 2u32)
        .key("ssm.state_size", 8u32)
        .key("ssm.group_count", 2u32)
        .key("ssm.time_step_rank", 4u32)
        .key("ssm.inner_size", 32u32)
        .key("ssm.conv_kernel", 4u32)
        .tensor("blk.1.attn_q_norm.weight", &[16])
        .tensor("blk.1.attn_k_norm.weight", &[16])
        .tensor("blk.0.attn_qkv.weight", &[64, 64])
        .tensor("blk.0.attn_gate.weight", &[64, 32])
        .tensor("blk.0.ssm_ba.weight", &[64, 8])
        .tensor("blk.0.ssm_conv1d.weight", &[4, 64])
        .tensor("blk.0.ssm_dt.bias", &[4])
        .tensor("blk.0.ssm_a", &[4])
        .tensor("blk.0.ssm_norm.weight", &[8])
        .tensor("blk.0.ssm_out.weight", &[32, 64]);
    for (name, dims) in &mut next.tensors {
        if name.ends_with("ffn_norm.weight") {
            *name = name.replace("ffn_norm", "post_attention_norm");
        }
        if name == "blk.1.attn_q.weight" {
            dims[1] = 128;
        }
    }
    for stem in ["q", "k", "v", "output"] {
        next = next.without(&format!("blk.0.attn_{stem}.weight"));
    }
    let config = next.load();
    let Mixer::DeltaNet(net) = &config.layers[0].mixer else { panic!() };
    assert_eq!((net.key_heads, net.value_heads, net.key_size, net.value_size), (2, 4, 8, 8));
    assert!(matches!(net.input, DeltaInput::Split { .. }) && !net.modulo);
    assert!(attention(&config, 1).gate.is_some());

    let mut lfm = Model::new("lfm2moe")
        .experts()
        .key("attention.head_count_kv", array(&[0, 2]))
        .key("shortconv.l_cache", 3u32)
        .blocks("exp_probs_b.bias", &[8])
        .tensor("token_embd_norm.weight", &[64])
        .tensor("blk.1.attn_q_norm.weight", &[16])
        .tensor("blk.1.attn_k_norm.weight", &[16])
        .tensor("blk.0.shortconv.in_proj.weight", &[64, 192])
        .tensor("blk.0.shortconv.conv.weight", &[3, 64])
        .tensor("blk.0.shortconv.out_proj.weight", &[64, 64])
        .without("output_norm.weight");
    for stem in ["q", "k", "v", "output"] {
        lfm = lfm.without(&format!("blk.0.attn_{stem}.weight"));
    }
    let config = lfm.load();
    assert!(matches!(&config.layers[0].mixer, Mixer::ShortConv(conv) if conv.kernel == 3));
    assert_eq!(config.output_norm.weight, "token_embd_norm.weight");
}

#[test]
fn attention_over_a_compressed_row() {
    let mut model = Model::new("deepseek2")
        .experts()
        .key("attention.head_count_kv", 1u32)
        .key("attention.q_lora_rank", 24u32)
        .key("attention.kv_lora_rank", 40u32)
        .key("attention.key_length", 48u32)
        .key("attention.value_length", 40u32)
        .key("attention.key_length_mla", 24u32)
        .key("attention.value_length_mla", 16u32)
        .key("rope.dimension_count", 8u32)
        .blocks("attn_q_a.weight", &[64, 24])
        .blocks("attn_q_a_norm.weight", &[24])
        .blocks("attn_q_b.weight", &[24, 96])
        .blocks("attn_kv_a_mqa.weight", &[64, 48])
        .blocks("attn_kv_a_norm.weight", &[40])
        .blocks("attn_k_b.weight", &[16, 40, 4])
        .blocks("attn_v_b.weight", &[40, 16, 4]);
    for stem in ["q", "k", "v"] {
        for block in 0..2 {
            model = model.without(&format!("blk.{block}.attn_{stem}.weight"));
        }
    }
    let of = |config: &Config| match &config.layers[1].mixer {
        Mixer::Mla(mla) => (**mla).clone(),
        other => panic!("{other:?}"),
    };
    let mla = of(&model.load());
    assert_eq!((mla.heads, mla.plain_size, mla.value_size, mla.rank), (4, 16, 16, 40));
    assert_eq!((mla.rope.dims, mla.rope.pairing), (8, Pairing::Interleaved));
    assert!(matches!(mla.query, MlaQuery::LowRank { .. }));
    assert_eq!(mla.scale, (1.0 / 24f64.sqrt()) as f32);
    let yarn = model
        .key("rope.scaling.type", "yarn")
        .key("rope.scaling.factor", 40f32)
        .key("rope.scaling.original_context_length", 64u32)
        .key("rope.scaling.yarn_log_multiplier", 0.1f32);
    let mla = of(&yarn.load());
    let m = 1.0 + f64::from(0.1f32) * 40f64.ln();
    assert!((f64::from(mla.scale) * 24f64.sqrt() - m * m).abs() < 1e-6);
    assert_eq!(mla.rope.magnitude, 1.0);
}

/// One step in every 8192 positions, the first at position 8191.
#[test]
fn a_temperature_grows_in_steps() {
    let temperature = Temperature { scale: 0.1, length: 8192, offset: 1 };
    assert_eq!([0, 47, 8190].map(|position| temperature.factor(position)), [1.0; 3]);
    let step = |k: f64| (1.0 + f64::from(0.1f32) * libm::log(k)) as f32;
    assert_eq!([8191, 16_382].map(|position| temperature.factor(position)), [step(2.0); 2]);
    assert_eq!(temperature.factor(16_383), step(3.0));
}
