//! SYCL for Strata: a flat C bridge in C++ (`bridge/`), Rust declarations
//! generated from its header ([`sys`]), and a thin safe layer over both.
//!
//! Nothing here links libsycl. The bridge is a shared object inside this crate;
//! [`Runtime::load`] finds an installation ([`found`]), opens its libsycl by
//! path and then the bridge, and a program on a machine that has none gets
//! [`Error::NotFound`] from the first call instead of failing to start.
//!
//! ```no_run
//! use sycl_bindgen::{Arg, Bundle, Queue, Range, Runtime};
//! # fn main() -> Result<(), sycl_bindgen::Error> {
//! let runtime = Runtime::load(Default::default())?;
//! let queue = Queue::open(runtime, 0)?;
//! let source = r#"#include <sycl/sycl.hpp>
//!     namespace se = sycl::ext::oneapi::experimental;
//!     extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((se::nd_range_kernel<1>))
//!     void twice(float *x) {
//!         x[sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_id(0)] *= 2;
//!     }"#;
//! let bundle = Bundle::build(&queue, source, &[], &["-ffp-contract=off"])?;
//! let twice = bundle.kernel("twice")?;
//! let mut x = queue.alloc(64 * 4)?;
//! x.upload(0, &[0; 256])?;
//! // SAFETY: the kernel touches 64 floats of `x`, which has as many.
//! unsafe { twice.launch(&queue, &[Arg::buffer(&x)], Range::linear(64, 16))? };
//! queue.wait()
//! # }
//! ```
#![warn(missing_docs)]

mod buffer;
mod bundle;
mod device;
mod environment;
mod error;
mod event;
#[allow(dead_code)] // the build script uses the rest
mod find;
mod load;
mod queue;

pub use buffer::UsmBuffer;
pub use bundle::{Arg, Bundle, Kernel, Limits, Range};
pub use device::{Aspects, Backend, Device, Kind};
pub use environment::{Settings, Variable, restart_with, variables};
pub use error::{Code, Error};
pub use event::Event;
pub use find::{Found, NotFound};
pub use load::{Options, Runtime, found};
pub use queue::Queue;

/// The C interface as it is: constants, structs, and the table of functions.
#[allow(clippy::missing_safety_doc)]
pub mod sys {
    include!(concat!(env!("OUT_DIR"), "/sys.rs"));
}
