//! Real files with fields that were changed on purpose: read or refused, never a panic, and with no
//! more memory than the file's size accounts for.

mod gguf_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gguf_support::{SHAPE, moe_writer};
use strata_core::format::random::SplitMix64;
use strata_core::gguf::{Gguf, GgufFile, MetaValue, ValueType};
use strata_core::prefill::{plan_dense, plan_moe};

/// Counts what is allocated, and the most of it at once.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all; the counts change nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A field of a file: where it stands, and its bytes.
#[derive(Clone, Copy)]
struct Field {
    at: usize,
    size: usize,
}

/// Where counts, types, values, dims and offsets of a file stand.
fn fields(bytes: &[u8], file: &GgufFile) -> Vec<Field> {
    let find = |name: &str| {
        let len = (name.len() as u64).to_le_bytes();
        let entry = [&len[..], name.as_bytes()].concat();
        bytes.windows(entry.len()).position(|w| w == entry).unwrap() + entry.len()
    };
    let mut fields =
        vec![Field { at: 4, size: 4 }, Field { at: 8, size: 8 }, Field { at: 16, size: 8 }];
    for (key, value) in file.metadata() {
        let at = find(key);
        fields.extend([Field { at: at - key.len() - 8, size: 8 }, Field { at, size: 4 }]);
        let size = match value.ty() {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 | ValueType::Array => 4,
            _ => 8,
        };
        fields.push(Field { at: at + 4, size });
        if value.ty() == ValueType::Array {
            fields.push(Field { at: at + 8, size: 8 });
        }
    }
    for tensor in file.tensors() {
        let at = find(tensor.name());
        fields.push(Field { at, size: 4 });
        let dims = tensor.dims().len();
        fields.extend((0..dims).map(|d| Field { at: at + 4 + 8 * d, size: 8 }));
        let ty = at + 4 + 8 * dims;
        fields.extend([Field { at: ty, size: 4 }, Field { at: ty + 4, size: 8 }]);
    }
    fields
}

/// Numbers that readers trip over, or one near what stood there.
fn odd(random: &mut SplitMix64, was: u64) -> u64 {
    const ODD: [u64; 16] = [
        0,
        1,
        2,
        3,
        31,
        32,
        33,
        64,
        255,
        1 << 16,
        1 << 31,
        u32::MAX as u64,
        1 << 32,
        1 << 62,
        1 << 63,
        u64::MAX,
    ];
    match random.next_u64() % 4 {
        0 => was.wrapping_add(random.next_u64() % 65).wrapping_sub(32),
        1 => was.rotate_left(random.next_u64() as u32 % 64),
        _ => ODD[(random.next_u64() % 16) as usize],
    }
}

fn get(bytes: &[u8], Field { at, size }: Field) -> u64 {
    let mut word = [0; 8];
    word[..size].copy_from_slice(&bytes[at..at + size]);
    u64::from_le_bytes(word)
}

fn set(bytes: &mut [u8], Field { at, size }: Field, value: u64) {
    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Everything that can be asked of a file; whether it was read, and whether a block runs.
fn walk(bytes: Vec<u8>) -> (bool, bool) {
    let gguf = GgufFile::from_bytes("mutated", bytes).and_then(|file| Gguf::from_parts(vec![file]));
    let gguf = match gguf {
        Ok(gguf) => gguf,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("mutated") && text.len() < 2000, "{text}");
            return (false, false);
        }
    };
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor_bytes(tensor).unwrap().len(), tensor.bytes());
    }
    for (key, value) in gguf.head().metadata() {
        let _ = (gguf.head().u64(key), gguf.head().str(key), gguf.head().u64_of_block(key, 3));
        if let Some(array) = value.as_array() {
            assert_eq!(array.iter().count(), array.len());
        }
    }
    let mut runs = false;
    for block in gguf.ffn_tensors().into_keys().chain(gguf.moe_blocks()) {
        if let Ok(plan) = plan_moe(&gguf, block) {
            let moe = &plan.tensors;
            assert!((1..=moe.experts).contains(&moe.used) && moe.width > 0 && moe.ffn > 0);
            runs = true;
        }
        let _ = plan_dense(&gguf, block);
    }
    (true, runs)
}

#[test]
fn mutated_files_are_read_or_refused_within_their_size() {
    let mut writer = moe_writer(SHAPE, false, |_| true);
    writer.value(
        "qwen3moe.expert_feed_forward_lengths",
        MetaValue::Array(ValueType::U32, vec![MetaValue::U32(32); 4]),
    );
    let original = writer.to_bytes().unwrap();
    let file = GgufFile::from_bytes("original", original.clone()).unwrap();
    let fields = fields(&original, &file);
    drop(file);
    assert_eq!(walk(original.clone()), (true, true));
    let mut random = SplitMix64::new(1);
    let (mut read, mut ran) = (0, 0);
    for round in 0..20_000 {
        let mut bytes = original.clone();
        for _ in 0..1 + random.next_u64() % 3 {
            let pick = |random: &mut SplitMix64| fields[random.next_u64() as usize % fields.len()];
            let field = pick(&mut random);
            match random.next_u64() % 8 {
                // Two fields of a size change places.
                0 | 1 => {
                    let other = pick(&mut random);
                    let (a, b) = (get(&bytes, field), get(&bytes, other));
                    set(&mut bytes, field, b);
                    set(&mut bytes, other, a);
                }
                2 => {
                    let at = random.next_u64() as usize % bytes.len();
                    bytes[at] = random.next_u64() as u8;
                }
                3 => {
                    let to = field.at + random.next_u64() as usize % 32;
                    if round % 4 == 0 {
                        bytes.truncate(to);
                        break;
                    }
                }
                _ => {
                    let was = get(&bytes, field);
                    set(&mut bytes, field, odd(&mut random, was));
                }
            }
        }
        let len = bytes.len();
        let before = NOW.load(Relaxed);
        PEAK.store(before, Relaxed);
        let (was_read, runs) = walk(bytes);
        let peak = PEAK.load(Relaxed) - before;
        // The tables hold what the entries say in another form: so many bytes of memory for one.
        assert!(peak <= 16 * len + (64 << 10), "round {round}: {peak} bytes for {len}");
        read += usize::from(was_read);
        ran += usize::from(runs);
    }
    // Otherwise the mutations are too wild to reach what lies behind the parser.
    assert!(read > 2000 && ran > 500 && ran < 19_000, "{read} read, {ran} run");
}
