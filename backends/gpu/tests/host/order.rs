//! Order: nothing is used, handed out or given back while a stream may still touch it.

use std::sync::Arc;

use strata_core::Error;
use strata_core::backend::{Backend, Buffer, HostBytes};
use strata_gpu::GpuOptions;

use crate::double::{Card, Gpu, Vendor, card};
use crate::pattern;

/// A device of its own, and a handle on it.
fn open<V: Vendor>(total: usize) -> (u32, Arc<Card>, Box<dyn Backend>) {
    let (index, card) = card(total);
    (index, card, handle::<V>(index))
}

fn handle<V: Vendor>(index: u32) -> Box<dyn Backend> {
    Box::new(Gpu::<V>::new(index, GpuOptions::default()).unwrap())
}

fn uploads_of_any_size_arrive_though_the_source_is_reused<V: Vendor>() {
    let (_, _, gpu) = open::<V>(1 << 30);
    // From less than a piece to more than both halves of the staging memory.
    for len in [1, 255, 256, 4097, 262_144, 262_145, 5 << 20, (64 << 20) + 3] {
        let mut source = pattern(len, len);
        let mut buffer = gpu.alloc::<u8>(len).unwrap();
        gpu.upload(&mut buffer, &source).unwrap();
        source.fill(0);
        assert!(gpu.download(&buffer).unwrap() == pattern(len, len), "{len}");
        let imported = gpu.import(HostBytes::from(pattern(len, 1))).unwrap();
        assert!(gpu.download(&imported).unwrap() == pattern(len, 1), "{len}");
    }
    // A large one behind a small one that the device has not read: staging memory grows.
    let gpu = gpu.fork().unwrap();
    let small = gpu.from_slice(&pattern(1000, 1)).unwrap();
    let large = gpu.from_slice(&pattern(300_000, 2)).unwrap();
    assert!(gpu.download(&small).unwrap() == pattern(1000, 1));
    assert!(gpu.download(&large).unwrap() == pattern(300_000, 2));
    // Many small ones, more than fit the staging memory, none waited for.
    let small: Vec<Buffer<u8>> =
        (0..1500).map(|i| gpu.from_slice(&pattern(1000, i)).unwrap()).collect();
    for (i, buffer) in small.iter().enumerate() {
        assert!(gpu.download(buffer).unwrap() == pattern(1000, i), "{i}");
    }
}

fn copies_are_in_stream_order_and_hold_their_source<V: Vendor>() {
    let (_, _, gpu) = open::<V>(1 << 30);
    for len in [1, 255, 4097, 5 << 20] {
        let mut source = gpu.from_slice(&pattern(len, 7)).unwrap();
        let mut target = gpu.from_slice(&pattern(len + 3, 9)).unwrap();
        gpu.copy(target.slice_mut(2..2 + len).unwrap(), &source).unwrap();
        // Neither what follows nor the end of the source is seen by the copy.
        gpu.fill(&mut source, 0).unwrap();
        drop(source);
        let mut expected = pattern(len + 3, 9);
        expected[2..2 + len].copy_from_slice(&pattern(len, 7));
        assert!(gpu.download(&target).unwrap() == expected, "{len}");
    }
}

fn memory_dropped_in_flight_is_not_used_too_early<V: Vendor>() {
    let (index, card, first) = open::<V>(1 << 30);
    let (second, third) = (first.fork().unwrap(), handle::<V>(index));
    for round in 0..200 {
        let size = [1000, 70_000, 3 << 20][round % 3];
        let mut dying = first.alloc::<u8>(size).unwrap();
        first.fill(&mut dying, 0xee).unwrap();
        drop(dying);
        // What the other streams get is theirs alone, whatever the first still does.
        let other = if round % 2 == 0 { &second } else { &third };
        let theirs = other.from_slice(&pattern(size, round)).unwrap();
        other.synchronize().unwrap();
        first.synchronize().unwrap();
        assert!(other.download(&theirs).unwrap() == pattern(size, round), "{round}");
    }
    // Streams may go before memory, and memory may outlive every handle.
    let mut last = second.alloc::<u8>(1 << 20).unwrap();
    second.fill(&mut last, 1).unwrap();
    drop((first, second, third));
    assert!(card.used() > 0);
    drop(last);
    assert_eq!(card.used(), 0);
}

fn memory_waits_for_every_stream<V: Vendor>() {
    let (_, _, first) = open::<V>(1 << 30);
    let streams = [first.fork().unwrap(), first.fork().unwrap(), first];
    for user in 0..3 {
        for taker in (0..3).filter(|&taker| taker != user) {
            let mut dying = streams[taker].alloc::<u8>(70_000).unwrap();
            streams[user].fill(&mut dying, 0xee).unwrap();
            drop(dying);
            // All streams have passed this but the one that still writes it.
            (0..3).filter(|&s| s != user).for_each(|s| streams[s].synchronize().unwrap());
            let theirs = streams[taker].from_slice(&pattern(70_000, user)).unwrap();
            streams[taker].synchronize().unwrap();
            streams[user].synchronize().unwrap();
            let there = streams[taker].download(&theirs).unwrap();
            assert!(there == pattern(70_000, user), "{user} {taker}");
        }
    }
}

fn memory_is_not_handed_to_a_stream_made_after_the_release<V: Vendor>() {
    let (_, _, first) = open::<V>(1 << 30);
    for round in 0..20 {
        let size = [1000, 70_000, 3 << 20][round % 3];
        let mut dying = first.alloc::<u8>(size).unwrap();
        first.fill(&mut dying, 0xee).unwrap();
        drop(dying);
        // Taken by the stream that still writes it, used by one that did not exist then.
        let mut theirs = first.alloc::<u8>(size).unwrap();
        let later = first.fork().unwrap();
        later.upload(&mut theirs, &pattern(size, round)).unwrap();
        later.synchronize().unwrap();
        first.synchronize().unwrap();
        assert!(later.download(&theirs).unwrap() == pattern(size, round), "{round}");
    }
}

fn a_host_that_runs_ahead_waits_instead_of_taking_more<V: Vendor>() {
    let (_, card, gpu) = open::<V>(1 << 30);
    for round in 0..1000 {
        let mut buffer = gpu.alloc::<u8>(100_000).unwrap();
        gpu.fill(&mut buffer, round as u8).unwrap();
    }
    assert!(card.asked().0 <= 3, "{}", card.asked().0);
}

fn two_threads_share_a_device<V: Vendor>() {
    let (index, _, main) = open::<V>(1 << 30);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let gpu = main.fork().unwrap();
            scope.spawn(move || {
                for round in 0..200 {
                    let data = pattern(10_000 + round, thread * 1000 + round);
                    let buffer = gpu.from_slice(&data).unwrap();
                    assert!(gpu.download(&buffer).unwrap() == data, "{thread} {round}");
                }
            });
        }
    });
    // Memory of one handle is memory of another.
    let buffer = main.from_slice(&[1u32, 2, 3]).unwrap();
    main.synchronize().unwrap();
    assert_eq!(handle::<V>(index).download(&buffer).unwrap(), [1, 2, 3]);
}

fn out_of_memory_says_the_figures_and_leaves_nothing_behind<V: Vendor>() {
    let (index, _, gpu) = open::<V>(100_000_000);
    let held = gpu.alloc::<u8>(40_000_000).unwrap();
    drop(gpu.alloc::<u8>(30_000_000).unwrap());
    let free = gpu.memory().unwrap().free;
    match gpu.alloc::<u8>(80_000_000).unwrap_err() {
        Error::OutOfMemory { device, asked, free: told, total } => {
            let given = (device, asked, told, total);
            assert_eq!(given, (format!("{}:{index}", V::KIND), 80_000_000, free, 100_000_000));
        }
        other => panic!("{other}"),
    }
    drop(held);
    // Only what was kept stood in the way.
    drop(gpu.alloc::<u8>(96_000_000).unwrap());
    assert_eq!(gpu.memory().unwrap().free, 100_000_000);
}

fn staging_is_not_written_over_when_an_event_fails<V: Vendor>() {
    type Refuse = fn(&Card, bool);
    for refuse in [Card::refuse_events as Refuse, Card::refuse_records] {
        for len in [1000, 256 << 10, 40 << 20] {
            let (_, card, gpu) = open::<V>(1 << 30);
            let mut first = gpu.alloc::<u8>(len).unwrap();
            let mut second = gpu.alloc::<u8>(len).unwrap();
            refuse(&card, true);
            let error = gpu.upload(&mut first, &pattern(len, 1)).unwrap_err().to_string();
            assert!(error.contains("new_event") || error.contains("record"), "{error}");
            refuse(&card, false);
            // The double panics where pinned bytes change before they were copied.
            for seed in 2..5 {
                gpu.upload(&mut second, &pattern(len, seed)).unwrap();
            }
            assert!(gpu.download(&second).unwrap() == pattern(len, 4), "{len}");
        }
    }
}

fn memory_whose_fences_fail_is_left_alone<V: Vendor>() {
    let (_, card, gpu) = open::<V>(1 << 30);
    let mut lost = gpu.alloc::<u8>(70_000).unwrap();
    gpu.fill(&mut lost, 0xee).unwrap();
    card.refuse_records(true);
    drop(lost);
    card.refuse_records(false);
    // Whether the stream still writes it cannot be known: nobody gets it.
    let other = gpu.fork().unwrap();
    let theirs = other.from_slice(&pattern(70_000, 5)).unwrap();
    other.synchronize().unwrap();
    gpu.synchronize().unwrap();
    assert!(other.download(&theirs).unwrap() == pattern(70_000, 5));
    drop((theirs, other, gpu));
    assert!(card.used() >= 70_000);
}

fn streams_wait_for_events_of_others<V: Vendor>() {
    let (index, _, first) = open::<V>(1 << 30);
    let second = handle::<V>(index);
    for round in 0..20 {
        let source = first.from_slice(&pattern(5000, round)).unwrap();
        let mut target = second.alloc::<u8>(5000).unwrap();
        let event = first.record().unwrap();
        second.wait(&event).unwrap();
        drop(event);
        second.copy(target.view_mut(), &source).unwrap();
        assert!(second.download(&target).unwrap() == pattern(5000, round), "{round}");
    }
    let elsewhere = open::<V>(1 << 20).2.record().unwrap();
    assert!(matches!(first.wait(&elsewhere), Err(Error::WrongDevice { .. })));
}

fn marks_measure_and_are_checked<V: Vendor>() {
    let (_, _, gpu) = open::<V>(1 << 20);
    let mut buffer = gpu.alloc::<u8>(100).unwrap();
    let first = gpu.mark().unwrap();
    gpu.fill(&mut buffer, 1).unwrap();
    let last = gpu.mark().unwrap();
    // The double's clock ticks a quarter of a millisecond for every operation.
    assert_eq!(gpu.elapsed(&*first, &*last).unwrap().as_micros(), 500);
    assert!(matches!(gpu.elapsed(&*last, &*first), Err(Error::Invalid { .. })));
    let other = gpu.fork().unwrap();
    assert!(matches!(other.elapsed(&*first, &*last), Err(Error::Invalid { .. })));
    // Marks may outlive the handle, and end on another thread.
    drop(gpu);
    std::thread::spawn(move || drop((first, last))).join().unwrap();
}

fn a_fault_is_an_error_of_every_call_and_of_no_drop<V: Vendor>() {
    let (_, card, gpu) = open::<V>(1 << 30);
    let mut buffer = gpu.from_slice(&pattern(1000, 1)).unwrap();
    card.break_down(true);
    assert!(matches!(gpu.synchronize(), Err(Error::Device { .. })));
    assert!(gpu.fill(&mut buffer, 0).is_err() && gpu.alloc::<u8>(1 << 20).is_err());
    assert!(gpu.fork().is_err() && gpu.mark().is_err() && gpu.memory().is_err());
    drop((buffer, gpu));
}

on_both! {
    uploads_of_any_size_arrive_though_the_source_is_reused
    copies_are_in_stream_order_and_hold_their_source
    memory_dropped_in_flight_is_not_used_too_early
    memory_waits_for_every_stream
    memory_is_not_handed_to_a_stream_made_after_the_release
    a_host_that_runs_ahead_waits_instead_of_taking_more
    two_threads_share_a_device
    out_of_memory_says_the_figures_and_leaves_nothing_behind
    staging_is_not_written_over_when_an_event_fails
    memory_whose_fences_fail_is_left_alone
    streams_wait_for_events_of_others
    marks_measure_and_are_checked
    a_fault_is_an_error_of_every_call_and_of_no_drop
}
