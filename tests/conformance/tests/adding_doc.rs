//! `docs/adding-an-operation.md` and `docs/adding-a-weight-type.md` name the files that a real
//! operation and a real type are in: all of them, and no others.

use std::collections::BTreeSet;
use std::path::PathBuf;

use strata_core::WeightType;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The files of a page's table, each of which has what the table says.
fn files(page: &str) -> BTreeSet<String> {
    let text = read(page);
    let mut files = BTreeSet::new();
    for row in text.lines().filter(|row| row.starts_with("| `")) {
        let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`'));
        let (Some(file), Some(part)) = (cells.next(), cells.next()) else { panic!("cells: {row}") };
        assert!(read(file).contains(part), "{page}: {file} does not mention {part}");
        assert!(files.insert(file.to_owned()), "{page}: {file} twice");
    }
    files
}

/// Files below `folders` that mention one of some words, which no letter, digit or _ touches.
fn mentioning(folders: &[&str], words: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            open.extend(entries.map(|entry| entry.unwrap().path()));
            continue;
        }
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
        if !["rs", "cu", "cuh", "cpp", "hpp"].contains(&ending) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        if words.iter().any(|word| has_word(&text, word)) {
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
            found.insert(name);
        }
    }
    found
}

fn has_word(text: &str, word: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let behind = text[at + word.len()..].chars().next();
        !before.is_some_and(inside) && !behind.is_some_and(inside)
    })
}

/// Nothing beside a package: the repository's pages and kernels are not there.
fn is_packaged() -> bool {
    let alone = !root().join("docs").is_dir();
    if alone {
        eprintln!("skipped: the repository's docs and kernels are not beside this package");
    }
    alone
}

/// A page names at most so many files, and all in these folders that have one of the words.
fn names_all(page: &str, most: usize, folders: &[&str], words: &[&str]) {
    let named = files(page);
    assert!(named.len() <= most, "{} files: {named:?}", named.len());
    for file in mentioning(folders, words) {
        assert!(named.contains(&file), "{page} does not name {file}");
    }
}

#[test]
fn an_operation_is_in_the_files_that_its_page_names() {
    if is_packaged() {
        return;
    }
    let folders = [
        "core/src/backend",
        "core/src/reference",
        "backends/cpu/src",
        "backends/gpu/src",
        "backends/cuda/src",
        "backends/hip/src",
        "backends/sycl/src",
        "kernels-cuda/kernels",
        "kernels-sycl/sycl",
    ];
    names_all(
        "docs/adding-an-operation.md",
        12,
        &folders,
        &["QuantizeScatter", "quantize_scatter"],
    );
}

#[test]
fn a_weight_type_is_in_the_files_that_its_page_names() {
    if is_packaged() {
        return;
    }
    let folders = [
        "core/src",
        "backends/cpu/src",
        "backends/gpu/src",
        "backends/cuda/src",
        "backends/hip/src",
        "backends/sycl/src",
        "kernels-cuda/kernels",
        "kernels-cuda/src",
        "kernels-cuda/build",
        "kernels-hip/src",
        "kernels-hip/build",
        "kernels-sycl/sycl",
        "kernels-sycl/src",
        "tests/conformance/src/ops/golden.rs",
    ];
    names_all("docs/adding-a-weight-type.md", 9, &folders, &["Q2_0", "q2_0"]);
}

/// A fact of a struct's body: the number or name behind ` name = `.
fn fact<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = body.split_once(&format!(" {name} = "))?;
    behind.split([',', ';']).next()
}

/// What a struct is made from, and its body.
fn structure<'a>(sources: &'a str, name: &str) -> (&'a str, &'a str) {
    let heading = format!("struct {name} : ");
    let (_, text) = sources.split_once(&heading).unwrap_or_else(|| panic!("no {heading}"));
    text.split("\n};").next().and_then(|text| text.split_once(" {")).unwrap()
}

#[test]
fn the_kernels_facts_of_types_are_those_of_core() {
    if is_packaged() {
        return;
    }
    let sources: String = ["bits", "iq", "k", "legacy"]
        .map(|family| read(&format!("kernels-cuda/kernels/types/{family}.cuh")))
        .concat();
    for &ty in WeightType::ALL {
        let (base, body) = structure(&sources, &format!("{ty:?}"));
        let (block, bytes, group) = (ty.block_values(), ty.block_bytes(), ty.group());
        if let Some(arguments) = base.strip_prefix("Block32<") {
            let stated = arguments.trim_end_matches('>').split(", ").collect::<Vec<_>>();
            assert_eq!(stated, [bytes.to_string(), ty.layout().to_string()], "{ty}");
            assert_eq!([block, group], [32, 32], "{ty}");
            continue;
        }
        let inherited = match base {
            "WeightDefaults" => "",
            base => structure(&sources, base).1,
        };
        for (name, expected) in [
            ("block", block.to_string()),
            ("bytes", bytes.to_string()),
            ("group", group.to_string()),
            ("layout", ty.layout().to_string()),
        ] {
            let stated = fact(body, name).or_else(|| fact(inherited, name));
            assert_eq!(stated, Some(&*expected), "{ty}: {name}");
        }
    }
}
