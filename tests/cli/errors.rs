//! Wrong arguments, broken files, full disks: a message and a code, never a panic.

use super::support::{Folder, Model, command, dense_model, ended, strata};
use strata::npy;

#[test]
fn options_that_cannot_be_meant() {
    for (args, message) in [
        ("prefill --type q9_0", "weight type q9_0: unknown, expected one of"),
        ("prefill --backend gpu", "backend: given gpu, expected auto, or cpu, cuda, hip or sycl"),
        ("prefill --quant both", "given both, expected scatter, gather or indexed"),
        ("prefill --chunk 0", "a number of tokens above 0, or auto:N"),
        ("prefill --tokens 0", "at least 1"),
        ("prefill --tokens x", "at least 1"),
        ("prefill --experts 4", "--top-k: given 10, expected at most 4, the experts"),
        ("prefill --width 100", "columns of a q4_K row: given 100, expected a multiple of 256"),
        ("prefill --ffn 100", "columns of a q8_0 row: given 100, expected a multiple of 32"),
        (
            "prefill --down-type q4_K",
            "columns of a q4_K row: given 640, expected a multiple of 256",
        ),
        ("prefill --threads 0", "0 is not in 1..=4096"),
        ("prefill --threads 2 --backend cuda", "--threads is for the CPU"),
        ("prefill --split-dense 3", "--model"),
        ("prefill --layer 3", "--model"),
        ("prefill --model a.gguf --experts 3", "--experts"),
        ("prefill --input a.npy --tokens 3", "--tokens"),
        ("conform --quick --full", "--full"),
        ("bench", "<WHAT>"),
        ("bench everything", "everything"),
        ("bench mmq --types q4_K,q9", "weight type q9: unknown"),
        ("bench mmq --experts 2 --k 3", "--k: given 3, expected at most 2, the experts"),
        ("bench mmq --cols 100", "expected a multiple of"),
        ("bench layer --rows 5", "an even number"),
    ] {
        strata(args).fails(2, message);
    }
}

#[test]
fn what_no_machine_has_room_for() {
    for args in [
        "prefill --experts 1000000000",
        "prefill --tokens 1000000000000",
        "prefill --experts 10 --ffn 32000000000",
        "bench mmq --experts 100000000",
        "bench quantize --tokens 100000000000",
    ] {
        let ended = strata(args);
        assert!(matches!(ended.code, Some(1 | 2)), "{args}: {ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{args}: {ended:?}");
        assert!(ended.stderr.lines().any(|line| line.starts_with("error: ")), "{args}: {ended:?}");
    }
}

#[test]
fn a_cpu_it_does_not_have() {
    let mut unknown = command(["prefill"]);
    ended(unknown.env("STRATA_CPU_ISA", "mmx"))
        .fails(1, "instruction set: given mmx, expected plain");
    // An empty variable is one that is not set.
    let mut empty =
        command("prefill --experts 2 --top-k 1 --width 256 --ffn 32 --tokens 3".split(' '));
    ended(empty.env("STRATA_CPU_ISA", "").env("STRATA_QUANT_GATHER", "")).ok();
    ended(empty.env("STRATA_QUANT_GATHER", "yes"))
        .fails(1, "STRATA_QUANT_GATHER: given yes, expected 1, true, 0 or false");
    let mut gather = empty;
    let report = ended(gather.arg("--json").env("STRATA_QUANT_GATHER", "true")).json();
    assert_eq!(report["quant"], "gather");
    strata("prefill --backend cpu:1").fails(1, "cpu device: given 1, expected 0, the only one");
}

#[test]
fn models_that_cannot_run() {
    let folder = Folder::new();
    let good = Model::default().write(&folder, "good.gguf");
    let bytes = std::fs::read(&good).unwrap();
    let cut = folder.write("cut.gguf", &bytes[..bytes.len() / 2]);
    let head = folder.write("head.gguf", &bytes[..30]);
    let text = folder.write("text.gguf", b"hello, world");
    let empty = folder.write("empty.gguf", b"");
    let no_down = Model { down: false, ..Model::default() }.write(&folder, "no-down.gguf");
    let no_experts = {
        let mut writer = strata::gguf::Writer::new();
        writer.value("general.architecture", "llama");
        let path = folder.path("no-experts.gguf");
        writer.write(&path).unwrap();
        path
    };
    for (file, message) in [
        (cut.as_str(), "cut.gguf: tensor"),
        (&head, "head.gguf: tensor count"),
        (&text, "magic: given \"hell\", expected \"GGUF\""),
        (&empty, "magic"),
        (&no_down, "tensor blk.0.ffn_down_exps.weight: given nothing"),
        (&no_experts, "no block of this model has them"),
        ("/nowhere/model.gguf", "/nowhere/model.gguf: No such file"),
        ("/tmp", "expected a regular file"),
    ] {
        strata(&format!("prefill --model {file}")).fails(1, message);
    }
    for file in [&cut, &head, &text, &empty] {
        strata(&format!("inspect {file}")).fails(1, file);
    }
    strata(&format!("prefill --model {good} --layer 7")).fails(1, "blk.7.ffn_gate_exps.weight");
    strata(&format!("prefill --model {good} --split-dense 2")).fails(1, "blk.0.ffn_gate.weight");
    let dense = dense_model(&folder, "dense.gguf", None);
    strata(&format!("prefill --model {} --split-dense 3", dense.display()))
        .fails(1, "expected one of 1, 2, 4");
}

#[test]
fn sizes_past_all_memory() {
    let memory = "out of memory: asked for";
    for what in ["map", "quantize", "mmq", "layer"] {
        strata(&format!("bench {what} --backend cpu --tokens 1099511627776 --experts 4"))
            .fails(1, memory);
        strata(&format!("bench {what} --backend cpu --experts 2147483648"))
            .fails(2, "--experts: given 2147483648, expected below 2^31");
    }
    let prefill = "prefill --backend cpu --experts 2 --top-k 1 --width 256 --ffn 32";
    strata(&format!("{prefill} --tokens 1099511627776")).fails(1, memory);
    strata("prefill --backend cpu --experts 1099511627776").fails(1, memory);
}

#[test]
fn inputs_that_are_none() {
    let folder = Folder::new();
    let width = folder.write("width.npy", &[npy::Header::write(1, 7), vec![0; 28]].concat());
    let short = folder.write("short.npy", &npy::Header::write(2, 2560));
    let text = folder.write("text.npy", b"1 2 3");
    let vast = folder.write("vast.npy", &npy::Header::write(1 << 40, 1 << 20));
    let mut nan = npy::Header::write(3, 2560);
    nan.extend(vec![0; 2560 * 8]);
    nan.extend(f32::NAN.to_le_bytes());
    nan.extend(vec![0; 2559 * 4]);
    let nan = folder.write("nan.npy", &nan);
    let prefill = "prefill --experts 10 --input";
    strata(&format!("{prefill} {width}")).fails(1, "input: columns: given 7, expected 2560");
    strata(&format!("{prefill} {short}")).fails(1, "short.npy: size: given 128 bytes");
    strata(&format!("{prefill} {text}"))
        .fails(1, "text.npy: size: given 5 bytes, expected an .npy");
    strata(&format!("{prefill} {vast}")).fails(1, "vast.npy: size: given 128 bytes");
    strata(&format!("{prefill} /dev/zero")).fails(1, "expected a regular .npy file");
    strata(&format!("{prefill} {nan}")).fails(1, "token 2: an input value is not finite");
    strata(&format!("{prefill} {nan} --no-check")).ok();
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = Folder::new();
    let small = "prefill --experts 2 --top-k 1 --width 256 --ffn 32 --tokens 3 --out";
    for (out, message) in [
        ("/dev/full", "/dev/full: No space left on device"),
        ("/nowhere/y.npy", "/nowhere/y.npy: No such file"),
        ("/tmp", "/tmp: given a directory, expected a file"),
    ] {
        strata(&format!("{small} {out}")).fails(1, message);
    }
    assert!(std::fs::metadata("/dev/full").is_ok_and(|meta| !meta.is_file()));
    strata(&format!("{small} /dev/null")).ok();
    // What was there stays until all of the new is.
    let out = folder.write("y.npy", b"before");
    strata(&format!("{small} {out} --input /nowhere/x.npy")).fails(2, "--tokens");
    assert_eq!(std::fs::read(&out).unwrap(), b"before");
    strata(&format!("{small} {out}")).ok();
    assert!(std::fs::read(&out).unwrap().starts_with(b"\x93NUMPY"));
    // A link stays one.
    let link = folder.path("link.npy");
    std::os::unix::fs::symlink(&out, &link).unwrap();
    strata(&format!("{small} {link} --seed 9")).ok();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(folder.files(), ["link.npy", "y.npy"]);
    // Standard output is a disk, too.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut doctor = command(["doctor"]);
    let status = doctor.stdout(full).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let output = status.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard output: No space left"));
}
