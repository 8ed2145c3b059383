//! A model of one or more files.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::file::{GgufFile, Owner};
use super::parse::{self, TensorInfo};
use super::{GgufError, Result, Value, shown};

/// A model: one file, or the parts it was split into.
pub struct Gguf {
    parts: Vec<GgufFile>,
    /// Part and index of every tensor, in the order of the names.
    by_name: Vec<(usize, usize)>,
}

impl Gguf {
    /// Opens a model. Given any part of a split one (`name-00001-of-0000N.gguf`), opens all.
    ///
    /// # Errors
    /// [`GgufError`] if a part is missing or refused, or if the parts do not belong together.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let Some(split) = SplitName::of(path) else {
            return Self::from_parts(vec![GgufFile::open(path)?]);
        };
        let of = path.display().to_string();
        if split.count == 0 || !(1..=split.count).contains(&split.no) {
            let given = format!("part {} of {}", split.no, split.count);
            return Err(GgufError::field(&of, "file name", given, "part 1 to N of N"));
        }
        let mut parts = Vec::new();
        for no in 1..=split.count {
            let part = split.path(no);
            match GgufFile::open(&part) {
                Err(GgufError::Io { file, source })
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    return Err(GgufError::MissingPart { file, of });
                }
                file => parts.push(file?),
            }
        }
        Self::from_parts(parts)
    }

    /// Puts a model together from its parts, in their order.
    ///
    /// # Errors
    /// [`GgufError`] if there is no part, if `split.no`, `split.count` or `split.tensors.count`
    /// says otherwise (they may be absent), or if two parts hold a tensor of the same name.
    pub fn from_parts(mut parts: Vec<GgufFile>) -> Result<Self> {
        let count = parts.len();
        if count == 0 {
            return Err(GgufError::field("no file", "parts", 0, "1 or more"));
        }
        let total: usize = parts.iter().map(|part| part.tensors().len()).sum();
        for (no, part) in parts.iter_mut().enumerate() {
            if let Some(given) = part.u64("split.count")?
                && given != count as u64
                // A model that was never split may say that it has no parts.
                && !(given == 0 && count == 1)
            {
                let expected = match count {
                    1 => format!("1, or a file name that ends in -00001-of-{given:05}.gguf"),
                    _ => format!("{count}, as in the file names"),
                };
                return Err(GgufError::field(part.name(), "split.count", given, expected));
            }
            if let Some(given) = part.u64("split.no")?
                && given != no as u64
            {
                let expected = format!("{no}, counting from 0");
                return Err(GgufError::field(part.name(), "split.no", given, expected));
            }
            if let Some(given) = part.u64("split.tensors.count")?
                && given != total as u64
            {
                let expected = format!("{total}, which the parts hold together");
                return Err(GgufError::field(part.name(), "split.tensors.count", given, expected));
            }
            part.set_part(no);
        }
        let all: Vec<(usize, usize)> = parts
            .iter()
            .enumerate()
            .flat_map(|(no, part)| (0..part.tensors().len()).map(move |i| (no, i)))
            .collect();
        let name = |i: usize| {
            let (part, tensor): (usize, usize) = all[i];
            parts[part].tensors()[tensor].name()
        };
        let order = parse::order(parts[0].name(), "tensor name", total, name)?;
        let by_name = order.into_iter().map(|i| all[i]).collect();
        Ok(Self { parts, by_name })
    }

    /// The parts, in their order; at least one.
    pub fn parts(&self) -> &[GgufFile] {
        &self.parts
    }

    /// The first part, which carries the metadata.
    pub fn head(&self) -> &GgufFile {
        &self.parts[0]
    }

    /// The tensors of all parts, in the files' order.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.parts.iter().flat_map(GgufFile::tensors)
    }

    /// The tensor with a name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let tensor = |&(part, i): &(usize, usize)| &self.parts[part].tensors()[i];
        let found = self.by_name.binary_search_by(|at| tensor(at).name().cmp(name)).ok()?;
        Some(tensor(&self.by_name[found]))
    }

    /// The metadata value of a key, from the first part.
    pub fn value(&self, key: &str) -> Option<Value<'_>> {
        self.head().value(key)
    }

    /// The bytes of one of this model's tensors.
    ///
    /// # Errors
    /// [`GgufError`] if the tensor is another model's and does not fit this one.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<&[u8]> {
        self.part(tensor)?.tensor_bytes(tensor)
    }

    /// The owner of the bytes of a tensor's part, and where in them the tensor lies.
    ///
    /// # Errors
    /// As [`Gguf::tensor_bytes`].
    pub fn mapped(&self, tensor: &TensorInfo) -> Result<(Owner, Range<usize>)> {
        self.part(tensor)?.mapped(tensor)
    }

    fn part(&self, tensor: &TensorInfo) -> Result<&GgufFile> {
        self.parts.get(tensor.part).ok_or_else(|| {
            let field = format!("tensor {}: part", shown(tensor.name()));
            let expected = format!("less than {}", self.parts.len());
            GgufError::field(self.head().name(), field, tensor.part, expected)
        })
    }
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf").field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// The name of a split model's part.
struct SplitName {
    directory: PathBuf,
    stem: String,
    no: u32,
    count: u32,
}

impl SplitName {
    /// Takes `stem-00001-of-00003.gguf` apart.
    fn of(path: &Path) -> Option<Self> {
        fn number(digits: &str) -> Option<u32> {
            let plain = digits.len() == 5 && digits.bytes().all(|digit| digit.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        }
        let (rest, count) =
            path.file_name()?.to_str()?.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, no) = rest.rsplit_once('-')?;
        Some(Self {
            directory: path.parent()?.to_owned(),
            stem: stem.to_owned(),
            no: number(no)?,
            count: number(count)?,
        })
    }

    fn path(&self, no: u32) -> PathBuf {
        self.directory.join(part_name(&self.stem, no, self.count))
    }
}

/// The file name of part `no` of `count`, from 1.
pub(super) fn part_name(stem: &str, no: u32, count: u32) -> String {
    format!("{stem}-{no:05}-of-{count:05}.gguf")
}
