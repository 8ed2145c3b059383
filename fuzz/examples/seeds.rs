//! Writes the seeds of the `gguf` target to the directory given: small models of every kind.

use std::path::PathBuf;

use strata_core::gguf::{GgufError, MetaValue, TensorType, ValueType, Writer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory =
        std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: seeds DIRECTORY")?;
    std::fs::create_dir_all(&directory)?;
    let save = |name: &str, bytes: Vec<u8>| std::fs::write(directory.join(name), bytes);

    save("empty", Writer::new().to_bytes()?)?;
    save("values", values().to_bytes()?)?;
    save("dense", dense().to_bytes()?)?;
    save("moe", moe(false).to_bytes()?)?;
    save("moe-merged", moe(true).to_bytes()?)?;
    save("types", types()?)?;

    // The parts of a split model, one after the other, as the target reads them.
    let parts = dense().write_split(&directory, "parts", 2)?;
    let mut joined = Vec::new();
    for part in &parts {
        joined.extend(std::fs::read(part)?);
        std::fs::remove_file(part)?;
    }
    save("parts", joined)?;
    Ok(())
}

/// A value of every type.
fn values() -> Writer<'static> {
    let mut writer = Writer::new();
    let words = ["a", "", "bc"].map(MetaValue::from).to_vec();
    let inner = MetaValue::Array(ValueType::U16, vec![MetaValue::U16(1), MetaValue::U16(2)]);
    let bools = [true, false].map(MetaValue::Bool).to_vec();
    writer
        .alignment(64)
        .value("u8", 1u8)
        .value("i8", -1i8)
        .value("u16", 2u16)
        .value("i16", -2i16)
        .value("u32", 3u32)
        .value("i32", -3i32)
        .value("f32", 0.5f32)
        .value("bool", true)
        .value("string", "text")
        .value("u64", 4u64)
        .value("i64", -4i64)
        .value("f64", 0.25f64)
        .value("words", MetaValue::Array(ValueType::String, words))
        .value("bools", MetaValue::Array(ValueType::Bool, bools))
        .value("nested", MetaValue::Array(ValueType::Array, vec![inner]));
    writer
}

/// One small tensor of every type.
fn types() -> Result<Vec<u8>, GgufError> {
    let mut writer = Writer::new();
    for ty in (0..64).filter_map(TensorType::from_ggml_id) {
        let (dims, data) = ([ty.block_values() as u64], vec![0; ty.block_bytes()]);
        writer.tensor(ty.to_string(), &dims, ty, data);
    }
    writer.to_bytes()
}

fn zeros(writer: &mut Writer<'static>, stem: &str, dims: &[u64]) {
    let Some(ty) = TensorType::from_ggml_id(2) else { return };
    let values: u64 = dims.iter().product();
    let bytes = values as usize / ty.block_values() * ty.block_bytes();
    writer.tensor(format!("blk.0.{stem}.weight"), dims, ty, vec![0; bytes]);
}

fn dense() -> Writer<'static> {
    let mut writer = Writer::new();
    writer
        .value("general.architecture", "a")
        .value("a.embedding_length", 32u32)
        .value("a.feed_forward_length", 64u32);
    for (stem, dims) in [("ffn_gate", [32, 64]), ("ffn_up", [32, 64]), ("ffn_down", [64, 32])] {
        zeros(&mut writer, stem, &dims);
    }
    writer
}

fn moe(merged: bool) -> Writer<'static> {
    let mut writer = Writer::new();
    writer
        .value("general.architecture", "a")
        .value("a.expert_count", 2u32)
        .value("a.expert_used_count", 1u32)
        .value("a.expert_gating_func", 2u32)
        .value("a.expert_weights_norm", true)
        .value("a.expert_weights_scale", 1.5f32);
    if merged {
        zeros(&mut writer, "ffn_gate_up_exps", &[32, 64, 2]);
    } else {
        zeros(&mut writer, "ffn_gate_exps", &[32, 32, 2]);
        zeros(&mut writer, "ffn_up_exps", &[32, 32, 2]);
    }
    zeros(&mut writer, "ffn_down_exps", &[32, 32, 2]);
    zeros(&mut writer, "ffn_gate_inp", &[32, 2]);
    if !merged {
        zeros(&mut writer, "ffn_gate_shexp", &[32, 32]);
        zeros(&mut writer, "ffn_up_shexp", &[32, 32]);
        zeros(&mut writer, "ffn_down_shexp", &[32, 32]);
        zeros(&mut writer, "ffn_gate_inp_shexp", &[32]);
    }
    writer
}
