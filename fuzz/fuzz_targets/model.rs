//! The header of a real model's file, with tensor data made up behind it, taken as far as it goes:
//! what `strata inspect` asks, the configuration, the tokenizer, the chat template, and now and then
//! the weights on the CPU and a few tokens through them.
//!
//! What is asked of the file takes no more memory than its size accounts for.

#![no_main]

mod fields;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use strata::backend::{Backend, BackendKind};
use strata::device::{DeviceName, OpenOptions};
use strata::gguf::{Gguf, GgufFile};
use strata::model::config::Config;
use strata::model::template::{Conversation, Date, Template};
use strata::model::tokenizer::Tokenizer;
use strata::model::{Model, Session, Space, Token};
use strata::prefill::{plan_dense, plan_moe};
use strata::{Device, Error};

/// Bytes of tensor data behind a header: untouched ones take no memory.
const DATA: usize = 4 << 20;

/// Memory for what a file says, beside what a byte of the header accounts for.
const CONSTANT: usize = 4 << 20;

/// Memory for a byte of the header: a table's row for an entry, a node for a piece of a template.
const PER_BYTE: usize = 64;

/// Counts what is allocated, and the most of it at once.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn took(size: usize) {
    let now = NOW.fetch_add(size, Relaxed).wrapping_add(size);
    PEAK.fetch_max(now, Relaxed);
}

// SAFETY: the system's allocator does all; the counts change nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static CPU: Box<dyn Backend> = {
        let options = OpenOptions { threads: Some(1) };
        let cpu = DeviceName::Index(BackendKind::Cpu, 0);
        Device::open_with(cpu, &options).expect("always there").0
    };
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    fields::mutate(data, size, max_size, seed)
});

fuzz_target!(|bytes: &[u8]| {
    let header = &bytes[..fields::header_len(bytes)];
    let mut hasher = DefaultHasher::new();
    hasher.write(header);
    let hash = hasher.finish();
    let runs = hash % 8 == 0;
    let mut file = vec![0; header.len() + DATA];
    file[..header.len()].copy_from_slice(header);
    if runs {
        pattern(&mut file[header.len()..], hash);
    }
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let gguf = GgufFile::from_bytes("fuzzed", file).and_then(|file| Gguf::from_parts(vec![file]));
    let gguf = match gguf {
        Ok(gguf) => gguf,
        Err(error) => return said(&error.to_string()),
    };
    inspect(&gguf);
    let config = Config::load(&gguf, Some(16));
    let tokenizer = Tokenizer::load(&gguf);
    if let Ok(tokenizer) = &tokenizer {
        speak(&gguf, tokenizer);
    }
    let peak = PEAK.load(Relaxed).saturating_sub(before);
    assert!(peak <= PER_BYTE * header.len() + CONSTANT, "{peak} bytes for {}", header.len());
    for error in [config.as_ref().err(), tokenizer.as_ref().err()].into_iter().flatten() {
        said(&error.to_string());
    }
    if let (true, Ok(config)) = (runs, &config)
        && config.width.saturating_mul(config.layers.len()) < 1 << 16
    {
        match CPU.with(|cpu| run(&gguf, &**cpu)) {
            Ok(()) => {}
            Err(error) => said(&error.to_string()),
        }
    }
});

/// Messages are short and say what they are about.
fn said(text: &str) {
    assert!(!text.is_empty() && text.len() < 4000, "{text}");
}

/// Values that are mostly numbers, whatever they are taken for.
fn pattern(data: &mut [u8], seed: u64) {
    let mut state = seed | 1;
    for word in data.as_chunks_mut::<8>().0 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The high bits of f16 and f32 exponents stay clear.
        *word = (state & 0x3dff_3dff_3dff_3dff).to_le_bytes();
    }
}

/// What `strata inspect` asks.
fn inspect(gguf: &Gguf) {
    let _ = gguf.model_meta();
    for (_, value) in gguf.head().metadata() {
        if let Some(array) = value.as_array() {
            assert_eq!(array.iter().count(), array.len());
        }
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor_bytes(tensor).map(<[u8]>::len).ok(), Some(tensor.bytes()));
    }
    for block in gguf.ffn_tensors().into_keys().chain(gguf.moe_blocks()) {
        for error in [plan_moe(gguf, block).err(), plan_dense(gguf, block).err()] {
            error.iter().for_each(|error| said(&error.to_string()));
        }
    }
}

/// Text to ids and back, and a conversation.
fn speak(gguf: &Gguf, tokenizer: &Tokenizer) {
    const TEXT: &str = "Hi <s>, 12\u{e9} 345 <|im_start|>it's\n\n\u{1f600}\u{fdd0} ...";
    for control in [false, true] {
        if let Ok(ids) = tokenizer.encode(TEXT, control) {
            tokenizer.decode(&tokenizer.with_ends(ids));
        }
    }
    for id in [0, 1, 2, 255, u32::MAX] {
        let _ = (tokenizer.token(id), tokenizer.is_end(id), tokenizer.selectable(id));
    }
    let date = Date::new(2026, 11, 30).expect("a day");
    if let Ok(template) = Template::load(gguf, None)
        && let Ok(prompt) = template.render(tokenizer, &Conversation::of_user(TEXT, date))
    {
        let _ = tokenizer.encode_prompt(&prompt);
    }
}

/// The weights on a device, and tokens through them.
fn run(gguf: &Gguf, backend: &dyn Backend) -> Result<(), Error> {
    let model = Model::load(gguf, Some(16), backend, &mut |_| {})?;
    let context = model.config().context.min(16);
    let mut session = Session::new(backend, &model, Space::new(context).in_chunks_of(2))?;
    let vocab = model.config().vocab as u32;
    let token = |id: u32| Token { id: id % vocab.max(1), sequence: 0, logits: true };
    let logits = session.append(backend, &model, &[token(0), token(1), token(vocab / 2)])?;
    assert!(logits.iter().all(|logits| logits.len() == vocab as usize));
    Ok(())
}
