//! The steps between the products.

use strata_core::Result;
use strata_core::backend::ops::{Combine, MapRoutes, RouterScores, SwiGlu, SwiGluQuantize, TopK};
use strata_core::backend::{Checked, MoeOps};

use crate::backend::GpuBackend;
use crate::driver::Driver;

impl<D: Driver> MoeOps for GpuBackend<D> {
    fn router_scores(&self, op: &mut Checked<RouterScores<'_>>) -> Result<()> {
        self.launch_scores(op)
    }

    fn top_k(&self, op: &mut Checked<TopK<'_>>) -> Result<()> {
        self.launch_top_k(op)
    }

    fn map_routes(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        self.launch_map(op)
    }

    fn swiglu(&self, op: &mut Checked<SwiGlu<'_>>) -> Result<()> {
        self.launch_swiglu(op)
    }

    fn swiglu_quantize(&self, op: &mut Checked<SwiGluQuantize<'_>>) -> Result<()> {
        self.launch_swiglu_quantize(op)
    }

    fn combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        self.launch_combine(op)
    }
}
