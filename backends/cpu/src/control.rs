//! The floating-point control word of a thread.
//!
//! Libraries built for fast math make a process's threads flush subnormals, and a caller may have
//! asked for another rounding: work on such a thread would write other bytes.

/// While it lives, this thread rounds to nearest and keeps subnormals; afterwards it does what it
/// did before.
pub(crate) struct Control(Word);

impl Control {
    pub(crate) fn plain() -> Self {
        let word = read();
        write(PLAIN);
        Self(word)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        write(self.0);
    }
}

cfg_select! {
    target_arch = "x86_64" => {
        type Word = u32;

        /// All exceptions masked, nearest, neither flush-to-zero nor denormals-are-zero.
        const PLAIN: Word = 0x1f80;

        fn read() -> Word {
            let mut word = 0;
            // SAFETY: SSE is in the baseline; MXCSR is stored to the variable. Memory counts as
            // touched, so that no load of what is computed with crosses the line.
            unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack)) };
            word
        }

        fn write(word: Word) {
            // SAFETY: as above; the word is PLAIN or was read, so no reserved bit is set.
            unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack)) };
        }
    }
    target_arch = "aarch64" => {
        type Word = u64;

        /// Nearest, no flush-to-zero, NaN kept, nothing trapped.
        const PLAIN: Word = 0;

        fn read() -> Word {
            let word;
            // SAFETY: FPCR can be read and written at every level of privilege. Memory counts as
            // touched, so that no load of what is computed with crosses the line.
            unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) word, options(nostack)) };
            word
        }

        fn write(word: Word) {
            // SAFETY: as above.
            unsafe { std::arch::asm!("msr fpcr, {}", in(reg) word, options(nostack)) };
        }
    }
    _ => {
        type Word = ();

        const PLAIN: Word = ();

        fn read() -> Word {}

        fn write(_: Word) {}
    }
}
