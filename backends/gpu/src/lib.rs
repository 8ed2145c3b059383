//! The host half that the CUDA and HIP backends of Strata share, as their kernels are
//! shared: [`args`] are the arguments of the entry points, [`shapes`] what an image
//! exports about its launches, [`tiles`] and [`chunks`] what follows from that.

pub mod args;
pub mod chunks;
pub mod shapes;
pub mod tiles;
