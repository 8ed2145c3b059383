//! The command-line tool: see `strata --help`.

mod cli;

fn main() -> std::process::ExitCode {
    for (name, value) in strata::device::environment() {
        // SAFETY: nothing was started yet, so there is no other thread that could read the
        // environment.
        unsafe { std::env::set_var(name, value) };
    }
    cli::main()
}
