//! Code objects: loaded when first used, and what they say of their launches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use strata_core::Result;
use strata_kernels_hip as kernels;

use crate::device::Device;
use crate::runtime::{Handle, Runtime};
use crate::stream::Stream;

/// The modules of a device, by the name of their source.
#[derive(Default)]
pub(crate) struct Modules {
    loaded: Mutex<HashMap<String, Arc<Module>>>,
}

/// One loaded code object.
pub(crate) struct Module {
    runtime: Runtime,
    handle: Handle,
    functions: Mutex<HashMap<String, Handle>>,
    shapes: Mutex<HashMap<String, Arc<[u32]>>>,
}

impl Modules {
    /// The code object of `unit` for this device.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it was not compiled for the device's
    /// architecture, and those of the runtime.
    pub(crate) fn get(&self, device: &Device, unit: &str) -> Result<Arc<Module>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = loaded.get(unit) {
            return Ok(Arc::clone(module));
        }
        let image = kernels::image(unit, &device.info.arch).ok_or_else(|| {
            let detail = format!("{unit} was not compiled for {}", device.info.arch);
            device.error("looking for a kernel", detail)
        })?;
        let module = Arc::new(Module {
            runtime: device.runtime,
            handle: device.runtime.module_load(image)?,
            functions: Mutex::default(),
            shapes: Mutex::default(),
        });
        loaded.insert(unit.to_owned(), Arc::clone(&module));
        Ok(module)
    }

    /// Unloads everything; for the end of the device.
    pub(crate) fn clear(&self) {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Module {
    fn function(&self, name: &str) -> Result<Handle> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&function) = functions.get(name) {
            return Ok(function);
        }
        let function = self.runtime.function(self.handle, name)?;
        functions.insert(name.to_owned(), function);
        Ok(function)
    }

    /// The numbers of a table that the image exports, which launches follow
    /// from: the image is asked, since it knows what it was compiled with.
    ///
    /// # Errors
    /// Those of the runtime.
    pub(crate) fn words(&self, stream: &Stream, name: &str) -> Result<Arc<[u32]>> {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(values) = shapes.get(name) {
            return Ok(Arc::clone(values));
        }
        let (address, bytes) = self.runtime.global(self.handle, name)?;
        let mut values = vec![0u32; bytes / size_of::<u32>()];
        // SAFETY: the runtime says that the variable has so many bytes.
        unsafe { stream.download(address, bytemuck::cast_slice_mut(&mut values))? };
        let values: Arc<[u32]> = values.into();
        shapes.insert(name.to_owned(), Arc::clone(&values));
        Ok(values)
    }

    /// The same of a known number of words.
    ///
    /// # Errors
    /// Those of the runtime, and [`Error::Device`] where they are others.
    pub(crate) fn shape<const N: usize>(&self, stream: &Stream, name: &str) -> Result<[u32; N]> {
        let words = self.words(stream, name)?;
        <[u32; N]>::try_from(&*words).ok().filter(|w| w.iter().all(|&x| x > 0)).ok_or_else(|| {
            let detail = format!("{name} is {words:?}, expected {N} words above 0");
            stream.device.error("reading a launch shape", detail)
        })
    }

    /// Launches the kernel `name`.
    ///
    /// # Safety
    /// As [`Runtime::launch`].
    pub(crate) unsafe fn launch<A: Copy>(
        &self,
        stream: &Stream,
        name: &str,
        launch: Launch,
        args: &A,
    ) -> Result<()> {
        let function = self.function(name)?;
        let Launch { grid, threads, shared } = launch;
        // SAFETY: the caller's.
        unsafe { self.runtime.launch(function, grid, threads, shared, stream.handle, args) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: launches hold the module while they use it, and the device
        // waits for its streams before it lets go of its modules.
        let _ = unsafe { self.runtime.module_unload(self.handle) };
    }
}

/// How many blocks of how many threads, with how many bytes of dynamic shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) grid: [u32; 2],
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

impl Launch {
    /// One row of blocks, without dynamic shared memory.
    pub(crate) fn row(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1], threads, shared: 0 }
    }
}
