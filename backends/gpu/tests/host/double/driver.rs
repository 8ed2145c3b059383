//! The calls of a pretended driver.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, MutexGuard};

use strata_core::backend::{BackendKind, DeviceId, DeviceInfo};
use strata_core::{Error, Result};
use strata_gpu::{Driver, EventHandle, ImageHandle, KernelHandle, Launch, Opened, StreamHandle};

use super::kernels::{self, Kernel};
use super::{CARDS, Double, Event, Of, Op, UNITS, Vendor, World, broken_rule};
use crate::sources;

impl<V: Vendor> Double<V> {
    /// What the device keeps, unless it is broken.
    fn call(&self, call: &'static str) -> Result<MutexGuard<'_, World>> {
        // After a panic what follows from it is not another one.
        if self.0.0.is_poisoned() {
            return Err(failure(call, "a rule was broken"));
        }
        let world = self.0.world();
        match world.broken {
            false => Ok(world),
            true => Err(failure(call, "a fault")),
        }
    }
}

fn failure(call: &'static str, detail: &str) -> Error {
    Error::Device { device: "double".into(), call, detail: detail.into() }
}

impl<V: Vendor> Driver for Double<V> {
    const KIND: BackendKind = V::KIND;
    const TILES: &'static [&'static str] = V::TILES;
    const NO_DEVICE: &'static str = "no test has made a device";

    fn count() -> Result<u32> {
        Ok(CARDS.lock().unwrap().len() as u32)
    }

    fn describe(index: u32) -> Result<DeviceInfo> {
        let id = DeviceId { kind: Self::KIND, index };
        let mut info = DeviceInfo::new(id, "a double");
        (info.arch, info.units, info.wave) = ("double".into(), UNITS, V::WAVE);
        Ok(info)
    }

    fn runs_on(_: &DeviceInfo) -> Result<()> {
        Ok(())
    }

    fn open(info: &DeviceInfo) -> Result<Self> {
        Ok(Self(Arc::clone(&CARDS.lock().unwrap()[info.id.index as usize]), PhantomData))
    }

    fn opened() -> &'static Opened<Self> {
        V::opened()
    }

    fn image(unit: &str, _: &DeviceInfo) -> Option<&'static [u8]> {
        V::units().get_key_value(unit).map(|(name, _)| name.as_bytes())
    }

    fn archs() -> Vec<&'static str> {
        vec!["double"]
    }

    fn shared_memory(&self) -> u32 {
        V::SHARED
    }

    fn memory(&self) -> Result<(usize, usize)> {
        let world = self.call("memory")?;
        Ok((world.total - world.used, world.total))
    }

    fn alloc(&self, bytes: usize) -> Result<Option<u64>> {
        let mut world = self.call("alloc")?;
        if world.used + bytes > world.total {
            return Ok(None);
        }
        (world.used, world.allocated) = (world.used + bytes, world.allocated + 1);
        Ok(Some(world.take(bytes, Of::Driver)))
    }

    unsafe fn free(&self, address: u64) -> Result<()> {
        self.call("free")?.free(address, Of::Driver);
        Ok(())
    }

    fn alloc_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        let at = self.call("alloc_host")?.take(bytes, Of::Host);
        Ok(NonNull::new(at as *mut u8).unwrap())
    }

    unsafe fn free_host(&self, memory: NonNull<u8>) -> Result<()> {
        self.call("free_host")?.free(memory.as_ptr() as u64, Of::Host);
        Ok(())
    }

    unsafe fn copy_in(&self, stream: StreamHandle, to: u64, from: *const [u8]) -> Result<()> {
        let mut world = self.call("copy_in")?;
        let bytes = from.len();
        world.expect_device(to, bytes, "a copy");
        let held = Some(world.host_bytes(from.addr() as u64, bytes));
        world.copies += 1;
        world.queue(stream).push_back(Op::Copy { to, from: from.addr() as u64, bytes, held });
        Ok(())
    }

    unsafe fn copy_out(&self, stream: StreamHandle, to: *mut [u8], from: u64) -> Result<()> {
        let mut world = self.call("copy_out")?;
        world.copies += 1;
        let bytes = to.len();
        world.expect_device(from, bytes, "a copy");
        world.queue(stream).push_back(Op::Copy { to: to.addr() as u64, from, bytes, held: None });
        Ok(())
    }

    unsafe fn copy(&self, stream: StreamHandle, to: u64, from: u64, bytes: usize) -> Result<()> {
        let mut world = self.call("copy")?;
        world.copies += 1;
        world.expect_device(to, bytes, "a copy");
        world.expect_device(from, bytes, "a copy");
        world.queue(stream).push_back(Op::Copy { to, from, bytes, held: None });
        Ok(())
    }

    unsafe fn fill(&self, stream: StreamHandle, to: u64, byte: u8, bytes: usize) -> Result<()> {
        let mut world = self.call("fill")?;
        world.expect_device(to, bytes, "a fill");
        world.queue(stream).push_back(Op::Fill { to, byte, bytes });
        Ok(())
    }

    fn new_stream(&self) -> Result<StreamHandle> {
        let mut world = self.call("new_stream")?;
        let handle = world.handle();
        world.streams.insert(handle as u64, VecDeque::new());
        Ok(StreamHandle(handle))
    }

    unsafe fn end_stream(&self, stream: StreamHandle) -> Result<()> {
        let gone = self.call("end_stream")?.streams.remove(&(stream.0 as u64));
        match gone {
            None => broken_rule("a stream ended twice"),
            Some(left) if !left.is_empty() => broken_rule("a stream ended with work in it"),
            Some(_) => Ok(()),
        }
    }

    unsafe fn check_stream(&self, stream: StreamHandle) -> Result<()> {
        match self.call("check_stream")?.streams.contains_key(&(stream.0 as u64)) {
            true => Ok(()),
            false => Err(Error::invalid("stream", "another device's", "one of this device")),
        }
    }

    fn wait_stream(&self, stream: StreamHandle) -> Result<()> {
        let mut world = self.call("wait_stream")?;
        while !world.queue(stream).is_empty() {
            world.step(stream.0 as u64);
        }
        Ok(())
    }

    fn new_event(&self, _: bool) -> Result<EventHandle> {
        let mut world = self.call("new_event")?;
        if world.no_event {
            return Err(failure("new_event", "none left"));
        }
        let handle = world.handle();
        world.events.insert(handle as u64, Event::default());
        Ok(EventHandle(handle))
    }

    unsafe fn end_event(&self, event: EventHandle) -> Result<()> {
        let mut world = self.call("end_event")?;
        let event = event.0 as u64;
        // What others wait for is reached first.
        let waits = world.streams.values().flatten().filter_map(|op| match op {
            Op::Wait { event: waited, number } if *waited == event => Some(*number),
            _ => None,
        });
        if let Some(last) = waits.max() {
            world.run_to(event, last);
        }
        match world.events.remove(&event) {
            None => broken_rule("an event ended twice"),
            Some(_) => Ok(()),
        }
    }

    fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let mut world = self.call("record")?;
        if world.no_record {
            return Err(failure("record", "refused"));
        }
        world.handles += 1;
        let number = world.handles;
        let (event, at) = (event.0 as u64, stream.0 as u64);
        let known = world.events.get_mut(&event).unwrap_or_else(|| broken_rule("no such event"));
        (known.stream, known.recorded) = (at, number);
        world.queue(stream).push_back(Op::Point { event, number });
        Ok(())
    }

    fn passed(&self, event: EventHandle) -> Result<bool> {
        let world = self.call("passed")?;
        let event = world.events[&(event.0 as u64)];
        Ok(event.passed == event.recorded)
    }

    fn wait_event(&self, event: EventHandle) -> Result<()> {
        let mut world = self.call("wait_event")?;
        let number = world.events[&(event.0 as u64)].recorded;
        world.run_to(event.0 as u64, number);
        Ok(())
    }

    fn wait_for(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        let mut world = self.call("wait_for")?;
        let event = event.0 as u64;
        let number = world.events[&event].recorded;
        world.queue(stream).push_back(Op::Wait { event, number });
        Ok(())
    }

    fn elapsed(&self, from: EventHandle, to: EventHandle) -> Result<f32> {
        let world = self.call("elapsed")?;
        let (from, to) = (world.events[&(from.0 as u64)], world.events[&(to.0 as u64)]);
        match [from, to].iter().all(|event| event.passed > 0) {
            true => Ok(to.time - from.time),
            false => Err(failure("elapsed", "not passed yet")),
        }
    }

    fn load(&self, image: &'static [u8]) -> Result<ImageHandle> {
        let mut world = self.call("load")?;
        let handle = world.handle();
        world.images.insert(handle as u64, String::from_utf8(image.to_vec()).unwrap());
        Ok(ImageHandle(handle))
    }

    unsafe fn unload(&self, image: ImageHandle) -> Result<()> {
        match self.call("unload")?.images.remove(&(image.0 as u64)) {
            None => broken_rule("an image unloaded twice"),
            Some(_) => Ok(()),
        }
    }

    fn words(&self, image: ImageHandle, name: &str) -> Result<Vec<u32>> {
        let world = self.call("words")?;
        let unit = &world.images[&(image.0 as u64)];
        let Some(expected) = V::units()[unit].words.get(name) else {
            broken_rule(&format!("{unit} exports no {name}"));
        };
        let words = V::words(name).expect("a known variable");
        assert!(expected.is_none_or(|expected| expected == words.len()), "{name}: {expected:?}");
        Ok(words)
    }

    fn kernel(&self, image: ImageHandle, name: &str) -> Result<KernelHandle> {
        let mut world = self.call("kernel")?;
        let unit = &world.images[&(image.0 as u64)];
        let Some(known) = V::units()[unit].kernels.iter().find(|k| k.name == name) else {
            broken_rule(&format!("{unit} has no kernel {name}"));
        };
        let file = strata_gpu::steps::LAYOUTS.iter().copied().flatten();
        let file = file.clone().find(|l| l.name == known.args).expect("a declared structure").file;
        let kernel = Kernel {
            name: name.to_owned(),
            args: sources::structure(file, &known.args),
            most_threads: known.threads,
            prepared: 0,
        };
        let handle = world.handle();
        world.kernels.insert(handle as u64, kernel);
        Ok(KernelHandle(handle))
    }

    fn prepare(&self, kernel: KernelHandle, threads: u32, shared: u32) -> Result<u32> {
        let mut world = self.call("prepare")?;
        let kernel = world.kernels.get_mut(&(kernel.0 as u64)).expect("a kernel");
        kernel.prepared = kernel.prepared.max(shared);
        match shared <= V::SHARED {
            true => Ok((2048 / threads).min(V::SHARED / shared.max(1)).max(1)),
            false => Err(failure("prepare", "too much shared memory")),
        }
    }

    unsafe fn launch(&self, stream: StreamHandle, launch: Launch, args: *const [u8]) -> Result<()> {
        let mut world = self.call("launch")?;
        // SAFETY: so many bytes of arguments.
        let args = unsafe { &*args };
        kernels::launch::<V>(&mut world, stream.0 as u64, launch, args);
        Ok(())
    }
}
