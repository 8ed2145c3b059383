//! How a device is opened.

use strata_core::{Error, Result};

/// How to open a device. Every value gives the same bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HipOptions {
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

impl HipOptions {
    /// What `STRATA_HIP_SHARED_BYTES`, `STRATA_HIP_TILE` and
    /// `STRATA_HIP_SCATTER_FROM` say.
    ///
    /// # Errors
    /// [`Error::Invalid`] where one is set and not a number.
    pub fn from_env() -> Result<Self> {
        Ok(Self {
            shared_bytes: number("STRATA_HIP_SHARED_BYTES")?,
            tile: number("STRATA_HIP_TILE")?,
            scatter_in_order_from: number("STRATA_HIP_SCATTER_FROM")?,
        })
    }
}

fn number<T: std::str::FromStr>(name: &str) -> Result<Option<T>> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    text.parse().map(Some).map_err(|_| Error::invalid(name, &text, "a whole number"))
}
