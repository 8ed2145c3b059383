//! Whole models over Strata's backends.
//!
//! - [`config`]: what a model computes, and the tensors it needs.
//! - [`model`]: its weights on a device. [`session`]: sequences on their way through it.
//! - [`state`]: a sequence as bytes, to be continued elsewhere.
//! - [`sample`]: the choice of a token; stop strings.
//! - [`template`]: a conversation to a prompt.
//! - [`tokenizer`]: text to ids and back, from the metadata of a GGUF file.

mod attention;
pub mod config;
mod ffn;
mod fingerprint;
mod load;
mod mixer;
mod mla;
pub mod model;
mod recurrent;
pub mod sample;
pub mod session;
pub mod state;
pub mod template;
pub mod tokenizer;

pub use model::Model;
pub use session::{Session, Space, Token};
pub use state::State;
