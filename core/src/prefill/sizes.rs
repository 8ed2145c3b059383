//! What a workspace consists of: one table. Its size, what is allocated and the table in
//! `docs/architecture.md` follow from it.

use super::layer::MoeLayer;
use super::options::{Options, QuantMode};
use bytemuck::Pod;

use crate::backend::{Backend, Buffer};
use crate::{Error, Result, q8_1};

/// A buffer of a workspace, or some of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Scores,
    Routes,
    MapRows,
    MapBounds,
    Report,
    Input,
    GateUp,
    Hidden,
    HiddenQ8,
    Down,
    SharedScore,
    SharedInput,
    SharedGateUp,
    SharedHidden,
    SharedHiddenQ8,
    SharedDown,
    Weighed,
    Copies,
    WeighedRoutes,
    WeighedMapRows,
    WeighedMapBounds,
    IdentityRows,
    IdentityBounds,
}

/// What stands in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    F32,
    /// Integers of four bytes, or f32 beside them.
    Words,
    Q8,
}

/// A number that follows from the layer, the options and the tokens of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    One,
    Two,
    Tokens,
    /// Tokens times choices.
    Rows,
    /// Rows that the experts' input is quantized for.
    Read,
    Experts,
    ExpertsAndOne,
    Width,
    Ffn,
    TwoFfn,
    SharedFfn,
    TwoSharedFfn,
}

/// What a buffer is there for; else it has no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    Router,
    NotFused,
    Shared,
    SharedNotFused,
    Weighed,
    /// Weights on inputs, of several experts per token.
    Copied,
}

struct Row {
    part: Part,
    name: &'static str,
    values: Values,
    rows: Count,
    cols: Count,
    when: When,
}

const fn row(
    part: Part,
    name: &'static str,
    values: Values,
    rows: Count,
    cols: Count,
    when: When,
) -> Row {
    Row { part, name, values, rows, cols, when }
}

/// The table.
#[rustfmt::skip]
const TABLE: &[Row] = &{
    use Count::*;
    use Part::*;
    use Values::*;
    [
        row(Part::Scores, "scores", F32, Tokens, Experts, When::Router),
        row(Part::Routes, "routes: ids and weights", Words, Rows, Two, When::Always),
        row(MapRows, "map: `slot` and `src`", Words, Rows, Two, When::Always),
        row(MapBounds, "map: `bounds`", Words, One, ExpertsAndOne, When::Always),
        row(Report, "report", Words, One, One, When::Always),
        row(Input, "input", Q8, Read, Width, When::Always),
        row(GateUp, "gate and up", F32, Rows, TwoFfn, When::Always),
        row(Hidden, "hidden", F32, Rows, Ffn, When::NotFused),
        row(HiddenQ8, "hidden, quantized", Q8, Rows, Ffn, When::Always),
        row(Down, "down", F32, Rows, Width, When::Always),
        row(SharedScore, "shared expert: score", F32, Tokens, One, When::Shared),
        row(SharedInput, "shared expert: input", Q8, Tokens, Width, When::Shared),
        row(SharedGateUp, "shared expert: gate and up", F32, Tokens, TwoSharedFfn, When::Shared),
        row(SharedHidden, "shared expert: hidden", F32, Tokens, SharedFfn, When::SharedNotFused),
        row(SharedHiddenQ8, "shared expert: hidden, quantized", Q8, Tokens, SharedFfn, When::Shared),
        row(SharedDown, "shared expert: down", F32, Tokens, Width, When::Shared),
        row(Weighed, "weighed tokens", F32, Rows, Width, When::Weighed),
        row(Copies, "copies of tokens", F32, Rows, Width, When::Copied),
        row(WeighedRoutes, "one route for each row", Words, Rows, Two, When::Weighed),
        row(WeighedMapRows, "weighed tokens' map: `slot` and `src`", Words, Rows, Two, When::Weighed),
        row(WeighedMapBounds, "weighed tokens' map: `bounds`", Words, One, ExpertsAndOne, When::Weighed),
        row(IdentityRows, "map of one expert: `slot` and `src`", Words, Rows, Two, When::Weighed),
        row(IdentityBounds, "map of one expert: `bounds`", Words, One, Two, When::Weighed),
    ]
};

/// What the sizes of the buffers follow from in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) experts: usize,
    pub(super) k: usize,
    pub(super) width: usize,
    ffn: usize,
    shared_ffn: usize,
    pub(super) weighs_input: bool,
}

impl Shape {
    pub(super) fn of(layer: &MoeLayer) -> Self {
        Self {
            experts: layer.experts(),
            k: layer.k(),
            width: layer.width(),
            ffn: layer.ffn(),
            shared_ffn: layer.shared().map_or(0, |s| s.down.cols()),
            weighs_input: layer.weighs_input(),
        }
    }

    pub(super) fn has_shared(&self) -> bool {
        self.shared_ffn > 0
    }
}

/// The sizes of a workspace's buffers for some tokens.
pub(super) struct Sizes<'a> {
    pub(super) shape: Shape,
    pub(super) has_router: bool,
    pub(super) tokens: usize,
    pub(super) options: &'a Options,
}

impl<'a> Sizes<'a> {
    pub(super) fn of(layer: &MoeLayer, tokens: usize, options: &'a Options) -> Self {
        Self { shape: Shape::of(layer), has_router: layer.has_router(), tokens, options }
    }

    fn count(&self, count: Count) -> Option<usize> {
        let Self { shape, tokens, .. } = self;
        match count {
            Count::One => Some(1),
            Count::Two => Some(2),
            Count::Tokens => Some(*tokens),
            Count::Rows => tokens.checked_mul(shape.k),
            Count::Read => {
                let by_token = self.options.quant == QuantMode::Indexed && !shape.weighs_input;
                self.count(if by_token { Count::Tokens } else { Count::Rows })
            }
            Count::Experts => Some(shape.experts),
            Count::ExpertsAndOne => shape.experts.checked_add(1),
            Count::Width => Some(shape.width),
            Count::Ffn => Some(shape.ffn),
            Count::TwoFfn => shape.ffn.checked_mul(2),
            Count::SharedFfn => Some(shape.shared_ffn),
            Count::TwoSharedFfn => shape.shared_ffn.checked_mul(2),
        }
    }

    fn is_there(&self, when: When) -> bool {
        let Self { shape, options, .. } = self;
        match when {
            When::Always => true,
            When::Router => self.has_router,
            When::NotFused => !options.fused,
            When::Shared => shape.has_shared(),
            When::SharedNotFused => shape.has_shared() && !options.fused,
            When::Weighed => shape.weighs_input,
            When::Copied => shape.weighs_input && shape.k > 1,
        }
    }

    /// Values, or bytes of q8_1; None on overflow.
    fn len(&self, row: &Row) -> Option<usize> {
        if !self.is_there(row.when) {
            return Some(0);
        }
        let (rows, cols) = (self.count(row.rows)?, self.count(row.cols)?);
        match row.values {
            Values::F32 | Values::Words => rows.checked_mul(cols),
            Values::Q8 => q8_1::bytes(rows, cols).ok(),
        }
    }

    /// Bytes of all buffers.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they overflow.
    pub(super) fn bytes(&self) -> Result<usize> {
        let mut bytes = TABLE.iter().map(|row| {
            let size = if row.values == Values::Q8 { 1 } else { 4 };
            self.len(row)?.checked_mul(size)
        });
        let sum = bytes.try_fold(0usize, |sum, bytes| sum.checked_add(bytes?));
        sum.ok_or_else(|| self.overflow())
    }

    /// Memory for a part.
    pub(super) fn alloc<T: Pod>(&self, backend: &dyn Backend, part: Part) -> Result<Buffer<T>> {
        let row = TABLE.iter().find(|row| row.part == part).ok_or_else(|| self.overflow())?;
        let len = self.len(row).ok_or_else(|| {
            let what = format!("chunk: {}", row.name);
            Error::invalid(what, self.tokens, "fewer tokens: the buffer is past 2^64 bytes")
        })?;
        backend.alloc(len)
    }

    fn overflow(&self) -> Error {
        Error::invalid("chunk", self.tokens, "buffers below 2^64 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(count: Count) -> &'static str {
        match count {
            Count::One => "1",
            Count::Two => "2",
            Count::Tokens => "tokens",
            Count::Rows => "rows",
            Count::Read => "rows; tokens where indexed and without weights on inputs",
            Count::Experts => "experts",
            Count::ExpertsAndOne => "experts + 1",
            Count::Width => "width",
            Count::Ffn => "ffn",
            Count::TwoFfn => "2 ffn",
            Count::SharedFfn => "shared ffn",
            Count::TwoSharedFfn => "2 shared ffn",
        }
    }

    fn table() -> String {
        let mut text_of =
            String::from("| buffer | values | rows | columns | where |\n|---|---|---|---|---|\n");
        for row in TABLE {
            let values = match row.values {
                Values::F32 => "f32",
                Values::Words => "4 bytes",
                Values::Q8 => "q8_1",
            };
            let when = match row.when {
                When::Always => "always",
                When::Router => "the layer has a router",
                When::NotFused => "not fused",
                When::Shared => "a shared expert",
                When::SharedNotFused => "a shared expert, not fused",
                When::Weighed => "weights on inputs",
                When::Copied => "weights on inputs, k above 1",
            };
            let (rows, cols) = (text(row.rows), text(row.cols));
            text_of.push_str(&format!("| {} | {values} | {rows} | {cols} | {when} |\n", row.name));
        }
        text_of
    }

    /// `docs/architecture.md` has the table as it is here.
    #[test]
    fn the_page_has_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/architecture.md");
        let Ok(page) = std::fs::read_to_string(page) else {
            return eprintln!("skipped: this package has no docs beside it");
        };
        let table = table();
        assert!(page.contains(&table), "docs/architecture.md should have\n{table}");
    }

    #[test]
    fn a_part_has_one_row() {
        for row in TABLE {
            assert_eq!(TABLE.iter().filter(|other| other.part == row.part).count(), 1);
        }
    }
}
