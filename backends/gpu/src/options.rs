//! How a device is opened.

use strata_core::backend::BackendKind;
use strata_core::{Error, Result};

/// How to open a device. Every value gives the same bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GpuOptions {
    /// Bytes of shared memory a block may have, if less than the device allows:
    /// products then take a smaller tile.
    pub shared_bytes: Option<u32>,
    /// Activation rows of the products' tile, for those who measure; chosen by
    /// the number of rows where nothing is said.
    pub tile: Option<u32>,
    /// Bytes of output from which a scatter writes in the order of its output, for
    /// those who measure or test.
    pub scatter_in_order_from: Option<usize>,
}

impl GpuOptions {
    /// What `STRATA_CUDA_SHARED_BYTES`, `STRATA_CUDA_TILE` and
    /// `STRATA_CUDA_SCATTER_FROM` say, or the same of another backend.
    ///
    /// # Errors
    /// [`Error::Invalid`] where one is set and not a number.
    pub fn from_env(kind: BackendKind) -> Result<Self> {
        Ok(Self {
            shared_bytes: number(&variable(kind, "SHARED_BYTES"))?,
            tile: number(&variable(kind, "TILE"))?,
            scatter_in_order_from: number(&variable(kind, "SCATTER_FROM"))?,
        })
    }
}

/// The name of a variable of a backend.
pub(crate) fn variable(kind: BackendKind, what: &str) -> String {
    format!("STRATA_{}_{what}", kind.name().to_ascii_uppercase())
}

fn number<T: std::str::FromStr>(name: &str) -> Result<Option<T>> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    text.parse().map(Some).map_err(|_| Error::invalid(name, &text, "a whole number"))
}
