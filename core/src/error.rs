//! The one error type of the workspace.

use crate::backend::{BackendKind, DeviceId};

/// Shorthand for a result that fails with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, in words a caller can act on.
///
/// Messages name what was given, what was expected and which tensor or
/// argument it was about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shape, size, stride or option that the operation cannot take.
    #[error("{what}: given {given}, expected {expected}")]
    Invalid {
        /// The argument, field or tensor.
        what: String,
        /// What the caller gave.
        given: String,
        /// What would have been accepted.
        expected: String,
    },

    /// A token names an expert that does not exist.
    #[error("token {token}, choice {choice}: expert id {id}, expected 0..{experts}")]
    ExpertId {
        /// The token, counted from 0.
        token: usize,
        /// Which of its k choices.
        choice: usize,
        /// The id it names.
        id: i32,
        /// How many experts there are.
        experts: usize,
    },

    /// The checked call met a value that is not finite.
    #[error("token {token}: {what} is not finite")]
    NonFinite {
        /// The first such token, counted from 0.
        token: usize,
        /// Which value of it.
        what: NonFinite,
    },

    /// A weight type that this backend or reader does not know.
    #[error("weight type {given}: unknown, expected one of {expected}")]
    UnknownType {
        /// The name or ggml id that was given.
        given: String,
        /// The names that are known.
        expected: String,
    },

    /// A buffer of one device was handed to another.
    #[error("{what}: lives on {given}, expected a buffer of {expected}")]
    WrongDevice {
        /// The argument.
        what: String,
        /// The device it lives on.
        given: String,
        /// The device that was asked to use it.
        expected: String,
    },

    /// A map or routes that are not ordered behind their last use.
    #[error("{what}: another stream used it last, expected one that was synchronized since")]
    OtherStream {
        /// The argument.
        what: String,
    },

    /// A map or routes written on a stream of which a call has failed since, or that was dropped
    /// before it was waited for.
    #[error("{what}: what was to write it failed or was not awaited, expected it to be made again")]
    NotWritten {
        /// The argument.
        what: String,
    },

    /// A step that a backend has no kernel for.
    #[error("{operation}: {device} has no kernel for it")]
    Unsupported {
        /// The step.
        operation: &'static str,
        /// The device, as `cuda:0`.
        device: String,
    },

    /// A device has not enough memory left.
    #[error("{device}: out of memory: asked for {asked} bytes, {free} of {total} bytes are free")]
    OutOfMemory {
        /// The device, as `cuda:0`.
        device: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free at that moment.
        free: u64,
        /// Bytes the device has.
        total: u64,
    },

    /// A backend that this binary or machine cannot run.
    #[error("backend {kind} is not available: {reason}")]
    Unavailable {
        /// Which backend.
        kind: BackendKind,
        /// Why, and what to do about it.
        reason: String,
    },

    /// A call into a driver or runtime failed.
    #[error("{device}: {call}: {detail}")]
    Device {
        /// The device, as `cuda:0`.
        device: String,
        /// The call that failed.
        call: &'static str,
        /// The runtime's own words.
        detail: String,
    },

    /// A GGUF file that cannot be read.
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),

    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    /// An [`Error::Invalid`] from anything that can be shown.
    pub fn invalid(
        what: impl Into<String>,
        given: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        Self::Invalid { what: what.into(), given: given.to_string(), expected: expected.into() }
    }

    /// An [`Error::Io`] for one path.
    pub fn io(path: impl AsRef<std::path::Path>, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().display().to_string(), source }
    }
}

/// Two sizes that must agree.
pub(crate) fn agree(what: impl Into<String>, given: usize, expected: usize) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(Error::invalid(what, given, expected.to_string()))
}

/// Two devices that must be one.
pub(crate) fn same_device(what: &str, given: DeviceId, expected: DeviceId) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(Error::WrongDevice {
        what: what.into(),
        given: given.to_string(),
        expected: expected.to_string(),
    })
}

/// What the checked call found not to be finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u32)]
pub enum NonFinite {
    /// A value of the layer's input.
    Input = 0,
    /// A scale or sum of the quantized input: finite values whose q8_1 header overflows.
    InputHeader = 1,
    /// A router score.
    Score = 2,
    /// A hidden activation (after SwiGLU), or a scale or sum of its q8_1 block.
    Hidden = 3,
    /// The score of the shared expert's gate.
    SharedScore = 4,
    /// A hidden activation of the shared expert, or a scale or sum of its q8_1 block.
    SharedHidden = 5,
    /// A value of the layer's output: of the down products, or of their weighted sum.
    Output = 6,
}

impl NonFinite {
    /// All of them, in the order of the steps.
    pub const ALL: &[Self] = &[
        Self::Input,
        Self::InputHeader,
        Self::Score,
        Self::Hidden,
        Self::SharedScore,
        Self::SharedHidden,
        Self::Output,
    ];
}

impl std::fmt::Display for NonFinite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Input => "an input value",
            Self::InputHeader => "a scale or sum of the quantized input",
            Self::Score => "a router score",
            Self::Hidden => "a hidden activation or its quantized scale or sum",
            Self::SharedScore => "the score of the shared expert's gate",
            Self::SharedHidden => {
                "a hidden activation of the shared expert or its quantized scale or sum"
            }
            Self::Output => "an output value",
        })
    }
}
