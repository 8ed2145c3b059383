//! Running the tool, and models to run it on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strata::WeightType;
use strata::format::random_blocks;
use strata::gguf::{TensorType, Writer};
use strata::prefill::normals;

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// It must have ended well; its output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// It must have ended well; its output as JSON.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// It must have failed with this code, one message, and no panic.
    #[track_caller]
    pub fn fails(self, code: i32, message: &str) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.contains(message), "expected \"{message}\" in {self:?}");
        assert!(self.stderr.contains("error: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }
}

/// The tool with arguments, free of what the environment says about it.
pub fn command<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata"));
    command.args(args).stdin(Stdio::null());
    command.env_remove("STRATA_QUANT_GATHER").env_remove("STRATA_CPU_ISA");
    command
}

/// Runs a command to its end.
pub fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the tool with arguments between blanks.
pub fn strata(args: &str) -> Ended {
    ended(&mut command(args.split_whitespace()))
}

/// A folder that goes when the test does.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A path in it, as text without blanks.
    pub fn path(&self, name: &str) -> String {
        let path = self.0.path().join(name).into_os_string().into_string().unwrap();
        assert!(!path.contains(' '), "{path}");
        path
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Names of all files in it.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The values of a file of little-endian f32.
pub fn f32s(path: impl AsRef<Path>) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

/// A small model: one block of experts, with what a test changes about it.
pub struct Model {
    pub architecture: &'static str,
    pub merged: bool,
    pub shared: bool,
    pub router: TensorType,
    pub down: bool,
    pub extra: Vec<(String, strata::gguf::MetaValue)>,
    /// Values in the place of those that it would have.
    pub instead: Vec<(String, strata::gguf::MetaValue)>,
    pub other: Option<&'static str>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            architecture: "qwen3moe",
            merged: false,
            shared: false,
            router: TensorType::F32,
            down: true,
            extra: Vec::new(),
            instead: Vec::new(),
            other: None,
        }
    }
}

impl Model {
    pub const WIDTH: usize = 64;
    pub const FFN: usize = 32;
    pub const EXPERTS: usize = 5;

    pub fn write(&self, folder: &Folder, name: &str) -> String {
        let (width, ffn, experts) = (Self::WIDTH as u64, Self::FFN as u64, Self::EXPERTS as u64);
        let q8 = WeightType::Q8_0;
        let matrix = |seed: u64, cols: u64, rows: u64, count: u64| {
            random_blocks(q8, seed, (cols * rows * count) as usize / q8.block_values())
        };
        let q8_tensor = TensorType::Weight(q8);
        let mut writer = Writer::new();
        writer.value("general.architecture", self.architecture);
        for (key, value) in [
            ("block_count", 1),
            ("embedding_length", Self::WIDTH as u32),
            ("expert_count", Self::EXPERTS as u32),
            ("expert_used_count", 2),
        ] {
            if self.instead.iter().all(|(other, _)| other != key) {
                writer.value(format!("{}.{key}", self.architecture), value);
            }
        }
        for (key, value) in self.extra.iter().chain(&self.instead) {
            writer.value(format!("{}.{key}", self.architecture), value.clone());
        }
        // An expert's gate and up rows are the same in one tensor and in two.
        let (gate, up) = (matrix(1, width, ffn, experts), matrix(2, width, ffn, experts));
        match self.merged {
            true => {
                let one = gate.len() / Self::EXPERTS;
                let both: Vec<u8> = gate
                    .chunks(one)
                    .zip(up.chunks(one))
                    .flat_map(|(g, u)| [g, u].concat())
                    .collect();
                let dims = [width, 2 * ffn, experts];
                writer.tensor("blk.0.ffn_gate_up_exps.weight", &dims, q8_tensor, both);
            }
            false => {
                let dims = [width, ffn, experts];
                writer.tensor("blk.0.ffn_gate_exps.weight", &dims, q8_tensor, gate);
                writer.tensor("blk.0.ffn_up_exps.weight", &dims, q8_tensor, up);
            }
        }
        if self.down {
            let data = matrix(3, ffn, width, experts);
            let dims = [ffn, width, experts];
            writer.tensor("blk.0.ffn_down_exps.weight", &dims, q8_tensor, data);
        }
        // Values that a bfloat holds: the same router in every type.
        let router: Vec<f32> = normals(4, Self::WIDTH * Self::EXPERTS)
            .into_iter()
            .map(|v| f32::from_bits(v.to_bits() & 0xffe0_0000))
            .collect();
        let bytes: Vec<u8> = match self.router {
            TensorType::F32 => router.iter().flat_map(|v| v.to_le_bytes()).collect(),
            TensorType::F16 => {
                router.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect()
            }
            TensorType::BF16 => {
                router.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect()
            }
            TensorType::Weight(_) => matrix(4, width, experts, 1),
            other => panic!("{other}"),
        };
        writer.tensor("blk.0.ffn_gate_inp.weight", &[width, experts], self.router, bytes);
        if self.shared {
            for (name, seed, dims) in [
                ("gate", 5, [width, 2 * ffn]),
                ("up", 6, [width, 2 * ffn]),
                ("down", 7, [2 * ffn, width]),
            ] {
                let data = matrix(seed, dims[0], dims[1], 1);
                writer.tensor(format!("blk.0.ffn_{name}_shexp.weight"), &dims, q8_tensor, data);
            }
            let score: Vec<u8> =
                normals(8, Self::WIDTH).into_iter().flat_map(f32::to_le_bytes).collect();
            writer.tensor("blk.0.ffn_gate_inp_shexp.weight", &[width], TensorType::F32, score);
        }
        if let Some(other) = self.other {
            let bias = vec![0u8; 4 * Self::EXPERTS];
            writer.tensor(other, &[experts], TensorType::F32, bias);
        }
        let path = folder.path(name);
        writer.write(&path).unwrap();
        path
    }
}

/// A model with one dense network of 64 wide and 128 hidden, in Q4_1.
pub fn dense_model(folder: &Folder, name: &str, other: Option<&str>) -> PathBuf {
    let q4 = WeightType::Q4_1;
    let mut writer = Writer::new();
    writer.value("general.architecture", "llama");
    writer.value("llama.block_count", 1u32).value("llama.embedding_length", 64u32);
    writer.value("llama.feed_forward_length", 128u32);
    for (part, dims, seed) in
        [("gate", [64u64, 128], 1), ("up", [64, 128], 2), ("down", [128, 64], 3)]
    {
        let data = random_blocks(q4, seed, 64 * 128 / q4.block_values());
        let name = format!("blk.0.ffn_{part}.weight");
        writer.tensor(name, &dims, TensorType::Weight(q4), data);
    }
    if let Some(other) = other {
        writer.tensor(other, &[128], TensorType::F32, vec![0; 4 * 128]);
    }
    let path = folder.path(name);
    writer.write(&path).unwrap();
    path.into()
}
