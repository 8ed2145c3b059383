//! Files that are read once.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

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
