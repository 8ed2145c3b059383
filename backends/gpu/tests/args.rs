//! The arguments of kernels have the layout that the sources give them.
//!
//! The structs are read from the `.cu` files and laid out by the rules of C.

use std::path::Path;

use strata_gpu::args;

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
    let cases = [
        (("quantize.cuh", "ReportTo"), layout!(args::ReportTo: word value_kind header_kind)),
        (
            ("quantize.cu", "QuantizeArgs"),
            layout!(args::Quantize: x src tokens slot out report items out_rows cols stride k k_blocks vector aligned),
        ),
        (
            ("scatter.cu", "ScatterArgs"),
            layout!(args::Scatter: x src bounds out report out_rows cols stride tokens k experts k_blocks chunks chunk_tokens vector aligned),
        ),
        (
            ("swiglu.cu", "SwiGluArgs"),
            layout!(args::SwiGlu: gate_up out rows ffn stride out_stride interleaved experts),
        ),
        (
            ("swiglu.cu", "SwiGluQuantizeArgs"),
            layout!(args::SwiGluQuantize: gate_up tokens out report rows ffn stride k_blocks interleaved vector aligned experts),
        ),
        (
            ("router.cu", "ScoresArgs"),
            layout!(args::Scores: x weights out tokens experts width x_stride weights_stride out_stride),
        ),
        (
            ("router.cu", "TopKArgs"),
            layout!(args::TopK: scores ids weights report tokens stride experts k over_all scale),
        ),
        (
            ("activation.cuh", "ExpertsArgs"),
            layout!(args::Experts: scale bias bounds scale_stride bias_stride experts kind limit alpha),
        ),
        (
            ("choose.cu", "ChooseArgs"),
            layout!(args::Choose: scores score_bias selection_bias ids weights report tokens stride experts k gating near softcap groups groups_used top_two normalised epsilon least scale),
        ),
        (
            ("router.cu", "CombineArgs"),
            layout!(args::Combine: y slot weights shared shared_score out report tokens width y_stride shared_stride score_stride out_stride k vector ids scale bias scale_stride bias_stride shared_factor sum_factor),
        ),
        (
            ("map.cu", "MapArgs"),
            layout!(args::Map: ids slot src bounds counts routes k experts chunks chunk_routes id_bits),
        ),
        (("map.cu", "TilesArgs"), layout!(args::Tiles: bounds tiles experts tile_tokens)),
        (
            ("product/tile.cuh", "MmqArgs"),
            layout!(args::Mmq: weights activations src tiles out row_stride expert_stride act_rows out_stride rows cols out_rows aligned),
        ),
    ];
    for ((file, name), rust) in cases {
        assert_eq!(source(file, name), rust, "{name} of {file}");
    }
}
