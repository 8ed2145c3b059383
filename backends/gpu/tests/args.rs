//! The arguments of kernels have the layout that the sources give them.
//!
//! The structures are read from the sources and laid out by the rules of C.

use std::path::Path;

use strata_gpu::steps::LAYOUTS;

/// A field: its name, offset and size.
type Field = (String, usize, usize);

/// The fields of a struct of a kernel source, and its size.
fn source(file: &str, name: &str) -> (Vec<Field>, usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels-cuda/kernels").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let start = format!("struct {name} {{");
    let body = text.split_once(&start).unwrap_or_else(|| panic!("{file}: no {start}")).1;
    let body = body.split_once("};").unwrap().0;
    let body: String = body.lines().map(|line| line.split("//").next().unwrap()).collect();
    let (mut fields, mut end, mut align) = (Vec::new(), 0usize, 1);
    for statement in body.split(';').map(str::trim).filter(|s| !s.is_empty()) {
        let statement = statement.strip_prefix("const ").unwrap_or(statement);
        let (kind, names) = statement.split_once(' ').unwrap();
        for name in names.split(',').map(str::trim) {
            let (size, own) = match (kind, name.starts_with('*')) {
                (_, true) | ("i64", _) => (8, 8),
                ("u32" | "i32" | "float", _) => (4, 4),
                ("ReportTo", _) => (16, 8),
                ("ExpertsArgs", _) => (56, 8),
                other => panic!("{file}: {other:?}"),
            };
            let at = end.next_multiple_of(own);
            fields.push((name.trim_start_matches('*').to_owned(), at, size));
            (end, align) = (at + size, align.max(own));
        }
    }
    (fields, end.next_multiple_of(align))
}

#[test]
fn arguments_are_laid_out_as_in_the_sources() {
    for layout in LAYOUTS.iter().copied().flatten() {
        let fields = layout.fields.iter().map(|&(name, at, size)| (name.to_owned(), at, size));
        let here = (fields.collect(), layout.bytes);
        assert_eq!(source(layout.file, layout.name), here, "{} of {}", layout.name, layout.file);
    }
}
