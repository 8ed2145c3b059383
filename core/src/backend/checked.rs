//! The proof that core has checked what a backend is handed.

use std::ops::Deref;

/// Something that core has checked for the backend it is handed to: it lives on
/// the backend's device and fits what it is handed together with.
///
/// Only `launch` and the memory methods of `dyn Backend` make one, so a step of
/// a backend cannot be called around the checks; and an operation's outputs can
/// only be reached through it, so they are the ones that were checked. A
/// backend around a backend of the same device passes it on.
///
/// ```compile_fail
/// # use strata_core::backend::{Backend, Checked, ops::Product};
/// fn around_the_checks(backend: &dyn Backend, product: Product<'_>) {
///     backend.multiply(&mut Checked(product)).unwrap();
/// }
/// ```
/// ```
/// # use strata_core::backend::{Backend, ops::Product};
/// fn checked(backend: &dyn Backend, product: Product<'_>) {
///     product.launch(backend).unwrap();
/// }
/// ```
pub struct Checked<T>(pub(super) T);

impl<T> Checked<T> {
    /// What was checked, without the proof.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Checked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
