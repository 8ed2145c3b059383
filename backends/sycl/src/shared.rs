//! What all handles on a device have in common: its memory, kernels and streams.

use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use strata_core::backend::{Counters, DeviceInfo};
use strata_core::{Error, Result};
use strata_kernels_sycl::Form;
use sycl_bindgen::{Device, Event, Kind, Queue, Runtime, UsmBuffer};

use crate::error::device;
use crate::kernels::Kernels;
use crate::pool::Pool;
use crate::{check, form, list};

/// What keeps something of another program part.
pub(crate) type Owner = Box<dyn Any + Send + Sync>;

/// What all handles on a device have in common.
pub(crate) struct Shared {
    pub(crate) info: DeviceInfo,
    pub(crate) runtime: &'static Runtime,
    pub(crate) device: Device,
    pub(crate) form: Form,
    /// What memory is allocated with.
    pub(crate) base: Queue,
    pub(crate) pool: Pool<UsmBuffer, Event>,
    pub(crate) kernels: Kernels,
    pub(crate) counters: Counters,
    streams: Mutex<Vec<Weak<Stream>>>,
    /// Owners of adopted memory, until the streams have passed its last use.
    guests: Mutex<Vec<(Owner, Vec<Event>)>>,
    /// Why a stream that ended may still run: no memory is used again then.
    lost: OnceLock<sycl_bindgen::Error>,
}

/// One ordered queue.
pub(crate) struct Stream {
    pub(crate) queue: Queue,
    /// What keeps another's queue.
    _owner: Option<Owner>,
}

/// Devices that are open: two handles with one id share memory.
static OPEN: Mutex<Vec<(u32, Weak<Shared>)>> = Mutex::new(Vec::new());

/// Memory to keep for reuse: a quarter of a GPU's, and little of the host's, which others want.
fn kept_bytes(device: &Device) -> u64 {
    match device.kind {
        Kind::Cpu => 256 << 20,
        _ => device.global_memory / 4,
    }
}

impl Shared {
    /// Device `index`, opened where it is not: beside `other`, a queue on it, or by itself.
    ///
    /// # Errors
    /// As [`SyclBackend::open`](crate::SyclBackend::open); [`Error::Invalid`] where the device is
    /// open in another context than the queue's.
    pub(crate) fn open(index: u32, other: Option<&Queue>) -> Result<Arc<Self>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, shared)| shared.strong_count() > 0);
        let known = open.iter().find(|(i, _)| *i == index).and_then(|(_, s)| s.upgrade());
        if let Some(shared) = known {
            let same = other.map_or(Ok(true), |queue| shared.base.shares_context(queue));
            return match same.map_err(|e| device(&shared.info.id, "comparing contexts", e))? {
                true => Ok(shared),
                false => Err(Error::invalid(
                    "queue",
                    "one of another context than the device is open in",
                    "one context for all streams of a device; open it by this queue first",
                )),
            };
        }
        let runtime = list::load()?;
        let found = list::by_index(runtime, index)?;
        let mut info = list::describe(index, &found)?;
        let base = other.map_or_else(|| Queue::open(runtime, found.index), Queue::beside);
        let base = base.map_err(|e| device(&info.id, "opening the device", e))?;
        let mut form = form::pick(&found)?;
        let note = check::check(&info, &base, &mut form)?;
        info.arch = form::name(&found, &form, note.as_deref());
        let pool = Pool::new(kept_bytes(&found));
        let shared = Arc::new(Self {
            info,
            runtime,
            device: found,
            form,
            base,
            pool,
            kernels: Kernels::default(),
            counters: Counters::default(),
            streams: Mutex::default(),
            guests: Mutex::default(),
            lost: OnceLock::new(),
        });
        open.push((index, Arc::downgrade(&shared)));
        Ok(shared)
    }

    /// A stream, which memory waits for from now on.
    pub(crate) fn stream(&self, queue: Queue, owner: Option<Owner>) -> Arc<Stream> {
        let stream = Arc::new(Stream { queue, _owner: owner });
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|s| s.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        stream
    }

    /// Takes note that a stream ended which may still run.
    pub(crate) fn lose(&self, error: sycl_bindgen::Error) {
        let _ = self.lost.set(error);
    }

    /// Takes an owner whose memory nobody holds any more, but streams may still use.
    pub(crate) fn retire(&self, owner: Owner) {
        match self.fences() {
            Ok(fences) => {
                self.guests.lock().unwrap_or_else(PoisonError::into_inner).push((owner, fences));
            }
            // What a stream may use for ever is never given back.
            Err(error) => {
                tracing::warn!("{}: adopted memory is kept: {error}", self.info.id);
                std::mem::forget(owner);
            }
        }
        self.dismiss();
    }

    /// Drops the owners whose memory all streams have passed.
    pub(crate) fn dismiss(&self) {
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        let done = |events: &Vec<Event>| events.iter().all(|e| e.passed().unwrap_or(false));
        let gone: Vec<_> = guests.extract_if(.., |(_, events)| done(events)).collect();
        drop(guests);
        // An owner may hold buffers, which come here again.
        drop(gone);
    }

    fn live(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// What every stream passes when all that it was given so far has run.
    ///
    /// # Errors
    /// Where that cannot be said of a stream, or could not be when one ended.
    pub(crate) fn fences(&self) -> std::result::Result<Vec<Event>, sycl_bindgen::Error> {
        if let Some(error) = self.lost.get() {
            return Err(error.clone());
        }
        self.live().iter().map(|stream| stream.queue.record()).collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Every stream has been waited for, unless one could not be.
        if self.lost.get().is_some() {
            self.pool.abandon();
            std::mem::forget(std::mem::take(
                self.guests.get_mut().unwrap_or_else(PoisonError::into_inner),
            ));
        }
    }
}
