//! The check of a device's arithmetic, before it is used.

use strata_core::backend::DeviceInfo;
use strata_core::numerics::{exp, f16_bits, f16_to_f32, silu};
use strata_core::{Error, Result};
use strata_kernels_sycl::{Dot, Form, Unit};
use sycl_bindgen::{Arg, Queue, Range};

use crate::error::{device, unavailable};
use crate::kernels::{Built, build};

/// Values probed; a multiple of every vector.
const VALUES: usize = 512;

/// One probe: what docs/numerics.md rules, and what it must give.
struct Probe {
    rule: &'static str,
    want: fn(f32, f32) -> u32,
}

/// In the order of `check.cpp`; the first [`VECTOR_PROBES`] have a vector form.
const PROBES: [Probe; 11] = [
    Probe { rule: "a + b rounds to nearest even, subnormals kept", want: |a, b| (a + b).to_bits() },
    Probe { rule: "a * b rounds to nearest even, subnormals kept", want: |a, b| (a * b).to_bits() },
    Probe { rule: "a / b is correctly rounded", want: |a, b| (a / b).to_bits() },
    Probe { rule: "127 / a is correctly rounded", want: |a, _| (127.0 / a).to_bits() },
    Probe { rule: "1 / a is correctly rounded", want: |a, _| (1.0 / a).to_bits() },
    Probe { rule: "fma(a, b, a) rounds once", want: |a, b| a.mul_add(b, a).to_bits() },
    Probe { rule: "a * b + a is not contracted", want: |a, b| (a * b + a).to_bits() },
    Probe { rule: "exp, as it is written out", want: |a, _| exp(a).to_bits() },
    Probe { rule: "a / (1 + exp(-a))", want: |a, _| silu(a).to_bits() },
    Probe { rule: "f32 to f16 rounds to nearest even", want: |a, _| f16_bits(a).into() },
    Probe {
        rule: "f16 to f32 is exact",
        want: |a, _| f16_to_f32((a.to_bits() >> 16) as u16).to_bits(),
    },
];
const VECTOR_PROBES: usize = 9;

/// Values of every kind: ends of the range, subnormals, halves, and a
/// reproducible mix of all exponents.
fn values(seed: u32) -> Vec<f32> {
    let special = [
        0, 1, 2, 0x7fffff, 0x800000, 0x3f800000, 0x3f7fffff, 0x42fe0000, 0x7f7fffff, 0x7f800000,
        0x7fc00000, 0x33800000, 0x38800000, 0x387fc000, 0x477fefff, 0x477ff000, 0x4b000000,
        0x42b17217, 0x42b17218, 0x42cff1b5, 0x42cff1b6, 0x3eaaaaab, 0x40490fdb, 0x00400000,
    ];
    let mut out: Vec<u32> = special.into_iter().flat_map(|b| [b, b | 1 << 31]).collect();
    let mut state = seed;
    while out.len() < VALUES {
        // A linear congruential generator: its upper bits are mixed well enough.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let bits = state ^ state >> 15;
        // A third with everyday exponents, a third near the smallest, a third anything.
        out.push(match out.len() % 3 {
            0 => bits & 0x83ff_ffff | 0x3c00_0000,
            1 => bits & 0x81ff_ffff,
            _ => bits,
        });
    }
    out.into_iter().map(f32::from_bits).collect()
}

/// Refuses a device whose arithmetic is not that of docs/numerics.md. Falls
/// back to products in C++ where its compiler does not take the instruction or
/// its result is wrong, and says so.
pub(crate) fn check(info: &DeviceInfo, queue: &Queue, form: &mut Form) -> Result<Option<String>> {
    let failed = |e| device(&info.id, "checking the arithmetic", e);
    let mut note = None;
    let built = match probed(info, queue, form) {
        Ok(built) => built,
        Err(why) if form.dot != Dot::Plain => {
            tracing::warn!("{}: no byte products {}: {why}", info.id, form.dot.name());
            note = Some(format!("not {}: {}", form.dot.name(), in_one_line(&why)));
            form.dot = Dot::Plain;
            probed(info, queue, form)?
        }
        Err(e) => return Err(e),
    };
    let (a, mut b) = (values(1), values(2));
    // Every special value meets others than itself.
    b.rotate_left(7);
    let got = run(&built, queue, &a, &b, "probe_scalars", PROBES.len()).map_err(failed)?;
    compare(info, &PROBES, "", &a, &b, &got)?;
    if form.lanes > 1 {
        let got = run(&built, queue, &a, &b, "probe_vectors", VECTOR_PROBES).map_err(failed)?;
        compare(info, &PROBES[..VECTOR_PROBES], " in vectors", &a, &b, &got)?;
    }
    Ok(note)
}

/// What an error with a compiler's log comes down to.
fn in_one_line(why: &Error) -> String {
    let text = why.to_string();
    let line = text.lines().find(|line| line.contains("error")).or_else(|| text.lines().next());
    line.unwrap_or_default().trim().to_owned()
}

/// The probes, built, if the form's byte products are exact.
fn probed(info: &DeviceInfo, queue: &Queue, form: &Form) -> Result<Built> {
    let built = build(info, queue, Unit::Check, form)?;
    let right = match form.dot.is_matrix() {
        true => tiles(&built, queue, form),
        false => dots(&built, queue, form),
    };
    match right.map_err(|e| device(&info.id, "checking the arithmetic", e))? {
        true => Ok(built),
        false => Err(unavailable(format!(
            "{} ({}) breaks a rule of docs/numerics.md: integer dot products are exact",
            info.id, info.name
        ))),
    }
}

/// Bytes, the ends of the range more often than others.
fn bytes(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let draw = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match state >> 30 {
            0 => [0, 127, 128, 255][(state >> 16 & 3) as usize],
            _ => (state >> 16) as u8,
        }
    };
    (0..count).map(draw).collect()
}

/// Tiles probed, and their activation rows.
const TILES: usize = 8;
const TILE_ROWS: usize = 8;

/// Whether a sub-group's tiles are exact.
fn tiles(
    built: &Built,
    queue: &Queue,
    form: &Form,
) -> std::result::Result<bool, sycl_bindgen::Error> {
    let columns = form.work_group as usize;
    let (acts, weights) = (bytes(TILES * TILE_ROWS * 32, 4), bytes(TILES * columns * 32, 5));
    let mut inputs = [queue.alloc(acts.len() as u64)?, queue.alloc(weights.len() as u64)?];
    inputs[0].upload(0, &acts)?;
    inputs[1].upload(0, &weights)?;
    let out = queue.alloc(4 * (TILES * TILE_ROWS * columns) as u64)?;
    let (n, items) = (TILES as u32, u64::from(form.work_group));
    let [x, y] = &inputs;
    let args = [Arg::buffer(x), Arg::buffer(y), Arg::buffer(&out), Arg::value(&n)];
    // SAFETY: the kernel's arguments; the inputs hold `n` cases and the output their sums.
    unsafe { built.raw_kernel("probe_tiles")?.launch(queue, &args, Range::linear(items, items))? };
    let mut got = vec![0i32; TILES * TILE_ROWS * columns];
    out.download(0, bytemuck::cast_slice_mut(&mut got))?;
    let want = |n: usize| {
        let (tile, row, column) = (n / columns / TILE_ROWS, n / columns % TILE_ROWS, n % columns);
        let of = |i: usize| {
            let act = acts[(tile * TILE_ROWS + row) * 32 + i] as i8;
            let code = weights[((tile * 8 + i / 4) * columns + column) * 4 + i % 4];
            i32::from(act) * i32::from(code)
        };
        (0..32).map(of).sum::<i32>()
    };
    Ok(got.iter().enumerate().all(|(n, &sum)| sum == want(n)))
}

/// Dot products probed.
const DOTS: usize = 64;

/// Whether dot products of bytes are exact, at the ends of the range and between.
fn dots(
    built: &Built,
    queue: &Queue,
    form: &Form,
) -> std::result::Result<bool, sycl_bindgen::Error> {
    let lanes = form.lanes as usize;
    let (a, b) = (bytes(DOTS * 32 * lanes, 3), bytes(DOTS * 32, 6));
    let c: Vec<i32> = (0..DOTS as i32).map(|i| (i - 30) * 20_011).collect();
    let mut inputs =
        [queue.alloc(a.len() as u64)?, queue.alloc(b.len() as u64)?, queue.alloc(4 * DOTS as u64)?];
    inputs[0].upload(0, &a)?;
    inputs[1].upload(0, &b)?;
    inputs[2].upload(0, bytemuck::cast_slice(&c))?;
    let out = queue.alloc(8 * (DOTS * lanes) as u64)?;
    let n = DOTS as u32;
    let [x, y, z] = &inputs;
    let args = [Arg::buffer(x), Arg::buffer(y), Arg::buffer(z), Arg::buffer(&out), Arg::value(&n)];
    // SAFETY: the kernel's arguments; the inputs hold `n` cases and the output two results of
    // `lanes` values for each.
    unsafe { built.raw_kernel("probe_dots")?.launch(queue, &args, Range::linear(8, 1))? };
    let mut got = vec![0i32; 2 * DOTS * lanes];
    out.download(0, bytemuck::cast_slice_mut(&mut got))?;
    let want = (0..DOTS).flat_map(|n| [(n, 8), (n, 4)]).flat_map(|(n, words)| {
        let (a, b, c) = (&a, &b, &c);
        (0..lanes).map(move |lane| {
            let of = |i: usize| {
                let code = a[((n * 8 + i / 4) * lanes + lane) * 4 + i % 4];
                i32::from(code) * i32::from(b[n * 32 + i] as i8)
            };
            c[n] + (0..4 * words).map(of).sum::<i32>()
        })
    });
    Ok(want.eq(got.iter().copied()))
}

fn run(
    built: &Built,
    queue: &Queue,
    a: &[f32],
    b: &[f32],
    kernel: &'static str,
    probes: usize,
) -> std::result::Result<Vec<u32>, sycl_bindgen::Error> {
    let mut inputs = [queue.alloc(4 * VALUES as u64)?, queue.alloc(4 * VALUES as u64)?];
    inputs[0].upload(0, bytemuck::cast_slice(a))?;
    inputs[1].upload(0, bytemuck::cast_slice(b))?;
    let out = queue.alloc((4 * VALUES * probes) as u64)?;
    let n = VALUES as u32;
    let args =
        [Arg::buffer(&inputs[0]), Arg::buffer(&inputs[1]), Arg::buffer(&out), Arg::value(&n)];
    // SAFETY: the kernel's arguments; inputs hold n values and the output n for each probe.
    unsafe { built.raw_kernel(kernel)?.launch(queue, &args, Range::linear(8, 1))? };
    let mut got = vec![0u32; VALUES * probes];
    out.download(0, bytemuck::cast_slice_mut(&mut got))?;
    Ok(got)
}

/// Any NaN stands for any other: which one is stored is the kernels' own work.
fn same(got: u32, want: u32) -> bool {
    let nan = |bits: u32| f32::from_bits(bits).is_nan();
    got == want || nan(got) && nan(want)
}

fn compare(
    info: &DeviceInfo,
    probes: &[Probe],
    form: &str,
    a: &[f32],
    b: &[f32],
    got: &[u32],
) -> Result<()> {
    for (probe, got) in probes.iter().zip(got.chunks_exact(VALUES)) {
        let wrong = (0..VALUES).filter(|&i| !same(got[i], (probe.want)(a[i], b[i])));
        let wrong: Vec<usize> = wrong.collect();
        if let Some(&i) = wrong.first() {
            return Err(refusal(info, probe, form, (a[i], b[i]), got[i], wrong.len()));
        }
    }
    Ok(())
}

fn refusal(
    info: &DeviceInfo,
    probe: &Probe,
    form: &str,
    (a, b): (f32, f32),
    got: u32,
    wrong: usize,
) -> Error {
    unavailable(format!(
        "{} ({}) breaks a rule of docs/numerics.md{form}: {}; for a = {a:e}, b = {b:e} it gives \
         {got:#010x}, not {:#010x} ({wrong} of {VALUES} values differ)",
        info.id,
        info.name,
        probe.rule,
        (probe.want)(a, b),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_core::backend::{BackendKind, DeviceId};

    fn info() -> DeviceInfo {
        DeviceInfo::new(DeviceId { kind: BackendKind::Sycl, index: 0 }, "a device")
    }

    fn right() -> (Vec<f32>, Vec<f32>, Vec<u32>) {
        let (a, b) = (values(1), values(2));
        let got =
            PROBES.iter().flat_map(|p| a.iter().zip(&b).map(|(&a, &b)| (p.want)(a, b))).collect();
        (a, b, got)
    }

    #[test]
    fn one_wrong_bit_names_its_rule() {
        let (a, b, mut got) = right();
        compare(&info(), &PROBES, "", &a, &b, &got).unwrap();
        for (p, probe) in PROBES.iter().enumerate() {
            let i = p * VALUES + 300;
            got[i] ^= 1;
            let error = compare(&info(), &PROBES, "", &a, &b, &got).unwrap_err().to_string();
            assert!(error.contains(probe.rule) && error.contains("sycl:0"), "{error}");
            got[i] ^= 1;
        }
    }

    #[test]
    fn flushing_subnormals_and_sloppy_division_are_seen() {
        let (a, b, right) = right();
        let flush = |bits: &u32| if bits & 0x7f80_0000 == 0 { bits & 1 << 31 } else { *bits };
        let flushed: Vec<u32> = right.iter().map(flush).collect();
        assert!(compare(&info(), &PROBES, "", &a, &b, &flushed).is_err());
        let mut sloppy = right;
        for i in 0..VALUES {
            sloppy[2 * VALUES + i] = (a[i] * (1.0 / b[i])).to_bits();
        }
        let error = compare(&info(), &PROBES, "", &a, &b, &sloppy).unwrap_err().to_string();
        assert!(error.contains("a / b"), "{error}");
    }

    #[test]
    fn matrix_units_that_are_not_there_leave_products_to_the_compiler() {
        let unset = crate::list::environment();
        sycl_bindgen::restart_with(&unset).expect("the test starts again");
        let runtime = match crate::list::load() {
            Ok(runtime) => runtime,
            Err(e) if std::env::var_os("STRATA_REQUIRE_SYCL").is_none() => {
                return println!("skipped: {e}");
            }
            Err(e) => panic!("STRATA_REQUIRE_SYCL is set: {e}"),
        };
        let devices = runtime.devices().unwrap();
        let lacks = |d: &&sycl_bindgen::Device| d.aspects.source && !d.aspects.matrix;
        let Some(found) = devices.iter().find(lacks) else {
            return println!("skipped: every device has matrix units");
        };
        let queue = Queue::open(runtime, found.index).unwrap();
        let size = found.sub_group_sizes[0];
        let mut form = Form::gpu(size, 4 * size, Dot::JointMatrix);
        let note = check(&info(), &queue, &mut form).unwrap().expect("it says so");
        assert_eq!(form.dot, Dot::Plain);
        assert!(note.starts_with("not joint-matrix: "), "{note}");
        println!("{}", crate::form::name(found, &form, Some(&note)));
    }
}
