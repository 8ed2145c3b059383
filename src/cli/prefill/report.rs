//! What `strata prefill` prints.

use serde_json::{Value, json};
use strata::backend::Backend;
use strata::prefill::{GateUpWeights, Options, PhaseTime};

use super::{Run, Source};
use crate::cli::args;
use crate::cli::report::{self, bytes, ms, ops, ops_rate};

fn types(gate_up: &GateUpWeights) -> Vec<&'static str> {
    match gate_up {
        GateUpWeights::Merged { tensor, .. } => vec![tensor.ty().name()],
        GateUpWeights::Separate { gate, up } => vec![gate.ty().name(), up.ty().name()],
        GateUpWeights::UpOnly { up } => vec![up.ty().name()],
    }
}

/// For scripts.
pub(super) fn json(backend: &dyn Backend, source: &Source, options: &Options, run: &Run) -> Value {
    let layer = &source.layer;
    let phases: Vec<Value> = run
        .timings
        .phases
        .iter()
        .map(|p| {
            json!({
                "phase": p.phase.name(),
                "seconds": p.time.as_secs_f64(),
                "bytes": p.cost.bytes,
                "gb_per_s": report::gb_per_s(p.cost.bytes, p.time),
                "ops": p.cost.ops,
                "gops": p.cost.ops as f64 / report::seconds(p.time) / 1e9,
            })
        })
        .collect();
    json!({
        "source": source.json,
        "device": args::device_json(backend.device()),
        "layer": {
            "experts": layer.experts(),
            "top_k": layer.k(),
            "width": layer.width(),
            "ffn": layer.ffn(),
            "gate_up": types(layer.gate_up()),
            "down": layer.down().ty().name(),
            "shared_expert": layer.shared().is_some(),
            "weight_bytes": layer.weight_bytes(),
        },
        "tokens": run.tokens,
        "quant": options.quant.name(),
        "chunk": run.timings.chunk,
        "chunks": run.timings.chunks,
        "checked": options.checked,
        "fused": options.fused,
        "load_seconds": run.loading.as_secs_f64(),
        "phases": phases,
        "seconds": run.timings.total().as_secs_f64(),
        "workspace_bytes": run.workspace_bytes,
        "scratch_bytes": backend.scratch(),
        "peak_memory_bytes": report::peak_memory(),
        "checksum": run.checksum,
    })
}

/// For readers.
pub(super) fn text(backend: &dyn Backend, source: &Source, options: &Options, run: &Run) -> String {
    let (layer, timings) = (&source.layer, &run.timings);
    let shared = if layer.shared().is_some() { ", a shared expert" } else { "" };
    let head = [
        ("layer", source.text.clone()),
        (
            "",
            format!(
                "{} expert{}, {} per token, {} wide, {} hidden{shared}",
                layer.experts(),
                if layer.experts() == 1 { "" } else { "s" },
                layer.k(),
                layer.width(),
                layer.ffn()
            ),
        ),
        (
            "weights",
            format!(
                "gate and up {}, down {}; {}, there after {} ms",
                types(layer.gate_up()).join(" and "),
                layer.down().ty(),
                bytes(layer.weight_bytes() as u64),
                ms(run.loading)
            ),
        ),
        ("device", args::device_text(backend.device())),
        (
            "tokens",
            format!(
                "{} in {} chunk{} of {}, {}, {}, {}",
                run.tokens,
                timings.chunks,
                if timings.chunks == 1 { "" } else { "s" },
                timings.chunk,
                options.quant,
                if options.checked { "checked" } else { "not checked" },
                if options.fused { "fused" } else { "not fused" }
            ),
        ),
    ];
    let mut text: String =
        head.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect();
    text.push('\n');
    let sum = |of: fn(&PhaseTime) -> u64| timings.phases.iter().map(of).sum();
    let row = |name: &str, time, moved, done| {
        let (done_text, rate) = match done {
            0 => (String::new(), String::new()),
            done => (ops(done), ops_rate(done, time)),
        };
        let rate_bytes = report::significant(report::gb_per_s(moved, time));
        vec![name.to_owned(), ms(time), bytes(moved), rate_bytes, done_text, rate]
    };
    let mut rows: Vec<_> = timings
        .phases
        .iter()
        .map(|p| row(p.phase.name(), p.time, p.cost.bytes, p.cost.ops))
        .collect();
    rows.push(row("total", timings.total(), sum(|p| p.cost.bytes), sum(|p| p.cost.ops)));
    text.push_str(&report::table(&["phase", "ms", "bytes", "GB/s", "ops", "rate"], &rows));
    let peak = report::peak_memory().map_or("not known".to_owned(), bytes);
    let scratch = match backend.scratch() {
        0 => String::new(),
        scratch => format!(", {} that threads work in", bytes(scratch)),
    };
    text.push_str(&format!(
        "\nmemory    {} for the buffers of a chunk{scratch}; {peak} at the peak of the process\n",
        bytes(run.workspace_bytes)
    ));
    text.push_str(&format!("checksum  {}\n", run.checksum));
    if run.cold {
        text.push_str("times     of a first run, in which memory and caches are cold; --runs 5 shows the fastest of 5\n");
    }
    text
}
