//! The arguments of kernels have the layout that the sources give them.
//!
//! The structs are read from the sources and laid out by the rules of C.

use strata_kernels_sycl::{SOURCES, args};

/// A field: its name, offset and size.
type Field = (String, usize, usize);

/// The fields of a Rust struct, and its size.
macro_rules! layout {
    ($type:ty: $($field:ident)*) => {{
        fn size<T, F>(_: fn(&T) -> &F) -> usize {
            size_of::<F>()
        }
        let fields: Vec<Field> = vec![$((
            stringify!($field).to_owned(),
            std::mem::offset_of!($type, $field),
            size(|x: &$type| &x.$field),
        )),*];
        (fields, size_of::<$type>())
    }};
}

/// The fields of a struct of a kernel source, and its size.
fn source(file: &str, name: &str) -> (Vec<Field>, usize) {
    let (_, text) = SOURCES.iter().find(|(own, _)| *own == file).expect("a source");
    let start = format!("struct {name} {{");
    let body = text.split_once(&start).unwrap_or_else(|| panic!("{file}: no {start}")).1;
    let body = body.split_once("};").unwrap().0;
    let body: String = body.lines().map(|line| line.split("//").next().unwrap()).collect();
    let (mut fields, mut end, mut align) = (Vec::new(), 0usize, 1);
    for statement in body.split(';').map(str::trim).filter(|s| !s.is_empty()) {
        let (kind, names) = statement.split_once(' ').unwrap();
        for name in names.split(',').map(str::trim) {
            let size = match kind {
                "u64" => 8,
                "u32" | "float" => 4,
                other => panic!("{file}: {other}"),
            };
            let at = end.next_multiple_of(size);
            fields.push((name.to_owned(), at, size));
            (end, align) = (at + size, align.max(size));
        }
    }
    (fields, end.next_multiple_of(align))
}

#[test]
fn arguments_are_laid_out_as_in_the_sources() {
    let step = layout!(args::Step: stride out_stride rows cols k_blocks tokens k layout interleaved of_codes value_kind header_kind);
    assert_eq!(source("layer.cpp", "step"), step);
    let product = layout!(args::Product: row_stride expert_stride ld rows cols act_rows row_tiles);
    assert_eq!(source("product/args.hpp", "product"), product);
    let choose = layout!(args::ChooseHow: stride tokens experts k gating near softcap groups groups_used top_two normalised epsilon least scale kind);
    assert_eq!(source("routing.cpp", "choose_how"), choose);
    // `end` fills the host's structs.
    let experts = layout!(args::ExpertsHow: scale_stride bias_stride experts kind any limit alpha);
    assert_eq!(source("activation.hpp", "experts_how"), experts);
    let combine =
        layout!(args::CombineHow: scale_stride bias_stride weighed shared_factor sum_factor);
    assert_eq!(source("layer.cpp", "combine_how"), combine);
}
