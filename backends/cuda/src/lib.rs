//! The CUDA backend of Strata (host side): every step of the layer on NVIDIA
//! GPUs, with the bytes of [`strata_core::reference`].
//!
//! The driver library is loaded when it is first asked for: a program with
//! this backend starts on a machine without one, and [`devices`] then says
//! what is missing.

mod driver;

use strata_core::Result;

/// How many devices there are.
///
/// # Errors
/// [`strata_core::Error::Unavailable`] where there is no usable driver.
pub fn device_count() -> Result<u32> {
    driver::Driver::get()?.count()
}
