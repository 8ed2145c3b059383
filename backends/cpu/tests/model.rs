//! What the operations of whole models refuse, and in which words.

use strata_core::Error;
use strata_core::attention::{AttentionShape, Pairs, Reach};
use strata_core::backend::ops::{
    AppendKv, Attend, By, Embed, FloatMatrix, Matrix, MatrixMut, Norm, NormKind, Pointwise, Rope,
    Table,
};
use strata_core::backend::{Backend, BatchLimits, KvCache, TokenBatch};
use strata_core::floats::FloatType;
use strata_cpu::{CpuBackend, CpuOptions};

const LIMITS: BatchLimits =
    BatchLimits { vocabulary: 10, sequences: 2, pages_per_sequence: 3, pages: 5 };
const SHAPE: AttentionShape = AttentionShape {
    heads: 4,
    kv_heads: 2,
    key: 8,
    value: 4,
    scale: 1.0,
    softcap: None,
    reach: Reach::All,
};

fn cpu() -> Box<dyn Backend> {
    Box::new(CpuBackend::new(CpuOptions::default()).unwrap())
}

fn refused<T>(result: Result<T, Error>, words: &str) {
    match result {
        Err(error) => assert!(error.to_string().contains(words), "{error}, expected {words}"),
        Ok(_) => panic!("not refused: {words}"),
    }
}

#[test]
fn batches() {
    let backend = &*cpu();
    for limits in [
        BatchLimits { vocabulary: 0, ..LIMITS },
        BatchLimits { sequences: 0, ..LIMITS },
        BatchLimits { pages: 1 << 31, ..LIMITS },
        BatchLimits { pages_per_sequence: 1 << 26, ..LIMITS },
        BatchLimits { pages_per_sequence: usize::MAX, ..LIMITS },
    ] {
        refused(TokenBatch::with_capacity(backend, 4, limits), "expected 1 to 2^31 - 1");
    }
    let mut batch = TokenBatch::with_capacity(backend, 4, LIMITS).unwrap();
    refused(batch.set_pages(backend, &[0; 5]), "given 5, expected 6");
    refused(batch.set_pages(backend, &[0, 1, 2, 3, 5, 4]), "page 4: given 5, expected below 5");
    batch.set_pages(backend, &[4, 1, 2, 3, 0, 1]).unwrap();
    refused(batch.set(backend, &[0; 5], &[0; 5], &[0, 1, 2, 3, 4]), "at most 4, the capacity");
    refused(batch.set(backend, &[0; 2], &[0; 1], &[0, 1]), "given 1, expected 2");
    refused(batch.set(backend, &[9, 10], &[0; 2], &[0, 1]), "id 1: given 10, expected below 10");
    refused(batch.set(backend, &[0; 2], &[0, 2], &[0, 1]), "sequence 1: given 2");
    refused(batch.set(backend, &[0; 2], &[0; 2], &[0, 192]), "position 1: given 192");
    // Twice the same position, and two sequences on one page.
    refused(batch.set(backend, &[0; 3], &[0; 3], &[7, 5, 7]), "token 2: given the place");
    refused(batch.set(backend, &[0; 2], &[0, 1], &[64, 128]), "token 1: given the place");
    assert_eq!(batch.tokens(), 0);
    batch.set(backend, &[9, 0, 1], &[0, 1, 0], &[191, 191, 0]).unwrap();
    assert_eq!(batch.tokens(), 3);
    assert_eq!(backend.download(batch.ids()).unwrap(), [9, 0, 1]);
    assert_eq!(backend.download(batch.positions()).unwrap(), [191, 191, 0]);
    // On another stream only behind this one.
    let other = backend.fork().unwrap();
    let table = backend.from_slice(&[0u8; 40]).unwrap();
    let mut out = backend.alloc::<f32>(3).unwrap();
    let mut embed = |on: &dyn Backend| {
        let table = Table::Floats(FloatMatrix::new("table", &table, FloatType::F32, 10, 1)?);
        let out = MatrixMut::dense("out", &mut out, 3, 1)?;
        Embed::new(table, &batch, None, out)?.launch(on)
    };
    embed(backend).unwrap();
    refused(embed(&*other), "embed: batch: another stream used it last");
    backend.synchronize().unwrap();
    embed(&*other).unwrap();
}

#[test]
fn operations() {
    let backend = &*cpu();
    let mut batch = TokenBatch::with_capacity(backend, 4, LIMITS).unwrap();
    batch.set_pages(backend, &[0, 1, 2, 3, 4, 4]).unwrap();
    batch.set(backend, &[1, 2], &[0, 0], &[70, 71]).unwrap();
    let floats = backend.from_slice(&[0.0f32; 256]).unwrap();
    let mut buffer = backend.from_slice(&[0.0f32; 256]).unwrap();
    let m = |rows, cols| Matrix::dense("m", &floats, rows, cols).unwrap();

    let bytes = backend.from_slice(&[0u8; 18]).unwrap();
    let table = |rows, cols| FloatMatrix::new("table", &bytes, FloatType::F16, rows, cols);
    refused(table(5, 2), "given 18 bytes, expected 5 x 2 F16");
    let out = MatrixMut::dense("out", &mut buffer, 2, 1).unwrap();
    let small = Table::Floats(table(9, 1).unwrap());
    refused(Embed::new(small, &batch, None, out), "at most 9, the rows of the table");

    let out = MatrixMut::dense("out", &mut buffer, 2, 6).unwrap();
    refused(Norm::new(m(2, 6), NormKind::Rms(None), 4, 0.0, out), "in groups of 4");
    let out = MatrixMut::dense("out", &mut buffer, 2, 6).unwrap();
    let weight = NormKind::Rms(Some(floats.slice(..4).unwrap()));
    refused(Norm::new(m(2, 6), weight, 6, 0.0, out), "weights: given 4, expected 6");

    let x = MatrixMut::dense("x", &mut buffer, 2, 6).unwrap();
    refused(Pointwise::new(x, By::SigmoidGate(m(2, 4))), "a divisor of 6");
    let x = MatrixMut::dense("x", &mut buffer, 2, 6).unwrap();
    refused(Pointwise::new(x, By::Softcap(-1.0)), "given -1, expected above 0");

    let x = MatrixMut::dense("x", &mut buffer, 2, 16).unwrap();
    let short = Rope::new(x, 8, m(71, 2), m(71, 2), Pairs::Halves, &batch);
    refused(short, "given 71, expected at least 72");
    let x = MatrixMut::dense("x", &mut buffer, 2, 16).unwrap();
    refused(Rope::new(x, 8, m(2, 5), m(2, 5), Pairs::Halves, &batch), "at most 4, half a head");

    refused(KvCache::new(backend, SHAPE.layout(), usize::MAX), "pages");
    let mut cache = KvCache::new(backend, SHAPE.layout(), 4).unwrap();
    let append = AppendKv::new(m(2, 16), m(2, 8), &batch, &mut cache);
    refused(append, "pages of the batch: given 5, expected at most 4");
    let mut cache = KvCache::new(backend, SHAPE.layout(), 5).unwrap();
    refused(AppendKv::new(m(2, 8), m(2, 8), &batch, &mut cache), "columns of the keys");
    let mut attend = |shape, sinks| {
        let out = MatrixMut::dense("out", &mut buffer, 2, 16).unwrap();
        Attend::new(shape, m(2, 32), sinks, &batch, &cache, out).map(|_| ())
    };
    attend(SHAPE, None).unwrap();
    refused(attend(AttentionShape { key: 16, ..SHAPE }, None), "cache: given");
    refused(attend(AttentionShape { scale: 0.0, ..SHAPE }, None), "scale: given 0");
    refused(attend(SHAPE, Some(floats.slice(..3).unwrap())), "sinks: given 3, expected 4");
}
