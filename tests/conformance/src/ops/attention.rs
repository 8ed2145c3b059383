//! Tokens into the cache, and attention over it.

use strata_core::attention::{AttentionShape, PAGE, Reach};
use strata_core::backend::ops::{AppendKv, Attend};
use strata_core::backend::{BatchLimits, KvCache, TokenBatch};
use strata_core::format::random::SplitMix64;

use super::InMatrix;
use crate::output::Shape;
use crate::poisoned::OutMatrix;
use crate::values::Values;
use crate::{Op, Output, Outputs, Stage};

/// Several sequences, read in chunks; the yardstick reads them whole.
#[derive(Debug, Clone, Copy)]
pub struct AttentionCase {
    /// The numbers.
    pub shape: AttentionShape,
    /// Tokens of each sequence.
    pub lens: &'static [u32],
    /// Tokens of a sequence in one call, 0 for all; several sequences go together.
    pub chunk: u32,
    /// Whether heads have sinks, from -20 to 20.
    pub sinks: bool,
    /// What queries, keys and values hold.
    pub values: Values,
    /// Values between rows of every matrix.
    pub gap: usize,
}

impl std::fmt::Display for AttentionCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shape, lens, chunk, sinks, values, gap } = self;
        let AttentionShape { heads, kv_heads, key, value, softcap, reach, .. } = shape;
        write!(f, "attention/heads={heads}:{kv_heads},size={key}:{value}")?;
        match reach {
            Reach::All => {}
            Reach::Window(keys) => write!(f, ",window={keys}")?,
            Reach::Chunk(keys) => write!(f, ",chunked={keys}")?,
        }
        if let Some(cap) = softcap {
            write!(f, ",softcap={cap}")?;
        }
        f.write_str(if *sinks { ",sinks/T=" } else { "/T=" })?;
        for (i, len) in lens.iter().enumerate() {
            write!(f, "{}{len}", if i == 0 { "" } else { "+" })?;
        }
        if *chunk > 0 {
            write!(f, "/chunk={chunk}")?;
        }
        if *gap > 0 {
            write!(f, "/gap={gap}")?;
        }
        write!(f, "/{values}")
    }
}

impl Op for AttentionCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Self { shape, lens, sinks, values, gap, .. } = *self;
        let longest = lens.iter().max().map_or(1, |len| *len as usize);
        let blocks = longest.div_ceil(PAGE);
        let pages = blocks * lens.len();
        let limits =
            BatchLimits { vocabulary: 1, sequences: lens.len(), pages_per_sequence: blocks, pages };
        let total = lens.iter().map(|len| *len as usize).sum();
        let mut batch = TokenBatch::with_capacity(backend, total, limits)?;
        let mut random = SplitMix64::new(blocks as u64);
        let mut table: Vec<u32> = (0..pages as u32).collect();
        for i in (1..table.len()).rev() {
            table.swap(i, random.next_u64() as usize % (i + 1));
        }
        batch.set_pages(backend, &table)?;
        let layout = shape.layout();
        let mut cache = KvCache::new(backend, layout, pages)?;
        // What no token writes is compared too.
        backend.fill(cache.data_mut(), 0xa5)?;
        let logits: Vec<f32> =
            (0..shape.heads).map(|h| 40.0 * h as f32 / shape.heads as f32 - 20.0).collect();
        let logits = backend.from_slice(&logits)?;
        let sinks = sinks.then_some(logits.view());

        let chunk = if stage.plain || self.chunk == 0 { longest as u32 } else { self.chunk };
        let mut outputs: Vec<Option<Vec<u8>>> = vec![None; total];
        let first_row = |s: usize| lens[..s].iter().sum::<u32>() as usize;
        let out_cols = shape.heads * shape.value;
        for start in (0..longest as u32).step_by(chunk as usize) {
            let (mut sequences, mut positions, mut rows) = (vec![], vec![], vec![]);
            for (s, len) in lens.iter().enumerate() {
                for position in start..(*len).min(start + chunk) {
                    sequences.push(s as u32);
                    positions.push(position);
                    rows.push(first_row(s) + position as usize);
                }
            }
            let n = rows.len();
            batch.set(backend, &vec![0; n], &sequences, &positions)?;
            let part = |seed: u64, cols: usize| {
                let all = values.fill(seed, total, cols);
                let picked: Vec<f32> =
                    rows.iter().flat_map(|row| &all[row * cols..][..cols]).copied().collect();
                InMatrix::new(backend, &picked, n, cols, gap, 0)
            };
            let keys = part(1, shape.kv_heads * shape.key)?;
            let vals = part(2, shape.kv_heads * shape.value)?;
            let queries = part(3, shape.heads * shape.key)?;
            AppendKv::new(keys.view()?, vals.view()?, &batch, &mut cache)?.launch(backend)?;
            let mut out = OutMatrix::new(backend, n, out_cols, out_cols + gap, 0)?;
            Attend::new(shape, queries.view()?, sinks, &batch, &cache, out.view()?)?
                .launch(backend)?;
            let read = out.read(backend, "attended")?;
            // Whatever the chunks, the rows are put where the whole prompt has them.
            let Shape::Matrix { start, stride, .. } = read.shape else { unreachable!("a matrix") };
            for (i, row) in rows.iter().enumerate() {
                let at = start + 4 * i * stride;
                outputs[*row] = Some(read.bytes[at..at + 4 * stride].to_vec());
            }
            // Before and behind all rows there is poison alone.
            let end = start + 4 * n * stride;
            let outside = read.bytes[..start].iter().chain(&read.bytes[end..]);
            if outside.clone().any(|byte| *byte != crate::poisoned::POISON) {
                return Err(crate::Stop::Differs("attention wrote outside its rows".into()));
            }
        }
        let bytes: Vec<u8> = outputs.into_iter().flatten().flatten().collect();
        let (cols, stride) = (out_cols, out_cols + gap);
        let attended = Output {
            what: "attended".into(),
            bytes,
            shape: Shape::Matrix { start: 0, rows: total, cols, stride },
            expected: None,
        };
        let bytes = backend.download(cache.data())?;
        let shape = Shape::Blocks { block: layout.head_bytes(), bytes: bytes.len() };
        let cache = Output { what: "cache".into(), bytes, shape, expected: None };
        Ok(vec![attended, cache])
    }
}
