//! The command-line tool: see `strata --help`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
