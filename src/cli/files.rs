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

/// Reads until `bytes` are full or the file ends; how many it read.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The bytes of a file.
pub fn read(path: &Path) -> Outcome<Vec<u8>> {
    let (mut file, _) = open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|e| io(path, e))?;
    Ok(bytes)
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
    let mut bytes = strata::host_vec(expected)?;
    let len = fill(&mut (&file), &mut bytes).map_err(|e| io(path, e))?;
    if len < expected {
        return Err(wrong(format!("{len} bytes")));
    }
    // One more than expected shows a pipe that goes on.
    match fill(&mut (&file), &mut [0]).map_err(|e| io(path, e))? {
        0 => Ok(bytes),
        _ => Err(wrong(format!("more than {expected} bytes"))),
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
    let mut values: Vec<f32> = strata::host_vec(count)?;
    file.seek(SeekFrom::Start(header.data as u64)).map_err(|e| io(path, e))?;
    // Little-endian, as everything that reads weights and blocks where they lie.
    let read = fill(&mut file, bytemuck::cast_slice_mut(&mut values)).map_err(|e| io(path, e))?;
    if read != count * 4 {
        let expected = format!("{} bytes of values", count * 4);
        return Err(Error::invalid(name, format!("{read} bytes"), expected).into());
    }
    Ok((values, header.rows, header.cols))
}
