//! The images, loaded when first needed, and their kernels.
//!
//! Threads, tiles and shared memory of a launch are read from the image that
//! was loaded: the driver may have picked any of those in a file, or compiled
//! one, and only the image knows what it was compiled with.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strata_core::{Result, WeightType};

use crate::device::Device;
use crate::driver::{Driver, ImageHandle, KernelHandle};
use crate::log_failure;

/// One source of kernels, and the image of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Unit {
    /// `map` of `map.cu`, say.
    Step(&'static str),
    /// The products of a weight type.
    Mmq(WeightType),
}

impl Unit {
    /// The name of the source, without extension.
    pub(crate) fn name(self) -> Cow<'static, str> {
        match self {
            Self::Step(name) => name.into(),
            Self::Mmq(ty) => format!("mmq_{}", ty.name().to_ascii_lowercase()).into(),
        }
    }
}

impl From<&'static str> for Unit {
    fn from(name: &'static str) -> Self {
        Self::Step(name)
    }
}

/// A kernel, ready to be launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel {
    pub(crate) handle: KernelHandle,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub(crate) shared: u32,
    /// Blocks that the whole device runs at once.
    pub(crate) resident: u64,
}

/// The images of one device.
#[derive(Default)]
pub(crate) struct Images(Mutex<HashMap<Unit, Image>>);

/// A loaded image, and what was asked of it.
struct Image {
    handle: ImageHandle,
    kernels: HashMap<&'static str, Kernel>,
    words: HashMap<&'static str, Vec<u32>>,
}

impl Images {
    /// Loads an image.
    pub(crate) fn load<D: Driver>(&self, device: &Device<D>, unit: Unit) -> Result<()> {
        loaded(&mut self.lock(), device, unit).map(drop)
    }

    /// A kernel of an image.
    ///
    /// # Errors
    /// Those of the driver where the device cannot run a block of so many
    /// threads or so much shared memory.
    pub(crate) fn kernel<D: Driver>(
        &self,
        device: &Device<D>,
        unit: Unit,
        name: &'static str,
        threads: u32,
        shared: u32,
    ) -> Result<Kernel> {
        let mut images = self.lock();
        let image = loaded(&mut images, device, unit)?;
        if let Some(kernel) = image.kernels.get(name) {
            return Ok(*kernel);
        }
        let kernel = prepare(device, image.handle, name, threads, shared)?;
        image.kernels.insert(name, kernel);
        Ok(kernel)
    }

    /// The words of a variable that an image exports.
    pub(crate) fn words<D: Driver>(
        &self,
        device: &Device<D>,
        unit: Unit,
        name: &'static str,
    ) -> Result<Vec<u32>> {
        let mut images = self.lock();
        let image = loaded(&mut images, device, unit)?;
        if let Some(words) = image.words.get(name) {
            return Ok(words.clone());
        }
        let words = device
            .driver
            .words(image.handle, name)
            .map_err(|error| device.error("reading a launch shape", format!("{name}: {error}")))?;
        image.words.insert(name, words.clone());
        Ok(words)
    }

    /// Unloads everything. No stream may be using it.
    pub(crate) fn unload<D: Driver>(&self, driver: &D) {
        for (_, image) in self.lock().drain() {
            // SAFETY: loaded once, and its kernels are forgotten. A failure leaves it to the
            // device's context, which goes next.
            log_failure(unsafe { driver.unload(image.handle) });
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Unit, Image>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn loaded<'a, D: Driver>(
    images: &'a mut HashMap<Unit, Image>,
    device: &Device<D>,
    unit: Unit,
) -> Result<&'a mut Image> {
    use std::collections::hash_map::Entry;
    let entry = match images.entry(unit) {
        Entry::Occupied(known) => return Ok(known.into_mut()),
        Entry::Vacant(entry) => entry,
    };
    let (info, name) = (&device.info, unit.name());
    let failed = |detail: String| {
        let built = D::archs().join(", ");
        let detail = format!(
            "kernels of {name} for {} ({}), compiled for {built}: {detail}",
            info.name, info.arch
        );
        device.error("loading kernels", detail)
    };
    let image = D::image(&name, info).ok_or_else(|| failed("there are none".into()))?;
    let handle = device.driver.load(image).map_err(|error| failed(error.to_string()))?;
    Ok(entry.insert(Image { handle, kernels: HashMap::new(), words: HashMap::new() }))
}

fn prepare<D: Driver>(
    device: &Device<D>,
    image: ImageHandle,
    name: &str,
    threads: u32,
    shared: u32,
) -> Result<Kernel> {
    let driver = &device.driver;
    let handle = driver
        .kernel(image, name)
        .map_err(|error| device.error("finding a kernel", format!("{name}: {error}")))?;
    let refused = |why: String| {
        let detail = format!("{name}: {threads} threads and {shared} bytes of shared memory {why}");
        device.error("preparing a kernel", detail)
    };
    let blocks = driver
        .prepare(handle, threads, shared)
        .map_err(|error| refused(format!("are refused: {error}")))?;
    if blocks == 0 {
        let info = &device.info;
        let unit = format!("do not fit a multiprocessor of {} ({})", info.name, info.arch);
        return Err(refused(unit));
    }
    let resident = u64::from(blocks) * u64::from(device.units());
    Ok(Kernel { handle, threads, shared, resident })
}
