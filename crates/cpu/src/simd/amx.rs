//! The tiles of AMX.
//!
//! The tiles are registers that no compiler knows here. So everything between the zeroing of the sums and their storing is one
//! block of assembly, and only the configuration of the tiles is kept from one block to the next: it belongs to the thread and
//! lives as long as a [`ConfiguredAmx`]. Signals and changes of threads are the system's business.

use std::{arch::asm, marker::PhantomData};

use super::{
    Avx512, Kernel,
    tiles::{TILE_ROW_BYTES, TILE_ROWS, TileConfiguration, TileOperands},
};

/// Proof that the CPU has AMX for bfloat16, that the system lets this process use it, and of AVX-512 with BF16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amx(Avx512<true>);

impl Amx {
    /// The token, if the CPU has the features and the system permits their use. Linux wants to be asked, once for all threads
    /// of a process; other systems are not.
    pub fn detect() -> Option<Self> {
        let vectors = Avx512::<true>::detect()?;
        (cpu_has_tiles() && system_saves_tiles() && permission()).then_some(Amx(vectors))
    }

    /// Runs `kernel` compiled for the vectors of this CPU.
    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        self.0.run(kernel)
    }

    /// Configures the tiles of this thread until the result is dropped.
    pub(crate) fn configure(self) -> ConfiguredAmx {
        let configuration = TileConfiguration::new(TILE_ROW_BYTES);
        // SAFETY: the token proves the instruction, and the operand is its 64 bytes: palette 1 with tiles no larger than its.
        unsafe {
            asm!(
                "ldtilecfg [{configuration}]",
                configuration = in(reg) &raw const configuration,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        ConfiguredAmx(PhantomData)
    }
}

/// The tiles of this thread, configured. It cannot be sent to another thread.
pub(crate) struct ConfiguredAmx(PhantomData<*const ()>);

impl Drop for ConfiguredAmx {
    fn drop(&mut self) {
        // SAFETY: who configured the tiles had proof of the instruction; nobody needs what they hold.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, nomem, preserves_flags),
            );
        }
    }
}

impl ConfiguredAmx {
    /// Multiplies 32 rows by a panel of 32 columns: four tiles of sums.
    ///
    /// # Safety
    /// The left operand has 32 rows of `64 · depth` bytes, the panel `16 · depth` lines of 128, and the sums 32 rows of 128,
    /// initialised if they are added to and apart from both operands.
    #[inline(never)]
    pub(crate) unsafe fn multiply_32(&mut self, operands: TileOperands) {
        let TileOperands { a: (a, a_stride), b, c: (c, c_stride), depth, add } = operands;
        // SAFETY: the tiles are configured. The caller vouches for the memory; each of the `depth` turns goes on by 64 bytes of
        // the rows of A, and by 16 lines of the panel.
        unsafe {
            asm!(
                "test {add}, {add}",
                "jnz 2f",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "jmp 3f",
                "2:",
                "tileloadd tmm0, [{c} + {c_stride}]",
                "tileloadd tmm1, [{c} + {c_stride} + 64]",
                "tileloadd tmm2, [{lower_c} + {c_stride}]",
                "tileloadd tmm3, [{lower_c} + {c_stride} + 64]",
                "3:",
                "tileloadd tmm4, [{a} + {a_stride}]",
                "tileloadd tmm6, [{b} + {b_stride}]",
                "tileloadd tmm7, [{b} + {b_stride} + 64]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{lower_a} + {a_stride}]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, 64",
                "add {lower_a}, 64",
                "add {b}, 2048",
                "dec {depth}",
                "jnz 3b",
                "tilestored [{c} + {c_stride}], tmm0",
                "tilestored [{c} + {c_stride} + 64], tmm1",
                "tilestored [{lower_c} + {c_stride}], tmm2",
                "tilestored [{lower_c} + {c_stride} + 64], tmm3",
                a = inout(reg) a => _,
                lower_a = inout(reg) a.wrapping_add(TILE_ROWS * a_stride) => _,
                a_stride = in(reg) a_stride,
                b = inout(reg) b => _,
                b_stride = in(reg) 2 * TILE_ROW_BYTES,
                c = in(reg) c,
                lower_c = in(reg) c.wrapping_add(TILE_ROWS * c_stride),
                c_stride = in(reg) c_stride,
                depth = inout(reg) depth => _,
                add = in(reg) usize::from(add),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }

    /// As [`ConfiguredAmx::multiply_32`] with 16 rows: two tiles of sums.
    ///
    /// # Safety
    /// As there, with 16 rows of the left operand and of the sums.
    #[inline(never)]
    pub(crate) unsafe fn multiply_16(&mut self, operands: TileOperands) {
        let TileOperands { a: (a, a_stride), b, c: (c, c_stride), depth, add } = operands;
        // SAFETY: as in `multiply_32`.
        unsafe {
            asm!(
                "test {add}, {add}",
                "jnz 2f",
                "tilezero tmm0",
                "tilezero tmm1",
                "jmp 3f",
                "2:",
                "tileloadd tmm0, [{c} + {c_stride}]",
                "tileloadd tmm1, [{c} + {c_stride} + 64]",
                "3:",
                "tileloadd tmm4, [{a} + {a_stride}]",
                "tileloadd tmm6, [{b} + {b_stride}]",
                "tileloadd tmm7, [{b} + {b_stride} + 64]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "add {a}, 64",
                "add {b}, 2048",
                "dec {depth}",
                "jnz 3b",
                "tilestored [{c} + {c_stride}], tmm0",
                "tilestored [{c} + {c_stride} + 64], tmm1",
                a = inout(reg) a => _,
                a_stride = in(reg) a_stride,
                b = inout(reg) b => _,
                b_stride = in(reg) 2 * TILE_ROW_BYTES,
                c = in(reg) c,
                c_stride = in(reg) c_stride,
                depth = inout(reg) depth => _,
                add = in(reg) usize::from(add),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

/// Whether the CPU has tiles of the size that is used here, and multiplies bfloat16 with them.
fn cpu_has_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const FEATURES: u32 = 7;
    const TILES: u32 = 0x1d;
    // AMX-BF16 and AMX-TILE.
    const NEEDED: u32 = 1 << 22 | 1 << 24;
    // SAFETY: every CPU with AVX-512 has the instruction; newer toolchains know that it is safe.
    #[allow(unused_unsafe)]
    let (leaves, features) = unsafe { (__cpuid(0).eax, __cpuid_count(FEATURES, 0).edx) };
    if leaves < TILES || features & NEEDED != NEEDED {
        return false;
    }
    // SAFETY: as above.
    #[allow(unused_unsafe)]
    let (palettes, palette) = unsafe { (__cpuid_count(TILES, 0).eax, __cpuid_count(TILES, 1)) };
    let (tile_bytes, row_bytes) = ((palette.eax >> 16) as usize, (palette.ebx & 0xffff) as usize);
    let (tiles, rows) = ((palette.ebx >> 16) as usize, (palette.ecx & 0xffff) as usize);
    palettes >= 1
        && tiles >= 8
        && rows >= TILE_ROWS
        && row_bytes >= TILE_ROW_BYTES
        && tile_bytes >= TILE_ROWS * TILE_ROW_BYTES
}

/// Whether the system saves configuration and contents of the tiles when it changes threads.
fn system_saves_tiles() -> bool {
    const TILES: u64 = 1 << 17 | 1 << 18;
    // SAFETY: the system enabled the instruction, or AVX-512 would not have been found.
    unsafe { std::arch::x86_64::_xgetbv(0) & TILES == TILES }
}

/// Asks Linux to let this process use tiles, which it may refuse.
#[cfg(target_os = "linux")]
fn permission() -> bool {
    const ARCH_PRCTL: isize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let answer: isize;
    // SAFETY: the call takes two numbers and reads or writes no memory of this process; the system changes these registers alone.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    answer == 0
}

/// Nothing is known of how other systems permit it.
#[cfg(not(target_os = "linux"))]
fn permission() -> bool {
    false
}
