//! The command line as a user meets it: what it prints, and how it ends.

mod bench;
mod errors;
/// Small models of every architecture, as the tests of `strata-model` write them.
#[allow(dead_code)] // not all of it is used here
#[path = "../../model/tests/made/every.rs"]
mod every;
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
