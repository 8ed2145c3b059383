//! A whole model that is written here: what `generate` does with text, states, signals and files.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use strata::WeightType;
use strata::format::random_blocks;
use strata::gguf::{MetaValue, TensorType, ValueType, Writer};

use super::support::{Ended, Folder, command, ended};

const WIDTH: u64 = 64;
const FFN: u64 = 64;
const BLOCKS: u32 = 2;
/// 256 bytes, three control tokens, and rows of the head past them.
pub const TOKENS: u64 = 259;
pub const VOCAB: u64 = 264;
pub const END: u32 = 257;
pub const CONTEXT: u32 = 200_000;

const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + \
     message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\n' }}{% endif %}";

/// What a test changes about the model.
#[derive(Default)]
pub struct Whole {
    pub seed: u64,
    /// Values in the place of those that it would have; none: the key is left out.
    pub instead: Vec<(&'static str, Option<MetaValue>)>,
    /// A tensor whose values are NaN.
    pub nan: Option<&'static str>,
}

/// The byte-level alphabet.
fn alphabet() -> impl Iterator<Item = String> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0xff;
    (0..256).map(move |byte| {
        let code = if printable(byte) {
            byte
        } else {
            next += 1;
            next
        };
        char::from_u32(code).unwrap().to_string()
    })
}

impl Whole {
    fn matrix(&self, writer: &mut Writer<'_>, name: &str, cols: u64, rows: u64) {
        let ty = WeightType::Q8_0;
        let seed = name.bytes().fold(self.seed + 1, |seed, b| seed.wrapping_mul(31) + u64::from(b));
        let mut bytes = random_blocks(ty, seed, (cols * rows) as usize / ty.block_values());
        for block in bytes.chunks_exact_mut(ty.block_bytes()) {
            // About 1/700, or NaN.
            let scale = if self.nan == Some(name) { 0x7e00u16 } else { 0x15d7 };
            block[..2].copy_from_slice(&scale.to_le_bytes());
        }
        if name == "output.weight" {
            // The end of the text is never the most probable.
            let row = bytes.len() / rows as usize;
            bytes[END as usize * row..][..row].fill(0);
        }
        writer.tensor(name, &[cols, rows], TensorType::Weight(ty), bytes);
    }

    pub fn write(&self, folder: &Folder, name: &str) -> String {
        let mut writer = Writer::new();
        let strings = |all: Vec<String>| {
            MetaValue::Array(ValueType::String, all.iter().map(|s| s.as_str().into()).collect())
        };
        let control = ["<|im_start|>", "<|im_end|>", "<|unused|>"].map(str::to_owned);
        let tokens: Vec<String> = alphabet().chain(control).collect();
        let kinds = (0..TOKENS).map(|id| MetaValue::I32(if id < 256 { 1 } else { 3 })).collect();
        let values: Vec<(&str, MetaValue)> = vec![
            ("general.architecture", "llama".into()),
            ("llama.block_count", BLOCKS.into()),
            ("llama.embedding_length", (WIDTH as u32).into()),
            ("llama.context_length", CONTEXT.into()),
            ("llama.feed_forward_length", (FFN as u32).into()),
            ("llama.attention.head_count", 2u32.into()),
            ("llama.attention.head_count_kv", 1u32.into()),
            ("llama.attention.layer_norm_rms_epsilon", 1e-5f32.into()),
            ("tokenizer.ggml.model", "gpt2".into()),
            ("tokenizer.ggml.pre", "gpt-2".into()),
            ("tokenizer.ggml.tokens", strings(tokens)),
            ("tokenizer.ggml.token_type", MetaValue::Array(ValueType::I32, kinds)),
            ("tokenizer.ggml.merges", strings(vec!["h e".to_owned()])),
            ("tokenizer.ggml.eos_token_id", END.into()),
            ("tokenizer.chat_template", TEMPLATE.into()),
        ];
        for (key, value) in values {
            let instead = self.instead.iter().find(|(other, _)| *other == key);
            if let Some(value) = instead.map_or(Some(value), |(_, value)| value.clone()) {
                writer.value(key, value);
            }
        }
        let ones: Vec<u8> = (0..WIDTH).flat_map(|_| 1f32.to_le_bytes()).collect();
        let norm = |writer: &mut Writer<'_>, name: &str| {
            writer.tensor(name, &[WIDTH], TensorType::F32, ones.clone());
        };
        self.matrix(&mut writer, "token_embd.weight", WIDTH, VOCAB);
        self.matrix(&mut writer, "output.weight", WIDTH, VOCAB);
        norm(&mut writer, "output_norm.weight");
        for block in 0..BLOCKS {
            let name = |part: &str| format!("blk.{block}.{part}.weight");
            norm(&mut writer, &name("attn_norm"));
            norm(&mut writer, &name("ffn_norm"));
            for (part, cols, rows) in [
                ("attn_q", WIDTH, 64),
                ("attn_k", WIDTH, 32),
                ("attn_v", WIDTH, 32),
                ("attn_output", 64, WIDTH),
                ("ffn_gate", WIDTH, FFN),
                ("ffn_up", WIDTH, FFN),
                ("ffn_down", FFN, WIDTH),
            ] {
                self.matrix(&mut writer, &name(part), cols, rows);
            }
        }
        let path = folder.path(name);
        writer.write(&path).unwrap();
        path
    }
}

/// A command on the model, on the CPU.
pub fn on(model: &str, name: &str, args: &[&str]) -> Command {
    let mut run = command([name, "--backend", "cpu", "--threads", "1", "--model", model]);
    run.args(args);
    run
}

pub fn run(model: &str, name: &str, args: &[&str]) -> Ended {
    ended(&mut on(model, name, args))
}

#[test]
fn a_text_goes_on_from_its_state_as_if_it_had_not_stopped() {
    let folder = Folder::new();
    let model = Whole::default().write(&folder, "m.gguf");
    let state = folder.path("state");
    // The end of the text is not among the first 40.
    let sampled = ["--temperature", "1.5", "--top-k", "40", "--seed", "7", "--json"];
    let json = |rest: &[&str]| run(&model, "generate", &[&sampled[..], rest].concat()).json();
    let ids = |value: &Value| -> Vec<u64> {
        value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
    };
    let whole = json(&["--prompt", "hello", "-n", "90"]);
    // The state ends after 5 + n tokens: in front of a page's end, at it, behind it.
    for n in ["0", "1", "58", "59", "60"] {
        let first = json(&["--prompt", "hello", "-n", n, "--save-state", &state]);
        let rest = (90 - n.parse::<usize>().unwrap()).to_string();
        let second = json(&["--load-state", &state, "-n", &rest, "--chunk", "5"]);
        let all = [ids(&first["tokens"]), ids(&second["tokens"])].concat();
        assert_eq!(all, ids(&whole["tokens"]), "{n}");
        let given = [ids(&first["prompt_tokens"]), ids(&first["tokens"])].concat();
        assert_eq!(ids(&second["prompt_tokens"]), given, "{n}");
    }
    // With more of a prompt: as if it had been there at once.
    json(&["--prompt", "hello", "-n", "0", "--save-state", &state]);
    let more = json(&["--load-state", &state, "--prompt", " world", "-n", "9"]);
    let once = json(&["--prompt", "hello world", "-n", "9"]);
    for field in ["prompt_tokens", "tokens", "text", "logits_checksum"] {
        assert_eq!(more[field], once[field], "{field}");
    }
    assert_eq!(folder.files(), ["m.gguf", "state"]);
}

#[test]
fn what_is_no_state_is_an_error_and_no_file_is_left() {
    let folder = Folder::new();
    let model = Whole::default().write(&folder, "m.gguf");
    let other = Whole { seed: 9, ..Whole::default() }.write(&folder, "other.gguf");
    let state = folder.path("state");
    run(&model, "generate", &["--prompt", "hello", "-n", "2", "--save-state", &state]).ok();
    let bytes = std::fs::read(&state).unwrap();
    run(&other, "generate", &["--load-state", &state]).fails(1, "one of another model");
    let cut = folder.write("cut", &bytes[..bytes.len() - 1]);
    run(&model, "generate", &["--load-state", &cut]).fails(1, "cut: saved state");
    run(&model, "generate", &["--load-state", &model]).fails(1, "do not begin as one");
    run(&model, "generate", &["--load-state", "no-such-file"]).fails(1, "no-such-file");
    run(&model, "generate", &["--load-state", &state, "--context", "4"]).fails(1, "the context");
    run(&model, "generate", &["--load-state", &state, "--chat"]).fails(2, "--chat");
    // What fails leaves the old state, and nothing beside it.
    let args = ["--load-state", &cut, "--save-state", &state];
    run(&model, "generate", &args).fails(1, "saved state");
    let args = ["--token-ids", "99999", "--save-state", &state];
    run(&model, "generate", &args).fails(1, "token 0: id");
    let args = ["--prompt", "a", "--save-state", &model];
    run(&model, "generate", &args).fails(1, "which is read");
    run(&model, "generate", &["--prompt", "a", "--save-state", "-"]).fails(2, "--save-state");
    assert_eq!(std::fs::read(&state).unwrap(), bytes);
    assert_eq!(folder.files(), ["cut", "m.gguf", "other.gguf", "state"]);
}

/// A run with pipes, in which SIGINT does what it does by default.
fn started(model: &str, args: &[&str]) -> Child {
    let mut run = on(model, "generate", args);
    // SAFETY: `signal` may be called between fork and exec.
    unsafe {
        run.pre_exec(|| match libc::signal(libc::SIGINT, libc::SIG_DFL) {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends SIGINT; the process must end within a second or so.
fn interrupt(mut child: Child) -> (std::process::ExitStatus, Vec<u8>, String) {
    // SAFETY: a signal to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let asked = Instant::now();
    let (mut out, mut err) = (Vec::new(), String::new());
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    let status = child.wait().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    (status, out, err)
}

#[test]
fn ctrl_c_keeps_the_text_and_leaves_no_file() {
    let folder = Folder::new();
    let model = Whole::default().write(&folder, "m.gguf");
    let state = folder.path("state");
    let args = ["--prompt", "hello", "-n", "100000", "--save-state", &state];
    let mut child = started(&model, &args);
    let mut first = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let (status, out, err) = interrupt(child);
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(err.contains("; interrupted"), "{err}");
    // The text so far, all of it: what one that ends by itself there says.
    let tokens = err.split("; ").nth(1).unwrap().split(' ').next().unwrap();
    let expected = run(&model, "generate", &["--prompt", "hello", "-n", tokens]).ok();
    assert_eq!([&first[..], &out].concat(), expected.into_bytes());
    assert_eq!(folder.files(), ["m.gguf"]);

    // While the prompt is read: no text, and out.
    let long = folder.write("long.txt", &b"abcdefghij ".repeat(9000));
    let child = started(&model, &["--prompt-file", &long, "--save-state", &state]);
    std::thread::sleep(Duration::from_millis(700));
    let (status, out, err) = interrupt(child);
    assert!(status.code() == Some(130) || status.signal() == Some(libc::SIGINT), "{status} {err}");
    assert!(out.is_empty());
    assert_eq!(folder.files(), ["long.txt", "m.gguf"]);
}

#[test]
fn a_model_is_measured() {
    let folder = Folder::new();
    let model = Whole::default().write(&folder, "m.gguf");
    let args = ["model", "--backend", "cpu", "--threads", "1", "--runs", "2", "--model", &model];
    let small = ["--tokens", "5,20", "--new", "3"];
    let bench = |rest: &[&str]| ended(command(["bench"]).args(args).args(rest));
    let report = bench(&[&small[..], &["--json"]].concat()).json();
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for result in results {
        for part in ["prompt", "generation"] {
            let part = &result[part];
            assert!(part["tokens_per_second"].as_f64().unwrap() > 0.0, "{part}");
            assert!(part["floor_seconds"].as_f64().unwrap() > 0.0, "{part}");
            let steps = part["steps"].as_array().unwrap();
            let bytes = |value: &Value| value["bytes"].as_u64().unwrap();
            assert_eq!(steps.iter().map(bytes).sum::<u64>(), bytes(part));
            let named =
                |name: &str| steps.iter().any(|s| s["step"].as_str().unwrap().contains(name));
            for name in ["embed", "norm", "rope", "append", "attention", "product q8_0 264 x 64"] {
                assert!(named(name), "{name} in {part}");
            }
        }
    }
    let text = bench(&small).ok();
    assert!(text.contains("generation, a token") && text.contains("x floor"), "{text}");
    bench(&["--tokens", "200000"]).fails(2, "--tokens: given 200000");
    ended(&mut command(["bench", "model"])).fails(2, "--model");
}
