//! Random inputs and the backends of this machine.

use strata_core::backend::{Backend, DeviceRoutes, RoutingMap, ops::MapRoutes};
use strata_core::format::random::SplitMix64;
use strata_core::routing::{Map, Routes};
use strata_cpu::{CpuBackend, CpuOptions, Isa};

/// One backend per instruction set that the machine has, on two threads.
pub fn backends() -> Vec<(Isa, Box<dyn Backend>)> {
    Isa::supported()
        .map(|isa| {
            let options = CpuOptions { threads: Some(2), isa: Some(isa) };
            let backend: Box<dyn Backend> = Box::new(CpuBackend::new(options).unwrap());
            (isa, backend)
        })
        .collect()
}

/// A number below `n`.
pub fn below(random: &mut SplitMix64, n: usize) -> usize {
    (random.next_u64() % n as u64) as usize
}

/// Values in -1..1.
pub fn values(random: &mut SplitMix64, count: usize) -> Vec<f32> {
    (0..count).map(|_| (random.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Random routes and their map, on the host and on the device.
pub fn routing(
    backend: &dyn Backend,
    random: &mut SplitMix64,
    tokens: usize,
    k: usize,
    experts: usize,
) -> (Map, Routes, DeviceRoutes, RoutingMap) {
    let ids = (0..tokens * k).map(|_| below(random, experts) as i32).collect();
    let routes = Routes::new(ids, values(random, tokens * k), k, experts).unwrap();
    let on_device = DeviceRoutes::upload(backend, &routes).unwrap();
    let mut map = RoutingMap::with_capacity(backend, tokens + 3, k, experts).unwrap();
    MapRoutes::new(on_device.view(), &mut map).unwrap().launch(backend).unwrap();
    (Map::new(&routes), routes, on_device, map)
}

/// Where two outputs differ first, in bits.
#[allow(dead_code)] // not every test has f32 outputs
pub fn same_f32(what: &str, given: &[f32], expected: &[f32]) {
    assert_eq!(given.len(), expected.len(), "{what}: values");
    for (i, (given, expected)) in given.iter().zip(expected).enumerate() {
        assert_eq!(
            given.to_bits(),
            expected.to_bits(),
            "{what}: value {i} is {given:e}, expected {expected:e}"
        );
    }
}
