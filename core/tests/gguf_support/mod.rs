//! What the GGUF tests share: files built field by field, so that any field can be wrong, small
//! models, and a walk over everything a file says.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use strata_core::WeightType;
use strata_core::gguf::{Gguf, GgufFile, TensorType, Value, Writer};

/// A tensor's entry as it will stand in the file.
#[derive(Clone)]
pub struct RawTensor {
    pub name: Vec<u8>,
    /// The count of dims to state, if not `dims.len()`.
    pub count: Option<u32>,
    pub dims: Vec<u64>,
    pub id: u32,
    pub offset: u64,
}

/// A file, field by field.
#[derive(Clone)]
pub struct Raw {
    pub magic: [u8; 4],
    pub version: u32,
    /// Counts to state, if not those of the lists below.
    pub tensor_count: Option<u64>,
    pub entry_count: Option<u64>,
    /// Keys, type ids, values.
    pub entries: Vec<(Vec<u8>, u32, Vec<u8>)>,
    pub tensors: Vec<RawTensor>,
    /// Bytes in the data section.
    pub data: usize,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            entry_count: None,
            entries: Vec::new(),
            tensors: Vec::new(),
            data: 0,
        }
    }
}

impl Raw {
    pub fn entry(mut self, key: &str, ty: u32, value: impl AsRef<[u8]>) -> Self {
        self.entries.push((key.into(), ty, value.as_ref().to_vec()));
        self
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], id: u32, offset: u64) -> Self {
        let (name, dims) = (name.into(), dims.to_vec());
        self.tensors.push(RawTensor { name, count: None, dims, id, offset });
        self
    }

    pub fn data(mut self, bytes: usize) -> Self {
        self.data = bytes;
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.entry_count.unwrap_or(self.entries.len() as u64).to_le_bytes());
        for (key, ty, value) in &self.entries {
            out.extend(string(key));
            out.extend(ty.to_le_bytes());
            out.extend(value);
        }
        for RawTensor { name, count, dims, id, offset } in &self.tensors {
            out.extend(string(name));
            out.extend(count.unwrap_or(dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(id.to_le_bytes());
            out.extend(offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.resize(out.len() + self.data, 0xA5);
        out
    }

    /// What reading the file fails with.
    pub fn error(&self) -> String {
        error(self.bytes())
    }
}

/// A string as it stands in a file.
pub fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text);
    out
}

/// What reading these bytes as `hostile.gguf` fails with.
pub fn error(bytes: Vec<u8>) -> String {
    match GgufFile::from_bytes("hostile.gguf", bytes) {
        Ok(file) => panic!("was read: {file:?}"),
        Err(error) => error.to_string(),
    }
}

/// Fails unless a message names the file and every one of `parts`.
#[track_caller]
pub fn names(message: &str, parts: &[&str]) {
    for part in ["hostile.gguf"].iter().chain(parts) {
        assert!(message.contains(part), "{message:?} does not name {part:?}");
    }
}

/// A model from one file in memory.
pub fn model(writer: &Writer<'_>) -> Gguf {
    let bytes = writer.to_bytes().expect("the writer takes it");
    let file = GgufFile::from_bytes("hostile.gguf", bytes).expect("the reader takes it");
    Gguf::from_parts(vec![file]).expect("one part is a model")
}

/// A tensor of a type, filled with bytes that tell its blocks apart: each begins with its number.
pub fn filled(dims: &[u64], ty: TensorType) -> Vec<u8> {
    let values: u64 = dims.iter().product();
    let blocks = values as usize / ty.block_values();
    let mut bytes = vec![0; blocks * ty.block_bytes()];
    for (i, block) in bytes.chunks_mut(ty.block_bytes()).enumerate() {
        let number = (i as u32).to_le_bytes();
        let len = block.len().min(4);
        block[..len].copy_from_slice(&number[..len]);
    }
    bytes
}

/// The numbers of a small model.
#[derive(Clone, Copy)]
pub struct Shape {
    pub experts: u64,
    pub used: u32,
    pub width: u64,
    pub ffn: u64,
    pub shared: u64,
}

pub const SHAPE: Shape = Shape { experts: 4, used: 2, width: 64, ffn: 32, shared: 96 };

/// A model of one block with experts, a router and a shared expert. `keep` says which tensors stay.
pub fn moe_writer(shape: Shape, merged: bool, keep: impl Fn(&str) -> bool) -> Writer<'static> {
    let Shape { experts, used, width, ffn, shared } = shape;
    let mut writer = Writer::new();
    writer
        .value("general.architecture", "qwen3moe")
        .value("qwen3moe.block_count", 1u32)
        .value("qwen3moe.embedding_length", width as u32)
        .value("qwen3moe.expert_count", experts as u32)
        .value("qwen3moe.expert_used_count", used)
        .value("qwen3moe.expert_feed_forward_length", ffn as u32)
        .value("qwen3moe.expert_weights_norm", true)
        .value("qwen3moe.expert_weights_scale", 2.5f32)
        .value("qwen3moe.expert_gating_func", 1u32);
    let weight = |ty| TensorType::Weight(ty);
    let mut tensor = |stem: &str, dims: &[u64], ty: TensorType| {
        let name = format!("blk.0.{stem}.weight");
        if keep(&name) {
            writer.tensor(name, dims, ty, filled(dims, ty));
        }
    };
    if merged {
        tensor("ffn_gate_up_exps", &[width, 2 * ffn, experts], weight(WeightType::Q4_0));
    } else {
        tensor("ffn_gate_exps", &[width, ffn, experts], weight(WeightType::Q4_0));
        tensor("ffn_up_exps", &[width, ffn, experts], weight(WeightType::Q4_1));
    }
    tensor("ffn_down_exps", &[ffn, width, experts], weight(WeightType::Q8_0));
    tensor("ffn_gate_inp", &[width, experts], TensorType::F32);
    tensor("ffn_gate_shexp", &[width, shared], weight(WeightType::Q8_0));
    tensor("ffn_up_shexp", &[width, shared], weight(WeightType::Q8_0));
    tensor("ffn_down_shexp", &[shared, width], weight(WeightType::Q8_0));
    tensor("ffn_gate_inp_shexp", &[width], TensorType::F16);
    writer
}

/// Asks a model for everything it can say. Nothing of it may panic; errors are fine.
pub fn walk(gguf: &Gguf) {
    for part in gguf.parts() {
        for (key, value) in part.metadata() {
            assert_eq!(part.value(key).map(|v| v.ty()), Some(value.ty()));
            walk_value(&value);
            let _ = (part.u64(key), part.f32(key), part.bool(key), part.str(key));
            let _ = part.u64_of_block(key, 3);
        }
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor(tensor.name()), Some(tensor));
        let bytes = gguf.tensor_bytes(tensor).expect("checked when it was opened");
        assert_eq!(bytes.len(), tensor.bytes());
        let (owner, range) = gguf.mapped(tensor).expect("checked when it was opened");
        assert!(std::ptr::eq(&(*owner).as_ref()[range], bytes));
    }
    for block in gguf.ffn_tensors().into_keys() {
        if let Ok(moe) = gguf.moe(block) {
            assert!((1..=moe.experts).contains(&moe.used));
            let _ = moe.down.weight_type();
        }
        if let Ok(dense) = gguf.dense(block) {
            for experts in [0, 1, 2, 7, 64, usize::MAX] {
                let _ = dense.split(experts);
            }
        }
    }
}

fn walk_value(value: &Value<'_>) {
    if let Value::Array(array) = value {
        let mut count = 0;
        for element in array.iter() {
            assert_eq!(element.ty(), array.element());
            walk_value(&element);
            count += 1;
        }
        assert_eq!(count, array.len());
        assert_eq!(array.get(array.len()), None);
    }
}
