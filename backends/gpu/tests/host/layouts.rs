//! The arguments of kernels have the layout that the sources give them.

use strata_gpu::steps::LAYOUTS;

use crate::double::Vendor;
use crate::sources;

fn arguments_are_laid_out_as_in_the_sources<V: Vendor>() {
    let mut known: Vec<&str> = Vec::new();
    for layout in LAYOUTS.iter().copied().flatten() {
        let there = sources::structure(layout.file, layout.name);
        let fields: Vec<_> =
            there.fields.iter().map(|f| (f.name.as_str(), f.at, f.bytes)).collect();
        let what = format!("{} of {}", layout.name, layout.file);
        assert_eq!((&*fields, there.bytes), (layout.fields, layout.bytes), "{what}");
        known.push(layout.name);
    }
    // Every structure that a kernel takes is one of them.
    for kernel in V::units().values().flat_map(|unit| &unit.kernels) {
        assert!(known.contains(&&*kernel.args), "{kernel:?}");
    }
}

on_both! {
    arguments_are_laid_out_as_in_the_sources
}
