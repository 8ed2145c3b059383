//! Writing GGUF files: version 3, little-endian, whole or in parts.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::cursor::NAME;
use super::meta_value::{MetaValue, put_string};
use super::model::part_name;
use super::parse::size;
use super::{GgufError, Result, TensorType, shown};

/// The version that is written.
const VERSION: u32 = 3;

struct Tensor<'a> {
    name: String,
    dims: Vec<u64>,
    ty: TensorType,
    data: Cow<'a, [u8]>,
}

/// Collects metadata and tensors, and writes them as one file or as the parts of a split model.
///
/// A file appears under its name only when all of it has been written: nobody meets half a file.
///
/// ```
/// use strata_core::gguf::{GgufFile, TensorType, Writer};
///
/// let mut writer = Writer::new();
/// writer.value("general.architecture", "llama");
/// writer.tensor("output_norm.weight", &[2], TensorType::F32, [0u8; 8].as_slice());
/// let file = GgufFile::from_bytes("memory", writer.to_bytes()?)?;
/// assert_eq!(file.tensors()[0].dims(), [2]);
/// # Ok::<(), strata_core::gguf::GgufError>(())
/// ```
#[derive(Default)]
pub struct Writer<'a> {
    values: Vec<(String, MetaValue)>,
    tensors: Vec<Tensor<'a>>,
    alignment: Option<u32>,
}

impl<'a> Writer<'a> {
    /// A writer with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metadata entry.
    pub fn value(&mut self, key: impl Into<String>, value: impl Into<MetaValue>) -> &mut Self {
        self.values.push((key.into(), value.into()));
        self
    }

    /// Sets what tensor offsets are multiples of, a power of two; 32 if this is not called. Writes
    /// `general.alignment`.
    pub fn alignment(&mut self, alignment: u32) -> &mut Self {
        self.alignment = Some(alignment);
        self
    }

    /// Adds a tensor: its dims, columns first, and its bytes.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dims: &[u64],
        ty: TensorType,
        data: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        let (name, dims, data) = (name.into(), dims.to_vec(), data.into());
        self.tensors.push(Tensor { name, dims, ty, data });
        self
    }

    /// The file as bytes.
    ///
    /// # Errors
    /// [`GgufError`] naming the key or tensor that a reader would refuse.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        const NAME: &str = "memory";
        self.check(NAME)?;
        let mut bytes = Vec::new();
        self.part(&[], true, &self.tensors, &mut bytes)
            .map_err(|source| GgufError::Io { file: NAME.to_owned(), source })?;
        Ok(bytes)
    }

    /// Writes one file, replacing what was there.
    ///
    /// # Errors
    /// As [`Writer::to_bytes`], and [`GgufError::Io`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.check(&path.display().to_string())?;
        self.stage(path, &[], true, &self.tensors)?.finish()
    }

    /// Writes parts of at most `tensors` tensors each, `stem-00001-of-0000N.gguf` in `directory`,
    /// replacing what was there. The first carries the metadata. Returns their paths.
    ///
    /// # Errors
    /// As [`Writer::write`], and [`GgufError::Field`] if `tensors` is 0 or more than 65,535 parts
    /// would be needed.
    pub fn write_split(
        &self,
        directory: impl AsRef<Path>,
        stem: &str,
        tensors: usize,
    ) -> Result<Vec<PathBuf>> {
        let directory = directory.as_ref();
        let file = directory.join(stem).display().to_string();
        self.check(&file)?;
        let parts: Vec<&[Tensor<'_>]> = match tensors {
            0 => return Err(GgufError::field(&file, "tensors in a part", 0, "1 or more")),
            _ if self.tensors.is_empty() => vec![&[]],
            _ => self.tensors.chunks(tensors).collect(),
        };
        let (Ok(count), Ok(total)) =
            (u16::try_from(parts.len()), i32::try_from(self.tensors.len()))
        else {
            return Err(GgufError::field(&file, "parts", parts.len(), "at most 65535"));
        };
        // All parts are complete before the first one appears.
        let mut staged = Vec::new();
        for (no, part) in (0..count).zip(parts) {
            let path = directory.join(part_name(stem, u32::from(no) + 1, count.into()));
            let split = [
                ("split.no".to_owned(), MetaValue::U16(no)),
                ("split.count".to_owned(), MetaValue::U16(count)),
                ("split.tensors.count".to_owned(), MetaValue::I32(total)),
            ];
            staged.push(self.stage(&path, &split, no == 0, part)?);
        }
        let paths = staged.iter().map(|staged| staged.path.clone()).collect();
        staged.into_iter().try_for_each(Staged::finish)?;
        Ok(paths)
    }

    fn align(&self) -> u64 {
        self.alignment.unwrap_or(32).into()
    }

    /// Refuses whatever a reader would refuse.
    fn check(&self, file: &str) -> Result<()> {
        if !self.align().is_power_of_two() {
            let field = "general.alignment";
            return Err(GgufError::field(file, field, self.align(), "a power of two"));
        }
        let mut keys = HashSet::new();
        for (key, value) in &self.values {
            let field = format!("metadata key {}", shown(key));
            if key.is_empty() || key.len() > NAME {
                let given = format!("{} bytes", key.len());
                return Err(GgufError::field(file, field, given, format!("1 to {NAME} bytes")));
            }
            // The writer sets these itself.
            if key == "general.alignment" || key.starts_with("split.") {
                let expected = "a key that the writer does not set itself";
                return Err(GgufError::field(file, field, "a value", expected));
            }
            if !keys.insert(key) {
                let name = shown(key);
                return Err(GgufError::Duplicate {
                    file: file.into(),
                    field: "metadata key",
                    name,
                });
            }
            if !value.is_consistent() {
                let expected = "elements of the array's type";
                return Err(GgufError::field(file, field, "elements of another", expected));
            }
        }
        let mut names = HashSet::new();
        for Tensor { name, dims, ty, data } in &self.tensors {
            let field = |what: &str| format!("tensor {}: {what}", shown(name));
            if name.is_empty() || name.len() > NAME {
                let given = format!("{} bytes", name.len());
                return Err(GgufError::field(
                    file,
                    field("name"),
                    given,
                    format!("1 to {NAME} bytes"),
                ));
            }
            if !names.insert(name) {
                let name = shown(name);
                return Err(GgufError::Duplicate { file: file.into(), field: "tensor name", name });
            }
            if dims.len() > 4 {
                let given = format!("{dims:?}");
                return Err(GgufError::field(file, field("dims"), given, "at most 4"));
            }
            if TensorType::from_ggml_id(ty.ggml_id()) != Some(*ty) {
                let (tensor, id) = (shown(name), ty.ggml_id());
                return Err(GgufError::UnknownType { file: file.into(), tensor, id });
            }
            let bytes = size(file, name, dims, *ty)?;
            if bytes != data.len() as u64 {
                let expected = format!("{bytes} bytes for dims {dims:?} of {ty}");
                let given = format!("{} bytes", data.len());
                return Err(GgufError::field(file, field("data"), given, expected));
            }
        }
        Ok(())
    }

    /// Writes one part under a name of its own, next to where it will be.
    fn stage(
        &self,
        path: &Path,
        split: &[(String, MetaValue)],
        head: bool,
        tensors: &[Tensor<'_>],
    ) -> Result<Staged> {
        let io = |source| GgufError::Io { file: path.display().to_string(), source };
        let (staged, file) = Staged::create(path).map_err(io)?;
        let mut out = BufWriter::new(file);
        self.part(split, head, tensors, &mut out).map_err(io)?;
        let file = out.into_inner().map_err(|error| io(error.into_error()))?;
        file.sync_all().map_err(io)?;
        Ok(staged)
    }

    /// One part: header, metadata (all of it in the head), tensor table, tensor data.
    fn part(
        &self,
        split: &[(String, MetaValue)],
        head: bool,
        tensors: &[Tensor<'_>],
        out: &mut impl Write,
    ) -> io::Result<()> {
        let alignment =
            self.alignment.map(|given| ("general.alignment".to_owned(), MetaValue::U32(given)));
        let values: Vec<&(String, MetaValue)> = alignment
            .iter()
            .chain(if head { self.values.as_slice() } else { &[] })
            .chain(split)
            .collect();

        let mut front = b"GGUF".to_vec();
        front.extend(VERSION.to_le_bytes());
        front.extend((tensors.len() as u64).to_le_bytes());
        front.extend((values.len() as u64).to_le_bytes());
        for (key, value) in values {
            put_string(&mut front, key);
            front.extend((value.ty() as u32).to_le_bytes());
            value.put(&mut front);
        }
        let mut offset = 0u64;
        for Tensor { name, dims, ty, data } in tensors {
            put_string(&mut front, name);
            front.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| front.extend(dim.to_le_bytes()));
            front.extend(ty.ggml_id().to_le_bytes());
            front.extend(offset.to_le_bytes());
            offset += (data.len() as u64).next_multiple_of(self.align());
        }
        out.write_all(&front)?;
        self.pad(front.len(), out)?;
        for tensor in tensors {
            out.write_all(&tensor.data)?;
            self.pad(tensor.data.len(), out)?;
        }
        Ok(())
    }

    /// Zeros up to the next multiple of the alignment.
    fn pad(&self, written: usize, out: &mut impl Write) -> io::Result<()> {
        let written = written as u64;
        let zeros = written.next_multiple_of(self.align()) - written;
        io::copy(&mut io::Read::take(io::repeat(0), zeros), out).map(drop)
    }
}

/// A complete file that waits to be renamed; removed if that does not happen.
struct Staged {
    temporary: Option<PathBuf>,
    path: PathBuf,
}

impl Staged {
    fn create(path: &Path) -> io::Result<(Self, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
        };
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        let no = NEXT.fetch_add(1, Ordering::Relaxed);
        temporary.push(format!(".{}.{no}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        Ok((Self { temporary: Some(temporary), path: path.to_owned() }, file))
    }

    fn finish(mut self) -> Result<()> {
        let Some(temporary) = self.temporary.take() else {
            return Ok(());
        };
        std::fs::rename(&temporary, &self.path).map_err(|source| {
            self.temporary = Some(temporary);
            GgufError::Io { file: self.path.display().to_string(), source }
        })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // Already failing: the first error is the one to tell.
            let _ = std::fs::remove_file(temporary);
        }
    }
}
