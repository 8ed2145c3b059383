//! Kernels: bundles built from source, arguments, launches.

use crate::buffer::UsmBuffer;
use crate::error::{Error, check};
use crate::queue::Queue;
use crate::sys;
use core::ffi::{CStr, c_char, c_void};
use std::ffi::CString;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Kernels compiled from one source for one queue's device.
pub struct Bundle {
    raw: NonNull<sys::Bundle>,
    queue: Queue,
    log: String,
}

// SAFETY: the bridge's objects may be used and freed from any thread.
unsafe impl Send for Bundle {}
// SAFETY: as above; looking kernels up changes nothing.
unsafe impl Sync for Bundle {}

impl Drop for Bundle {
    fn drop(&mut self) {
        // SAFETY: the handle is live and owned here.
        unsafe { (self.queue.api().bundle_destroy)(self.raw.as_ptr()) };
    }
}

fn zero_terminated(text: &str, what: &str) -> Result<CString, Error> {
    CString::new(text)
        .map_err(|_| Error::invalid("building kernels", format!("{what} holds a zero byte")))
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|t| t.as_ptr()).collect()
}

impl Bundle {
    /// Compiles `source` with `options`; `headers` are (name, text) pairs that
    /// the source may include.
    ///
    /// # Errors
    /// [`Code::Build`](crate::Code::Build) with the compiler's log;
    /// [`Code::Unsupported`](crate::Code::Unsupported) for a device that takes
    /// no source.
    pub fn build(
        queue: &Queue,
        source: &str,
        headers: &[(&str, &str)],
        options: &[&str],
    ) -> Result<Self, Error> {
        let source = zero_terminated(source, "the source")?;
        let (mut names, mut texts, mut flags) = (Vec::new(), Vec::new(), Vec::new());
        for (name, text) in headers {
            names.push(zero_terminated(name, "a header's name")?);
            texts.push(zero_terminated(text, "a header")?);
        }
        for option in options {
            flags.push(zero_terminated(option, "an option")?);
        }
        let mut raw = std::ptr::null_mut();
        let mut log = std::ptr::null();
        // SAFETY: the texts outlive the call, each list has the length that is
        // passed with it, and the results are valid for the call.
        let code = unsafe {
            (queue.api().bundle_build)(
                queue.raw(),
                source.as_ptr(),
                pointers(&names).as_ptr(),
                pointers(&texts).as_ptr(),
                names.len() as u32,
                pointers(&flags).as_ptr(),
                flags.len() as u32,
                &mut raw,
                &mut log,
            )
        };
        check(queue.api(), code, "building kernels")?;
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::invalid("building kernels", "no bundle".into()))?;
        let log = if log.is_null() {
            String::new()
        } else {
            // SAFETY: a zero-terminated text of the live bundle.
            unsafe { CStr::from_ptr(log) }.to_string_lossy().into_owned()
        };
        Ok(Bundle { raw, queue: queue.clone(), log })
    }

    /// What the compiler had to say.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// The kernel of an `extern "C"` function.
    ///
    /// # Errors
    /// [`Code::Invalid`](crate::Code::Invalid) for a name that is not there.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        let doing = format!("looking up kernel {name}");
        let text = zero_terminated(name, "a kernel's name")?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is live; `raw` is valid for the call.
        let code =
            unsafe { (self.queue.api().kernel_get)(self.raw.as_ptr(), text.as_ptr(), &mut raw) };
        check(self.queue.api(), code, &doing)?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::invalid(&doing, "no kernel".into()))?;
        Ok(Kernel { raw, queue: self.queue.clone(), name: name.to_string() })
    }
}

/// What a kernel may use on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most work-items of a work-group.
    pub max_work_group: u64,
    /// Private memory of a work-item in bytes; 0 when not known.
    pub private_memory: u64,
    /// Largest sub-group; 0 when not known.
    pub max_sub_group: u32,
}

/// A kernel argument. Values are borrowed until the launch has copied them.
#[derive(Clone, Copy)]
pub struct Arg<'a> {
    raw: sys::Arg,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> Arg<'a> {
    fn new(kind: u32, data: *const c_void, bytes: u64) -> Self {
        Arg { raw: sys::Arg { data, bytes, kind }, borrowed: PhantomData }
    }

    /// A pointer to a buffer's first byte.
    pub fn buffer(buffer: &'a UsmBuffer) -> Self {
        Self::pointer(buffer.as_ptr())
    }

    /// A pointer into unified shared memory.
    pub fn pointer(pointer: *const c_void) -> Self {
        Self::new(sys::ARG_POINTER, pointer, 8)
    }

    /// A value: a number, or a `repr(C)` struct of the kernel's parameter type.
    pub fn value<T: Copy>(value: &'a T) -> Self {
        let data = std::ptr::from_ref(value).cast();
        Self::new(sys::ARG_VALUE, data, size_of::<T>() as u64)
    }

    /// Local memory of a work-group, a `sycl::local_accessor<T, 1>`.
    pub fn local(bytes: u64) -> Self {
        Self::new(sys::ARG_LOCAL, std::ptr::null(), bytes)
    }
}

/// The work-items of a launch, and of each of its work-groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    dims: u32,
    global: [u64; 3],
    local: [u64; 3],
}

impl Range {
    /// One dimension: `global` work-items in work-groups of `local`.
    pub fn linear(global: u64, local: u64) -> Self {
        Range { dims: 1, global: [global, 1, 1], local: [local, 1, 1] }
    }

    /// Two dimensions, slowest first.
    pub fn plane(global: [u64; 2], local: [u64; 2]) -> Self {
        Range { dims: 2, global: [global[0], global[1], 1], local: [local[0], local[1], 1] }
    }

    /// Three dimensions, slowest first.
    pub fn space(global: [u64; 3], local: [u64; 3]) -> Self {
        Range { dims: 3, global, local }
    }
}

/// A kernel.
pub struct Kernel {
    raw: NonNull<sys::Kernel>,
    queue: Queue,
    name: String,
}

// SAFETY: the bridge's objects may be used and freed from any thread.
unsafe impl Send for Kernel {}
// SAFETY: arguments belong to a launch, not to the kernel, so that launches of
// several threads do not meet.
unsafe impl Sync for Kernel {}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.name)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the handle is live and owned here.
        unsafe { (self.queue.api().kernel_destroy)(self.raw.as_ptr()) };
    }
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it may use on its device.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn limits(&self) -> Result<Limits, Error> {
        let mut raw = sys::Limits { max_work_group: 0, private_memory: 0, max_sub_group: 0 };
        // SAFETY: the handle is live; `raw` is valid for the call.
        let code = unsafe { (self.queue.api().kernel_limits)(self.raw.as_ptr(), &mut raw) };
        check(self.queue.api(), code, &format!("asking for the limits of {}", self.name))?;
        Ok(Limits {
            max_work_group: raw.max_work_group,
            private_memory: raw.private_memory,
            max_sub_group: raw.max_sub_group,
        })
    }

    /// Submits the kernel on its queue or another of the same device; does not
    /// wait. An empty range submits nothing.
    ///
    /// # Errors
    /// [`Code::Invalid`](crate::Code::Invalid) for a range that does not divide
    /// into its work-groups, or arguments that are not the kernel's.
    ///
    /// # Safety
    /// The arguments have the types of the kernel's parameters, and what the
    /// kernel reads and writes through its pointers is valid until the queue
    /// has been waited for. Buffers of the same queue wait before they go.
    pub unsafe fn launch(
        &self,
        queue: &Queue,
        args: &[Arg<'_>],
        range: Range,
    ) -> Result<(), Error> {
        let raw: Vec<sys::Arg> = args.iter().map(|a| a.raw).collect();
        // SAFETY: handles are live and the lists as long as passed; values are
        // copied before the call returns; the rest is the caller's promise.
        let code = unsafe {
            (queue.api().launch)(
                queue.raw(),
                self.raw.as_ptr(),
                raw.as_ptr(),
                raw.len() as u32,
                range.dims,
                range.global.as_ptr(),
                range.local.as_ptr(),
                std::ptr::null_mut(),
            )
        };
        check(queue.api(), code, &format!("launching {}", self.name))
    }
}
