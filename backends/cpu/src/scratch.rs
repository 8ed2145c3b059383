//! Memory that threads work in, kept between launches: a launch in the steady
//! state allocates nothing that grows with its shapes.

use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// What knows the memory it keeps.
pub(crate) trait Bytes {
    fn bytes(&self) -> usize;
}

impl<T> Bytes for Vec<T> {
    fn bytes(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

/// Values on loan to threads, one each.
#[derive(Default)]
pub(crate) struct Scratch<T> {
    free: Mutex<Vec<T>>,
}

impl<T: Default> Scratch<T> {
    /// One that nobody has; as it was given back, or new.
    pub(crate) fn take(&self) -> Loan<'_, T> {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        Loan { value: free.pop().unwrap_or_default(), from: self }
    }
}

impl<T: Bytes> Bytes for Scratch<T> {
    /// Of what nobody has.
    fn bytes(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        free.iter().map(Bytes::bytes).sum()
    }
}

/// Goes back when it is dropped.
pub(crate) struct Loan<'a, T: Default> {
    value: T,
    from: &'a Scratch<T>,
}

impl<T: Default> Deref for Loan<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Default> DerefMut for Loan<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Default> Drop for Loan<'_, T> {
    fn drop(&mut self) {
        let value = std::mem::take(&mut self.value);
        self.from.free.lock().unwrap_or_else(|e| e.into_inner()).push(value);
    }
}
