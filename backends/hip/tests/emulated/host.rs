//! The host code alone: devices, memory, streams, marks, errors. Nothing is
//! launched, so no emulator is needed.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use strata_core::backend::{Backend, BackendKind};
use strata_core::{Error, Result};
use strata_hip::{HipBackend, HipOptions, best, devices};

use crate::double::{MEMORY, UNSUPPORTED, emulated};

type Outcome = Result<(), Failed>;

pub fn trials(no_device: bool) -> Vec<Trial> {
    let on_a_device = [
        ("host/best-is-the-first-that-runs", best_is_the_first_that_runs as fn() -> Outcome),
        ("host/memory-that-is-not-there", memory_that_is_not_there),
        ("host/memory-comes-back", memory_comes_back),
        ("host/copies-and-fills", copies_and_fills),
        ("host/marks", marks),
        ("host/streams-and-threads", streams_and_threads),
        ("host/memory-and-streams-of-an-engine", memory_and_streams_of_an_engine),
    ];
    let anywhere = [
        ("host/devices-are-listed", devices_are_listed as fn() -> Outcome),
        ("host/devices-without-kernels-are-named", devices_without_kernels_are_named),
    ];
    let on = on_a_device.map(|(name, test)| Trial::test(name, test).with_ignored_flag(no_device));
    anywhere.map(|(name, test)| Trial::test(name, test)).into_iter().chain(on).collect()
}

/// The first device of the double that has kernels.
fn first() -> u32 {
    UNSUPPORTED.len() as u32
}

fn check(holds: bool, what: impl std::fmt::Debug) -> Outcome {
    if holds { Ok(()) } else { Err(format!("{what:?}").into()) }
}

fn devices_are_listed() -> Outcome {
    let list = devices()?;
    let archs: Vec<&str> = list.iter().map(|d| d.arch.as_str()).collect();
    let expected: Vec<&str> = UNSUPPORTED.into_iter().chain(emulated()).collect();
    check(archs == expected, &archs)?;
    for (i, info) in list.iter().enumerate() {
        check(info.id.kind == BackendKind::Hip && info.id.index == i as u32, info)?;
        check(info.driver == "HIP 7.0.0" && info.units == 2, info)?;
        let wave = strata_kernels_hip::wave(&info.arch);
        check(wave.is_none_or(|wave| wave == info.wave), info)?;
    }
    Ok(())
}

fn devices_without_kernels_are_named() -> Outcome {
    for (index, (arch, advice)) in UNSUPPORTED
        .into_iter()
        .zip(["the kernels do not compile for it", "build with STRATA_HIP_ARCHS=gfx1036"])
        .enumerate()
    {
        match HipBackend::new(index as u32, HipOptions::default()).err() {
            Some(Error::Unavailable { kind: BackendKind::Hip, reason }) => {
                let built = strata_kernels_hip::archs().join(", ");
                for part in [&format!("hip:{index}"), arch, advice, &built] {
                    check(reason.contains(part), (&reason, part))?;
                }
            }
            other => return Err(format!("{other:?}").into()),
        }
    }
    let error =
        HipBackend::new(99, HipOptions::default()).err().map(|e| e.to_string()).unwrap_or_default();
    check(error.starts_with("hip device: given 99, expected 0 to "), error)
}

fn best_is_the_first_that_runs() -> Outcome {
    check(best()? == first(), best()?)
}

fn memory_that_is_not_there() -> Outcome {
    let backend: &dyn Backend = &HipBackend::new(first(), HipOptions::default())?;
    let before = backend.memory()?;
    check(before.total == MEMORY && before.free <= MEMORY, before)?;
    for _ in 0..3 {
        match backend.alloc::<u8>(MEMORY as usize + 1) {
            Err(Error::OutOfMemory { device, asked, free, total }) => {
                let figures = (asked, free, total);
                check(figures == (MEMORY + 1, before.free, MEMORY), figures)?;
                check(device == format!("hip:{}", first()), device)?;
            }
            other => return Err(format!("{other:?}").into()),
        }
    }
    // Nothing leaked, and the next allocation works.
    check(backend.memory()? == before, backend.memory()?)?;
    backend.from_slice(&[1u8, 2, 3])?;
    Ok(())
}

fn memory_comes_back() -> Outcome {
    let backend: &dyn Backend = &HipBackend::new(first(), HipOptions::default())?;
    let part = |percent: u64| (MEMORY / 100 * percent) as usize;
    for _ in 0..3 {
        let large = backend.alloc::<u8>(part(60))?;
        check(backend.alloc::<u8>(part(60)).is_err(), "both are said to fit")?;
        drop(large);
        // The block of 60% lies idle, counts as free, and must make room for one of 80%.
        check(backend.memory()?.free >= MEMORY / 100 * 99, backend.memory()?)?;
        backend.alloc::<u8>(part(80))?;
    }
    Ok(())
}

fn copies_and_fills() -> Outcome {
    let backend: &dyn Backend = &HipBackend::new(first(), HipOptions::default())?;
    // Shorter and longer than the staging memory, and parts of buffers.
    for len in [1usize, 255, 65_537, 3 << 20, (17 << 20) + 5] {
        let values: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut buffer = backend.from_slice(&values)?;
        check(backend.download(&buffer)? == values, len)?;
        let imported = backend.import(values.clone().into())?;
        check(backend.download(&imported)? == values, len)?;
        let half = len / 2;
        backend.fill(buffer.slice_mut(half..)?, 0xa5)?;
        let after = backend.download(&buffer)?;
        check(after[..half] == values[..half] && after[half..].iter().all(|&b| b == 0xa5), len)?;
        backend.copy(buffer.slice_mut(half..)?, imported.slice(..len - half)?)?;
        let after = backend.download(&buffer)?;
        check(after[..half] == values[..half] && after[half..] == values[..len - half], len)?;
    }
    let empty = backend.from_slice::<u8>(&[])?;
    check(backend.download(&empty)?.is_empty(), "an empty buffer")?;
    backend.synchronize()?;
    Ok(())
}

fn marks() -> Outcome {
    let backend = HipBackend::new(first(), HipOptions::default())?;
    let from = backend.mark()?;
    std::thread::sleep(Duration::from_millis(5));
    let to = backend.mark()?;
    let elapsed = backend.elapsed(&*from, &*to)?;
    check((Duration::from_millis(4)..Duration::from_secs(60)).contains(&elapsed), elapsed)?;
    check(backend.elapsed(&*to, &*from).is_err(), "the later mark first")?;
    let other = backend.fork()?;
    check(backend.elapsed(&*from, &*other.mark()?).is_err(), "marks of two streams")
}

fn streams_and_threads() -> Outcome {
    let backend: &dyn Backend = &HipBackend::new(first(), HipOptions::default())?;
    let shared = backend.from_slice(&[9u32; 1000])?;
    backend.synchronize()?;
    let forks = (0..4).map(|_| backend.fork()).collect::<Result<Vec<_>>>()?;
    let sums = std::thread::scope(|scope| {
        let threads: Vec<_> = forks
            .into_iter()
            .zip(0u32..)
            .map(|(fork, i)| {
                let shared = &shared;
                scope.spawn(move || -> Result<u32> {
                    for round in 0..50 {
                        let mine = fork.from_slice(&vec![i * 100 + round; 3000])?;
                        if fork.download(&mine)?.iter().any(|&v| v != i * 100 + round) {
                            return Ok(0);
                        }
                    }
                    Ok(fork.download(shared)?.iter().sum())
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    check(sums == [9000; 4], sums)
}

fn memory_and_streams_of_an_engine() -> Outcome {
    // One handle is the engine: its stream and memory are used by another without copies.
    let engine = HipBackend::new(first(), HipOptions::default())?;
    let theirs: &dyn Backend = &engine;
    let mut held = theirs.alloc::<u8>(5000)?;
    let (stream, at) = (engine.stream_address(), engine.address_mut(&mut held)?);
    let owner = Arc::new(());
    // SAFETY: a stream of that device, which `engine` keeps until after `ours` has gone.
    let guest =
        unsafe { HipBackend::on_stream(first(), HipOptions::default(), stream, owner.clone()) }?;
    let ours: &dyn Backend = &guest;
    let free = ours.memory()?.free;
    // SAFETY: so many bytes lie there, kept by `held`, and are used in this stream alone.
    let mut adopted = unsafe { guest.adopt::<u8>(at, 5000, owner.clone()) }?;
    check(guest.address(&adopted)? == at && guest.stream_address() == stream, at)?;
    ours.fill(&mut adopted, 7)?;
    check(ours.memory()?.free == free, "something was allocated")?;
    drop(adopted);
    ours.synchronize()?;
    check(Arc::strong_count(&owner) == 2, "the memory's owner stayed")?;
    for wrong in [0, at + 1] {
        // SAFETY: refused before anything is read.
        let error = unsafe { guest.adopt::<u8>(wrong, 1, ()) }.err().map(|e| e.to_string());
        check(error.as_ref().is_some_and(|e| e.contains("a multiple of 16")), error)?;
    }
    drop(guest);
    check(Arc::strong_count(&owner) == 1, "the stream's owner stayed")?;
    // The stream is the engine's as before.
    theirs.synchronize()?;
    check(theirs.download(&held)? == [7; 5000], "the engine's bytes")
}
