//! `strata prefill --model` and `strata inspect` on small models.

use super::support::{Folder, Model, dense_model, strata};
use strata::WeightType;
use strata::gguf::TensorType;

fn checksum(args: &str) -> String {
    let report = strata(&format!("prefill --backend cpu --tokens 23 --json {args}")).json();
    report["checksum"].as_str().unwrap().to_owned()
}

#[test]
fn one_layer_in_many_spellings() {
    let folder = Folder::new();
    let expected = checksum(&format!("--model {}", Model::default().write(&folder, "a.gguf")));
    let same = [
        Model { merged: true, ..Model::default() },
        Model { router: TensorType::F16, ..Model::default() },
        Model { router: TensorType::BF16, ..Model::default() },
        Model { extra: vec![("expert_weights_norm".into(), true.into())], ..Model::default() },
        Model { extra: vec![("expert_gating_func".into(), 3u32.into())], ..Model::default() },
        Model { extra: vec![("expert_weights_scale".into(), 0.0f32.into())], ..Model::default() },
    ];
    for (i, model) in same.iter().enumerate() {
        let path = model.write(&folder, "b.gguf");
        assert_eq!(checksum(&format!("--model {path}")), expected, "{i}");
    }
    for args in
        ["--quant gather", "--quant indexed --chunk 7", "--chunk 1", "--unfused --threads 2"]
    {
        let path = folder.path("a.gguf");
        assert_eq!(checksum(&format!("--model {path} {args}")), expected, "{args}");
    }
}

#[test]
fn what_the_metadata_says_is_done() {
    let folder = Folder::new();
    let mut seen = std::collections::HashSet::new();
    for (i, model) in [
        Model::default(),
        Model { shared: true, ..Model::default() },
        Model { router: TensorType::Weight(WeightType::Q8_0), ..Model::default() },
        Model { architecture: "olmoe", ..Model::default() },
        Model { extra: vec![("expert_weights_scale".into(), 2.5f32.into())], ..Model::default() },
    ]
    .iter()
    .enumerate()
    {
        let path = model.write(&folder, "m.gguf");
        assert!(seen.insert(checksum(&format!("--model {path}"))), "{i}");
    }
    // An architecture implies what a key would say.
    let path = Model { architecture: "deepseek2", ..Model::default() }.write(&folder, "m.gguf");
    assert!(!seen.insert(checksum(&format!("--model {path}"))));
    let norm = ("expert_weights_norm".to_owned(), false.into());
    let path = Model { extra: vec![norm], ..Model::default() }.write(&folder, "m.gguf");
    assert!(!seen.insert(checksum(&format!("--model {path}"))));
    let path = Model { shared: true, ..Model::default() }.write(&folder, "m.gguf");
    let report = strata(&format!("prefill --model {path} --json")).json();
    assert_eq!(report["layer"]["shared_expert"], true);
    let phases = report["phases"].as_array().unwrap();
    assert!(phases.iter().any(|phase| phase["phase"] == "shared expert"));
}

#[test]
fn what_it_does_not_compute_it_refuses_by_name() {
    let folder = Folder::new();
    let key = |name: &str, value: strata::gguf::MetaValue| vec![(name.to_owned(), value)];
    for (model, message) in [
        (
            Model { extra: key("expert_gating_func", 9u32.into()), ..Model::default() },
            "qwen3moe.expert_gating_func: given 9",
        ),
        (
            Model { extra: key("expert_weights_scale", f32::NAN.into()), ..Model::default() },
            "qwen3moe.expert_weights_scale of block 0: given no finite number, expected a finite",
        ),
        (
            Model { extra: key("expert_group_count", 5u32.into()), ..Model::default() },
            "qwen3moe.expert_group_used_count: given nothing, expected",
        ),
        (
            Model { extra: key("swiglu_clamp_exp", f32::INFINITY.into()), ..Model::default() },
            "qwen3moe.swiglu_clamp_exp of block 0: given no finite number",
        ),
        (
            Model { architecture: "grovemoe", ..Model::default() },
            "general.architecture: given grovemoe (further experts for groups of experts), expected",
        ),
        (
            Model { architecture: "nemotron_h_moe", ..Model::default() },
            "blk.0.ffn_gate_exps.weight: given gates, expected experts without gates",
        ),
        (
            Model { architecture: "another", ..Model::default() },
            "general.architecture: given another, expected one that is known",
        ),
        (
            Model { other: Some("blk.0.ffn_gate_chexps.weight"), ..Model::default() },
            "block 0: given blk.0.ffn_gate_chexps.weight, expected no tensors on experts or router",
        ),
    ] {
        let path = model.write(&folder, "m.gguf");
        let ended = strata(&format!("prefill --model {path}")).fails(1, message);
        assert!(ended.stderr.contains(&path), "{ended:?}");
    }
    // What acts between the matrices of a dense network may not be left out either.
    let path = dense_model(&folder, "norm.gguf", Some("blk.0.ffn_sub_norm.weight"));
    strata(&format!("prefill --model {}", path.display()))
        .fails(1, "block 0: given blk.0.ffn_sub_norm.weight, expected no tensors on the dense");
}

#[test]
fn a_dense_network_is_a_mixture() {
    let folder = Folder::new();
    let path = dense_model(&folder, "dense.gguf", None);
    let model = format!("--model {}", path.display());
    // Without being told, it runs as one expert, and says so.
    let ended = strata(&format!("prefill --tokens 3 {model}"));
    assert!(ended.stderr.contains("block 0 has no experts"), "{ended:?}");
    let one = checksum(&model);
    assert_eq!(checksum(&format!("{model} --split-dense 1")), one);
    for experts in [2, 4] {
        let split = format!("{model} --split-dense {experts}");
        let expected = checksum(&split);
        for args in ["--quant gather", "--quant indexed", "--chunk 1", "--chunk 7 --threads 2"] {
            assert_eq!(checksum(&format!("{split} {args}")), expected, "{experts}: {args}");
        }
    }
}

#[test]
fn inspect_lists_what_prefill_runs() {
    let folder = Folder::new();
    let path = Model { shared: true, ..Model::default() }.write(&folder, "m.gguf");
    let text = strata(&format!("inspect {path}")).ok();
    for part in [
        "5 experts, 2 per token, 64 wide, 32 hidden, a shared expert",
        "blk.0.ffn_gate_exps.weight",
        "5 x 32 x 64",
        "q8_0",
        "cpu:0",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let report = strata(&format!("inspect {path} --json")).json();
    assert_eq!(report["architecture"], "qwen3moe");
    assert_eq!((&report["experts"], &report["experts_used"]), (&5.into(), &2.into()));
    let tensors = report["blocks"][0]["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 8);
    for tensor in tensors {
        assert_eq!(tensor["runs_on"][0], "cpu:0", "{tensor}");
    }
    // What is broken in one block is said there, and the rest is listed.
    let path = Model { down: false, ..Model::default() }.write(&folder, "m.gguf");
    let text = strata(&format!("inspect {path}")).ok();
    assert!(text.contains("cannot run: ") && text.contains("ffn_up_exps"), "{text}");
    let dense = dense_model(&folder, "dense.gguf", None);
    let text = strata(&format!("inspect {}", dense.display())).ok();
    assert!(text.contains("dense, 64 wide, 128 hidden"), "{text}");
}

/// Whether `inspect` says that block 0 runs, and whether `prefill` runs it.
#[track_caller]
fn both(path: &str, what: &str) -> bool {
    let inspected = strata(&format!("inspect {path} --json"));
    assert!(!inspected.stderr.contains("panicked"), "{what}: {inspected:?}");
    let says = inspected.code == Some(0) && {
        let report: serde_json::Value = serde_json::from_str(&inspected.stdout).unwrap();
        let block = &report["blocks"][0];
        let runs = block["error"].is_null();
        for tensor in block["tensors"].as_array().unwrap() {
            assert_eq!(tensor["runs_on"][0].is_string(), runs, "{what}: {tensor}");
        }
        runs
    };
    let run = strata(&format!("prefill --backend cpu --threads 1 --model {path} --tokens 1"));
    assert!(matches!(run.code, Some(0 | 1)) && !run.stderr.contains("panicked"), "{what}: {run:?}");
    assert_eq!(says, run.code == Some(0), "{what}: {inspected:?} {run:?}");
    says
}

#[test]
fn inspect_and_prefill_agree_on_every_architecture() {
    let folder = Folder::new();
    let unknown = Model { architecture: "nobody-s", ..Model::default() }.write(&folder, "m.gguf");
    assert!(!both(&unknown, "unknown"));
    let message = strata(&format!("prefill --model {unknown}")).stderr;
    let (_, known) = message.split_once("one that is known: ").unwrap();
    let known: Vec<String> = known.trim().split(", ").map(str::to_owned).collect();
    assert!(known.len() > 40, "{known:?}");
    let mut run = 0;
    for architecture in known.into_iter().chain(["grovemoe".into(), "qwen2".into()]) {
        let architecture: &'static str = architecture.leak();
        for shared in [false, true] {
            let model = Model { architecture, shared, ..Model::default() };
            run += usize::from(both(&model.write(&folder, "m.gguf"), architecture));
        }
        let one = vec![("expert_used_count".into(), 1u32.into())];
        let model = Model { architecture, instead: one, ..Model::default() };
        run += usize::from(both(&model.write(&folder, "m.gguf"), architecture));
    }
    assert!(run > 60, "{run}");
}

#[test]
fn a_router_reads_an_input_of_its_own() {
    let folder = Folder::new();
    let npy = |name: &str, seed: u64, tokens: usize| {
        let values = strata::prefill::normals(seed, tokens * Model::WIDTH);
        let bytes = [
            &strata::npy::Header::write(tokens, Model::WIDTH)[..],
            &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(),
        ];
        folder.write(name, &bytes.concat())
    };
    let (x, other, short) = (npy("x.npy", 1, 23), npy("o.npy", 2, 23), npy("s.npy", 2, 22));
    for architecture in ["gemma4", "smallthinker"] {
        let path = Model { architecture, ..Model::default() }.write(&folder, "m.gguf");
        let text = strata(&format!("inspect {path}")).ok();
        assert!(text.contains("32 hidden, a router with an input of its own"), "{text}");
        // Without files both inputs are of the seed: those of --seed 1 are the files' here.
        let ended = strata(&format!("prefill --backend cpu --tokens 3 --model {path}"));
        assert!(ended.stderr.contains("the router reads another input"), "{ended:?}");
        ended.ok();
        let of = |args: &str| {
            let args = format!("prefill --backend cpu --json --model {path} {args}");
            strata(&args).json()["checksum"].as_str().unwrap().to_owned()
        };
        let seeded = of("--tokens 23 --seed 1");
        assert_eq!(of(&format!("--input {x} --router-input {other}")), seeded);
        assert_eq!(of(&format!("--tokens 23 --router-input {other} --chunk 7")), seeded);
        assert_ne!(of(&format!("--input {x} --router-input {x}")), seeded);
        let fails = |args: &str, message: &str| {
            strata(&format!("prefill --model {path} {args}")).fails(1, message);
        };
        fails(
            &format!("--input {x}"),
            "--router-input: given none, expected a file beside --input",
        );
        let shape = "router's input: given 22 x 64, expected 23 x 64";
        fails(&format!("--input {x} --router-input {short}"), shape);
        let out = format!("--input {x} --router-input {other} --out {other}");
        fails(&out, "which is read");
    }
    let path = Model::default().write(&folder, "m.gguf");
    strata(&format!("prefill --model {path} --tokens 23 --router-input {other}"))
        .fails(1, "--router-input: given a file, expected none: the router reads what");
}

#[test]
fn inspect_and_prefill_agree_on_odd_metadata() {
    use strata::gguf::{MetaValue, ValueType};
    let folder = Folder::new();
    let array = |values: &[u32]| {
        MetaValue::Array(ValueType::U32, values.iter().map(|&v| MetaValue::U32(v)).collect())
    };
    let each = |value: u32| array(&[value]);
    for (key, value, runs) in [
        ("expert_gating_func", 0u32.into(), true),
        ("expert_gating_func", "softmax".into(), false),
        ("expert_used_count", each(2), true),
        ("expert_used_count", each(9), false),
        ("expert_count", each(5), true),
        ("expert_count", 0u32.into(), false),
        ("embedding_length", each(64), true),
        ("embedding_length", "wide".into(), false),
        ("block_count", "one".into(), false),
        ("expert_weights_norm", 1u32.into(), false),
        ("rope.dimension_sections", "unused".into(), true),
        ("expert_feed_forward_length", each(32), true),
        ("expert_feed_forward_length", each(33), false),
        ("expert_used_count", array(&[]), false),
    ] {
        let value: MetaValue = value;
        let what = format!("{key} {value:?}");
        let model = Model { instead: vec![(key.into(), value)], ..Model::default() };
        assert_eq!(both(&model.write(&folder, "m.gguf"), &what), runs, "{what}");
    }
    for other in
        ["blk.0.exp_probs_b.bias", "blk.0.ffn_gate_exps.scale", "blk.0.ffn_odd_exps.weight"]
    {
        both(&Model { other: Some(other), ..Model::default() }.write(&folder, "m.gguf"), other);
    }
}

#[test]
fn files_that_are_no_models_are_called_what_they_are() {
    let folder = Folder::new();
    for (bytes, message) in [
        (&b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"[..], "git lfs pull"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"PK\x03\x04", "a zip archive"),
    ] {
        let path = folder.write("m.gguf", bytes);
        strata(&format!("inspect {path}")).fails(1, message);
        strata(&format!("prefill --model {path}")).fails(1, message);
    }
    for (kind, message) in
        [("adapter", "(LoRA)"), ("mmproj", "an mmproj file"), ("imatrix", "an importance matrix")]
    {
        let mut writer = strata::gguf::Writer::new();
        writer.value("general.type", kind);
        let path = folder.path("m.gguf");
        writer.write(&path).unwrap();
        strata(&format!("inspect {path}")).fails(1, message);
        strata(&format!("prefill --model {path}")).fails(1, message);
    }
}
