//! Limits of a process: an error with figures, never an abort or a kill.

use std::process::Command;

use super::support::{Folder, Model};

/// Runs the tool with so many kB of address space or data.
fn limited(limit: &str, kilobytes: usize, args: &str) -> (Option<i32>, String) {
    let strata = env!("CARGO_BIN_EXE_strata");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit} {kilobytes} && exec {strata} {args} > /dev/null")]);
    let output = shell.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_limit_of_the_process_is_an_error_with_figures() {
    let folder = Folder::new();
    let model = Model::default().write(&folder, "m.gguf");
    let rows = 400_000;
    let mut npy = strata::npy::Header::write(rows, Model::WIDTH);
    npy.resize(npy.len() + rows * Model::WIDTH * 4, 0);
    let input = folder.write("x.npy", &npy);
    let cpu = "prefill --backend cpu --threads 1";
    for args in [
        format!("{cpu} --experts 64 --tokens 512"),
        format!("{cpu} --model {model} --tokens 400000"),
        format!("{cpu} --model {model} --tokens 400000 --chunk auto:400000"),
        format!("{cpu} --model {model} --input {input}"),
        format!("{cpu} --model {model} --input {input} --chunk auto:400000"),
        format!("{cpu} --experts 2 --top-k 1 --tokens 100000"),
        "bench mmq --backend cpu --threads 1 --experts 64 --tokens 512 --types q4_K --runs 1"
            .into(),
        "bench layer --backend cpu --threads 1 --experts 64 --tokens 512 --types q4_K --runs 1"
            .into(),
    ] {
        let mut refused = 0;
        for limit in ["-v", "-d"] {
            for kilobytes in [60_000, 100_000, 150_000, 220_000, 300_000] {
                let (code, stderr) = limited(limit, kilobytes, &args);
                assert!(
                    matches!(code, Some(0 | 1)),
                    "{limit} {kilobytes} {args}: {code:?} {stderr}"
                );
                if code == Some(1) {
                    let figures = stderr.contains("out of memory: asked for");
                    assert!(figures, "{limit} {kilobytes} {args}: {stderr}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "{args}");
    }
}
