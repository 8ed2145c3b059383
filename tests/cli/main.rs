//! The command line as a user meets it: what it prints, and how it ends.

mod bench;
mod errors;
mod help;
#[cfg(unix)]
mod limits;
mod memory;
mod model;
mod outputs;
mod prefill;
mod raw;
mod support;
mod text;
#[cfg(unix)]
mod whole;
