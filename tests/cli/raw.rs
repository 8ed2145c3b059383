//! `strata raw`, against the reference and the golden vectors.

use super::support::{Folder, f32s, strata};
use strata::format::random_blocks;
use strata::prefill::normals;
use strata::raw::bytes_of;
use strata::{Layout, WeightType, reference};

fn vectors(name: &str) -> String {
    format!("{}/tests/conformance/vectors/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn quantize_writes_the_golden_bytes() {
    let folder = Folder::new();
    let out = folder.path("out.bin");
    let normal = vectors("q8_1/normal.f32");
    for layout in Layout::ALL {
        strata(&format!("raw quantize --layout {layout} --rows 96 --cols 512 {normal} {out}")).ok();
        let expected = std::fs::read(vectors(&format!("q8_1/normal.{layout}.bin"))).unwrap();
        assert!(std::fs::read(&out).unwrap() == expected, "{layout}");
    }
    for format in ["q8_0", "q8_1", "q8_K"] {
        // Names are read in any case.
        let name = format.to_uppercase();
        strata(&format!("raw quantize --layout {name} --rows 96 --cols 512 {normal} {out}")).ok();
        let expected = std::fs::read(vectors(&format!("act/normal.{format}.bin"))).unwrap();
        assert!(std::fs::read(&out).unwrap() == expected, "{format}");
    }
}

#[test]
fn dequantize_writes_the_golden_values() {
    let folder = Folder::new();
    let out = folder.path("out.f32");
    for &ty in WeightType::ALL {
        for kind in ["quantized", "random"] {
            let blocks = vectors(&format!("weights/{ty}.{kind}.blocks"));
            strata(&format!("raw dequantize --type {ty} --rows 6 --cols 512 {blocks} {out}")).ok();
            let expected = f32s(vectors(&format!("weights/{ty}.{kind}.f32")));
            for (given, expected) in f32s(&out).iter().zip(&expected) {
                // Zeros may differ in sign: the library's own tests say for which types.
                assert!(given == expected, "{ty}: {given} for {expected}");
            }
        }
    }
}

#[test]
fn mmq_writes_the_reference_s_bytes() {
    let folder = Folder::new();
    let out = folder.path("out.f32");
    let (rows, cols, tokens, experts, k) = (6, 256, 7, 4, 3);
    let x = normals(1, tokens * cols);
    let input = folder.write("x.f32", &bytes_of(&x).unwrap());
    let ids: Vec<i32> = (0..tokens * k).map(|i| (i * 7 % 5 % experts) as i32).collect();
    let id_bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let id_file = folder.write("ids.i32", &id_bytes);
    for &ty in WeightType::ALL {
        let row = ty.row_bytes(cols).unwrap();
        let blocks = random_blocks(ty, 9, experts * rows * cols / ty.block_values());
        let q8 = reference::quantize(&x, tokens, cols, cols, None, ty.layout());

        let one = folder.write("one.blocks", &blocks[..rows * row]);
        let shape = format!(
            "--type {ty} --rows {rows} --cols {cols} --input {input} --input-rows {tokens}"
        );
        strata(&format!("raw mmq {shape} --weights {one} {out}")).ok();
        let read: Vec<usize> = (0..tokens).collect();
        let expected = reference::mmq(ty, &blocks, rows, cols, row, &q8, tokens, &read);
        assert!(std::fs::read(&out).unwrap() == bytes_of(&expected).unwrap(), "{ty}");

        let all = folder.write("all.blocks", &blocks);
        let routed = format!("--weights {all} --experts {experts} --ids {id_file} --top-k {k}");
        strata(&format!("raw mmq {shape} {routed} {out}")).ok();
        let mut expected = Vec::new();
        for (i, &id) in ids.iter().enumerate() {
            let expert = &blocks[id as usize * rows * row..];
            expected.extend(reference::mmq(ty, expert, rows, cols, row, &q8, tokens, &[i / k]));
        }
        assert!(std::fs::read(&out).unwrap() == bytes_of(&expected).unwrap(), "{ty}, routed");
    }
}

#[test]
fn refusals_say_what_was_given() {
    let folder = Folder::new();
    let out = folder.path("out");
    let x = folder.write("x.f32", &[0; 4 * 64]);
    let w = folder.write("w.blocks", &[0; 34 * 2]);
    let bad_ids: Vec<u8> = [0i32, 1, -1, 0].iter().flat_map(|id| id.to_le_bytes()).collect();
    let bad_ids = folder.write("ids.i32", &bad_ids);
    let mmq =
        format!("raw mmq --type q8_0 --rows 1 --cols 32 --weights {w} --input {x} --input-rows 2");
    for (args, code, message) in [
        (
            format!("raw quantize --layout D4 --rows 2 --cols 33 {x} {out}"),
            1,
            "x.f32: given 256 bytes, expected 264 bytes for 2 x 33 f32",
        ),
        (
            format!("raw quantize --layout q8_K --rows 2 --cols 32 {x} {out}"),
            2,
            "columns: given 32, expected a multiple of 256, the block of q8_K",
        ),
        (
            format!("raw quantize --layout q9 --rows 2 --cols 32 {x} {out}"),
            2,
            "expected D4, DS4, D2S6 (for products), q8_0, q8_1 or q8_K (rows)",
        ),
        (
            format!("raw quantize --layout D4 --rows 18446744073709551615 --cols 2 {x} {out}"),
            2,
            "input: given 18446744073709551615 x 2, expected at most",
        ),
        (format!("raw quantize --layout D4 --rows -1 --cols 2 {x} {out}"), 2, "'-1'"),
        (
            format!("raw dequantize --type q4_K --rows 1 --cols 100 {x} {out}"),
            2,
            "columns: given 100, expected a multiple of 256, the block of q4_K",
        ),
        (
            format!("raw dequantize --type q9_K --rows 1 --cols 256 {x} {out}"),
            2,
            "weight type q9_K: unknown, expected one of q4_0, q4_1",
        ),
        (
            format!("raw dequantize --type q8_0 --rows 1 --cols 32 {out}.nowhere {out}"),
            1,
            "out.nowhere: No such file",
        ),
        (format!("{mmq} {out}"), 1, "w.blocks: given 68 bytes, expected 34 bytes for 1 x 32 q8_0"),
        (
            format!("{mmq} --experts 2 --ids {bad_ids} --top-k 2 {out}"),
            1,
            "token 1, choice 0: expert id -1, expected 0..2",
        ),
        (
            format!("{mmq} --experts 2 --ids {bad_ids} --top-k 3 {out}"),
            1,
            "ids.i32: given 16 bytes, expected 24 bytes for 2 x 3 int32",
        ),
        (format!("{mmq} --experts 2 {out}"), 2, "--ids"),
        (format!("{mmq} --experts 0 --ids {bad_ids} --top-k 2 {out}"), 2, "experts: given 0"),
    ] {
        strata(&args).fails(code, message);
    }
    // Nothing is left behind where something failed.
    assert_eq!(folder.files(), ["ids.i32", "w.blocks", "x.f32"]);
}
