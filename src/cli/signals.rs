//! What a signal must not leave behind: unfinished files, and a death without a word.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{NamedTempFile, TempPath};

/// Files that have not got their names yet. Whoever makes, names or removes one holds the lock.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a file that a signal removes until it is [`settled`].
pub fn guarded(
    make: impl FnOnce() -> std::io::Result<NamedTempFile>,
) -> std::io::Result<NamedTempFile> {
    #[cfg(unix)]
    unix::watch()?;
    let mut unfinished = unfinished();
    let file = make()?;
    unfinished.push(file.path().to_owned());
    Ok(file)
}

/// Gives a file its name.
pub fn settled(file: TempPath, name: &Path) -> std::io::Result<()> {
    let mut unfinished = unfinished();
    let at = file.to_path_buf();
    file.persist(name).map_err(|error| error.error)?;
    unfinished.retain(|path| *path != at);
    Ok(())
}

/// From here on a first Ctrl-C asks to end, see [`interrupted`]; what does not heed it ends like any
/// other command soon after.
pub fn ask_first() {
    #[cfg(unix)]
    unix::ask_first();
}

/// Whether Ctrl-C asked to end.
pub fn interrupted() -> bool {
    #[cfg(unix)]
    return unix::ASKED.load(std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(unix))]
    false
}

/// Says what happened to a model, of which `path` is a part, if it is cut short while its mapped
/// bytes are read.
pub fn watch_model(path: &Path) {
    #[cfg(unix)]
    unix::watch_mapping(path);
    #[cfg(not(unix))]
    let _ = path;
}

#[cfg(unix)]
mod unix {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{Arc, OnceLock};
    use std::time::Duration;

    use signal_hook::consts::{SIGBUS, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
    use signal_hook::iterator::Signals;
    use signal_hook::{flag, low_level};

    /// Whether Ctrl-C asks before it ends the process.
    static ASKS: AtomicBool = AtomicBool::new(false);
    /// Whether it has asked.
    pub static ASKED: AtomicBool = AtomicBool::new(false);
    /// What is asked to end has this long to write what it has.
    const PATIENCE: Duration = Duration::from_millis(800);

    pub fn ask_first() {
        // Where nobody listens, the signal ends the process as it always does.
        if watch().is_ok() {
            ASKS.store(true, Relaxed);
        }
    }

    /// Starts to wait for signals, once.
    pub fn watch() -> std::io::Result<()> {
        static WATCHED: OnceLock<()> = OnceLock::new();
        if WATCHED.set(()).is_err() {
            return Ok(());
        }
        // A file that may not grow further is then an error of the write.
        flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        let heard = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !ignored(signal));
        let mut signals = Signals::new(heard)?;
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                if signal == SIGINT && ASKS.load(Relaxed) {
                    ASKED.store(true, Relaxed);
                    std::thread::sleep(PATIENCE);
                }
                // Kept to the end: no file is made or named from here on.
                let unfinished = super::unfinished();
                for path in unfinished.iter() {
                    // Nothing is left to do about one that cannot be removed.
                    let _ = std::fs::remove_file(path);
                }
                // Ends the process as if nobody had listened, which is what shells look for.
                let _ = low_level::emulate_default_handler(signal);
            }
        })?;
        Ok(())
    }

    /// Whether the process was started with a signal ignored, as `nohup` and shells do.
    fn ignored(signal: i32) -> bool {
        // SAFETY: all zeros is a value of this plain struct; the call only writes it.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old) == 0
                && old.sa_sigaction == libc::SIG_IGN
        }
    }

    /// What the handler writes: made before, as it must not allocate.
    static CUT_SHORT: OnceLock<Vec<u8>> = OnceLock::new();

    /// A read of mapped bytes that are gone raises SIGBUS in the thread that reads.
    pub fn watch_mapping(path: &std::path::Path) {
        let message = format!(
            "error: {}: given fewer bytes than when it was opened, expected a file that nobody cuts \
             short or changes while it is read\n",
            path.display()
        );
        if CUT_SHORT.set(message.into_bytes()).is_err() {
            return;
        }
        // SAFETY: the handler reads what was made before, writes to a descriptor without a lock and
        // ends the process without running anything of it.
        let registered = unsafe {
            low_level::register(SIGBUS, || {
                if let Some(message) = CUT_SHORT.get() {
                    write_stderr(message);
                }
                // A thread that holds the lock may be this one.
                if let Ok(unfinished) = super::UNFINISHED.try_lock() {
                    for path in unfinished.iter() {
                        let _ = std::fs::remove_file(path);
                    }
                }
                low_level::exit(1);
            })
        };
        // Without it the process ends as it would have: by the signal.
        let _ = registered;
    }

    fn write_stderr(bytes: &[u8]) {
        use std::mem::ManuallyDrop;
        use std::os::fd::FromRawFd;
        // SAFETY: standard error is open for as long as the process runs, and is not closed here.
        let mut stderr = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(2) });
        // Where not even this can be written, the exit code still says it.
        let _ = stderr.write_all(bytes);
    }
}
