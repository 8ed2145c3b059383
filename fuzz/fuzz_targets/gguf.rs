//! Bytes read as a GGUF model, and everything asked of it that can be asked.
//!
//! A second magic in the bytes begins the second part of a split model, and so on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strata_core::gguf::{Gguf, GgufFile, TensorType, Value};
use strata_core::prefill::{plan_dense, plan_moe};

const MAGIC: &[u8] = b"GGUF";

fuzz_target!(|bytes: &[u8]| {
    // The first bytes are a file whatever they are, so that a wrong magic is tried too.
    let mut starts: Vec<usize> = vec![0];
    starts.extend((1..bytes.len()).filter(|&at| bytes[at..].starts_with(MAGIC)));
    starts.push(bytes.len());
    let parts: Result<Vec<_>, _> = starts
        .windows(2)
        .map(|part| GgufFile::from_bytes("fuzzed", bytes[part[0]..part[1]].to_vec()))
        .collect();
    match parts.and_then(Gguf::from_parts) {
        Ok(model) => walk(&model),
        Err(error) => assert!(error.to_string().contains(": ")),
    }
});

fn walk(model: &Gguf) {
    for part in model.parts() {
        for (key, value) in part.metadata() {
            assert_eq!(part.value(key).map(|value| value.ty()), Some(value.ty()));
            walk_value(&value);
            let _ = (part.u64(key), part.f32(key), part.bool(key), part.str(key));
            let _ = part.u64_of_block(key, 1);
        }
    }
    for tensor in model.tensors() {
        assert_eq!(model.tensor(tensor.name()), Some(tensor));
        let unknown = matches!(tensor.tensor_type(), TensorType::Unknown(_));
        let empty = unknown || tensor.dims().contains(&0);
        assert_eq!(empty, tensor.bytes() == 0);
        let bytes = model.tensor_bytes(tensor).expect("checked when it was opened");
        assert_eq!(bytes.len(), tensor.bytes());
        let (owner, range) = model.mapped(tensor).expect("checked when it was opened");
        assert_eq!((*owner).as_ref()[range].len(), bytes.len());
    }
    let _ = model.moe_blocks();
    for block in model.ffn_tensors().into_keys() {
        // What runs is settled without a panic, whatever the metadata says.
        let _ = (plan_moe(model, block), plan_dense(model, block));
        if let Ok(moe) = model.moe(block) {
            assert!((1..=moe.experts).contains(&moe.used));
            assert_eq!(moe.down.stride * moe.experts, moe.down.tensor.bytes());
            assert_eq!(moe.down.row_bytes * moe.width, moe.down.stride);
        }
        if let Ok(dense) = model.dense(block) {
            for experts in [0, 1, 2, 3, 64, usize::MAX] {
                let Ok(split) = dense.split(experts) else { continue };
                let down = split.down;
                assert_eq!(split.ffn * experts, dense.ffn);
                assert_eq!(down.expert_stride * experts, down.row_stride);
                assert_eq!(split.gate.expert_stride * experts, dense.gate.tensor.bytes());
            }
        }
    }
}

fn walk_value(value: &Value<'_>) {
    if let Value::Array(array) = value {
        assert_eq!(array.iter().map(|element| walk_value(&element)).count(), array.len());
    }
}
