//! The images, loaded when first needed, and their kernels.
//!
//! Threads, tiles and shared memory of a launch are read from the image that
//! was loaded: the driver may have picked any of those in a fatbin, or compiled
//! PTX, and only the image knows what it was compiled with.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute_enum as Attribute, CUmodule};
use strata_core::Result;
use strata_kernels_cuda as kernels;

use crate::device::{Device, Raw};

/// Bytes of dynamic shared memory that every block may have without asking.
const UNASKED: u32 = 48 << 10;

/// A kernel, ready to be launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel {
    pub(crate) function: Raw<CUfunction>,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub(crate) shared: u32,
    /// Blocks that the whole device runs at once.
    pub(crate) resident: u64,
}

/// The images of one device.
#[derive(Default)]
pub(crate) struct Modules(Mutex<Loaded>);

/// A unit and the name of something in it.
type Key = (&'static str, &'static str);

#[derive(Default)]
struct Loaded {
    modules: HashMap<&'static str, Raw<CUmodule>>,
    kernels: HashMap<Key, Kernel>,
    shapes: HashMap<Key, Vec<u32>>,
}

impl Modules {
    /// The image of a source, `map` of `map.cu` say.
    pub(crate) fn load(&self, device: &Device, unit: &'static str) -> Result<()> {
        self.lock().module(device, unit).map(drop)
    }

    /// A kernel of an image.
    ///
    /// # Errors
    /// Those of the driver where the device cannot run a block of so many
    /// threads or so much shared memory.
    pub(crate) fn kernel(
        &self,
        device: &Device,
        unit: &'static str,
        name: &'static str,
        threads: u32,
        shared: u32,
    ) -> Result<Kernel> {
        let mut loaded = self.lock();
        if let Some(kernel) = loaded.kernels.get(&(unit, name)) {
            return Ok(*kernel);
        }
        let module = loaded.module(device, unit)?;
        let kernel = prepare(device, module, name, threads, shared)?;
        loaded.kernels.insert((unit, name), kernel);
        Ok(kernel)
    }

    /// The words of a variable that an image exports.
    pub(crate) fn shape(
        &self,
        device: &Device,
        unit: &'static str,
        name: &'static str,
    ) -> Result<Vec<u32>> {
        let mut loaded = self.lock();
        if let Some(words) = loaded.shapes.get(&(unit, name)) {
            return Ok(words.clone());
        }
        let module = loaded.module(device, unit)?;
        let words = read(device, module, name)?;
        loaded.shapes.insert((unit, name), words.clone());
        Ok(words)
    }

    /// The same as `shape`, of a known number of words.
    pub(crate) fn shape_of<const N: usize>(
        &self,
        device: &Device,
        unit: &'static str,
        name: &'static str,
    ) -> Result<[u32; N]> {
        let words = self.shape(device, unit, name)?;
        <[u32; N]>::try_from(&*words).ok().filter(|w| w.iter().all(|&x| x > 0)).ok_or_else(|| {
            let detail = format!("{name} of {unit} is {words:?}, expected {N} words above 0");
            device.error("reading a launch shape", detail)
        })
    }

    /// Unloads everything. No stream may be using it.
    pub(crate) fn unload(&self) {
        let mut loaded = self.lock();
        loaded.kernels.clear();
        loaded.shapes.clear();
        for (_, module) in loaded.modules.drain() {
            // SAFETY: loaded once, and its kernels are forgotten. A failure
            // leaves it to the context, which goes next.
            let _ = unsafe { sys::cuModuleUnload(module.0) };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Loaded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loaded {
    fn module(&mut self, device: &Device, unit: &'static str) -> Result<CUmodule> {
        if let Some(module) = self.modules.get(unit) {
            return Ok(module.0);
        }
        let image = kernels::image(unit)
            .ok_or_else(|| device.error("loading kernels", format!("no image named {unit}")))?;
        device.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: a whole fatbin as the compiler wrote it, which knows its own size.
        let result = unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
        device.check("cuModuleLoadData", result).map_err(|error| {
            let built = kernels::archs().join(", ");
            let detail = format!(
                "kernels of {unit} for {} ({}), compiled for {built}: {error}",
                device.info.name, device.info.arch
            );
            device.error("loading kernels", detail)
        })?;
        self.modules.insert(unit, Raw(module));
        Ok(module)
    }
}

fn c_name(name: &str) -> CString {
    CString::new(name).expect("names of kernels have no NUL")
}

fn prepare(
    device: &Device,
    module: CUmodule,
    name: &str,
    threads: u32,
    shared: u32,
) -> Result<Kernel> {
    device.enter()?;
    let mut function = std::ptr::null_mut();
    let symbol = c_name(name);
    // SAFETY: the module is loaded and the name NUL-terminated; writes one handle.
    let result = unsafe { sys::cuModuleGetFunction(&raw mut function, module, symbol.as_ptr()) };
    device
        .check("cuModuleGetFunction", result)
        .map_err(|error| device.error("finding a kernel", format!("{name}: {error}")))?;
    if shared > UNASKED {
        let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was just found.
        let result = unsafe { sys::cuFuncSetAttribute(function, most, shared as i32) };
        device.check("cuFuncSetAttribute", result).map_err(|error| {
            let detail = format!("{name}: {shared} bytes of shared memory: {error}");
            device.error("preparing a kernel", detail)
        })?;
    }
    let mut blocks = 0;
    // SAFETY: writes one int.
    let result = unsafe {
        sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &raw mut blocks,
            function,
            threads as i32,
            shared as usize,
        )
    };
    device.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
    if blocks < 1 {
        let detail = format!(
            "{name}: {threads} threads and {shared} bytes of shared memory do not fit a multiprocessor of {} ({})",
            device.info.name, device.info.arch
        );
        return Err(device.error("preparing a kernel", detail));
    }
    let resident = blocks.unsigned_abs() as u64 * u64::from(device.limits.units);
    Ok(Kernel { function: Raw(function), threads, shared, resident })
}

fn read(device: &Device, module: CUmodule, name: &str) -> Result<Vec<u32>> {
    device.enter()?;
    let (mut address, mut bytes) = (0, 0);
    let symbol = c_name(name);
    // SAFETY: the module is loaded and the name NUL-terminated; writes an address and a size.
    let result = unsafe {
        sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, symbol.as_ptr())
    };
    device
        .check("cuModuleGetGlobal", result)
        .map_err(|error| device.error("reading a launch shape", format!("{name}: {error}")))?;
    let mut words = vec![0u32; bytes / 4];
    // SAFETY: the variable has `bytes` bytes, `words` no more.
    let result =
        unsafe { sys::cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, words.len() * 4) };
    device.check("cuMemcpyDtoH", result)?;
    Ok(words)
}
