//! `strata prefill` on a synthetic layer.

use super::support::{Folder, command, ended, f32s, strata};

const SMALL: &str =
    "prefill --backend cpu --experts 9 --top-k 3 --width 512 --ffn 96 --tokens 70 --json";

fn checksum(args: &str) -> String {
    let report = strata(&format!("{SMALL} {args}")).json();
    report["checksum"].as_str().unwrap().to_owned()
}

#[test]
fn the_checksum_depends_on_nothing_but_the_input() {
    let expected = checksum("");
    assert_eq!(expected.len(), 64);
    for quant in ["scatter", "gather", "indexed"] {
        for chunk in ["1", "7", "64", "70", "8192", "auto:33"] {
            for threads in ["1", "2", "3"] {
                let args = format!("--quant {quant} --chunk {chunk} --threads {threads}");
                assert_eq!(checksum(&args), expected, "{args}");
            }
        }
    }
    for args in ["--unfused", "--no-check", "--runs 3", "--unfused --quant gather --chunk 9"] {
        assert_eq!(checksum(args), expected, "{args}");
    }
    for isa in strata_cpu::Isa::supported() {
        let mut command = command(SMALL.split_whitespace());
        command.env("STRATA_CPU_ISA", isa.name());
        let report = ended(&mut command).json();
        assert_eq!(report["device"]["arch"], isa.name());
        assert_eq!(report["checksum"], expected.as_str(), "{isa}");
    }
    let mut gather = command(SMALL.split_whitespace());
    gather.env("STRATA_QUANT_GATHER", "1");
    let report = ended(&mut gather).json();
    assert_eq!(report["quant"], "gather");
    assert_eq!(report["checksum"], expected.as_str());
}

#[test]
fn the_checksum_does_depend_on_the_input() {
    let all = [
        "",
        "--seed 2",
        "--tokens 69",
        "--type q5_K",
        "--down-type q4_0",
        "--interleaved",
        "--top-k 4",
        "--experts 10",
        "--ffn 128",
        "--width 256",
    ];
    let mut seen = std::collections::HashSet::new();
    for args in all {
        // The last of an option that is given twice would be an error: take the first one out.
        let name = args.split(' ').next().unwrap_or("");
        let mut base: Vec<&str> = SMALL.split(' ').collect();
        if let Some(at) = base.iter().position(|word| !name.is_empty() && *word == name) {
            base.drain(at..at + 2);
        }
        let report = strata(&format!("{} {args}", base.join(" "))).json();
        assert!(seen.insert(report["checksum"].as_str().unwrap().to_owned()), "{args}");
    }
}

#[test]
fn the_layer_is_the_reference_s() {
    use strata::backend::ops::GateUpOrder;
    use strata::format::random_blocks;
    use strata::prefill::{Synthetic, normals};
    use strata::routing::{Map, RouterBias, RouterOptions, Routes};
    use strata::{WeightType, reference};

    let folder = Folder::new();
    let out = folder.path("y.npy");
    strata(&format!("{SMALL} --out {out}")).ok();
    let bytes = std::fs::read(&out).unwrap();
    let header = strata::npy::Header::parse("y.npy", &bytes, bytes.len() as u64).unwrap();
    assert_eq!((header.rows, header.cols), (70, 512));
    let given: Vec<f32> =
        bytes[header.data..].as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();

    let (experts, k, width, ffn, tokens, seed) = (9, 3, 512, 96, 70, 1);
    let (gate_up, down) = (WeightType::Q4_K, WeightType::Q8_0);
    let synthetic =
        Synthetic { experts, k, width, ffn, gate_up, order: GateUpOrder::Split, down, seed };
    let x = synthetic.input(tokens);
    let scale = 1.0 / (width as f32).sqrt();
    let router: Vec<f32> =
        normals(seed ^ 0x85eb_ca6b, experts * width).iter().map(|v| v * scale).collect();
    let scores = reference::router_scores(&x, &router, width);
    let routes = Routes::top_k(
        &scores,
        experts,
        k,
        &RouterOptions::SOFTMAX_OF_CHOSEN,
        RouterBias::default(),
    )
    .unwrap();
    let map = Map::new(&routes);
    let product = |ty: WeightType, seed, rows: usize, cols: usize, q8: &[u8]| {
        let row = ty.row_bytes(cols).unwrap();
        let weights = random_blocks(ty, seed, experts * rows * cols / ty.block_values());
        let mut out = Vec::new();
        for e in 0..experts {
            let read: Vec<usize> = (map.bounds[e] as usize..map.bounds[e + 1] as usize).collect();
            let expert = &weights[e * rows * row..][..rows * row];
            out.extend(reference::mmq(ty, expert, rows, cols, row, q8, tokens * k, &read));
        }
        out
    };
    let q8 = reference::quantize(&x, tokens, width, width, Some(&map.src), gate_up.layout());
    let h = product(gate_up, seed, 2 * ffn, width, &q8);
    let h = reference::swiglu(&h, ffn, GateUpOrder::Split);
    let q8 = reference::quantize(&h, tokens * k, ffn, ffn, None, down.layout());
    let y = product(down, seed ^ 0x9e37_79b9, width, ffn, &q8);
    let expected =
        reference::combine(&y, width, &map.slot, routes.weights(), k, &Default::default());
    assert!(given.iter().map(|v| v.to_bits()).eq(expected.iter().map(|v| v.to_bits())));
}

#[test]
fn a_row_for_every_phase() {
    let report = strata(SMALL).json();
    let phases: Vec<&str> = report["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|phase| {
            assert!(phase["seconds"].as_f64().unwrap() > 0.0, "{phase}");
            assert!(phase["bytes"].as_u64().unwrap() > 0, "{phase}");
            phase["phase"].as_str().unwrap()
        })
        .collect();
    let expected =
        ["router", "top-k", "map", "quantize", "gate+up", "swiglu+quantize", "down", "combine"];
    assert_eq!(phases, expected);
    assert!(report["workspace_bytes"].as_u64().unwrap() > 0);
    assert!(report["peak_memory_bytes"].as_u64().is_none_or(|peak| peak > 1 << 20));
    let text = strata(&SMALL.replace(" --json", "")).ok();
    for phase in expected {
        assert!(text.lines().any(|line| line.starts_with(phase)), "{phase} in {text}");
    }
    assert!(
        text.contains(&format!("checksum  {}", report["checksum"].as_str().unwrap())),
        "{text}"
    );
    assert!(strata(&format!("{SMALL} --unfused")).ok().contains("\"quantize hidden\""));
}

#[test]
fn what_is_written_is_what_the_checksum_is_of() {
    use sha2::{Digest, Sha256};
    let folder = Folder::new();
    let (out, again) = (folder.path("y.npy"), folder.path("z.npy"));
    let report = strata(&format!("{SMALL} --out {out}")).json();
    let bytes = std::fs::read(&out).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    let values = &bytes[bytes.len() - 70 * 512 * 4..];
    let hex: String = Sha256::digest(values).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(report["checksum"], hex);
    // What was written can be read: the result of one layer goes through the next.
    let next = SMALL.replace("--tokens 70", "");
    let report = strata(&format!("{next} --input {out} --out {again}")).json();
    assert_eq!(report["tokens"], 70);
    assert_ne!(f32s(&out)[64..], f32s(&again)[64..]);
    assert_eq!(folder.files(), ["y.npy", "z.npy"]);
}

#[test]
fn no_tokens_are_no_trouble() {
    let folder = Folder::new();
    let empty = folder.write("x.npy", &strata::npy::Header::write(0, 512));
    let next = SMALL.replace("--tokens 70", "");
    let report = strata(&format!("{next} --input {empty}")).json();
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!((&report["tokens"], &report["checksum"]), (&0.into(), &nothing.into()));
}

#[test]
fn a_pipe_that_nobody_reads_ends_it_quietly() {
    use std::io::Read;
    use std::process::Stdio;
    let mut child =
        command(["doctor"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}
