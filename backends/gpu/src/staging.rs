//! Uploads: through pinned memory, so that the device copies while the host
//! fills the next piece, and the caller's bytes are free when the call returns.

use std::ptr::NonNull;
use std::sync::Arc;

use strata_core::Result;

use crate::driver::Driver;
use crate::event::Event;
use crate::log_failure;
use crate::stream::Stream;

/// Bytes of each half at first, and once something large is uploaded.
const SMALL: usize = 256 << 10;
const LARGE: usize = 32 << 20;

/// Pieces begin at multiples of this.
const ALIGN: usize = 256;

/// Two halves of pinned memory that take turns.
pub(crate) struct Staging<D: Driver> {
    halves: [Option<Half<D>>; 2],
    /// The half that is being filled, and how far it is.
    current: usize,
    used: usize,
}

struct Half<D: Driver> {
    /// When the device has read what was last put here.
    read: Option<Event<D>>,
    pinned: Pinned<D>,
}

impl<D: Driver> Default for Staging<D> {
    fn default() -> Self {
        Self { halves: [None, None], current: 0, used: 0 }
    }
}

impl<D: Driver> Staging<D> {
    /// Copies `from` to the device memory at `to`, in stream order.
    ///
    /// # Safety
    /// The bytes behind `to` are memory of the stream's device.
    pub(crate) unsafe fn upload(&mut self, stream: &Stream<D>, to: u64, from: &[u8]) -> Result<()> {
        if from.len() > SMALL {
            self.grow(stream)?;
        }
        let mut done = 0;
        while done < from.len() {
            // Made first: a copy that no event follows has to be waited for.
            let read = Event::new(&stream.device.driver, false)?;
            let (half, at) = self.room(stream)?;
            let bytes = (half.pinned.bytes - at).min(from.len() - done);
            let piece = half.pinned.piece(at, bytes);
            piece.copy_from_slice(&from[done..done + bytes]);
            // SAFETY: the pinned bytes are not written again before `read` has
            // passed; `to` is as the caller promises.
            let copied = unsafe { stream.copy_in(to + done as u64, piece) };
            // Also after an error: part of the copy may be under way.
            if let Err(error) = read.record(stream.handle) {
                // An earlier event would say nothing of this copy.
                let waited = stream.synchronize();
                half.read = None;
                if waited.is_err() {
                    // Whether the device still reads it cannot be known: never written or freed.
                    half.pinned.leak();
                    self.halves[self.current] = None;
                }
                self.used = 0;
                return Err(error);
            }
            half.read = Some(read);
            copied?;
            self.used = (at + bytes).next_multiple_of(ALIGN);
            done += bytes;
        }
        Ok(())
    }

    /// Where the next piece goes: the half in use, or the other when it is full.
    fn room(&mut self, stream: &Stream<D>) -> Result<(&mut Half<D>, usize)> {
        let full = self.halves[self.current].as_ref().is_some_and(|h| self.used >= h.pinned.bytes);
        if full {
            // The turn is taken after the wait: without it the other half is still read.
            self.wait(1 - self.current)?;
            self.current = 1 - self.current;
            self.used = 0;
        }
        let slot = &mut self.halves[self.current];
        if slot.is_none() {
            *slot = Some(Half { pinned: Pinned::new(&stream.device.driver, SMALL)?, read: None });
        }
        let half = slot.as_mut().expect("just filled");
        Ok((half, self.used))
    }

    /// Waits until the device has read a half; one that it could not wait for stays as it is.
    fn wait(&mut self, index: usize) -> Result<()> {
        let Some(half) = &mut self.halves[index] else { return Ok(()) };
        if let Some(read) = &half.read {
            read.wait()?;
        }
        half.read = None;
        Ok(())
    }

    /// Makes both halves large.
    fn grow(&mut self, stream: &Stream<D>) -> Result<()> {
        let large = |half: &Option<Half<D>>| half.as_ref().is_some_and(|h| h.pinned.bytes >= LARGE);
        if self.halves.iter().all(large) {
            return Ok(());
        }
        for i in 0..self.halves.len() {
            self.wait(i)?;
            self.halves[i] =
                Some(Half { pinned: Pinned::new(&stream.device.driver, LARGE)?, read: None });
        }
        (self.current, self.used) = (0, 0);
        Ok(())
    }
}

/// Host memory that the device reads by itself.
struct Pinned<D: Driver> {
    data: NonNull<u8>,
    bytes: usize,
    driver: Arc<D>,
}

// SAFETY: it owns its bytes, as a vector does.
unsafe impl<D: Driver> Send for Pinned<D> {}

impl<D: Driver> Pinned<D> {
    fn new(driver: &Arc<D>, bytes: usize) -> Result<Self> {
        let data = driver.alloc_host(bytes)?;
        // SAFETY: so many bytes were allocated; from here on they have a value.
        unsafe { data.as_ptr().write_bytes(0, bytes) };
        Ok(Self { data, bytes, driver: Arc::clone(driver) })
    }

    /// Leaves the memory as it is, for good.
    fn leak(&mut self) {
        self.bytes = 0;
    }

    /// Bytes of it, to be written.
    fn piece(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "a piece of the pinned memory");
        // SAFETY: inside the allocation, initialised, and borrowed by `self` alone.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr().add(at), bytes) }
    }
}

impl<D: Driver> Drop for Pinned<D> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: allocated by `new`; the stream that read it was waited for, as it is
            // dropped first.
            log_failure(unsafe { self.driver.free_host(self.data) });
        }
    }
}
