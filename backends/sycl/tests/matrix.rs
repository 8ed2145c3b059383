//! The product's tiles for matrix units, which no device of a machine without
//! an Intel GPU or an AMX CPU can run.
//!
//! The runtime's compiler makes SPIR-V of them, of every weight type, and what
//! is in it is looked at. The same kernels with the tile by a loop run the
//! products of the conformance suite.

use std::path::Path;
use std::process::Command;

use strata_core::WeightType;
use strata_kernels_sycl::{Dot, Form, HEADERS_ONCE, NUMERICS, SOURCES, Unit};
use strata_sycl::{SyclBackend, environment};
use sycl_bindgen::{Bundle, Options, Queue, Runtime, restart_with};

/// Whether there is a device to compile for.
fn present() -> bool {
    restart_with(&environment()).expect("the test starts again");
    match SyclBackend::open(0) {
        Ok(_) => true,
        Err(e) if std::env::var_os("STRATA_REQUIRE_SYCL").is_none() => {
            println!("skipped: {e}");
            false
        }
        Err(e) => panic!("STRATA_REQUIRE_SYCL is set: {e}"),
    }
}

/// OpEntryPoint, OpExecutionMode with SubgroupSize, OpCooperativeMatrixMulAddKHR.
const ENTRY_POINT: u32 = 15;
const EXECUTION_MODE: u32 = 16;
const SUBGROUP_SIZE: u32 = 35;
const MUL_ADD: u32 = 4459;

/// What a SPIR-V module holds.
#[derive(Debug, Default)]
struct Module {
    entries: Vec<String>,
    sub_groups: Vec<u32>,
    /// Operand masks of the matrix products: 1 is a signed A, 2 a signed B.
    products: Vec<u32>,
}

fn parse(bytes: &[u8]) -> Module {
    let words: Vec<u32> = bytes.as_chunks().0.iter().map(|&w| u32::from_le_bytes(w)).collect();
    assert_eq!(words[0], 0x0723_0203, "SPIR-V begins with its magic number");
    let mut module = Module::default();
    let mut rest = &words[5..];
    while let Some(&first) = rest.first() {
        let (op, count) = (first & 0xffff, (first >> 16) as usize);
        assert!((1..=rest.len()).contains(&count), "an instruction of {count} words");
        match op {
            ENTRY_POINT => {
                let text: Vec<u8> = rest[3..count].iter().flat_map(|w| w.to_le_bytes()).collect();
                let name = text.split(|&b| b == 0).next().unwrap_or_default();
                module.entries.push(String::from_utf8_lossy(name).into_owned());
            }
            EXECUTION_MODE if rest[2] == SUBGROUP_SIZE => module.sub_groups.push(rest[3]),
            MUL_ADD => {
                module.products.push(rest.get(6).copied().filter(|_| count > 6).unwrap_or(0))
            }
            _ => {}
        }
        rest = &rest[count..];
    }
    module
}

const SELF: &str = "every_type_compiles_to_products_of_matrices";

/// What is compiled, and for which sub-groups.
fn units() -> Vec<(Unit, u32)> {
    let mut units: Vec<_> = WeightType::ALL.iter().map(|&ty| (Unit::Mmq(ty), 16)).collect();
    let others = [Unit::Check, Unit::Mmq(WeightType::Q4_K), Unit::Mmq(WeightType::IQ2_XS)];
    units.extend(others.map(|unit| (unit, 8)));
    units.push((Unit::Check, 16));
    units
}

/// Compiles all of them; the runtime writes the SPIR-V of each to `folder`, as its variables say.
fn compile(folder: &Path) {
    let runtime = Runtime::load(Options::default()).unwrap();
    let device = runtime.devices().unwrap().into_iter().find(|d| d.aspects.source).unwrap();
    let queue = Queue::open(runtime, device.index).unwrap();
    let options = [NUMERICS.as_slice(), &[HEADERS_ONCE]].concat();
    for (unit, sub_group) in units() {
        let form = Form::gpu(sub_group, 64, Dot::JointMatrix);
        Bundle::build(&queue, &unit.source(&form), &SOURCES, &options)
            .unwrap_or_else(|e| panic!("{unit}, sub-groups of {sub_group}: {e}"));
        let module = dumped(folder, unit);
        let kernel = if unit == Unit::Check { "probe_tiles" } else { "mmq" };
        assert!(module.entries.iter().any(|e| e.ends_with(kernel)), "{unit}: {module:?}");
        assert_eq!(module.sub_groups, [sub_group], "{unit}");
        // Activations are signed, codes are not.
        assert!(module.products.iter().all(|mask| mask & 3 == 1), "{unit}: {module:?}");
        println!("{unit}, sub-groups of {sub_group}: {} products", module.products.len());
    }
}

/// The module with products of matrices among those that lie in `folder`, which is emptied:
/// kernels that need no matrix units are a module of their own.
fn dumped(folder: &Path, unit: Unit) -> Module {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let modules = files.map(|file| {
        let module = parse(&std::fs::read(&file).unwrap());
        std::fs::remove_file(file).unwrap();
        module
    });
    let mut modules: Vec<Module> = modules.filter(|m| !m.products.is_empty()).collect();
    assert_eq!(modules.len(), 1, "{unit}: {modules:?}");
    modules.remove(0)
}

#[test]
fn every_type_compiles_to_products_of_matrices() {
    if let Some(folder) = std::env::var_os("STRATA_TEST_FOLDER") {
        return compile(Path::new(&folder));
    }
    if !present() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("strata-matrix-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    // In a process of its own, whose variables say where to.
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", SELF])
        .env("STRATA_TEST_FOLDER", &folder)
        // What is taken from the cache is not dumped.
        .env("SYCL_CACHE_PERSISTENT", "0")
        .env("SYCL_DUMP_IMAGES", "1")
        .env("SYCL_DUMP_IMAGES_PREFIX", folder.join("image-"))
        .status()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(status.success());
}
