//! The SYCL kernels of Strata.
//!
//! They are C++ source under `sycl/`, carried as text: the DPC++ runtime
//! compiles them for the device that is there, a weight type on its first use.
//! A [`Unit`] is what is compiled at once, a [`Form`] how, and
//! [`Form::defines`] what that means to the source.
#![warn(missing_docs)]

mod form;
mod tables;

pub use form::{Dot, Form};
pub use tables::{offset, table};

use strata_core::WeightType;

/// Files that sources include, as (name, text).
pub const HEADERS: [(&str, &str); 7] = [
    ("activation.hpp", include_str!("../sycl/activation.hpp")),
    ("base.hpp", include_str!("../sycl/base.hpp")),
    ("dot.hpp", include_str!("../sycl/dot.hpp")),
    ("format.hpp", include_str!("../sycl/format.hpp")),
    ("functions.hpp", include_str!("../sycl/functions.hpp")),
    ("matrix.hpp", include_str!("../sycl/matrix.hpp")),
    ("q8.hpp", include_str!("../sycl/q8.hpp")),
];

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
    /// Its source.
    pub fn source(self) -> &'static str {
        match self {
            Self::Check => include_str!("../sycl/check.cpp"),
            Self::Layer => include_str!("../sycl/layer.cpp"),
            Self::Routing => include_str!("../sycl/routing.cpp"),
            Self::Mmq(_) => include_str!("../sycl/mmq.cpp"),
        }
    }

    /// The options that a build of it takes: the numerics, the form, and what
    /// core knows of the weight type.
    pub fn options(self, form: &Form) -> Vec<String> {
        let mut options: Vec<String> = NUMERICS.map(String::from).to_vec();
        options.extend(form.defines());
        if let Self::Mmq(ty) = self {
            options.extend(type_defines(ty));
        }
        options
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

fn type_defines(ty: WeightType) -> [String; 8] {
    [
        // The decoder's name is the type's, in lower case.
        format!("-DFORMAT={}", ty.name().to_lowercase()),
        format!("-DBLOCK={}", ty.block_values()),
        format!("-DBYTES={}", ty.block_bytes()),
        format!("-DGROUP={}", ty.group()),
        format!("-DSUB_SCALE={}", ty.sub_scale().unwrap_or(0)),
        format!("-DMIN_GROUP={}", ty.min_group().unwrap_or(0)),
        format!("-DOFFSET={}", offset(ty)),
        format!("-DLAYOUT={}", ty.layout() as u32),
    ]
}

/// Words that `prepare` makes of each q8_1 block for a type: four scales, what
/// the codes' offset adds to each dot product, and the sums of the minimums.
pub fn prepared_words(ty: WeightType) -> usize {
    let dot = if ty.sub_scale() == Some(16) || ty.group() == 16 { 16 } else { 32 };
    let biases = if offset(ty) != 0 { 128 / dot } else { 0 };
    4 + biases + ty.min_group().map_or(0, |values| 128 / values)
}
