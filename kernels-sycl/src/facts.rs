//! What the sources are told: every fact that the host has too, stated once, here or in core.

use std::fmt::Write;

use strata_core::WeightType;
use strata_core::q8_1::{BLOCK_BYTES, BLOCK_VALUES, HEADER_BYTES, Layout};

use crate::{Dot, Form, offset};

/// Values that the product decodes at once: a q8_1 block, or a weight block where that is larger.
const fn unit(ty: WeightType) -> usize {
    if ty.block_values() > BLOCK_VALUES { ty.block_values() } else { BLOCK_VALUES }
}

/// Values of a dot product: as many as share every scale.
fn dot_values(ty: WeightType) -> usize {
    if ty.sub_scale() == Some(16) || ty.group() == 16 { 16 } else { 32 }
}

/// Words of a q8_1 block for what the codes' offset adds to each dot product.
fn biases(ty: WeightType) -> usize {
    if offset(ty) != 0 { BLOCK_VALUES / dot_values(ty) } else { 0 }
}

/// Words of a q8_1 block for the sums of the minimums.
fn sums(ty: WeightType) -> usize {
    ty.min_group().map_or(0, |values| BLOCK_VALUES / values)
}

/// Words that `prepare` makes of each q8_1 block for a type: four scales, what
/// the codes' offset adds to each dot product, and the sums of the minimums.
pub fn prepared_words(ty: WeightType) -> usize {
    4 + biases(ty) + sums(ty)
}

/// `#define`s of the text of a source.
pub(crate) struct Facts(String);

impl Facts {
    fn add(&mut self, name: impl std::fmt::Display, value: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "#define {name} {value}");
    }

    /// Of q8_1 and of the form.
    pub(crate) fn of(form: &Form) -> Self {
        let mut facts = Self(String::new());
        facts.add("BLOCK_VALUES", BLOCK_VALUES);
        facts.add("BLOCK_BYTES", BLOCK_BYTES);
        facts.add("HEADER_BYTES", HEADER_BYTES);
        for layout in [Layout::D4, Layout::DS4, Layout::D2S6] {
            facts.add(format_args!("LAYOUT_{}", layout.name().to_uppercase()), layout as u32);
        }
        for dot in Dot::ALL {
            let name = dot.name().to_uppercase().replace('-', "_");
            facts.add(format_args!("DOT_{name}"), dot as u32);
        }
        facts.add("DOT", form.dot as u32);
        facts.add("MATRIX", u32::from(form.dot.is_matrix()));
        facts.add("LANES", form.lanes);
        facts.add("SUB_GROUP", form.sub_group);
        facts.add("WORK_GROUP", form.work_group);
        facts.add("VECTORS", form.vectors);
        facts.add("TILE_ROWS", form.tile_rows());
        facts.add("TILE_TOKENS", form.tile_tokens);
        facts.add("STEP", form.step);
        facts.add("UNIT_ROWS", form.unit_rows());
        facts.add("COLUMNS", form.columns());
        facts.add("SCORE_TOKENS", form.score_tokens());
        facts
    }

    /// And of the weight type of a product.
    pub(crate) fn and_of(mut self, ty: WeightType) -> Self {
        // The decoder's name is the type's, in lower case.
        self.add("FORMAT", ty.name().to_lowercase());
        self.add("BLOCK", ty.block_values());
        self.add("BYTES", ty.block_bytes());
        self.add("GROUP", ty.group());
        self.add("SUB_SCALE", ty.sub_scale().unwrap_or(0));
        self.add("MIN_GROUP", ty.min_group().unwrap_or(0));
        self.add("OFFSET", offset(ty));
        self.add("LAYOUT", ty.layout() as u32);
        self.add("UNIT", unit(ty));
        self.add("DOT_VALUES", dot_values(ty));
        self.add("BIASES", biases(ty));
        self.add("SUMS", sums(ty));
        self.add("PREPARED", prepared_words(ty));
        self
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}
