//! Files that are written whole.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use same_file::Handle;
use strata::Error;
use tempfile::TempPath;

use super::{Failure, Outcome, print, signals};

fn io(path: &Path, error: std::io::Error) -> Failure {
    Error::io(path, error).into()
}

/// Where a result goes.
///
/// A regular file is written under a name of its own beside the target, and takes the target's name
/// when all of it is there: what was there stays until then, and its permissions stay. What is no
/// regular file, a pipe or a device, is written at once.
pub struct Output {
    path: PathBuf,
    to: To,
}

enum To {
    /// Standard output: `-`, or a name of it.
    Stdout,
    /// A pipe or a device.
    Open(File),
    /// A file that is not yet where it belongs.
    Beside(File, TempPath),
}

impl Output {
    /// Creates it. Called before long work, so that a name that cannot be written to is found out
    /// first.
    pub fn create(path: &Path) -> Outcome<Self> {
        if names_stdout(path) {
            if std::io::stdout().is_terminal() {
                let text = format!("{}: standard output is a terminal", path.display());
                return Err(Failure::Usage(format!("{text}, expected a file or a pipe")));
            }
            return Ok(Self { path: path.to_owned(), to: To::Stdout });
        }
        // A link stays a link: what it points to is replaced.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut permissions = None;
        match std::fs::metadata(&target) {
            Ok(meta) if meta.is_dir() => {
                let given = path.display().to_string();
                return Err(Error::invalid(given, "a directory", "a file").into());
            }
            Ok(meta) if !meta.is_file() => {
                let file = File::options().write(true).open(&target).map_err(|e| io(path, e))?;
                return Ok(Self { path: path.to_owned(), to: To::Open(file) });
            }
            Ok(meta) => permissions = Some(meta.permissions()),
            Err(_) => {}
        }
        let name = target.file_name().ok_or_else(|| {
            Failure::from(Error::invalid(path.display().to_string(), "no name", "a file name"))
        })?;
        let (file, temporary) = signals::guarded(|| beside(&target, name))
            .map_err(|error| io(path, error))?
            .into_parts();
        if let Some(permissions) = permissions {
            file.set_permissions(permissions).map_err(|e| io(path, e))?;
        }
        Ok(Self { path: target, to: To::Beside(file, temporary) })
    }

    /// Whether the result goes to standard output, so that all else must not.
    pub fn is_stdout(&self) -> bool {
        matches!(self.to, To::Stdout)
    }

    /// Fails if this would replace one of the files that are read, under whatever name or link.
    pub fn keeps<P: AsRef<Path>>(&self, inputs: impl IntoIterator<Item = P>) -> Outcome {
        let own = match self.to {
            To::Stdout => Handle::stdout(),
            _ => Handle::from_path(&self.path),
        };
        // What is not there yet is none of the inputs.
        let Ok(own) = own else { return Ok(()) };
        if !own.as_file().metadata().is_ok_and(|meta| meta.is_file()) {
            return Ok(());
        }
        for input in inputs {
            let input = input.as_ref();
            if Handle::from_path(input).is_ok_and(|input| input == own) {
                let given = format!("{}, which is read", input.display());
                let expected = "another file: it would be replaced";
                let what = format!("output {}", self.path.display());
                return Err(Error::invalid(what, given, expected).into());
            }
        }
        Ok(())
    }

    /// Writes everything and gives the file its name.
    pub fn finish(self, parts: &[&[u8]]) -> Outcome {
        let Self { path, to } = self;
        let written = match to {
            To::Stdout => {
                let mut out = std::io::stdout().lock();
                write(&mut out, parts).and_then(|()| out.flush())
            }
            To::Open(mut file) => write(&mut file, parts),
            To::Beside(mut file, temporary) => write(&mut file, parts)
                // A full disk may only be noticed now.
                .and_then(|()| file.sync_all())
                .and_then(|()| signals::settled(temporary, &path)),
        };
        written.map_err(|e| io(&path, e))
    }
}

/// A new file in the target's folder, with the permissions that any new file gets.
fn beside(target: &Path, name: &std::ffi::OsStr) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Less what the umask takes.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

fn write(to: &mut impl Write, parts: &[&[u8]]) -> std::io::Result<()> {
    parts.iter().try_for_each(|part| to.write_all(part))
}

/// Whether a path is a name of standard output, or the regular file that it goes to.
fn names_stdout(path: &Path) -> bool {
    let names = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    let file = |handle: &Handle| handle.as_file().metadata().is_ok_and(|meta| meta.is_file());
    names.iter().any(|name| path == Path::new(name))
        || Handle::stdout().is_ok_and(|stdout| {
            file(&stdout) && Handle::from_path(path).is_ok_and(|given| given == stdout)
        })
}

/// Writes a report where the result is not: to standard error if standard output takes the result.
pub fn report(beside_stdout: bool, text: &str) -> Outcome {
    match beside_stdout {
        true => std::io::stderr()
            .write_all(text.as_bytes())
            .map_err(|error| Failure::Failed(format!("standard error: {error}"))),
        false => print(text),
    }
}
