//! What the reader says of the model's file.

use libtest_mimic::Failed;
use strata::WeightType;
use strata::gguf::{Gguf, TensorType, Value};

/// Fails with what was found where it is not what the model has.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, given: T, wanted: T) -> Result<(), Failed> {
    match given == wanted {
        true => Ok(()),
        false => Err(format!("{what}: {given:?}, expected {wanted:?}").into()),
    }
}

/// Metadata, tensors and the ways to split its dense networks.
pub fn is_read_whole(gguf: &Gguf) -> Result<(), Failed> {
    let meta = gguf.model_meta()?;
    expect("architecture", meta.architecture.as_str(), "llama")?;
    expect("shape", (meta.blocks, meta.width, meta.experts), (Some(30), Some(576), None))?;
    expect("tensors", gguf.tensors().count(), 272)?;
    expect("blocks with experts", gguf.moe_blocks().len(), 0)?;
    let embedding = gguf.tensor("token_embd.weight").map(|tensor| tensor.tensor_type());
    expect("embedding", embedding, Some(TensorType::Weight(WeightType::Q8_0)))?;
    for block in 0..30 {
        let dense = gguf.dense(block)?;
        expect("width and ffn", (dense.width, dense.ffn), (576, 1536))?;
        expect("type of down", dense.down.weight_type()?, WeightType::Q4_1)?;
        expect("tensors that are left out", dense.others.len(), 0)?;
        let split = dense.split(6)?;
        let strides = (split.gate.expert_stride, split.down.expert_stride);
        expect("strides of 6 experts", strides, (256 * 360, 8 * 20))?;
        let refused = dense.split(7).err().map(|error| error.to_string()).unwrap_or_default();
        if !refused.contains("one of 1, 2, 3, 4, 6, 8, 12, 16, 24, 48") {
            return Err(format!("a split into 7: {refused:?}").into());
        }
    }
    let tokens = gguf.value("tokenizer.ggml.tokens").and_then(|value| value.as_array());
    let tokens = tokens.ok_or("no tokens")?;
    expect("tokens", (tokens.len(), tokens.iter().count()), (49_152, 49_152))?;
    for part in gguf.parts() {
        for (key, value) in part.metadata() {
            expect(key, part.value(key).map(|v| v.ty()), Some(value.ty()))?;
            if let Value::Array(array) = value {
                expect(key, array.iter().count(), array.len())?;
            }
        }
    }
    for tensor in gguf.tensors() {
        expect(tensor.name(), gguf.tensor_bytes(tensor)?.len(), tensor.bytes())?;
        let (owner, range) = gguf.mapped(tensor)?;
        let same = std::ptr::eq(&(*owner).as_ref()[range], gguf.tensor_bytes(tensor)?);
        expect(tensor.name(), same, true)?;
    }
    Ok(())
}
