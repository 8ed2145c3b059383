//! Whole models: text in, text out.

use super::every;
use super::support::{Folder, Model, command, ended, strata};

#[test]
fn what_cannot_be_meant_is_wrong_usage() {
    strata("generate --model x --prompt a --token-ids 1").fails(2, "--token-ids");
    strata("generate --model x --prompt a --date 2024-01-01").fails(2, "--chat");
    strata("generate --model x --prompt a --chat --date yesterday").fails(2, "2026-11-30");
    strata("generate --model x --prompt a --temperature -1").fails(2, "temperature");
    strata("generate --model x --prompt a --top-p 2").fails(2, "top_p: given 2");
    strata("generate --model x --prompt a -n -1").fails(2, "--tokens");
    strata("generate --model no-such-file.gguf --prompt a").fails(1, "no-such-file.gguf");
    strata("logits --model no-such-file.gguf --prompt a").fails(1, "no-such-file.gguf");
}

#[test]
fn inspect_says_what_logits_computes() {
    let folder = Folder::new();
    for (form, line) in [
        ("llama", "3 of attention"),
        ("deepseek2", "3 of attention over a compressed row"),
        ("lfm2moe", "2 of short convolution, 1 of attention"),
        ("qwen3next:old", "2 of gated delta net, 2 of attention"),
    ] {
        let path = folder.write("whole.gguf", &every::write(form, false));
        let text = strata(&format!("inspect {path}")).ok();
        let said = text.lines().nth(1).unwrap_or_default();
        let blocks = said.strip_prefix("as a whole model: blocks: ").unwrap_or(said);
        // What follows is what of the file is not used.
        assert_eq!(blocks.split(';').next(), Some(line), "{text}");
        let report = strata(&format!("inspect {path} --json")).json();
        assert!(report["whole"]["error"].is_null(), "{report}");
        strata(&format!("logits --backend cpu --model {path} --token-ids 1,2,3")).ok();
    }
    // A layer of experts is no model.
    let path = Model::default().write(&folder, "layer.gguf");
    let text = strata(&format!("inspect {path}")).ok();
    assert!(text.contains("as a whole model: not computed: qwen3moe."), "{text}");
    strata(&format!("logits --backend cpu --model {path} --token-ids 1")).fails(1, "qwen3moe.");
}

/// Needs a model: says so where there is none.
#[test]
fn a_real_model_answers() {
    let Some(model) = std::env::var_os("STRATA_SMOLLM2").filter(|path| !path.is_empty()) else {
        println!("skipped: STRATA_SMOLLM2 is not set; scripts/fetch-smollm2.sh fetches the model");
        return;
    };
    let folder = Folder::new();
    let run = |command_name: &str, rest: &[&str]| {
        let mut run = command([command_name, "--backend", "cpu", "--model"]);
        run.arg(&model).args(rest);
        ended(&mut run)
    };
    let prompt = "What is the capital of France? Answer briefly.";
    let answer = run("generate", &["--chat", "--prompt", prompt, "-n", "40"]);
    assert_eq!(answer.ok(), "The capital of France is Paris.");
    let story = "Once upon a time";
    let json = |chunk: &str| {
        run("generate", &["--prompt", story, "-n", "8", "--json", "--chunk", chunk]).json()
    };
    let (one, all) = (json("1"), json("512"));
    for field in ["prompt_tokens", "tokens", "text", "logits_checksum"] {
        assert_eq!(one[field], all[field], "{field}");
    }
    assert_eq!(one["tokens"].as_array().unwrap().len(), 8);
    let stopped = run("generate", &["--chat", "--prompt", prompt, "--stop", " of Fr"]).ok();
    assert_eq!(stopped, "The capital");
    let checksum = run("logits", &["--prompt", story]).ok();
    assert_eq!(checksum.trim(), one["logits_checksum"]);

    run("generate", &["--prompt", ""]).fails(1, "prompt: given nothing");
    assert_eq!(run("generate", &["--prompt", "a", "-n", "0"]).ok(), "");
    run("generate", &["--prompt", "a b c d", "--context", "2"]).fails(1, "at most 2, the context");
    run("generate", &["--token-ids", "49152"]).fails(1, "token 0: id: given 49152");
    let bad = folder.write("bad.txt", b"abc\xff");
    run("generate", &["--prompt-file", &bad]).fails(1, "offset 3");
    let text = folder.write("text.txt", story.as_bytes());
    let score = run("score", &[&text, "--json"]).json();
    assert_eq!(
        score["tokens"].as_u64().unwrap() as usize,
        one["prompt_tokens"].as_array().unwrap().len() - 1
    );
}
