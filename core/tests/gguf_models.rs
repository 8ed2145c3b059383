//! Models: mixture-of-experts and dense blocks, parts, and files on disk.

mod gguf_support;

use std::sync::Arc;

use gguf_support::{SHAPE, Shape, filled, model, moe_writer, names, walk};
use strata_core::WeightType;
use strata_core::gguf::{
    FfnRole, GateUp, Gating, Gguf, GgufError, GgufFile, MetaValue, TensorType, ValueType, Writer,
    ffn_role,
};

const Q4_1: TensorType = TensorType::Weight(WeightType::Q4_1);
const Q8_0: TensorType = TensorType::Weight(WeightType::Q8_0);

#[test]
fn a_block_of_experts() {
    let gguf = model(&moe_writer(SHAPE, false, |_| true));
    let moe = gguf.moe(0).unwrap();
    assert_eq!((moe.experts, moe.used, moe.width, moe.ffn), (4, 2, 64, 32));
    let GateUp::Separate { gate, up } = &moe.gate_up else { panic!("{:?}", moe.gate_up) };
    assert_eq!((gate.rows, gate.cols, gate.count), (32, 64, 4));
    assert_eq!((gate.row_bytes, gate.stride), (2 * 18, 32 * 2 * 18));
    assert_eq!(gate.weight_type().unwrap(), WeightType::Q4_0);
    assert_eq!(up.weight_type().unwrap(), WeightType::Q4_1);
    assert_eq!((moe.down.rows, moe.down.cols, moe.down.count), (64, 32, 4));
    assert_eq!((moe.down.row_bytes, moe.down.stride), (34, 64 * 34));
    let router = moe.router.as_ref().unwrap();
    assert_eq!((router.rows, router.cols, router.row_bytes), (4, 64, 256));
    let message = router.weight_type().unwrap_err().to_string();
    names(&message, &["blk.0.ffn_gate_inp.weight", "f32"]);
    let shared = moe.shared.as_ref().unwrap();
    assert_eq!((shared.ffn, shared.gate.as_ref().unwrap().rows, shared.down.cols), (96, 96, 96));
    assert_eq!(shared.router.as_ref().unwrap().tensor.tensor_type(), TensorType::F16);
    assert_eq!(moe.others, Vec::<String>::new());
    assert_eq!(gguf.moe_blocks(), [0]);

    let meta = gguf.model_meta().unwrap();
    assert_eq!(meta.architecture, "qwen3moe");
    assert_eq!(
        (meta.blocks, meta.width, meta.experts, meta.used),
        (Some(1), Some(64), Some(4), Some(2))
    );
    assert_eq!((meta.weights_norm, meta.weights_scale), (Some(true), Some(2.5)));
    assert_eq!(meta.gating, Some(Gating::Softmax));
}

#[test]
fn merged_gate_and_up() {
    let gguf = model(&moe_writer(SHAPE, true, |name| !name.contains("shexp")));
    let moe = gguf.moe(0).unwrap();
    let GateUp::Merged(merged) = &moe.gate_up else { panic!("{:?}", moe.gate_up) };
    assert_eq!((merged.rows, merged.cols, merged.count), (64, 64, 4));
    assert_eq!((moe.ffn, moe.shared), (32, None));
}

#[test]
fn gate_and_up_given_both_ways() {
    let mut writer = moe_writer(SHAPE, true, |_| true);
    let dims = [64, 32, 4];
    writer.tensor("blk.0.ffn_gate_exps.weight", &dims, Q8_0, filled(&dims, Q8_0));
    let message = model(&writer).moe(0).unwrap_err().to_string();
    names(&message, &["blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate_up_exps.weight"]);
}

#[test]
fn tensors_that_are_left_out_are_listed() {
    let mut writer = moe_writer(SHAPE, false, |_| true);
    for name in ["blk.0.exp_probs_b.bias", "blk.0.ffn_gate_inp.bias", "blk.1.exp_probs_b.bias"] {
        writer.tensor(name, &[4], TensorType::F32, vec![0; 16]);
    }
    let moe = model(&writer).moe(0).unwrap();
    assert_eq!(moe.others, ["blk.0.exp_probs_b.bias", "blk.0.ffn_gate_inp.bias"]);

    let mut writer = dense_writer(64, 192, Q4_1);
    for name in ["blk.0.ffn_down.bias", "blk.0.ffn_norm.weight", "blk.1.ffn_up.bias"] {
        writer.tensor(name, &[4], TensorType::F32, vec![0; 16]);
    }
    let dense = model(&writer).dense(0).unwrap();
    assert_eq!(dense.others, ["blk.0.ffn_down.bias"]);
}

/// Every tensor in turn with one dim off by a block: an error that names it.
#[test]
fn dims_that_do_not_agree() {
    let stems = [
        ("ffn_up_exps", vec![64, 32, 4]),
        ("ffn_down_exps", vec![32, 64, 4]),
        ("ffn_gate_inp", vec![64, 4]),
        ("ffn_gate_shexp", vec![64, 96]),
        ("ffn_up_shexp", vec![64, 96]),
        ("ffn_down_shexp", vec![96, 64]),
        ("ffn_gate_inp_shexp", vec![64]),
    ];
    for (stem, dims) in stems {
        for wrong in 0..dims.len() {
            let name = format!("blk.0.{stem}.weight");
            let mut dims = dims.clone();
            dims[wrong] += 32;
            let mut writer = moe_writer(SHAPE, false, |kept| kept != name);
            writer.tensor(name.clone(), &dims, Q8_0, filled(&dims, Q8_0));
            let message = model(&writer).moe(0).unwrap_err().to_string();
            let blamed = match (stem, wrong) {
                // What the others are measured by: they disagree with it.
                ("ffn_down_exps", 0) => "qwen3moe.expert_feed_forward_length",
                ("ffn_down_shexp", 0) => "blk.0.ffn_gate_shexp.weight",
                _ => &name,
            };
            names(&message, &[blamed, "given", "expected"]);
        }
    }
}

#[test]
fn metadata_that_does_not_agree() {
    let gguf = model(&moe_writer(SHAPE, false, |_| true));
    let wrong = [("expert_count", 5), ("embedding_length", 32), ("expert_feed_forward_length", 64)];
    for (key, value) in wrong {
        let mut writer = Writer::new();
        writer.value("general.architecture", "other").value(format!("other.{key}"), value);
        writer.value("other.expert_used_count", 2u8);
        let bytes: Vec<_> =
            gguf.tensors().map(|t| (t.clone(), gguf.tensor_bytes(t).unwrap())).collect();
        for (tensor, data) in &bytes {
            writer.tensor(tensor.name(), tensor.dims(), tensor.tensor_type(), *data);
        }
        let message = model(&writer).moe(0).unwrap_err().to_string();
        names(&message, &[&format!("other.{key}"), &format!("given {value}"), "blk.0."]);
    }
}

#[test]
fn metadata_that_is_missing() {
    let message = model(&Writer::new()).model_meta().unwrap_err().to_string();
    names(&message, &["general.architecture", "given nothing"]);
    let mut writer = Writer::new();
    writer.value("general.architecture", "a").value("a.expert_gating_func", 9u32);
    let message = model(&writer).model_meta().unwrap_err().to_string();
    names(&message, &["a.expert_gating_func", "given 9", "softmax"]);
    let mut writer = Writer::new();
    writer.value("general.architecture", "a");
    for (stem, dims) in [("gate", [32, 32, 2]), ("up", [32, 32, 2]), ("down", [32, 32, 2])] {
        writer.tensor(format!("blk.7.ffn_{stem}_exps.weight"), &dims, Q8_0, filled(&dims, Q8_0));
    }
    let gguf = model(&writer);
    let message = gguf.moe(7).unwrap_err().to_string();
    names(&message, &["a.expert_used_count", "given nothing", "blk.7.ffn_gate_exps.weight"]);
    let message = gguf.moe(0).unwrap_err().to_string();
    names(&message, &["blk.0.ffn_gate_exps.weight", "block 7 alone"]);
}

#[test]
fn roles_by_name() {
    for role in FfnRole::ALL {
        assert_eq!(ffn_role(&role.name(17)), Some((17, role)));
    }
    let others = [
        "blk.01.ffn_up.weight",
        "blk.+1.ffn_up.weight",
        "blk.1.ffn_up.bias",
        "ffn_up.weight",
        "blk.99999999999999999999999.ffn_up.weight",
        "blk.1.ffn_upper.weight",
        "blk..ffn_up.weight",
    ];
    for other in others {
        assert_eq!(ffn_role(other), None, "{other}");
    }
}

fn dense_writer(width: u64, ffn: u64, down: TensorType) -> Writer<'static> {
    let mut writer = Writer::new();
    writer.value("general.architecture", "llama");
    // One number per block, as models of uneven blocks have.
    let lengths = vec![MetaValue::U32(ffn as u32); 1];
    writer.value("llama.feed_forward_length", MetaValue::Array(ValueType::U32, lengths));
    writer
        .tensor("blk.0.ffn_gate.weight", &[width, ffn], Q4_1, filled(&[width, ffn], Q4_1))
        .tensor("blk.0.ffn_up.weight", &[width, ffn], Q8_0, filled(&[width, ffn], Q8_0))
        .tensor("blk.0.ffn_down.weight", &[ffn, width], down, filled(&[ffn, width], down));
    writer
}

/// The views find the very blocks that belong to an expert, told by the numbers in them.
#[test]
fn a_dense_ffn_as_experts() {
    let (width, ffn) = (64, 192);
    let gguf = model(&dense_writer(width, ffn, Q4_1));
    let dense = gguf.dense(0).unwrap();
    assert_eq!((dense.width, dense.ffn), (64, 192));
    let block_at = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    };
    for experts in [1, 2, 3, 6] {
        let split = dense.split(experts).unwrap();
        assert_eq!((split.experts, split.ffn), (experts, 192 / experts));
        for (view, matrix) in
            [(split.gate, &dense.gate), (split.up, &dense.up), (split.down, &dense.down)]
        {
            let ty = matrix.weight_type().unwrap();
            let bytes = gguf.tensor_bytes(&matrix.tensor).unwrap();
            let is_down = matrix == &dense.down;
            let (first_row, first_col) = if is_down { (0, split.ffn) } else { (split.ffn, 0) };
            for expert in 0..experts {
                for row in 0..view.rows {
                    for col in (0..view.cols).step_by(ty.block_values()) {
                        let at = expert * view.expert_stride
                            + row * view.row_stride
                            + col / ty.block_values() * ty.block_bytes();
                        let value =
                            (expert * first_row + row) * matrix.cols + expert * first_col + col;
                        assert_eq!(block_at(bytes, at), value / ty.block_values());
                    }
                }
            }
        }
    }
}

#[test]
fn numbers_of_experts_that_do_not_split() {
    let dense = model(&dense_writer(64, 192, Q4_1)).dense(0).unwrap();
    for experts in [0, 4, 5, 12, 192, usize::MAX] {
        let message = dense.split(experts).unwrap_err().to_string();
        let given = format!("given {experts},");
        names(&message, &["blk.0.ffn_down.weight", &given, "one of 1, 2, 3, 6:", "192"]);
    }
    // Floats have no blocks to respect.
    let dense = model(&dense_writer(64, 192, TensorType::F16)).dense(0).unwrap();
    assert_eq!(dense.split(192).unwrap().down.expert_stride, 2);
}

#[test]
fn a_dense_ffn_with_a_part_missing() {
    let mut writer = Writer::new();
    writer.value("general.architecture", "llama");
    writer.tensor("blk.0.ffn_up.weight", &[32, 64], Q8_0, filled(&[32, 64], Q8_0));
    let message = model(&writer).dense(0).unwrap_err().to_string();
    names(&message, &["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight is there"]);
}

#[test]
fn parts_of_a_model() {
    let directory = tempfile::tempdir().unwrap();
    let writer = moe_writer(SHAPE, false, |_| true);
    let paths = writer.write_split(directory.path(), "small", 3).unwrap();
    assert_eq!(paths.len(), 3);
    assert!(paths[2].ends_with("small-00003-of-00003.gguf"));
    let whole = model(&writer);
    for path in &paths {
        let gguf = Gguf::open(path).unwrap();
        assert_eq!(gguf.parts().len(), 3);
        assert_eq!(gguf.moe(0).unwrap().experts, 4);
        walk(&gguf);
        for tensor in whole.tensors() {
            let other = gguf.tensor(tensor.name()).unwrap();
            assert_eq!(gguf.tensor_bytes(other).unwrap(), whole.tensor_bytes(tensor).unwrap());
        }
    }

    std::fs::rename(&paths[1], directory.path().join("away")).unwrap();
    let message = Gguf::open(&paths[0]).unwrap_err().to_string();
    assert!(message.contains("small-00002-of-00003.gguf: part is missing"), "{message}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 3, "no temporary file is left");
}

#[test]
fn parts_that_do_not_belong_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let writer = moe_writer(SHAPE, false, |_| true);
    let paths = writer.write_split(directory.path(), "a", 4).unwrap();
    assert_eq!(paths.len(), 2);

    std::fs::copy(&paths[0], path("alone.gguf")).unwrap();
    let message = Gguf::open(path("alone.gguf")).unwrap_err().to_string();
    assert!(message.contains("split.count: given 2, expected 1"), "{message}");

    std::fs::copy(&paths[0], path("b-00002-of-00002.gguf")).unwrap();
    std::fs::copy(&paths[1], path("b-00001-of-00002.gguf")).unwrap();
    let message = Gguf::open(path("b-00001-of-00002.gguf")).unwrap_err().to_string();
    assert!(message.contains("split.no: given 1, expected 0"), "{message}");

    moe_writer(Shape { experts: 8, ..SHAPE }, false, |name| name.contains("ffn_up"))
        .write_split(directory.path(), "c", 1)
        .unwrap();
    std::fs::copy(&paths[0], path("c-00001-of-00002.gguf")).unwrap();
    let message = Gguf::open(path("c-00001-of-00002.gguf")).unwrap_err().to_string();
    assert!(message.contains("split.tensors.count: given 8, expected 5"), "{message}");

    for name in ["d-00000-of-00002.gguf", "d-00003-of-00002.gguf", "d-00001-of-00000.gguf"] {
        let message = Gguf::open(path(name)).unwrap_err().to_string();
        assert!(message.contains("file name: given part"), "{message}");
    }
    // Neither is the name of a part.
    for name in ["e-1-of-2.gguf", "e-00001-of-00002.bin"] {
        writer.write(path(name)).unwrap();
        assert_eq!(Gguf::open(path(name)).unwrap().parts().len(), 1);
    }
}

#[test]
fn parts_with_a_tensor_of_the_same_name() {
    let part = |name: &str| {
        let mut writer = Writer::new();
        writer.tensor("same", &[1], TensorType::F32, vec![0; 4]);
        GgufFile::from_bytes(name, writer.to_bytes().unwrap()).unwrap()
    };
    let error = Gguf::from_parts(vec![part("a"), part("b")]).unwrap_err();
    assert!(matches!(error, GgufError::Duplicate { ref name, .. } if name == "same"), "{error}");
    assert!(Gguf::from_parts(Vec::new()).unwrap_err().to_string().contains("parts: given 0"));
}

#[test]
fn bytes_outlive_the_model() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    moe_writer(SHAPE, false, |_| true).write(&path).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let tensor = gguf.tensor("blk.0.ffn_down_exps.weight").unwrap().clone();
    let (owner, range) = gguf.mapped(&tensor).unwrap();
    let other = Arc::clone(&owner);
    drop((gguf, owner));
    let read = std::thread::spawn(move || (*other).as_ref()[range].to_vec()).join().unwrap();
    assert_eq!(read, filled(&[32, 64, 4], Q8_0));
}

#[test]
fn a_tensor_of_another_model() {
    let large = model(&moe_writer(Shape { experts: 64, ..SHAPE }, false, |_| true));
    let small = model(&moe_writer(SHAPE, false, |name| name.contains("inp")));
    let foreign = large.tensor("blk.0.ffn_down_exps.weight").unwrap();
    assert!(matches!(small.tensor_bytes(foreign), Err(GgufError::PastEnd { .. })));
    assert!(matches!(small.mapped(foreign), Err(GgufError::PastEnd { .. })));
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let refused = |fill: &dyn Fn(&mut Writer<'static>), parts: &[&str]| {
        let mut writer = Writer::new();
        fill(&mut writer);
        let directory = tempfile::tempdir().unwrap();
        let message = writer.write(directory.path().join("hostile.gguf")).unwrap_err().to_string();
        names(&message, parts);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(writer.to_bytes().is_err());
    };
    let f32 = TensorType::F32;
    refused(
        &|w| {
            w.tensor("t", &[2], f32, vec![0; 7]);
        },
        &["tensor t", "7 bytes", "8 bytes"],
    );
    refused(
        &|w| {
            w.tensor("t", &[0], f32, vec![0; 4]);
        },
        &["tensor t", "4 bytes", "0 bytes"],
    );
    refused(
        &|w| {
            w.tensor("t", &[1; 5], f32, vec![0; 4]);
        },
        &["tensor t", "dims"],
    );
    refused(
        &|w| {
            w.tensor("t", &[33], Q8_0, vec![0; 36]);
        },
        &["tensor t", "multiple of 32"],
    );
    refused(
        &|w| {
            w.tensor("", &[1], f32, vec![0; 4]);
        },
        &["name", "0 bytes"],
    );
    refused(
        &|w| {
            w.alignment(24);
        },
        &["general.alignment", "24"],
    );
    refused(
        &|w| {
            w.value("", 1u8);
        },
        &["0 bytes"],
    );
    refused(
        &|w| {
            w.value("k", 1u8).value("k", 2u8);
        },
        &["metadata key", "given k twice"],
    );
    refused(
        &|w| {
            w.value("split.no", 1u16);
        },
        &["split.no", "does not set itself"],
    );
    let made_up = TensorType::Other(77, "?");
    refused(
        &|w| {
            w.tensor("t", &[1], made_up, vec![0]);
        },
        &["tensor t", "given 77"],
    );
    let mixed = MetaValue::Array(ValueType::U8, vec![MetaValue::U16(1)]);
    refused(
        &|w| {
            w.value("k", mixed.clone());
        },
        &["metadata key k", "array's type"],
    );
}

#[test]
fn writing_replaces_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    std::fs::write(&path, "old").unwrap();
    moe_writer(SHAPE, false, |_| true).write(&path).unwrap();
    Gguf::open(&path).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);

    let absent = directory.path().join("absent").join("model.gguf");
    assert!(matches!(Writer::new().write(absent), Err(GgufError::Io { .. })));
    assert!(matches!(Writer::new().write(directory.path()), Err(GgufError::Io { .. })));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
