//! From the runtime's errors to core's.

use strata_core::Error;
use strata_core::backend::BackendKind;
use sycl_bindgen::Error as SyclError;

/// A failure of a call on `device`.
pub(crate) fn device(device: &impl ToString, call: &'static str, error: SyclError) -> Error {
    match error {
        SyclError::Sycl { doing, text, .. } => {
            Error::Device { device: device.to_string(), call, detail: format!("{doing}: {text}") }
        }
        missing => unavailable(missing),
    }
}

/// The backend cannot run here at all.
pub(crate) fn unavailable(reason: impl ToString) -> Error {
    Error::Unavailable { kind: BackendKind::Sycl, reason: reason.to_string() }
}
