//! Backends around another.

/// Methods of a backend around another, `self.inner`, that are the inner one's: those of
/// [`Backend`](crate::backend::Backend) that are named; with `of`, what a trait of operations has
/// beside its operations.
///
/// ```
/// use strata_core::backend::{Backend, Checked, Memory};
///
/// struct Around {
///     inner: Box<dyn Backend>,
/// }
/// # trait Part {
/// #     fn memory(&self) -> strata_core::Result<strata_core::backend::MemoryInfo>;
/// #     fn alloc_raw(&self, bytes: Checked<usize>) -> strata_core::Result<Box<dyn Memory>>;
/// # }
/// # impl Part for Around {
/// strata_core::forward_backend!(memory alloc_raw);
/// # }
/// ```
#[macro_export]
macro_rules! forward_backend {
    (of Mmq) => {
        fn supports(&self, ty: $crate::WeightType) -> bool {
            self.inner.supports(ty)
        }
    };
    (of $trait:ident) => {};
    (@device) => {
        fn device(&self) -> &$crate::backend::DeviceInfo {
            self.inner.device()
        }
    };
    (@memory) => {
        fn memory(&self) -> $crate::Result<$crate::backend::MemoryInfo> {
            self.inner.memory()
        }
    };
    (@scratch) => {
        fn scratch(&self) -> u64 {
            self.inner.scratch()
        }
    };
    (@stream) => {
        fn stream(&self) -> &$crate::backend::StreamState {
            self.inner.stream()
        }
    };
    (@fork) => {
        fn fork(&self) -> $crate::Result<Box<dyn $crate::backend::Backend>> {
            self.inner.fork()
        }
    };
    (@alloc_raw) => {
        fn alloc_raw(
            &self,
            bytes: $crate::backend::Checked<usize>,
        ) -> $crate::Result<Box<dyn $crate::backend::Memory>> {
            self.inner.alloc_raw(bytes)
        }
    };
    (@import_raw) => {
        fn import_raw(
            &self,
            host: $crate::backend::Checked<$crate::backend::HostBytes>,
        ) -> $crate::Result<Box<dyn $crate::backend::Memory>> {
            self.inner.import_raw(host)
        }
    };
    (@upload_raw) => {
        fn upload_raw(
            &self,
            dst: $crate::backend::Checked<$crate::backend::RawMut<'_>>,
            src: &[u8],
        ) -> $crate::Result<()> {
            self.inner.upload_raw(dst, src)
        }
    };
    (@download_raw) => {
        fn download_raw(
            &self,
            src: $crate::backend::Checked<$crate::backend::Raw<'_>>,
            dst: &mut [u8],
        ) -> $crate::Result<()> {
            self.inner.download_raw(src, dst)
        }
    };
    (@fill_raw) => {
        fn fill_raw(
            &self,
            dst: $crate::backend::Checked<$crate::backend::RawMut<'_>>,
            byte: u8,
        ) -> $crate::Result<()> {
            self.inner.fill_raw(dst, byte)
        }
    };
    (@copy_raw) => {
        fn copy_raw(
            &self,
            dst: $crate::backend::Checked<$crate::backend::RawMut<'_>>,
            src: $crate::backend::Checked<$crate::backend::Raw<'_>>,
        ) -> $crate::Result<()> {
            self.inner.copy_raw(dst, src)
        }
    };
    (@synchronize_raw) => {
        fn synchronize_raw(&self, asked: $crate::backend::Checked<()>) -> $crate::Result<()> {
            self.inner.synchronize_raw(asked)
        }
    };
    (@record_raw) => {
        fn record_raw(
            &self,
            asked: $crate::backend::Checked<()>,
        ) -> $crate::Result<Box<dyn $crate::backend::RawEvent>> {
            self.inner.record_raw(asked)
        }
    };
    (@wait_raw) => {
        fn wait_raw(
            &self,
            event: $crate::backend::Checked<&dyn $crate::backend::RawEvent>,
        ) -> $crate::Result<()> {
            self.inner.wait_raw(event)
        }
    };
    (@mark) => {
        fn mark(&self) -> $crate::Result<Box<dyn $crate::backend::Mark>> {
            self.inner.mark()
        }
    };
    (@elapsed) => {
        fn elapsed(
            &self,
            from: &dyn $crate::backend::Mark,
            to: &dyn $crate::backend::Mark,
        ) -> $crate::Result<std::time::Duration> {
            self.inner.elapsed(from, to)
        }
    };
    ($($method:ident)*) => {
        $($crate::forward_backend!(@$method);)*
    };
}
