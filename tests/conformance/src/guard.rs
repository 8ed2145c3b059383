//! A backend around a backend: every allocation starts as poison and ends in a
//! canary, so that also buffers that no case lays out itself (maps, routes, the
//! workspace of a layer) show a write past their end.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use strata_core::Result;
use strata_core::backend::{
    Backend, Checked, Memory, Mmq, ModelOps, MoeOps, Quantize, Scatter, ops,
};

use crate::poisoned::POISON;

/// Bytes of canary behind every allocation.
const CANARY: usize = 4096;

/// Memory that the guard keeps alive until it has looked at it.
struct Shared(Arc<dyn Memory>);

impl Memory for Shared {
    fn as_any(&self) -> &dyn Any {
        // The backend inside recognises its own.
        (*self.0).as_any()
    }
}

struct Allocation {
    memory: Arc<dyn Memory>,
    bytes: usize,
}

/// Every allocation of one case, over all its streams.
#[derive(Default, Clone)]
struct Allocations(Arc<Mutex<Vec<Allocation>>>);

impl Allocations {
    fn with<R>(&self, f: impl FnOnce(&mut Vec<Allocation>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A stream whose allocations are guarded.
pub struct Guard {
    inner: Box<dyn Backend>,
    allocations: Allocations,
    /// Memory that the next allocation hands out again: a buffer over canaries.
    again: Mutex<Option<Arc<dyn Memory>>>,
}

impl Guard {
    /// Guards what is allocated through `inner`.
    pub fn new(inner: Box<dyn Backend>) -> Self {
        Self { inner, allocations: Allocations::default(), again: Mutex::new(None) }
    }

    /// The backend inside.
    pub fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    /// Looks at the canary of every allocation since the last time, and lets go of them.
    ///
    /// # Errors
    /// Those of the backend; the message inside says which canary was overwritten.
    pub fn check(&self) -> Result<std::result::Result<u64, String>> {
        let allocations = self.allocations.with(std::mem::take);
        let mut looked_at = 0;
        for (i, Allocation { memory, bytes }) in allocations.into_iter().enumerate() {
            *self.again.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
            let this: &dyn Backend = self;
            let buffer = this.alloc::<u8>(bytes + CANARY)?;
            let canary = self.inner.download(buffer.slice(bytes..)?)?;
            looked_at += CANARY as u64;
            if let Some(at) = canary.iter().position(|&b| b != POISON) {
                let overwritten = canary.iter().filter(|&&b| b != POISON).count();
                return Ok(Err(format!(
                    "allocation {i} of the case, {bytes} bytes: {overwritten} bytes behind it \
                     were overwritten, the first {at} bytes past its end"
                )));
            }
        }
        Ok(Ok(looked_at))
    }
}

// SAFETY: all of it is the backend's inside, which is handed what this one is; its memory is longer than
// was asked for.
unsafe impl Backend for Guard {
    strata_core::forward_backend!(
        device memory scratch stream import_raw upload_raw download_raw fill_raw copy_raw
        synchronize_raw record_raw wait_raw mark elapsed
    );

    fn fork(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(Self {
            inner: self.inner.fork()?,
            allocations: self.allocations.clone(),
            again: Mutex::new(None),
        }))
    }

    fn alloc_raw(&self, bytes: Checked<usize>) -> Result<Box<dyn Memory>> {
        let again = self.again.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(memory) = again {
            return Ok(Box::new(Shared(memory)));
        }
        let bytes = *bytes;
        let memory = self.inner.alloc::<u8>(bytes + CANARY)?.into_memory();
        let memory: Arc<dyn Memory> = Arc::from(memory);
        *self.again.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory.clone());
        let this: &dyn Backend = self;
        let mut whole = this.alloc::<u8>(bytes + CANARY)?;
        self.inner.fill(&mut whole, POISON)?;
        // Another stream may use it first: the poison must be there by then.
        self.inner.synchronize()?;
        self.allocations.with(|list| list.push(Allocation { memory: memory.clone(), bytes }));
        Ok(Box::new(Shared(memory)))
    }
}

/// Every operation is the inside's.
macro_rules! operations {
    ($($trait:ident { $($method:ident($op:ident) $name:literal)* })*) => {$(
        impl $trait for Guard {
            strata_core::forward_backend!(of $trait);
            $(fn $method(&self, op: &mut Checked<ops::$op<'_>>) -> Result<()> {
                self.inner.$method(op)
            })*
        }
    )*};
}
strata_core::for_each_operation!(operations);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReferenceBackend;

    #[test]
    fn a_write_past_the_end_is_seen_once() {
        let guard = Guard::new(Box::new(ReferenceBackend::new()));
        let backend: &dyn Backend = &guard;
        let other = guard.fork().unwrap();
        let mut kept = backend.from_slice(&[1.0f32; 5]).unwrap();
        drop(other.alloc::<u8>(7).unwrap());
        assert_eq!(guard.check().unwrap(), Ok(2 * CANARY as u64), "dropped ones and other streams");

        let memory = guard.inner.alloc::<u8>(10 + CANARY).unwrap().into_memory();
        let memory: Arc<dyn Memory> = Arc::from(memory);
        *guard.again.lock().unwrap() = Some(memory.clone());
        let mut whole = backend.alloc::<u8>(10 + CANARY).unwrap();
        backend.fill(&mut whole, POISON).unwrap();
        backend.fill(whole.slice_mut(12..15).unwrap(), 0).unwrap();
        guard.allocations.with(|list| list.push(Allocation { memory, bytes: 10 }));
        let message = guard.check().unwrap().unwrap_err();
        assert_eq!(
            message,
            "allocation 0 of the case, 10 bytes: 3 bytes behind it were overwritten, the first 2 \
             bytes past its end"
        );
        assert_eq!(guard.check().unwrap(), Ok(0));
        backend.upload(&mut kept, &[2.0; 5]).unwrap();
    }

    #[test]
    fn memory_starts_as_poison() {
        let guard = Guard::new(Box::new(ReferenceBackend::new()));
        let backend: &dyn Backend = &guard;
        let buffer = backend.alloc::<u8>(100).unwrap();
        assert_eq!(backend.download(&buffer).unwrap(), [POISON; 100]);
    }
}
