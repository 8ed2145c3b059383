//! What the kernel sources say of themselves: entry points, the structures they take,
//! and what an image exports. Read from the text that the C preprocessor makes of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::double::Vendor;

/// An entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub name: String,
    /// The structure it takes.
    pub args: String,
    /// The most threads of a block, where a number says so.
    pub threads: Option<u32>,
}

/// One source: what its image has.
#[derive(Debug, Clone, Default)]
pub struct Unit {
    pub kernels: Vec<Kernel>,
    /// Variables that the host reads, and how many words they have, where a number says so.
    pub words: BTreeMap<String, Option<usize>>,
}

/// A field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub at: usize,
    pub bytes: usize,
    /// Whether it is an address.
    pub pointer: bool,
}

/// A structure by the rules of C.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Structure {
    pub fields: Vec<Field>,
    pub bytes: usize,
    align: usize,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels-cuda/kernels")
}

/// The sources of one vendor, by name.
pub type Units = BTreeMap<String, Unit>;

/// CUDA's half of the sources.
pub fn cuda() -> &'static Units {
    static UNITS: OnceLock<Units> = OnceLock::new();
    UNITS.get_or_init(|| units(&[]))
}

/// HIP's, with waves of 64.
pub fn hip() -> &'static Units {
    static UNITS: OnceLock<Units> = OnceLock::new();
    UNITS.get_or_init(|| {
        let include = folder().join("../../kernels-hip/include");
        let include = format!("-I{}", include.display());
        units(&["-DSTRATA_HIP", "-D__HIP__", "-D__clang__", "-D__GFX9__", &include])
    })
}

fn units(flags: &[&str]) -> Units {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|e| e == "cu"));
    let named = sources.map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let unit = unit(&name, flags);
        (name, unit)
    });
    named.collect()
}

/// One source, preprocessed with these flags.
fn unit(name: &str, flags: &[&str]) -> Unit {
    let path = folder().join(format!("{name}.cu"));
    let run = Command::new("cc").args(["-E", "-P", "-x", "c++"]).args(flags).arg(&path).output();
    let output = run.expect("cc, a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut unit = Unit::default();
    for bounds in [" __launch_bounds__(", "amdgpu_flat_work_group_size(1, "] {
        for rest in text.split(bounds).skip(1) {
            let (threads, rest) = rest.split_once([',', ')']).unwrap();
            let (before, rest) = rest.split_once("args)").unwrap();
            let (before, args) = before.trim().rsplit_once('(').unwrap();
            let name = before.rsplit([' ', ')']).next().unwrap();
            assert!(rest.trim_start().starts_with('{'), "{name}: one argument");
            unit.kernels.push(Kernel {
                name: name.to_owned(),
                args: args.trim().to_owned(),
                threads: constant(&text, threads.trim()),
            });
        }
    }
    for line in text.lines().flat_map(|line| line.split("extern \"C\" __device__ ")).skip(1) {
        // `u32 name[2] = {...}`
        let Some((declared, _)) = line.split_once('=') else { continue };
        let Some((name, words)) = declared.trim().trim_end_matches(']').split_once('[') else {
            continue;
        };
        let name = name.rsplit(' ').next().unwrap();
        if name.starts_with("strata_") {
            unit.words.insert(name.to_owned(), words.parse().ok());
        }
    }
    unit
}

/// The value of a constant that is a number.
fn constant(text: &str, name: &str) -> Option<u32> {
    let declared = text.split(&format!("constexpr int {name} = ")).nth(1)?;
    declared.split([',', ';']).next()?.trim().parse().ok()
}

/// A structure of a file of the sources.
pub fn structure(file: &str, name: &str) -> Structure {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let start = format!("struct {name} {{");
    let body = text.split_once(&start).unwrap_or_else(|| panic!("{file}: no {start}")).1;
    let body = body.split_once("};").unwrap().0;
    let body: String = body.lines().map(|line| line.split("//").next().unwrap()).collect();
    let mut out = Structure { align: 1, ..Structure::default() };
    for statement in body.split(';').map(str::trim).filter(|s| !s.is_empty()) {
        let statement = statement.strip_prefix("const ").unwrap_or(statement);
        let (kind, names) = statement.split_once(' ').unwrap();
        for name in names.split(',').map(str::trim) {
            let pointer = name.starts_with('*');
            let (bytes, own) = match (kind, pointer) {
                (_, true) | ("i64", _) => (8, 8),
                ("u32" | "i32" | "float", _) => (4, 4),
                (inner, _) => {
                    let inner = held(inner).unwrap_or_else(|| panic!("{file}: {kind} {name}"));
                    (inner.bytes, inner.align)
                }
            };
            let at = out.bytes.next_multiple_of(own);
            let name = name.trim_start_matches('*').to_owned();
            out.fields.push(Field { name, at, bytes, pointer });
            (out.bytes, out.align) = (at + bytes, out.align.max(own));
        }
    }
    out.bytes = out.bytes.next_multiple_of(out.align);
    out
}

/// A structure that others hold.
pub fn held(name: &str) -> Option<Structure> {
    match name {
        "ReportTo" => Some(structure("quantize.cuh", name)),
        "ExpertsArgs" => Some(structure("activation.cuh", name)),
        _ => None,
    }
}

/// The tiles that the crate of a vendor's images lists are those of the sources, and of the double.
fn tiles_are_those_of_the_sources<V: Vendor>() {
    let name = format!("kernels-{}", V::KIND.name());
    let path = folder().join("../..").join(&name).join("src/lib.rs");
    let text = std::fs::read_to_string(path).unwrap();
    let list = text.split_once("MMQ_TILES: ").unwrap().1.split_once("];").unwrap().0;
    let listed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert_eq!(listed, V::TILES);
    for (unit, source) in V::units().iter().filter(|(unit, _)| unit.starts_with("mmq_")) {
        let there: Vec<&str> = source.kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(listed, there, "{name}, {unit}");
    }
}

on_both! { tiles_are_those_of_the_sources }
