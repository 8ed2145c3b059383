//! Instruction sets, and how code is compiled for one of them.

use std::str::FromStr;

use strata_core::backend::BackendKind;
use strata_core::{Error, Result};

/// An instruction set that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Whatever the target has at least.
    Plain,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
    /// AArch64: its baseline has vectors and fused multiply-add, so this is
    /// the plain code as the compiler vectorises it there.
    Neon,
}

impl Isa {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Avx2, Self::Avx512, Self::Neon];

    /// The name, as in `STRATA_CPU_ISA`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// Whether this machine can run it.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Plain => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                has_avx2()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            Self::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Those this machine can run.
    pub fn supported() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_supported())
    }

    /// The fastest that this machine can run.
    pub fn best() -> Self {
        [Self::Avx512, Self::Avx2, Self::Neon]
            .into_iter()
            .find(|isa| isa.is_supported())
            .unwrap_or(Self::Plain)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Isa {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|isa| isa.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            Error::invalid("instruction set", name, Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// An instruction set that this machine was seen to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu(Isa);

impl Cpu {
    /// `isa`, if the machine has it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the ones it has.
    pub(crate) fn new(isa: Isa) -> Result<Self> {
        if isa.is_supported() {
            return Ok(Self(isa));
        }
        let names: Vec<_> = Isa::supported().map(Isa::name).collect();
        Err(Error::Unavailable {
            kind: BackendKind::Cpu,
            reason: format!(
                "this machine does not have the instruction set {isa}; it has {}",
                names.join(", ")
            ),
        })
    }

    pub(crate) fn isa(self) -> Isa {
        self.0
    }

    /// Runs `work` as compiled for this instruction set.
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self.0 {
            Isa::Plain | Isa::Neon => work.run(),
            // SAFETY: a `Cpu` exists only for what the machine was seen to have.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { run_avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { run_avx512(work) },
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => unreachable!("Cpu::new refuses it here"),
        }
    }
}

/// A loop to be compiled once per instruction set.
///
/// `run` and what it calls must be `#[inline(always)]`: code takes on the
/// target features of the function it is compiled into, and of no other.
pub(crate) trait Work {
    type Output;

    fn run(self) -> Self::Output;
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn run_avx2<W: Work>(work: W) -> W::Output {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn run_avx512<W: Work>(work: W) -> W::Output {
    work.run()
}
