//! Files that are read once and written whole.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use strata::Error;
use strata::npy;

use super::{Failure, Outcome};

fn io(path: &Path, error: std::io::Error) -> Failure {
    Error::io(path, error).into()
}

/// Opens a file to be read and says how long it is, if that can be said.
fn open(path: &Path) -> Outcome<(File, Option<u64>)> {
    let file = File::open(path).map_err(|e| io(path, e))?;
    let meta = file.metadata().map_err(|e| io(path, e))?;
    if meta.is_dir() {
        let error = Error::invalid(path.display().to_string(), "a directory", "a file");
        return Err(error.into());
    }
    Ok((file, meta.is_file().then_some(meta.len())))
}

/// The bytes of a file that must have so many; nothing is allocated for one
/// that has another size.
pub fn read_exactly(path: &Path, expected: usize, what: &str) -> Outcome<Vec<u8>> {
    let (file, len) = open(path)?;
    let wrong = |given: String| {
        let expected = format!("{expected} bytes for {what}");
        Failure::from(Error::invalid(path.display().to_string(), given, expected))
    };
    if let Some(len) = len.filter(|&len| len != expected as u64) {
        return Err(wrong(format!("{len} bytes")));
    }
    super::args::host_room(Some(expected))?;
    let mut bytes = Vec::new();
    // One more than expected shows a pipe that goes on.
    file.take(expected as u64 + 1).read_to_end(&mut bytes).map_err(|e| io(path, e))?;
    match bytes.len() {
        len if len == expected => Ok(bytes),
        len if len > expected => Err(wrong(format!("more than {expected} bytes"))),
        len => Err(wrong(format!("{len} bytes"))),
    }
}

/// The values of an `.npy` file, with its rows and columns.
pub fn read_npy(path: &Path) -> Outcome<(Vec<f32>, usize, usize)> {
    let name = path.display().to_string();
    let (mut file, len) = open(path)?;
    let len = len.ok_or_else(|| {
        Failure::from(Error::invalid(&name, "something else", "a regular .npy file"))
    })?;
    let mut start = Vec::new();
    let most = npy::Header::most() as u64;
    (&mut file).take(most).read_to_end(&mut start).map_err(|e| io(path, e))?;
    let header = npy::Header::parse(&name, &start, len)?;
    let count = header.rows * header.cols;
    super::args::host_room(count.checked_mul(8))?;
    file.seek(SeekFrom::Start(header.data as u64)).map_err(|e| io(path, e))?;
    let mut bytes = Vec::new();
    file.take(count as u64 * 4).read_to_end(&mut bytes).map_err(|e| io(path, e))?;
    if bytes.len() != count * 4 {
        let expected = format!("{} bytes of values", count * 4);
        return Err(Error::invalid(name, format!("{} bytes", bytes.len()), expected).into());
    }
    let values = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    Ok((values, header.rows, header.cols))
}

/// A file that is being written under another name, and takes its own when all
/// of it is there. What is no regular file, a pipe or a device, is written at once.
pub struct Output {
    file: File,
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl Output {
    /// Creates it. Called before long work, so that a name that cannot be
    /// written to is found out first.
    pub fn create(path: &Path) -> Outcome<Self> {
        // A link stays a link: what it points to is replaced.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match std::fs::metadata(&target) {
            Ok(meta) if meta.is_dir() => {
                let given = path.display().to_string();
                return Err(Error::invalid(given, "a directory", "a file").into());
            }
            Ok(meta) if !meta.is_file() => {
                let file = File::options().write(true).open(&target).map_err(|e| io(path, e))?;
                return Ok(Self { file, path: path.to_owned(), temporary: None });
            }
            _ => {}
        }
        let name = target.file_name().ok_or_else(|| {
            Failure::from(Error::invalid(path.display().to_string(), "no name", "a file name"))
        })?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let temporary = target.with_file_name(hidden);
        let file = File::options()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .map_err(|e| io(path, e))?;
        Ok(Self { file, path: target, temporary: Some(temporary) })
    }

    /// Writes everything and gives the file its name.
    pub fn finish(mut self, parts: &[&[u8]]) -> Outcome {
        let mut write = || {
            for part in parts {
                self.file.write_all(part)?;
            }
            if let Some(temporary) = &self.temporary {
                // A full disk may only be noticed now.
                self.file.sync_all()?;
                std::fs::rename(temporary, &self.path)?;
            }
            Ok(())
        };
        write().map_err(|e: std::io::Error| io(&self.path, e))?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The error that led here is the one to tell.
            let _ = std::fs::remove_file(temporary);
        }
    }
}
