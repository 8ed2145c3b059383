//! Help, versions, and what a machine has.

use super::support::{command, ended, strata};

#[test]
fn help_is_for_people_who_never_saw_the_project() {
    let help = strata("--help").ok();
    for text in ["mixture-of-experts", "prefill", "conform", "bench", "doctor", "inspect", "raw"] {
        assert!(help.contains(text), "{text} in {help}");
    }
    assert!(help.contains("Exit codes: 0 done, 1 failed or differs, 2 wrong usage"), "{help}");
    for line in help.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn every_command_explains_itself() {
    for name in [
        "generate",
        "logits",
        "score",
        "prefill",
        "conform",
        "bench",
        "doctor",
        "inspect",
        "raw",
        "raw quantize",
        "raw mmq",
        "raw dequantize",
    ] {
        let help = strata(&format!("{name} --help")).ok();
        assert!(help.contains("Usage: strata"), "{help}");
        // No option without a word on it.
        let mut lines = help.lines().peekable();
        while let Some(line) = lines.next() {
            let option = line.trim_start();
            if option.starts_with("--") && !option.contains("  ") {
                let next = lines.peek().copied().unwrap_or("");
                assert!(next.starts_with("    ") && !next.trim().is_empty(), "{name}: {line}");
            }
        }
    }
    assert!(strata("--version").ok().starts_with("strata "));
}

#[test]
fn no_command_is_wrong_usage() {
    assert_eq!(strata("").code, Some(2));
    strata("prefil").fails(2, "prefill");
    strata("prefill --tokenz 3").fails(2, "--tokens");
}

#[test]
fn doctor_lists_backends_and_tools() {
    let text = strata("doctor").ok();
    assert!(text.contains("cpu:0") && text.contains("nvcc"), "{text}");
    let report = strata("doctor --json").json();
    let backends = report["backends"].as_array().unwrap();
    let names: Vec<_> = backends.iter().map(|b| b["backend"].as_str().unwrap()).collect();
    assert_eq!(names, ["cpu", "cuda", "hip", "sycl"]);
    assert_eq!(backends[0]["devices"][0]["id"], "cpu:0");
    for backend in &backends[1..] {
        // A device, or a reason that says what to do.
        let devices = backend["devices"].as_array().unwrap();
        assert_eq!(devices.is_empty(), backend["reason"].is_string(), "{backend}");
    }
    for tool in report["tools"].as_array().unwrap() {
        // Where it is, or what to do.
        assert_ne!(tool["path"].is_string(), tool["reason"].is_string(), "{tool}");
    }
    assert_eq!(report["cpu_instruction_sets"]["plain"], true);
}

#[test]
fn doctor_works_where_nothing_is_found() {
    let mut command = command(["doctor", "--json"]);
    command.env_clear();
    let report = ended(&mut command).json();
    let nvcc = &report["tools"].as_array().unwrap()[0];
    assert_eq!(nvcc["name"], "nvcc");
    assert!(nvcc["path"].is_string() || nvcc["reason"].as_str().unwrap().contains("pip install"));
}

#[test]
fn a_backend_that_was_not_built_says_how_to_build_it() {
    let report = strata("doctor --json").json();
    for backend in report["backends"].as_array().unwrap() {
        if backend["built"] == false {
            let name = backend["backend"].as_str().unwrap();
            strata(&format!("prefill --backend {name}")).fails(
                1,
                &format!(
                    "backend {name} is not available: this binary was built without it; build with --features {name}"
                ),
            );
        }
    }
}
