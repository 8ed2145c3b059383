//! The product with quantized weights.

use strata_core::backend::ops::{Product, Rows};
use strata_core::backend::{Checked, Mmq, RoutingMap};
use strata_core::q8_1::BLOCK_VALUES;
use strata_core::{Result, WeightType};
use strata_kernels_sycl::{Unit, args, prepared_words};
use sycl_bindgen::{Arg, Range};

use crate::SyclBackend;
use crate::launch::{read, read_or_null, write};
use crate::quantize::size;

impl Mmq for SyclBackend {
    fn supports(&self, _: WeightType) -> bool {
        true
    }

    fn multiply(&self, op: &mut Checked<Product<'_>>) -> Result<()> {
        let (weights, acts, map) = (op.weights(), op.activations(), op.map());
        let src = match op.rows() {
            Rows::Indexed(map) => Some(map.src()),
            Rows::Dense | Rows::Experts(_) => None,
        };
        let dst = op.dst();
        let rows = dst.rows();
        if rows == 0 {
            return Ok(());
        }
        let ty = weights.ty();
        let built = self.unit(Unit::Mmq(ty))?;
        let form = &self.shared.form;

        // Every expert may end in a tile that is not full.
        let tokens = form.tile_tokens as usize;
        let most_tiles = rows / tokens + weights.experts().min(rows);
        let tiles = self.scratch("tiles", 4 * (1 + 3 * most_tiles))?;
        // Blocks of padding alone are not read.
        let blocks = weights.cols().div_ceil(BLOCK_VALUES) * acts.rows();
        let prepared = self.scratch("prepared", 4 * blocks * prepared_words(ty))?;

        let row_tiles = weights.rows().div_ceil(form.tile_rows() as usize);
        let shape = args::Product {
            row_stride: weights.row_stride() as u64,
            expert_stride: weights.expert_stride() as u64,
            ld: dst.stride() as u64,
            rows: size(weights.rows()),
            cols: size(weights.cols()),
            act_rows: size(acts.rows()),
            row_tiles: size(row_tiles),
        };
        let (experts, n_rows) = (size(weights.experts()), size(rows));
        let n_blocks = blocks as u64;
        let codes = read(acts.data());
        let groups = row_tiles as u64 * most_tiles as u64;
        let work_group = u64::from(form.work_group);
        let to = write(dst.data());
        // SAFETY: the arguments of the three kernels, whose shapes core has checked; `tiles` has
        // room for every tile there can be, `prepared` for every block.
        unsafe {
            let bounds = read_or_null(map.map(RoutingMap::bounds));
            let args = [tiles, bounds, Arg::value(&experts), Arg::value(&n_rows)];
            self.share(&built, "list_tiles", &args, 1)?;
            let args = [codes, prepared, Arg::value(&n_blocks)];
            self.share(&built, "prepare", &args, n_blocks)?;
            let args = [
                read(weights.data()),
                codes,
                prepared,
                tiles,
                read_or_null(src),
                Arg::pointer(built.table()),
                to,
                Arg::value(&shape),
            ];
            self.groups(&built, "mmq", &args, Range::linear(groups * work_group, work_group))
        }
    }
}
