//! `strata doctor`: what this machine has, and what is missing.

use serde_json::{Value, json};
use strata::Device;
use strata::backend::BackendKind;
use strata::device::BackendState;
use strata_cpu::Isa;

use super::args::{device_json, device_text};
use super::toolchain::{self, Tool};
use super::{Outcome, print, print_json};

/// List backends and their devices, the instruction sets of the CPU, compilers and
/// runtimes: what is there, what is missing, and how to get it.
#[derive(clap::Args)]
pub struct Args {
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let backends = Device::list();
    let tools = toolchain::look();
    match args.json {
        true => print_json(&report(&backends, &tools)),
        false => print(&text(&backends, &tools)),
    }
}

fn instruction_sets() -> Vec<(&'static str, bool)> {
    Isa::ALL.into_iter().map(|isa| (isa.name(), isa.is_supported())).collect()
}

fn report(backends: &[BackendState], tools: &[Tool]) -> Value {
    let backends: Vec<Value> = backends
        .iter()
        .map(|state| {
            let (devices, reason) = match &state.devices {
                Ok(devices) => (devices.iter().map(device_json).collect(), None),
                Err(error) => (Vec::new(), Some(error.to_string())),
            };
            json!({
                "backend": state.kind.name(),
                "built": state.built,
                "devices": devices,
                "reason": reason,
            })
        })
        .collect();
    let tools: Vec<Value> = tools
        .iter()
        .map(|tool| {
            let found = tool.found.as_ref().ok();
            json!({
                "name": tool.name,
                "serves": tool.serves,
                "path": found.map(|(path, _)| path.display().to_string()),
                "version": found.and_then(|(_, version)| version.clone()),
                "reason": tool.found.as_ref().err(),
            })
        })
        .collect();
    let sets: serde_json::Map<String, Value> =
        instruction_sets().into_iter().map(|(name, has)| (name.to_owned(), has.into())).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "backends": backends,
        "cpu_instruction_sets": sets,
        "tools": tools,
    })
}

fn text(backends: &[BackendState], tools: &[Tool]) -> String {
    let mut text = format!("strata {}\n\nBackends\n", env!("CARGO_PKG_VERSION"));
    for state in backends {
        match &state.devices {
            Ok(devices) if devices.is_empty() => {
                text.push_str(&format!("  {:<5} no device\n", state.kind.name()));
            }
            Ok(devices) => {
                for device in devices {
                    text.push_str(&format!("  {:<5} {}\n", state.kind.name(), device_text(device)));
                }
                if state.kind == BackendKind::Cpu {
                    let (has, lacks): (Vec<_>, Vec<_>) =
                        instruction_sets().into_iter().partition(|&(_, has)| has);
                    let names = |sets: Vec<(&'static str, bool)>| {
                        sets.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
                    };
                    text.push_str(&format!(
                        "        has {}; has not {}; STRATA_CPU_ISA chooses\n",
                        names(has),
                        names(lacks)
                    ));
                }
            }
            Err(error) => {
                let reason = error.to_string().replace('\n', "\n        ");
                text.push_str(&format!("  {:<5} {reason}\n", state.kind.name()));
            }
        }
    }
    text.push_str("\nCompilers and runtimes\n");
    for Tool { name, serves, found } in tools {
        match found {
            Ok((path, version)) => {
                text.push_str(&format!("  {name:<12} {}\n", path.display()));
                if let Some(version) = version {
                    text.push_str(&format!("  {:<12} {version}\n", ""));
                }
            }
            Err(reason) => {
                text.push_str(&format!("  {name:<12} missing; it {serves}\n"));
                for line in reason.lines() {
                    text.push_str(&format!("  {:<12} {}\n", "", line.trim_end()));
                }
            }
        }
    }
    text
}
