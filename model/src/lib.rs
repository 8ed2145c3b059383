//! Whole models over Strata's backends: the part that runs on the host.
//!
//! - [`sample`]: the choice of a token; stop strings.
//! - [`tokenizer`]: text to ids and back, from the metadata of a GGUF file.

pub mod sample;
pub mod tokenizer;
