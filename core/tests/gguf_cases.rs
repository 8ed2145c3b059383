//! Files that broke other readers: each has to be refused with an error that names the field.

mod gguf_support;

use gguf_support::{Raw, SHAPE, Shape, error, model, moe_writer, names, string};
use strata_core::WeightType;
use strata_core::gguf::{Gguf, GgufError, GgufFile, TensorType, Writer};
use strata_core::prefill::plan_moe;

const F32: u32 = 0;
const Q4_0: u32 = 2;
const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// A file that is read, with one tensor of 32 bytes.
fn good() -> Raw {
    Raw::default()
        .entry("general.architecture", STRING, string("llama"))
        .entry("llama.block_count", U32, 1u32.to_le_bytes())
        .tensor("a", &[4, 2], F32, 0)
        .data(32)
}

#[test]
fn versions_2_and_3_are_read() {
    for version in [2, 3] {
        let file = GgufFile::from_bytes("f", Raw { version, ..good() }.bytes()).unwrap();
        assert_eq!(file.version(), version);
        assert_eq!(file.str("general.architecture").unwrap(), Some("llama"));
        assert_eq!(file.tensor_bytes(&file.tensors()[0]).unwrap(), [0xA5; 32]);
    }
}

#[test]
fn truncated_anywhere() {
    let whole = good().bytes();
    GgufFile::from_bytes("f", whole.clone()).unwrap();
    for len in 0..whole.len() {
        match GgufFile::from_bytes("f", whole[..len].to_vec()) {
            Err(GgufError::Truncated { field, .. }) => assert!(!field.is_empty()),
            // A cut that leaves too little for what the header counts, or for the tensor.
            Err(GgufError::Count { .. } | GgufError::PastEnd { .. }) => {}
            other => panic!("cut to {len} bytes: {other:?}"),
        }
    }
}

#[test]
fn truncated_names_the_field() {
    let whole = good().bytes();
    names(&error(Vec::new()), &["magic", "truncated", "4 bytes", "0 are left"]);
    names(&error(whole[..6].to_vec()), &["version", "truncated"]);
    names(&error(whole[..12].to_vec()), &["tensor count", "truncated"]);
    names(&error(whole[..20].to_vec()), &["metadata count", "truncated"]);
    let tensor = good().entry("x", STRING, (u64::MAX - 3).to_le_bytes()).error();
    names(&tensor, &["metadata key x", "truncated", "18446744073709551612 bytes"]);
    let mut last = whole;
    last.truncate(last.len() - 1);
    names(&error(last), &["tensor a", "offset", "32 bytes", "31"]);
}

#[test]
fn offset_past_the_end() {
    let past = good().tensor("b", &[4], F32, 1 << 40).error();
    names(&past, &["tensor b", "offset", "1099511627776", "16 bytes"]);
    let last = good().tensor("b", &[4], F32, u64::MAX - 31).error();
    names(&last, &["tensor b", "offset", "18446744073709551584"]);
}

#[test]
fn overlapping_tensors() {
    let overlap = Raw::default()
        .tensor("first", &[16], F32, 0)
        .tensor("second", &[16], F32, 32)
        .data(128)
        .error();
    names(&overlap, &["tensor second", "offset", "given 32", "tensor first", "64 or more"]);
    let same = Raw::default().tensor("a", &[8], F32, 0).tensor("b", &[8], F32, 0).data(32).error();
    names(&same, &["offset", "overlaps"]);
    let touching = Raw::default().tensor("b", &[8], F32, 32).tensor("a", &[8], F32, 0).data(64);
    GgufFile::from_bytes("f", touching.bytes()).expect("touching is not overlapping");
}

#[test]
fn huge_counts() {
    for count in [1000, 1 << 32, u64::MAX] {
        let given = count.to_string();
        let tensors = Raw { tensor_count: Some(count), ..good() };
        names(&tensors.error(), &["tensor count", &given, "at most"]);
        let entries = Raw { entry_count: Some(count), ..good() };
        names(&entries.error(), &["metadata count", &given, "at most"]);
        for element in [U8, STRING, ARRAY] {
            let mut array = element.to_le_bytes().to_vec();
            array.extend(count.to_le_bytes());
            let message = good().entry("list", ARRAY, array).error();
            names(&message, &["metadata key list", "array length", &given, "at most"]);
        }
    }
}

#[test]
fn wrong_magic() {
    names(&Raw { magic: *b"GGML", ..good() }.error(), &["magic", "GGML", "\"GGUF\""]);
    names(&error(vec![0; 64]), &["magic", "\\x00"]);
}

#[test]
fn version_1_and_4() {
    for version in [0, 1, 4, 70_000] {
        let message = Raw { version, ..good() }.error();
        names(&message, &["version", &format!("given {version},"), "2 or 3"]);
    }
}

#[test]
fn big_endian() {
    for version in [1u32, 2, 3] {
        let message = Raw { version: version.swap_bytes(), ..good() }.error();
        names(&message, &["version", "big-endian", "expected little-endian"]);
    }
}

#[test]
fn zero_dimensions() {
    let five = good().tensor("b", &[1; 5], F32, 0).error();
    names(&five, &["tensor b", "count of dims", "given 5", "0 to 4"]);
    // A scalar, and tensors of no values: writers make them, and nothing may use them.
    for (dims, bytes) in
        [(&[][..], 4), (&[0], 0), (&[0, 2, 2], 0), (&[2, 0, 2], 0), (&[2, 2, 0], 0)]
    {
        let raw = good().tensor("b", dims, F32, 32).data(64).bytes();
        let file = GgufFile::from_bytes("hostile.gguf", raw).unwrap();
        let tensor = file.tensor("b").unwrap();
        assert_eq!((tensor.dims(), tensor.bytes()), (dims, bytes));
        assert_eq!(file.tensor_bytes(tensor).unwrap().len(), bytes);
    }
    // Where one is used, it is refused.
    for dims in [[64, 0, 4], [64, 32, 0], [0, 32, 4]] {
        let mut writer = moe_writer(SHAPE, false, |name| !name.contains("exps"));
        for stem in ["gate", "up"] {
            writer.tensor(
                format!("blk.0.ffn_{stem}_exps.weight"),
                &dims,
                TensorType::Weight(WeightType::Q4_0),
                vec![],
            );
        }
        let down = [dims[1], dims[0], dims[2]];
        let q4 = TensorType::Weight(WeightType::Q4_0);
        writer.tensor("blk.0.ffn_down_exps.weight", &down, q4, vec![]);
        let message = model(&writer).moe(0).unwrap_err().to_string();
        names(&message, &["given", "expected"]);
    }
}

#[test]
fn tensor_type_of_an_unknown_id() {
    // 4, 5, 31 and 36 were withdrawn from the format.
    for id in [4, 5, 31, 36, 43, 1000, u32::MAX] {
        // Nobody needs it: the file is read, and lists it without bytes.
        let bytes = good().tensor("odd", &[32], id, 32).bytes();
        let file = GgufFile::from_bytes("hostile.gguf", bytes).unwrap();
        let odd = file.tensor("odd").unwrap();
        assert_eq!((odd.tensor_type(), odd.bytes()), (TensorType::Unknown(id), 0));
        assert_eq!(file.tensor_bytes(odd).unwrap(), []);
        // It is needed: the message says what is known.
        let mut raw = good();
        for part in ["gate", "up", "down"] {
            raw = raw.tensor(&format!("blk.0.ffn_{part}.weight"), &[32, 32], id, 32);
        }
        let bytes = raw.bytes();
        let file = GgufFile::from_bytes("hostile.gguf", bytes).unwrap();
        let gguf = Gguf::from_parts(vec![file]).unwrap();
        let message = gguf.dense(0).unwrap_err().to_string();
        let id = format!("given {id},");
        names(&message, &["tensor blk.0.ffn_", "type id", &id, "2 (q4_0)", "0 (f32)"]);
    }
}

#[test]
fn dims_that_multiply_past_2_64() {
    let wide = 1 << 32;
    for dims in [vec![wide, wide], vec![wide, 1 << 31, 2], vec![u64::MAX, u64::MAX, 3, 3]] {
        let message = good().tensor("vast", &dims, F32, 0).error();
        names(&message, &["tensor vast", "dims", &format!("{dims:?}"), "2^64"]);
    }
    let bytes = good().tensor("vast", &[wide, 1 << 30], F32, 0).error();
    names(&bytes, &["tensor vast", "dims", "2^64"]);
    let fits = good().tensor("vast", &[wide, 1 << 20], F32, 0).error();
    names(&fits, &["tensor vast", "offset", "18014398509481984 bytes"]);
}

#[test]
fn more_experts_used_than_there_are() {
    let gguf = model(&moe_writer(Shape { used: 5, ..SHAPE }, false, |_| true));
    let message = gguf.moe(0).unwrap_err().to_string();
    names(&message, &["qwen3moe.expert_used_count", "given 5", "at most 4"]);
    let gguf = model(&moe_writer(Shape { used: 0, ..SHAPE }, false, |_| true));
    let message = gguf.moe(0).unwrap_err().to_string();
    names(&message, &["qwen3moe.expert_used_count", "given 0", "1 to 4"]);
}

#[test]
fn missing_ffn_down_exps() {
    for merged in [false, true] {
        let gguf = model(&moe_writer(SHAPE, merged, |name| !name.contains("ffn_down_exps")));
        let message = gguf.moe(0).unwrap_err().to_string();
        names(&message, &["blk.0.ffn_down_exps.weight", "given nothing", "is there"]);
    }
    let gguf = model(&moe_writer(SHAPE, false, |name| !name.contains("ffn_up_exps")));
    let message = gguf.moe(0).unwrap_err().to_string();
    names(&message, &["blk.0.ffn_up_exps.weight", "ffn_gate_exps"]);
    // Some architectures have no gates: that this one has is what its plan knows.
    for left_out in ["ffn_gate_exps", "ffn_gate_shexp"] {
        let gguf = model(&moe_writer(SHAPE, false, |name| !name.contains(left_out)));
        let message = plan_moe(&gguf, 0).unwrap_err().to_string();
        names(&message, &[&format!("blk.0.{left_out}.weight"), "given nothing", "the gates"]);
    }
}

#[test]
fn rows_that_do_not_fill_blocks() {
    let message = good().tensor("b", &[48, 2], Q4_0, 32).data(256).error();
    names(&message, &["tensor b", "dims[0]", "given 48", "multiple of 32", "q4_0"]);
}

#[test]
fn alignment_and_offsets() {
    let with = |ty, value: &[u8]| good().entry("general.alignment", ty, value);
    for bad in [0u32, 3, 48, u32::MAX] {
        let message = with(U32, &bad.to_le_bytes()).error();
        names(&message, &["general.alignment", &bad.to_string(), "power of two"]);
    }
    names(&with(STRING, &string("32")).error(), &["general.alignment", "string"]);
    let message = with(U32, &(1u32 << 31).to_le_bytes()).error();
    names(&message, &["alignment of 2147483648", "truncated"]);
    let message = good().tensor("b", &[1], F32, 33).data(96).error();
    names(&message, &["tensor b", "offset", "given 33", "multiple of 32"]);
}

#[test]
fn names_that_are_not() {
    names(&good().entry("", U8, [1]).error(), &["metadata entry 2: key", "0 bytes"]);
    names(&good().tensor("", &[1], F32, 32).error(), &["tensor entry 1: name", "0 bytes"]);
    let long = "k".repeat(65_536);
    names(&good().entry(&long, U8, [1]).error(), &["metadata entry 2: key", "65536 bytes"]);
    let mut raw = good();
    raw.entries.push((b"k\xff".to_vec(), U8, vec![1]));
    names(&raw.error(), &["metadata entry 2: key", "0xff at 1", "UTF-8"]);
}

#[test]
fn names_given_twice() {
    let message = good().entry("llama.block_count", U8, [1]).error();
    names(&message, &["metadata key", "llama.block_count", "twice"]);
    let message = good().tensor("a", &[1], F32, 32).data(64).error();
    names(&message, &["tensor name", "given a twice"]);
}

#[test]
fn values_that_are_not() {
    names(&good().entry("k", 13, [0; 8]).error(), &["metadata key k", "value type", "given 13"]);
    names(&good().entry("k", BOOL, [2]).error(), &["metadata key k", "bool", "given 2", "0 or 1"]);
    let mut array = BOOL.to_le_bytes().to_vec();
    array.extend(3u64.to_le_bytes());
    array.extend([0, 1, 7]);
    names(&good().entry("k", ARRAY, array).error(), &["metadata key k", "bool", "given 7"]);
}

#[test]
fn arrays_nested_too_deep() {
    let nested = |levels: usize| {
        let mut value = Vec::new();
        for _ in 1..levels {
            value.extend(ARRAY.to_le_bytes());
            value.extend(1u64.to_le_bytes());
        }
        value.extend(U8.to_le_bytes());
        value.extend(1u64.to_le_bytes());
        value.push(7);
        good().entry("deep", ARRAY, value)
    };
    GgufFile::from_bytes("f", nested(4).bytes()).expect("four levels are read");
    for levels in [5, 1000] {
        names(&nested(levels).error(), &["metadata key deep", "nested", "at most 4"]);
    }
}

#[test]
fn a_key_of_the_wrong_type_is_named() {
    let file = GgufFile::from_bytes("hostile.gguf", good().bytes()).unwrap();
    let message = file.u64("general.architecture").unwrap_err().to_string();
    names(&message, &["general.architecture", "a string", "integer"]);
    let message = file.str("llama.block_count").unwrap_err().to_string();
    names(&message, &["llama.block_count", "the number 1 (u32)", "a string"]);
    assert_eq!(file.u64("llama.absent").unwrap(), None);
}

#[test]
fn messages_stay_short() {
    let name = "n".repeat(60_000);
    let message = good().tensor(&name, &[1], F32, 1 << 40).error();
    assert!(message.len() < 400, "{} bytes", message.len());
}

#[test]
fn an_empty_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hostile.gguf");
    std::fs::write(&path, []).unwrap();
    names(&GgufFile::open(&path).unwrap_err().to_string(), &["magic", "truncated", "0 are left"]);
}

#[test]
fn not_a_regular_file() {
    let directory = std::env::temp_dir();
    let message = GgufFile::open(&directory).unwrap_err().to_string();
    assert!(message.contains("expected a regular file"), "{message}");
    let absent = directory.join("strata-no-such-file.gguf");
    let message = GgufFile::open(&absent).unwrap_err().to_string();
    assert!(message.contains("strata-no-such-file.gguf"), "{message}");
}

#[test]
fn experts_as_single_tensors_are_called_what_they_are() {
    let mut writer = Writer::new();
    writer.value("general.architecture", "llama").value("llama.expert_count", 2u32);
    let q4 = TensorType::Weight(WeightType::Q4_0);
    for expert in 0..2 {
        for stem in ["gate", "up", "down"] {
            let name = format!("blk.3.ffn_{stem}.{expert}.weight");
            writer.tensor(name, &[32, 32], q4, vec![0; 32 * 18]);
        }
    }
    let gguf = model(&writer);
    assert_eq!(gguf.moe_blocks(), [3]);
    let message = gguf.moe(3).unwrap_err().to_string();
    names(&message, &["blk.3.ffn_gate.0.weight", "a tensor for each expert", "convert the model"]);
    names(&gguf.moe(0).unwrap_err().to_string(), &["block 3 alone has them"]);
}
