//! The golden vectors, compiled in: what other implementations wrote.

use strata_core::format::dequantize;
use strata_core::rows::RowFormat;
use strata_core::{Layout, WeightType, q8_1, reference};

use super::InMatrix;
use crate::output::Output;
use crate::poisoned::OutQ8;
use crate::{Op, Outputs, Stage};
use strata_core::backend::ops::QuantizeRows;

/// The bytes of a file of `vectors/`.
macro_rules! vector {
    ($path:expr) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/", $path))
    };
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// An input of the quantizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// 96 rows of 512 normals.
    Normal,
    /// 40 rows of 512: zeros, ties, tiny, subnormal, huge, constant, sparse.
    Edge,
    /// 8 rows of 512: infinities and NaN.
    Special,
    /// 17 rows of 516.
    Ragged,
}

impl Input {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Edge, Self::Special, Self::Ragged];

    const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Edge => "edge",
            Self::Special => "special",
            Self::Ragged => "ragged",
        }
    }

    const fn cols(self) -> usize {
        match self {
            Self::Ragged => 516,
            _ => 512,
        }
    }

    fn values(self) -> Vec<f32> {
        floats(match self {
            Self::Normal => vector!("q8_1/normal.f32"),
            Self::Edge => vector!("q8_1/edge.f32"),
            Self::Special => vector!("q8_1/special.f32"),
            Self::Ragged => vector!("q8_1/ragged.f32"),
        })
    }

    /// What the reference kernel wrote.
    fn blocks(self, layout: Layout) -> &'static [u8] {
        match (self, layout) {
            (Self::Normal, Layout::D4) => vector!("q8_1/normal.D4.bin"),
            (Self::Normal, Layout::DS4) => vector!("q8_1/normal.DS4.bin"),
            (Self::Normal, Layout::D2S6) => vector!("q8_1/normal.D2S6.bin"),
            (Self::Edge, Layout::D4) => vector!("q8_1/edge.D4.bin"),
            (Self::Edge, Layout::DS4) => vector!("q8_1/edge.DS4.bin"),
            (Self::Edge, Layout::D2S6) => vector!("q8_1/edge.D2S6.bin"),
            (Self::Special, Layout::D4) => vector!("q8_1/special.D4.bin"),
            (Self::Special, Layout::DS4) => vector!("q8_1/special.DS4.bin"),
            (Self::Special, Layout::D2S6) => vector!("q8_1/special.D2S6.bin"),
            (Self::Ragged, Layout::D4) => vector!("q8_1/ragged.D4.bin"),
            (Self::Ragged, Layout::DS4) => vector!("q8_1/ragged.DS4.bin"),
            (Self::Ragged, Layout::D2S6) => vector!("q8_1/ragged.D2S6.bin"),
        }
    }

    /// Rows in which `docs/numerics.md` departs from the vectors: saturation
    /// instead of wrap-around, and the canonical NaN. There the reference says
    /// what the bytes are.
    pub const fn exempt(self, layout: Layout) -> &'static [usize] {
        match (self, layout) {
            (Self::Edge, Layout::D4) => &[11, 12],
            (Self::Edge, Layout::DS4 | Layout::D2S6) => &[11, 12, 14],
            // Single NaN leave no trace in D4: they reach the sums alone.
            (Self::Special, Layout::D4) => &[3],
            (Self::Special, Layout::DS4 | Layout::D2S6) => &[2, 3, 5],
            _ => &[],
        }
    }
}

/// A q8_1 vector.
#[derive(Debug, Clone, Copy)]
pub struct Q8Vector {
    /// Which input.
    pub input: Input,
    /// What the headers hold.
    pub layout: Layout,
}

impl std::fmt::Display for Q8Vector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "golden/q8_1/{}/{}", self.layout, self.input.name())?;
        let exempt = self.input.exempt(self.layout);
        match exempt.is_empty() {
            true => Ok(()),
            false => write!(
                f,
                "/own-rule-in-rows-{}",
                exempt.iter().map(usize::to_string).collect::<Vec<_>>().join("+")
            ),
        }
    }
}

impl Q8Vector {
    /// Rows of the input.
    pub fn rows(&self) -> usize {
        self.input.values().len() / self.input.cols()
    }

    /// The blocks of one row: what the other implementation wrote, and this project's own rule.
    pub fn row(&self, row: usize) -> (Vec<u8>, Vec<u8>) {
        let (x, cols) = (self.input.values(), self.input.cols());
        let rows = x.len() / cols;
        let blocks = self.input.blocks(self.layout).chunks_exact(q8_1::BLOCK_BYTES);
        let theirs = blocks.skip(row).step_by(rows).flatten().copied().collect();
        (theirs, reference::quantize_row(&x[row * cols..][..cols], self.layout))
    }

    /// The vector, with the exempt rows by this project's own rule.
    pub fn expected(&self) -> Vec<u8> {
        let (x, cols) = (self.input.values(), self.input.cols());
        let rows = x.len() / cols;
        let mut expected = self.input.blocks(self.layout).to_vec();
        for &row in self.input.exempt(self.layout) {
            let blocks = reference::quantize_row(&x[row * cols..][..cols], self.layout);
            for (k_block, block) in blocks.chunks_exact(q8_1::BLOCK_BYTES).enumerate() {
                let at = (k_block * rows + row) * q8_1::BLOCK_BYTES;
                expected[at..at + q8_1::BLOCK_BYTES].copy_from_slice(block);
            }
        }
        expected
    }
}

impl Op for Q8Vector {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let (x, cols) = (self.input.values(), self.input.cols());
        let rows = x.len() / cols;
        let x = InMatrix::dense(stage.backend, &x, rows, cols)?;
        let mut out = OutQ8::new(stage.backend, self.layout, rows, cols)?;
        QuantizeRows::new(x.view()?, out.view()?)?.launch(stage.backend)?;
        let output = out.read(stage.backend, "q8_1 rows")?;
        let expected = output.with_written(&self.expected());
        Ok(vec![output.expecting(expected)])
    }
}

/// A vector of the row-major formats. They are made on the host: no backend has a part in it.
#[derive(Debug, Clone, Copy)]
pub struct ActVector {
    /// Which input: normal or edge.
    pub input: Input,
    /// The format.
    pub format: RowFormat,
}

impl std::fmt::Display for ActVector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "golden/act/{}/{}", self.format, self.input.name())
    }
}

impl Op for ActVector {
    fn run(&self, _: &Stage<'_>) -> Outputs {
        let golden: &[u8] = match (self.input, self.format) {
            (Input::Normal, RowFormat::Q8_0) => vector!("act/normal.q8_0.bin"),
            (Input::Normal, RowFormat::Q8_1) => vector!("act/normal.q8_1.bin"),
            (Input::Normal, RowFormat::Q8_K) => vector!("act/normal.q8_K.bin"),
            (_, RowFormat::Q8_0) => vector!("act/edge.q8_0.bin"),
            (_, RowFormat::Q8_1) => vector!("act/edge.q8_1.bin"),
            (_, RowFormat::Q8_K) => vector!("act/edge.q8_K.bin"),
        };
        let blocks = self.format.quantize(&self.input.values(), self.input.cols())?;
        let block = self.format.block_bytes();
        Ok(vec![Output::blocks("blocks", blocks, block, golden.to_vec())])
    }
}

/// The blocks and the values of a weight vector; `source` is "quantized" or "random".
pub fn weights(ty: WeightType, source: &str) -> (&'static [u8], &'static [u8]) {
    macro_rules! files {
        ((), $($type:ident $id:literal $name:literal $block:literal / $bytes:literal
            $layout:ident $group:literal $min:expr, $sub:expr, $max:expr, $scales:expr,
            $family:ident :: $decode:ident : $doc:literal)*) => {
            match (ty, source) {
                $(
                    (WeightType::$type, "quantized") => (
                        vector!(concat!("weights/", $name, ".quantized.blocks")),
                        vector!(concat!("weights/", $name, ".quantized.f32")),
                    ),
                    (WeightType::$type, _) => (
                        vector!(concat!("weights/", $name, ".random.blocks")),
                        vector!(concat!("weights/", $name, ".random.f32")),
                    ),
                )*
                (other, _) => panic!("{other} has no vectors in vectors/weights"),
            }
        };
    }
    strata_core::for_each_weight_type!(files!())
}

/// Rows and columns of every weight vector.
pub const WEIGHT_ROWS: usize = 6;
/// See [`WEIGHT_ROWS`].
pub const WEIGHT_COLS: usize = 512;

/// A weight vector, decoded on the host.
#[derive(Debug, Clone, Copy)]
pub struct WeightVector {
    /// The type.
    pub ty: WeightType,
    /// "quantized" or "random".
    pub source: &'static str,
}

impl std::fmt::Display for WeightVector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "golden/weights/{}/{}", self.ty, self.source)
    }
}

impl Op for WeightVector {
    fn run(&self, _: &Stage<'_>) -> Outputs {
        let (blocks, golden) = weights(self.ty, self.source);
        let mut values = vec![0.0; WEIGHT_ROWS * WEIGHT_COLS];
        dequantize(self.ty, blocks, &mut values)?;
        // The vectors' zeros take the sign of a negative scale in these types; an integer zero has none.
        let signless = matches!(self.ty, WeightType::Q3_K | WeightType::Q6_K | WeightType::IQ1_S);
        let bytes = |values: Vec<f32>| -> Vec<u8> {
            let plain = |v: f32| if signless && v == 0.0 { 0.0 } else { v };
            values.into_iter().flat_map(|v| plain(v).to_le_bytes()).collect()
        };
        Ok(vec![Output::blocks("values", bytes(values), 4, bytes(floats(golden)))])
    }
}
