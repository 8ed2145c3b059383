//! Kernels: what they take, and what they do with scratch memory.

use strata_gpu::Launch;

use super::{Launched, Op, Vendor, World, broken_rule};
use crate::sources::{Field, Structure, held};

/// A kernel of a loaded image.
pub struct Kernel {
    pub name: String,
    pub args: Structure,
    pub most_threads: Option<u32>,
    /// Bytes of shared memory that were asked for.
    pub prepared: u32,
}

/// What a kernel does with scratch memory.
#[derive(Clone, Copy)]
pub enum Mark {
    Leave { at: u64, words: usize, value: u32 },
    Find { at: u64, value: u32 },
}

impl Mark {
    pub fn work(self, world: &World, kernel: &str) {
        match self {
            Self::Leave { at, words, value } => {
                world.expect_device(at, 4 * words, kernel);
                for i in 0..words {
                    // SAFETY: inside memory of the device, and aligned as that is.
                    unsafe { (at as *mut u32).add(i).write(value) };
                }
            }
            Self::Find { at, value } => {
                world.expect_device(at, 4, kernel);
                // SAFETY: as above.
                if unsafe { (at as *const u32).read() } != value {
                    broken_rule(&format!("{kernel}: scratch memory was written over"));
                }
            }
        }
    }
}

/// Checks a launch, and puts it into its stream.
pub fn launch<V: Vendor>(world: &mut World, at: u64, launch: Launch, args: &[u8]) {
    let Launch { kernel, blocks, threads, shared } = launch;
    let Kernel { name, args: structure, most_threads, prepared } =
        &world.kernels[&(kernel.0 as u64)];
    let name = name.clone();
    if args.len() != structure.bytes {
        let given = args.len();
        broken_rule(&format!("{name}: {given} bytes of arguments, takes {}", structure.bytes));
    }
    let one_block = ["strata_map_bounds", "strata_map_tiles"].contains(&&*name);
    if blocks == 0
        || threads != V::threads(&name)
        || threads > most_threads.unwrap_or(1024)
        || shared > *prepared
        || (one_block && blocks != 1)
    {
        broken_rule(&format!("{name}: {blocks} blocks of {threads}, {shared} bytes"));
    }
    let fields = flat(structure);
    let of = |name: &str| {
        let field = fields.iter().find(|f| f.name == name).expect("a field");
        let mut word = [0; 8];
        word[..field.bytes].copy_from_slice(&args[field.at..field.at + field.bytes]);
        u64::from_le_bytes(word)
    };
    let addresses: Vec<u64> =
        fields.iter().filter(|f| f.pointer).map(|f| of(&f.name)).filter(|&a| a != 0).collect();
    for &address in &addresses {
        world.expect_device(address, 1, &name);
    }
    // What one kernel leaves in this stream's scratch memory for the next.
    let mark = match &*name {
        // A map of nothing has no chunks, and is not counted.
        _ if name.starts_with("strata_map_") && !name.ends_with("tiles") => {
            let words = of("experts") as usize * of("chunks") as usize;
            (words > 0).then(|| (name == "strata_map_count", of("counts"), words))
        }
        "strata_map_tiles" => Some((true, of("tiles"), 4)),
        _ if name.starts_with("strata_mmq_") && of("tiles") != 0 => Some((false, of("tiles"), 0)),
        _ => None,
    };
    let mark = match mark {
        None => None,
        Some((true, address, words)) => {
            world.handles += 1;
            let value = world.handles as u32;
            world.marks.insert((at, address), value);
            Some(Mark::Leave { at: address, words, value })
        }
        Some((false, address, _)) => match world.marks.get(&(at, address)) {
            Some(&value) => Some(Mark::Find { at: address, value }),
            None => broken_rule(&format!("{name}: nothing was left for it in its stream")),
        },
    };
    world.launched.push(Launched { kernel: name.clone(), blocks, threads, shared });
    let queue = world.streams.get_mut(&at).unwrap_or_else(|| broken_rule("no such stream"));
    queue.push_back(Op::Kernel { name, addresses, mark });
}

/// The fields of a structure, with those of the structures it holds.
fn flat(structure: &Structure) -> Vec<Field> {
    let mut fields = structure.fields.clone();
    for field in &structure.fields {
        let name = match field.name.as_str() {
            "report" => "ReportTo",
            "experts" if field.bytes > 8 => "ExpertsArgs",
            _ => continue,
        };
        for inner in held(name).expect("a structure").fields {
            let name = format!("{}.{}", field.name, inner.name);
            fields.push(Field { name, at: field.at + inner.at, ..inner });
        }
    }
    fields
}
