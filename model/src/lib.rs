//! Whole models over Strata's backends: the part that runs on the host.
//!
//! - [`config`]: what a model computes, and the tensors it needs.
//! - [`sample`]: the choice of a token; stop strings.
//! - [`template`]: a conversation to a prompt.
//! - [`tokenizer`]: text to ids and back, from the metadata of a GGUF file.

pub mod config;
pub mod sample;
pub mod template;
pub mod tokenizer;
