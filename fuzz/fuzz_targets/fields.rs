//! Mutations of a GGUF file that know where its fields are: most of what they make still parses, and
//! is wrong behind the parser.

use libfuzzer_sys::fuzzer_mutate;

/// A field of a file: where it stands, and its bytes.
#[derive(Clone, Copy)]
struct Field {
    at: usize,
    size: usize,
}

/// What a header consists of.
#[derive(Default)]
struct Header {
    /// Counts, lengths, types, values, dims, offsets.
    numbers: Vec<Field>,
    /// Names, keys and values that are text.
    texts: Vec<Field>,
    /// Whole entries of the metadata, and of the tensors.
    entries: [Vec<Field>; 2],
    /// Where the header ends.
    end: usize,
}

/// Reads headers, and stops where one ends too early.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    header: Header,
}

impl Reader<'_> {
    fn number(&mut self, size: usize) -> Option<u64> {
        let bytes = self.bytes.get(self.at..self.at + size)?;
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes);
        self.header.numbers.push(Field { at: self.at, size });
        self.at += size;
        Some(u64::from_le_bytes(word))
    }

    fn text(&mut self) -> Option<()> {
        let size = usize::try_from(self.number(8)?).ok()?;
        let end = self.at.checked_add(size).filter(|&end| end <= self.bytes.len())?;
        self.header.texts.push(Field { at: self.at, size });
        self.at = end;
        Some(())
    }

    fn value(&mut self, ty: u64, depth: usize) -> Option<()> {
        match ty {
            0 | 1 | 7 => self.number(1).map(drop),
            2 | 3 => self.number(2).map(drop),
            4..=6 => self.number(4).map(drop),
            10..=12 => self.number(8).map(drop),
            8 => self.text(),
            9 if depth < 4 => {
                let (ty, count) = (self.number(4)?, self.number(8)?);
                (0..count).try_for_each(|_| self.value(ty, depth + 1))
            }
            _ => None,
        }
    }

    fn header(&mut self) -> Option<()> {
        self.at = 4;
        self.number(4)?;
        let (tensors, values) = (self.number(8)?, self.number(8)?);
        for _ in 0..values {
            let at = self.at;
            self.text()?;
            let ty = self.number(4)?;
            self.value(ty, 0)?;
            self.header.entries[0].push(Field { at, size: self.at - at });
        }
        for _ in 0..tensors {
            let at = self.at;
            self.text()?;
            for _ in 0..self.number(4)?.min(8) {
                self.number(8)?;
            }
            (self.number(4)?, self.number(8)?);
            self.header.entries[1].push(Field { at, size: self.at - at });
        }
        Some(())
    }
}

fn read(bytes: &[u8]) -> Header {
    let mut reader = Reader { bytes, at: 0, header: Header::default() };
    let _ = reader.header();
    reader.header.end = reader.at.min(bytes.len());
    reader.header
}

/// The length of a file's header, or of what is there of it.
pub fn header_len(bytes: &[u8]) -> usize {
    read(bytes).end
}

/// A small generator of numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())])
    }

    /// A field: of scalars as often as of the elements of large arrays.
    fn field(&mut self, of: &[Field], entries: &[Field]) -> Option<Field> {
        if self.below(2) == 0 {
            return self.pick(of);
        }
        let entry = self.pick(entries)?;
        let inside: Vec<Field> = of
            .iter()
            .copied()
            .filter(|f| f.at >= entry.at && f.at + f.size <= entry.at + entry.size)
            .take(8)
            .collect();
        self.pick(&inside)
    }
}

/// Numbers that readers trip over, or one near what stood there.
fn odd(random: &mut Random, was: u64) -> u64 {
    const ODD: [u64; 20] = [
        0,
        1,
        2,
        3,
        4,
        8,
        31,
        32,
        33,
        64,
        255,
        256,
        1 << 16,
        1 << 31,
        u32::MAX as u64,
        1 << 32,
        1 << 62,
        1 << 63,
        u64::MAX,
        0x7fc0_0000,
    ];
    match random.below(5) {
        0 => was.wrapping_add(random.next() % 65).wrapping_sub(32),
        1 => was.rotate_left(random.next() as u32 % 64),
        2 => was.wrapping_mul(2 + random.next() % 3),
        3 => was / (2 + random.next() % 3),
        _ => ODD[random.below(ODD.len())],
    }
}

/// Words that decide how files are read.
const WORDS: [&str; 44] = [
    "llama", "llama4", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen3next", "gemma3", "gpt-oss",
    "deepseek2", "glm4moe", "ernie4_5-moe", "granitemoe", "grok", "phimoe", "olmoe", "dots1",
    "bailingmoe2", "hunyuan-moe", "minimax-m2", "exaone-moe", "mimo2", "lfm2moe", "qwen35moe",
    "gpt2", "bert", "spm", "none", "linear", "yarn", "longrope", "default", "<s>", "<0x41>", "\u{2581}",
    "{{ messages }}", "{% for m in messages %}", "{% endfor %}", "a b", ".weight", ".bias",
    "_exps", "_shexp", "blk.0.",
];

/// Mutates a file's bytes in place, of which `size` are used; returns how many are then.
pub fn mutate(data: &mut [u8], size: usize, max: usize, seed: u32) -> usize {
    let mut random = Random(u64::from(seed));
    let mut bytes = data[..size].to_vec();
    for _ in 0..1 + random.below(3) {
        let header = read(&bytes);
        if random.below(6) == 0 || header.numbers.len() < 3 {
            data[..bytes.len()].copy_from_slice(&bytes);
            let size = fuzzer_mutate(data, bytes.len(), max);
            bytes = data[..size].to_vec();
            continue;
        }
        change(&mut bytes, &header, &mut random);
        bytes.truncate(max.min(data.len()));
    }
    data[..bytes.len()].copy_from_slice(&bytes);
    bytes.len()
}

fn change(bytes: &mut Vec<u8>, header: &Header, random: &mut Random) -> Option<()> {
    let list = random.below(2);
    let entries = &header.entries[list];
    match random.below(12) {
        // An entry goes, comes twice, or changes places with another.
        0 => {
            let Field { at, size } = random.pick(entries)?;
            bytes.drain(at..at + size);
            count(bytes, list, |n| n.wrapping_sub(1));
        }
        1 => {
            let (Field { at, size }, to) = (random.pick(entries)?, random.pick(entries)?);
            let entry = bytes[at..at + size].to_vec();
            bytes.splice(to.at..to.at, entry);
            count(bytes, list, |n| n.wrapping_add(1));
        }
        // A text becomes another text of the file, or a word that decides.
        2 | 3 => {
            let field = random.field(&header.texts, entries)?;
            let text = match random.below(2) {
                0 => random.field(&header.texts, entries)?,
                _ => {
                    let word = WORDS[random.below(WORDS.len())];
                    let len = (word.len() as u64).to_le_bytes();
                    bytes.splice(field.at - 8..field.at, len);
                    bytes.splice(field.at..field.at + field.size, word.bytes());
                    return Some(());
                }
            };
            let text = bytes[text.at..text.at + text.size].to_vec();
            bytes.splice(field.at - 8..field.at, (text.len() as u64).to_le_bytes());
            bytes.splice(field.at..field.at + field.size, text);
        }
        // A piece of a text goes or comes twice.
        4 | 5 => {
            let field = random.field(&header.texts, entries).filter(|f| f.size > 0)?;
            let from = random.below(field.size);
            let len = 1 + random.below((field.size - from).min(64));
            let piece = bytes[field.at + from..field.at + from + len].to_vec();
            let size = if random.below(2) == 0 {
                bytes.drain(field.at + from..field.at + from + len);
                field.size - len
            } else {
                let to = field.at + random.below(field.size);
                bytes.splice(to..to, piece);
                field.size + len
            };
            bytes.splice(field.at - 8..field.at, (size as u64).to_le_bytes());
        }
        // Two numbers change places.
        6 => {
            let a = random.field(&header.numbers, entries)?;
            let b = random.field(&header.numbers, entries)?;
            let (was_a, was_b) = (get(bytes, a), get(bytes, b));
            set(bytes, a, was_b);
            set(bytes, b, was_a);
        }
        7 => {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        _ => {
            let field = random.field(&header.numbers, entries)?;
            let was = get(bytes, field);
            set(bytes, field, odd(random, was));
        }
    }
    Some(())
}

/// The number of entries that the file states.
fn count(bytes: &mut [u8], list: usize, change: impl Fn(u64) -> u64) {
    let field = Field { at: [16, 8][list], size: 8 };
    let was = get(bytes, field);
    set(bytes, field, change(was));
}

fn get(bytes: &[u8], Field { at, size }: Field) -> u64 {
    let mut word = [0; 8];
    word[..size].copy_from_slice(&bytes[at..at + size]);
    u64::from_le_bytes(word)
}

fn set(bytes: &mut [u8], Field { at, size }: Field, value: u64) {
    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}
