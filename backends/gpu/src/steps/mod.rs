//! The steps, each in a file of its own: the arguments of its kernels, what their image says
//! of its launches, and the launch.
//!
//! An operation that both vendors get is one file here and one source of kernels in
//! `kernels-cuda/kernels`, which both compile: the file declares the arguments by
//! `arguments!`, names the source and its variables, and launches in a method of
//! [`GpuBackend`](crate::GpuBackend). What is left are two lines: the layouts in [`LAYOUTS`], and the method
//! of core's trait in `moe` or `model` that calls the launch.

mod chunks;
mod combine;
mod map;
mod mmq;
mod model;
mod moe;
mod quantize;
mod router;
mod scatter;
mod swiglu;
mod tiles;

use crate::args::Layout;

/// The structures that kernels take, by the steps that launch them.
pub const LAYOUTS: &[&[Layout]] = &[
    quantize::LAYOUTS,
    scatter::LAYOUTS,
    map::LAYOUTS,
    mmq::LAYOUTS,
    router::LAYOUTS,
    swiglu::LAYOUTS,
    combine::LAYOUTS,
];
