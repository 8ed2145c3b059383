//! The host's part of a model: text, ids, templates, on small vocabularies.

mod common;
mod config;
mod templates;
mod tokenizer;
