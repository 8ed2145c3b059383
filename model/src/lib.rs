//! Whole models over Strata's backends: the part that runs on the host.
//!
//! - [`tokenizer`]: text to ids and back, from the metadata of a GGUF file.

pub mod tokenizer;
