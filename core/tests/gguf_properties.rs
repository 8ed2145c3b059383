//! Properties: what is written is read back, and damage neither panics nor costs memory.

mod gguf_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use gguf_support::{SHAPE, filled, moe_writer, walk};
use proptest::collection::vec;
use proptest::prelude::*;
use strata_core::gguf::{Gguf, GgufFile, MetaValue, TensorType, Value, ValueType, Writer};

/// Counts what this thread holds. The counters have no destructors and are not lazily made, so
/// they may be used inside the allocator.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    let held = HELD.get() + change;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `at` came from `alloc` above, which is the system's, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes held at once while `f` ran, beyond those held before.
fn peak<T>(f: impl FnOnce() -> T) -> (usize, T) {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    ((PEAK.get() - before).try_into().unwrap_or(0), result)
}

/// What reading a file may hold: the shortest entry of a table takes 14 or 33 bytes in the file
/// and 48 or 112, growth doubled, in memory; and something for messages.
fn allowed(len: usize) -> usize {
    16 * len + 16 * 1024
}

/// Reads and walks bytes that may be anything; returns whether they were a model.
fn read(bytes: &[u8]) -> bool {
    // A second magic begins a second part.
    let cut = bytes.windows(4).skip(1).position(|four| four == b"GGUF").map(|at| at + 1);
    let pieces = match cut {
        Some(cut) => vec![&bytes[..cut], &bytes[cut..]],
        None => vec![bytes],
    };
    let owned: Vec<std::sync::Arc<Vec<u8>>> =
        pieces.iter().map(|piece| std::sync::Arc::new(piece.to_vec())).collect();
    let (held, model) = peak(|| {
        let parts: Result<Vec<_>, _> =
            owned.into_iter().map(|piece| GgufFile::from_bytes("damaged", piece)).collect();
        let model = parts.and_then(Gguf::from_parts);
        if let Err(error) = &model {
            assert!(!error.to_string().is_empty());
        }
        if let Ok(model) = &model {
            walk(model);
        }
        model.is_ok()
    });
    assert!(held <= allowed(bytes.len()), "held {held} bytes for a file of {}", bytes.len());
    model
}

fn scalar(ty: ValueType) -> BoxedStrategy<MetaValue> {
    match ty {
        ValueType::U8 => any::<u8>().prop_map(MetaValue::U8).boxed(),
        ValueType::I8 => any::<i8>().prop_map(MetaValue::I8).boxed(),
        ValueType::U16 => any::<u16>().prop_map(MetaValue::U16).boxed(),
        ValueType::I16 => any::<i16>().prop_map(MetaValue::I16).boxed(),
        ValueType::U32 => any::<u32>().prop_map(MetaValue::U32).boxed(),
        ValueType::I32 => any::<i32>().prop_map(MetaValue::I32).boxed(),
        ValueType::F32 => any::<f32>().prop_map(MetaValue::F32).boxed(),
        ValueType::Bool => any::<bool>().prop_map(MetaValue::Bool).boxed(),
        ValueType::U64 => any::<u64>().prop_map(MetaValue::U64).boxed(),
        ValueType::I64 => any::<i64>().prop_map(MetaValue::I64).boxed(),
        ValueType::F64 => any::<f64>().prop_map(MetaValue::F64).boxed(),
        ValueType::String | ValueType::Array => ".{0,12}".prop_map(MetaValue::String).boxed(),
    }
}

fn value(depth: u32) -> BoxedStrategy<MetaValue> {
    let plain = (0u32..13).prop_flat_map(|id| scalar(ValueType::from_id(id).unwrap()));
    if depth == 0 {
        return plain.boxed();
    }
    let flat = (0u32..13).prop_flat_map(|id| {
        let ty = ValueType::from_id(id).filter(|ty| *ty != ValueType::Array);
        let ty = ty.unwrap_or(ValueType::String);
        vec(scalar(ty), 0..5).prop_map(move |values| MetaValue::Array(ty, values))
    });
    let nested = vec(value(depth - 1), 0..4).prop_map(|values| {
        let arrays = values.into_iter().map(|value| match value {
            MetaValue::Array(..) => value,
            other => MetaValue::Array(other.ty(), vec![other]),
        });
        MetaValue::Array(ValueType::Array, arrays.collect())
    });
    prop_oneof![plain, flat, nested].boxed()
}

fn tensor() -> impl Strategy<Value = (Vec<u64>, TensorType, Vec<u8>)> {
    let types: Vec<TensorType> = (0..64).filter_map(TensorType::from_ggml_id).collect();
    (proptest::sample::select(types), vec(1u64..4, 1..=4)).prop_flat_map(|(ty, mut dims)| {
        dims[0] *= ty.block_values() as u64;
        let bytes = filled(&dims, ty).len();
        (Just(dims), Just(ty), vec(any::<u8>(), bytes))
    })
}

#[derive(Debug, Clone)]
struct Content {
    values: Vec<(String, MetaValue)>,
    tensors: Vec<(Vec<u64>, TensorType, Vec<u8>)>,
    alignment: u32,
}

fn content() -> impl Strategy<Value = Content> {
    (vec((".{0,8}", value(3)), 0..6), vec(tensor(), 0..6), 0u32..8).prop_map(
        |(values, tensors, log)| Content {
            // Numbered, so that no name is empty or there twice.
            values: (0..).zip(values).map(|(i, (key, v))| (format!("{i}{key}"), v)).collect(),
            tensors,
            alignment: 1 << log,
        },
    )
}

impl Content {
    fn writer(&self) -> Writer<'_> {
        let mut writer = Writer::new();
        writer.alignment(self.alignment);
        for (key, value) in &self.values {
            writer.value(key, value.clone());
        }
        for (i, (dims, ty, data)) in self.tensors.iter().enumerate() {
            writer.tensor(format!("t{i}"), dims, *ty, data.as_slice());
        }
        writer
    }

    /// Fails unless a model says the same.
    fn same(&self, gguf: &Gguf) {
        for (key, value) in &self.values {
            assert_same(value, &gguf.value(key).expect("it was written"));
        }
        assert_eq!(gguf.tensors().count(), self.tensors.len());
        for (i, (dims, ty, data)) in self.tensors.iter().enumerate() {
            let tensor = gguf.tensor(&format!("t{i}")).expect("it was written");
            assert_eq!((tensor.dims(), tensor.tensor_type()), (dims.as_slice(), *ty));
            assert_eq!(gguf.tensor_bytes(tensor).unwrap(), data);
            assert_eq!(tensor.offset() % self.alignment as usize, 0);
        }
    }
}

fn assert_same(written: &MetaValue, read: &Value<'_>) {
    match (written, read) {
        (MetaValue::U8(a), Value::U8(b)) => assert_eq!(a, b),
        (MetaValue::I8(a), Value::I8(b)) => assert_eq!(a, b),
        (MetaValue::U16(a), Value::U16(b)) => assert_eq!(a, b),
        (MetaValue::I16(a), Value::I16(b)) => assert_eq!(a, b),
        (MetaValue::U32(a), Value::U32(b)) => assert_eq!(a, b),
        (MetaValue::I32(a), Value::I32(b)) => assert_eq!(a, b),
        (MetaValue::F32(a), Value::F32(b)) => assert_eq!(a.to_bits(), b.to_bits()),
        (MetaValue::Bool(a), Value::Bool(b)) => assert_eq!(a, b),
        (MetaValue::U64(a), Value::U64(b)) => assert_eq!(a, b),
        (MetaValue::I64(a), Value::I64(b)) => assert_eq!(a, b),
        (MetaValue::F64(a), Value::F64(b)) => assert_eq!(a.to_bits(), b.to_bits()),
        (MetaValue::String(a), Value::String(b)) => assert_eq!(a.as_bytes(), *b),
        (MetaValue::Array(ty, a), Value::Array(b)) => {
            assert_eq!((*ty, a.len()), (b.element(), b.len()));
            for (i, a) in a.iter().enumerate() {
                assert_same(a, &b.get(i).expect("within its length"));
            }
            assert_eq!(b.iter().count(), a.len());
        }
        _ => panic!("{written:?} was read as {read:?}"),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(content in content()) {
        let bytes = content.writer().to_bytes().unwrap();
        prop_assert!(read(&bytes) || bytes.windows(4).filter(|w| w == b"GGUF").count() > 1);
        let file = GgufFile::from_bytes("written", bytes).unwrap();
        prop_assert_eq!(file.alignment(), u64::from(content.alignment));
        content.same(&Gguf::from_parts(vec![file]).unwrap());
    }

    #[test]
    fn what_is_written_in_parts_is_read(content in content(), each in 1usize..4) {
        let directory = tempfile::tempdir().unwrap();
        let paths = content.writer().write_split(directory.path(), "m", each).unwrap();
        prop_assert_eq!(paths.len(), content.tensors.len().div_ceil(each).max(1));
        let gguf = Gguf::open(&paths[paths.len() - 1]).unwrap();
        content.same(&gguf);
        walk(&gguf);
    }

    #[test]
    fn anything_after_a_header(tail in vec(any::<u8>(), 0..300), version in 2u32..4) {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(tail);
        read(&bytes);
    }
}

/// Where to damage a file (in 65,536ths of its length), and with what.
#[derive(Debug, Clone)]
enum Damage {
    Flip(u16, u8),
    Number(u16, u64),
    Cut(u16),
    Remove(u16, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let telling = prop_oneof![
        any::<u64>(),
        (0u32..64).prop_map(|bit| 1u64 << bit),
        (0u64..64).prop_map(|below| u64::MAX - below),
        0u64..300,
    ];
    prop_oneof![
        4 => (any::<u16>(), 1u8..).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        4 => (any::<u16>(), telling).prop_map(|(at, number)| Damage::Number(at, number)),
        1 => any::<u16>().prop_map(Damage::Cut),
        1 => (any::<u16>(), 1usize..16).prop_map(|(at, len)| Damage::Remove(at, len)),
    ]
}

fn inflict(bytes: &mut Vec<u8>, front: usize, damage: &Damage) {
    // Damage to tensor data changes nothing for a reader: most of it goes to the front.
    let at = |at: u16, within: usize| usize::from(at) * within.min(bytes.len()) / 65_536;
    match *damage {
        Damage::Flip(place, mask) => {
            let at = at(place, front);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= mask;
            }
        }
        Damage::Number(place, number) => {
            let at = at(place, front);
            if let Some(eight) = bytes.get_mut(at..at + 8) {
                eight.copy_from_slice(&number.to_le_bytes());
            }
        }
        Damage::Cut(place) => bytes.truncate(at(place, bytes.len())),
        Damage::Remove(place, len) => {
            let at = at(place, front);
            let end = (at + len).min(bytes.len());
            bytes.drain(at..end);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damage_neither_panics_nor_costs_memory(
        merged in any::<bool>(),
        damages in vec(damage(), 1..4),
    ) {
        let mut bytes = moe_writer(SHAPE, merged, |_| true).to_bytes().unwrap();
        for damage in &damages {
            inflict(&mut bytes, 1200, damage);
        }
        read(&bytes);
    }
}

/// Every byte of the front, by every single bit.
#[test]
fn every_bit_of_the_front() {
    let mut writer = Writer::new();
    writer.value("general.architecture", "a").value("a.expert_used_count", 1u8);
    let list = vec![MetaValue::String("x".into()); 2];
    writer.value("l", MetaValue::Array(ValueType::String, list));
    for stem in ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate", "ffn_up", "ffn_down"]
    {
        writer.tensor(format!("blk.0.{stem}.weight"), &[2, 2, 1], TensorType::F16, vec![0; 8]);
    }
    let whole = writer.to_bytes().unwrap();
    assert!(read(&whole));
    let mut accepted = 0;
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        accepted += usize::from(read(&bytes));
    }
    // Names, values and data may change; what holds the file together may not.
    assert!(accepted > 0 && accepted < whole.len() * 8);
}

/// As many tensors and entries as fit: the cost per byte stays bounded where it is highest.
#[test]
fn the_most_entries_a_file_can_hold() {
    let mut raw = gguf_support::Raw::default();
    for i in 0..20_000u64 {
        raw = raw.entry(&format!("{i:x}"), 0, [0]);
        raw = raw.tensor(&format!("{i:x}"), &[1], 24, i * 32);
    }
    let bytes = raw.data(20_000 * 32).bytes();
    assert!(read(&bytes));
}
