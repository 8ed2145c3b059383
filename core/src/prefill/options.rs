//! How a layer is run; none of it changes a byte of the result.

use std::str::FromStr;

use crate::{Error, Result};

/// How tokens reach the rows of their experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum QuantMode {
    /// Each token is quantized once and written to its k rows.
    #[default]
    Scatter,
    /// Each row is quantized from its token: k times the work, as many reads.
    Gather,
    /// Each token is quantized and stored once; products read it through the map.
    Indexed,
}

impl QuantMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Scatter, Self::Gather, Self::Indexed];

    /// The name, as `scatter`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scatter => "scatter",
            Self::Gather => "gather",
            Self::Indexed => "indexed",
        }
    }

    /// Scatter, or gather where the environment has `STRATA_QUANT_GATHER` as `1` or `true`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it has something else than these, `0`, `false` or nothing.
    pub fn from_env() -> Result<Self> {
        Self::from_value(std::env::var_os("STRATA_QUANT_GATHER").as_deref())
    }

    fn from_value(value: Option<&std::ffi::OsStr>) -> Result<Self> {
        match value.map_or("".into(), |value| value.to_string_lossy()).as_ref() {
            "" | "0" | "false" => Ok(Self::Scatter),
            "1" | "true" => Ok(Self::Gather),
            other => Err(Error::invalid(
                "environment variable STRATA_QUANT_GATHER",
                other.escape_debug(),
                "1, true, 0 or false",
            )),
        }
    }
}

impl std::fmt::Display for QuantMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for QuantMode {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|m| m.name() == s)
            .ok_or_else(|| Error::invalid("quantization mode", s, "scatter, gather or indexed"))
    }
}

/// How many tokens go through the layer at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chunk {
    /// At most this many.
    Tokens(usize),
    /// The largest equal chunks of at most this many whose buffers fit the device.
    Auto(usize),
}

impl Default for Chunk {
    fn default() -> Self {
        Self::Tokens(8192)
    }
}

impl FromStr for Chunk {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let (auto, number) = match s.strip_prefix("auto:") {
            Some(number) => (true, number),
            None => (false, s),
        };
        match number.parse() {
            Ok(n) if n > 0 && auto => Ok(Self::Auto(n)),
            Ok(n) if n > 0 => Ok(Self::Tokens(n)),
            _ => Err(Error::invalid("chunk", s, "a number of tokens above 0, or auto:N")),
        }
    }
}

impl std::fmt::Display for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tokens(n) => write!(f, "{n}"),
            Self::Auto(n) => write!(f, "auto:{n}"),
        }
    }
}

/// How a layer is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How tokens reach the rows of their experts.
    pub quant: QuantMode,
    /// Tokens per chunk.
    pub chunk: Chunk,
    /// Whether the first token with a value that is not finite, of its input or of any step, is an
    /// error.
    pub checked: bool,
    /// Whether SwiGLU and the quantization after it are one step.
    pub fused: bool,
    /// Whether each phase is timed.
    pub timed: bool,
}

impl Default for Options {
    /// Scatter, chunks of 8,192, checked, fused, not timed; the environment has no say.
    fn default() -> Self {
        Self {
            quant: QuantMode::default(),
            chunk: Chunk::default(),
            checked: true,
            fused: true,
            timed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_one_of_four_words_or_nothing() {
        let mode = |text: &str| QuantMode::from_value(Some(text.as_ref()));
        for text in ["1", "true"] {
            assert_eq!(mode(text).unwrap(), QuantMode::Gather);
        }
        for text in ["", "0", "false"] {
            assert_eq!(mode(text).unwrap(), QuantMode::Scatter);
        }
        assert_eq!(QuantMode::from_value(None).unwrap(), QuantMode::Scatter);
        for text in ["yes", "2", "TRUE", " 1"] {
            let error = mode(text).unwrap_err().to_string();
            assert!(error.contains("STRATA_QUANT_GATHER: given "), "{error}");
            assert!(error.contains("expected 1, true, 0 or false"), "{error}");
        }
    }
}
