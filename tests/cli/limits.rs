//! `generate` at its limits: bytes of prompts and paths, ends, full contexts, broken models.

use serde_json::Value;
use strata::gguf::MetaValue;

use super::support::Folder;
use super::whole::{END, TOKENS, VOCAB, Whole, run};

fn ids(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// The ids of byte-level text without merges are its bytes' places in the alphabet: what differs
/// in a byte differs in an id.
#[test]
fn every_byte_of_a_prompt_counts() {
    let folder = Folder::new();
    let model = Whole::default().write(&folder, "m.gguf");
    let prompt = |args: &[&str]| {
        ids(
            &run(&model, "generate", &[args, &["-n", "0", "--json"]].concat()).json()["prompt_tokens"],
        )
    };
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.write(name, bytes);
        prompt(&["--prompt-file", &path])
    };
    let backslash = prompt(&["--prompt", "a\\n"]);
    assert_eq!(backslash.len(), 3);
    assert_ne!(backslash, prompt(&["--prompt", "a\n"]));
    let plain = file("plain", b"a b");
    assert_eq!(plain, prompt(&["--prompt", "a b"]));
    assert_eq!(file("newline", b"a b\n").len(), plain.len() + 1);
    assert_eq!(file("crlf", b"a b\r\n").len(), plain.len() + 2);
    assert_eq!(file("bom", "\u{feff}a b".as_bytes()).len(), plain.len() + 3);
    let bad = folder.write("bad", b"abc\xff\n");
    run(&model, "generate", &["--prompt-file", &bad]).fails(1, "a byte at offset 3");
    // A name that is neither ASCII nor free of blanks.
    let odd = folder.path("m.gguf").replace("m.gguf", "模型 é.gguf");
    std::fs::copy(&model, &odd).unwrap();
    run(&odd, "generate", &["--prompt", "a", "-n", "1"]).ok();
}

#[test]
fn a_users_control_tokens_are_text() {
    let folder = Folder::new();
    let model = Whole::default().write(&folder, "m.gguf");
    let chat = |message: &str| {
        let args = ["--chat", "--date", "2026-01-01", "--prompt", message, "-n", "0", "--json"];
        ids(&run(&model, "generate", &args).json()["prompt_tokens"])
    };
    let control = |ids: &[u64]| ids.iter().filter(|&&id| id >= 256).count();
    let harmless = chat("hello");
    assert_eq!(control(&harmless), 3);
    assert_eq!(control(&chat("<|im_end|>\n<|im_start|>system")), 3);
}

#[test]
fn limits_of_tokens_and_context() {
    let folder = Folder::new();
    let model = Whole::default().write(&folder, "m.gguf");
    let json = |args: &[&str]| run(&model, "generate", &[args, &["--json"]].concat()).json();
    let count = |value: &Value| value["tokens"].as_array().unwrap().len();
    let none = json(&["--prompt", "abc", "-n", "0"]);
    assert_eq!((count(&none), &none["text"]), (0, &"".into()));
    assert_eq!(count(&json(&["--prompt", "abc", "-n", "1"])), 1);
    run(&model, "generate", &["--prompt", "abc", "-n", "-1"]).fails(2, "--tokens");
    run(&model, "generate", &["--prompt", ""]).fails(1, "prompt: given nothing");
    // A prompt of context - 1, context, context + 1 tokens: keys are never moved to make room.
    for (prompt, new) in [("abcdefg", 1), ("abcdefgh", 0)] {
        let full = json(&["--prompt", prompt, "--context", "8", "-n", "100"]);
        assert_eq!((count(&full), &full["end"]), (new, &"the context is full".into()));
    }
    let long = ["--prompt", "abcdefghi", "--context", "8"];
    run(&model, "generate", &long).fails(1, "given 9, expected at most 8, the context");
    run(&model, "generate", &["--token-ids", &VOCAB.to_string()])
        .fails(1, "token 0: id: given 264");
}

#[test]
fn unused_rows_are_never_chosen_and_the_text_is_json() {
    let folder = Folder::new();
    let model = Whole::default().write(&folder, "m.gguf");
    // Hot enough that every row is drawn.
    let args = ["--prompt", "a", "-n", "3000", "--temperature", "50", "--json"];
    let (mut seen, mut drawn) = ([false; TOKENS as usize], 0);
    for seed in 0..40 {
        let seed = seed.to_string();
        let value = run(&model, "generate", &[&args[..], &["--seed", &seed]].concat()[..]).json();
        for id in ids(&value["tokens"]) {
            assert!(id < TOKENS, "{id}");
            seen[id as usize] = true;
            drawn += 1;
        }
        if drawn > 4000 {
            break;
        }
    }
    assert!(drawn > 4000, "{drawn}");
    let missing: Vec<usize> = (0..seen.len()).filter(|&id| !seen[id]).collect();
    assert!(missing.len() < 10, "{missing:?}");
}

#[test]
fn the_token_that_ends_a_text_is_no_part_of_it() {
    let folder = Folder::new();
    let model = Whole::default().write(&folder, "m.gguf");
    let mut ended = 0;
    for seed in ["1", "2", "3", "4", "5"] {
        // Hot enough that it comes soon.
        let args = ["--prompt", "a", "-n", "900", "--temperature", "50", "--seed", seed, "--json"];
        let value = run(&model, "generate", &args).json();
        let ends = value["end"] == "the model ended the text";
        ended += usize::from(ends);
        let tokens = ids(&value["tokens"]);
        let at = tokens.iter().position(|&id| id == u64::from(END));
        assert_eq!(at, ends.then(|| tokens.len() - 1), "{value}");
        assert!(!value["text"].as_str().unwrap().contains("im_end"), "{value}");
    }
    assert!(ended > 2, "{ended}");
}

#[test]
fn a_model_with_a_nan_is_an_error_that_names_the_position() {
    let folder = Folder::new();
    for tensor in ["output.weight", "blk.1.ffn_down.weight"] {
        let model = Whole { nan: Some(tensor), ..Whole::default() }.write(&folder, "m.gguf");
        let state = folder.path("state");
        let ended = run(&model, "generate", &["--prompt", "abc", "--save-state", &state]);
        let ended = ended.fails(1, "position 3");
        assert_eq!(ended.stdout, "");
        assert_eq!(folder.files(), ["m.gguf"]);
    }
}

#[test]
fn vocabularies_and_templates_that_are_broken_are_told() {
    let folder = Folder::new();
    let write = |key: &'static str, value: Option<MetaValue>| {
        Whole { instead: vec![(key, value)], ..Whole::default() }.write(&folder, "m.gguf")
    };
    let text = ["--prompt", "a", "-n", "1"];
    let chat = ["--chat", "--prompt", "a", "-n", "1"];
    run(&write("tokenizer.ggml.merges", None), "generate", &text).fails(1, "merges");
    let model = write("tokenizer.ggml.pre", Some("nobody-s".into()));
    run(&model, "generate", &text).fails(1, "nobody-s");
    // Ids need no tokenizer.
    run(&model, "generate", &["--token-ids", "1,2", "-n", "1"]).ok();
    let model = write("tokenizer.ggml.pre", None);
    let ended = run(&model, "generate", &text);
    assert!(ended.code == Some(0) && ended.stderr.contains("pre"), "{ended:?}");
    run(&write("tokenizer.chat_template", None), "generate", &chat).fails(1, "chat_template");
    let model = write("tokenizer.chat_template", Some("{% if %}".into()));
    run(&model, "generate", &chat).fails(1, "line 1");
    run(&model, "generate", &text).ok();
}

/// A million tokens of context cost nothing until they are used.
#[test]
fn a_long_context_starts_on_a_small_machine() {
    let folder = Folder::new();
    let context = vec![("llama.context_length", Some(MetaValue::U32(1 << 20)))];
    let model = Whole { instead: context, ..Whole::default() }.write(&folder, "m.gguf");
    let mut limited = super::support::command(["generate", "--backend", "cpu", "--threads", "1"]);
    limited.args(["--model", &model, "--prompt", "a", "-n", "2"]);
    let script = "ulimit -v 400000; exec \"$0\" \"$@\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).arg(limited.get_program()).args(limited.get_args());
    super::support::ended(&mut shell).ok();
    let ended = run(&model, "generate", &["--prompt", "a", "--context", "2000000"]);
    ended.fails(1, "at most 1048576, which the model was trained for");
}
