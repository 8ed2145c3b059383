//! Errors.

use crate::find::NotFound;
use crate::sys;
use std::path::PathBuf;

/// What kind of failure the bridge reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A wrong argument.
    Invalid,
    /// No device of this index.
    NoDevice,
    /// Memory of the device or the host is exhausted.
    OutOfMemory,
    /// Kernel source that does not compile.
    Build,
    /// A failure of the runtime or the driver.
    Runtime,
    /// The device was lost.
    DeviceLost,
    /// A feature that the device or the runtime lacks.
    Unsupported,
    /// A code that this version does not know.
    Unknown(i32),
}

impl Code {
    fn from_raw(code: i32) -> Self {
        match u32::try_from(code) {
            Ok(sys::INVALID) => Code::Invalid,
            Ok(sys::NO_DEVICE) => Code::NoDevice,
            Ok(sys::OUT_OF_MEMORY) => Code::OutOfMemory,
            Ok(sys::BUILD) => Code::Build,
            Ok(sys::RUNTIME) => Code::Runtime,
            Ok(sys::DEVICE_LOST) => Code::DeviceLost,
            Ok(sys::UNSUPPORTED) => Code::Unsupported,
            _ => Code::Unknown(code),
        }
    }
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No SYCL installation; says where it was looked for and how to get one.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// An installation was found and could not be loaded.
    #[error("{} could not be loaded: {reason}", path.display())]
    Load {
        /// What was to be loaded.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A call failed.
    #[error("SYCL, {doing}: {text}")]
    Sycl {
        /// The kind of failure.
        code: Code,
        /// What was being done.
        doing: String,
        /// The text of the bridge or the runtime.
        text: String,
    },
}

impl Error {
    /// The code of a failed call; none for an installation that is missing.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Sycl { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn invalid(doing: &str, text: String) -> Self {
        Error::Sycl { code: Code::Invalid, doing: doing.to_string(), text }
    }
}

/// Turns a code of the bridge into a result, with the text of this thread.
pub(crate) fn check(api: &sys::Api, code: i32, doing: &str) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the bridge gives a zero-terminated text, valid until this
    // thread's next failure; it is copied here.
    let text = unsafe { std::ffi::CStr::from_ptr((api.error_text)()) };
    Err(Error::Sycl {
        code: Code::from_raw(code),
        doing: doing.to_string(),
        text: text.to_string_lossy().trim().to_string(),
    })
}
