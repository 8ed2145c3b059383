//! The SYCL kernels of Strata.
//!
//! They are C++ source under `sycl/`, carried as text: the DPC++ runtime
//! compiles them for the device that is there, a weight type on its first use.
//! A [`Unit`] is what is compiled at once and a [`Form`] how. What the sources
//! need to know of the form, of q8_1 and of a weight type stands before them in
//! [`Unit::source`], from core and from the form alone.
#![warn(missing_docs)]

pub mod args;
mod facts;
mod form;
mod tables;

pub use facts::prepared_words;
pub use form::{Dot, Form};
pub use tables::{offset, table};

use facts::Facts;
use strata_core::WeightType;

/// A source by its name.
macro_rules! sources {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../sycl/", $name)))),*]
    };
}

/// All sources, as (name, text): those that others include, and those of units.
pub const SOURCES: [(&str, &str); 23] = sources! {
    "activation.hpp" "base.hpp" "dot.hpp" "format.hpp" "functions.hpp" "matrix.hpp" "q8.hpp"
    "product/args.hpp" "product/prepare.hpp" "product/unit.hpp" "product/dots.hpp"
    "product/decode_each.hpp" "product/decode_sixteen.hpp" "product/lanes.hpp"
    "product/vectors.hpp" "product/sub_group.hpp" "product/tiles.hpp" "product/minimums.hpp"
    "product/multiply.hpp"
    "check.cpp" "layer.cpp" "routing.cpp" "mmq.cpp"
};

/// What is compiled at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Probes of the device's arithmetic.
    Check,
    /// Quantization, SwiGLU, router scores, combine.
    Layer,
    /// Top-k and the map.
    Routing,
    /// The product with one weight type.
    Mmq(WeightType),
}

impl Unit {
    /// Its source in [`SOURCES`].
    pub const fn file(self) -> &'static str {
        match self {
            Self::Check => "check.cpp",
            Self::Layer => "layer.cpp",
            Self::Routing => "routing.cpp",
            Self::Mmq(_) => "mmq.cpp",
        }
    }

    /// What is compiled: SYCL's headers, the facts, and its file.
    pub fn source(self, form: &Form) -> String {
        let facts = Facts::of(form);
        let facts = match self {
            Self::Mmq(ty) => facts.and_of(ty),
            _ => facts,
        };
        let matrix = match form.dot {
            Dot::JointMatrix => "#include <sycl/ext/oneapi/matrix/matrix.hpp>\n",
            _ => "",
        };
        // The declaration ends what compilers call the preamble: up to there it is the same for
        // all units, and a compiler that keeps it reads SYCL's headers once.
        format!(
            "#include <sycl/sycl.hpp>\n{matrix}namespace strata {{}}\n{}#include \"{}\"\n",
            facts.text(),
            self.file()
        )
    }
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Check => f.write_str("check"),
            Self::Layer => f.write_str("layer"),
            Self::Routing => f.write_str("routing"),
            Self::Mmq(ty) => write!(f, "mmq {ty}"),
        }
    }
}

/// The options that docs/numerics.md asks for: no contraction, and correctly
/// rounded division and square root, which GPUs do not have by default.
pub const NUMERICS: [&str; 3] =
    ["-ffp-contract=off", "-foffload-fp32-prec-div", "-foffload-fp32-prec-sqrt"];

/// The option by which libsycl 9 and later read SYCL's headers once in a process.
pub const HEADERS_ONCE: &str = "--auto-pch";
