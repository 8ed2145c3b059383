//! The host half on a pretended driver, and what it says of the kernels against their sources.

/// Tests of what is written for a vendor, for each.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod cuda {
            $(#[test]
            fn $name() {
                super::$name::<crate::double::Cuda>();
            })*
        }
        mod hip {
            $(#[test]
            fn $name() {
                super::$name::<crate::double::Hip>();
            })*
        }
    };
}

mod calls;
mod double;
mod engine;
mod layouts;
mod order;
mod rules;
mod sources;
mod steps;

/// Bytes that tell one buffer and position from another.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 131 + i / 251 * 7 + seed) as u8).collect()
}
