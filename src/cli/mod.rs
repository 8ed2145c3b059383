//! The command line: what there is, how it ends.

mod args;
mod bench;
mod conform;
mod doctor;
mod files;
mod generate;
mod inspect;
mod logits;
mod measure;
mod model;
mod output;
mod prefill;
mod progress;
mod raw;
mod report;
mod score;
mod signals;
mod text;
mod toolchain;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs layers of quantized mixture-of-experts models over a prompt, on a CPU or
/// GPU, and gives the same bytes on every one of them; whole models on the CPU.
///
/// A layer of such a model sends each token of the prompt to a few of many small
/// networks, its experts. Strata quantizes the tokens, sorts them by expert,
/// multiplies them with the experts' weights as a GGUF file holds them, and adds
/// up what comes back. Start with `strata prefill`, or with a model and
/// `strata generate`.
#[derive(Parser)]
#[command(name = "strata", version, max_term_width = 100, subcommand_required = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed or differs, 2 wrong usage, 130 interrupted.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Continue a text, or answer a message, with a GGUF model
    Generate(generate::Args),
    /// Compute the logits behind a prompt
    Logits(logits::Args),
    /// Score a text: log probabilities and perplexity
    Score(score::Args),
    /// Run a layer over a prompt: made from a seed, or taken from a GGUF model
    Prefill(prefill::Args),
    /// Compare a backend with the plain reference, byte by byte
    Conform(conform::Args),
    /// Measure steps, beside what the memory allows at best
    Bench(bench::Args),
    /// List backends, devices and compilers, and what is missing
    Doctor(doctor::Args),
    /// List the expert tensors of a GGUF model, and what runs them
    Inspect(inspect::Args),
    /// Run a single step on files of plain values
    Raw(raw::Args),
}

/// Why a command did not end well.
#[derive(Debug)]
enum Failure {
    /// The arguments cannot be meant: exit code 2.
    Usage(String),
    /// It failed, or what it compared differs: exit code 1.
    Failed(String),
    /// It differs, and all of it has been said: exit code 1.
    Differs,
    /// Nobody reads the output any more.
    Pipe,
    /// Ctrl-C, after what was there was written: exit code 130.
    Interrupted,
}

impl Failure {
    fn usage(error: impl std::fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<strata::Error> for Failure {
    fn from(error: strata::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<strata::gguf::GgufError> for Failure {
    fn from(error: strata::gguf::GgufError) -> Self {
        Self::Failed(error.to_string())
    }
}

type Outcome<T = ()> = Result<T, Failure>;

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // What backends say beside their results, a device that they pass over, say.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::WARN)
        .with_target(false)
        .without_time()
        .init();
    let outcome = match cli.command {
        Command::Generate(args) => generate::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Prefill(args) => prefill::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Raw(args) => raw::run(&args),
    };
    let (code, message) = match outcome {
        Ok(()) | Err(Failure::Pipe) => return ExitCode::SUCCESS,
        Err(Failure::Differs) => return ExitCode::from(1),
        Err(Failure::Interrupted) => return ExitCode::from(130),
        Err(Failure::Failed(message)) => (1, message),
        Err(Failure::Usage(message)) => {
            (2, format!("{message}\n\nFor more information, try '--help'."))
        }
    };
    // Where not even this can be written, the exit code still says it.
    let _ = writeln!(std::io::stderr(), "error: {message}");
    ExitCode::from(code)
}

/// Writes to standard output; `println!` would panic where nobody reads.
fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::Pipe,
        _ => Failure::Failed(format!("standard output: {error}")),
    })
}

/// Writes a JSON document to standard output.
fn print_json(value: &serde_json::Value) -> Outcome {
    print(&format!("{value:#}\n"))
}

/// Says something beside the result.
fn note(text: &str) {
    // A note that cannot be written changes no result.
    let _ = writeln!(std::io::stderr(), "strata: {text}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
