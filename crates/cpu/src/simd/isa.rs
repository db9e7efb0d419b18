//! Which instruction sets this CPU has, and running a kernel compiled for one of them.

use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use super::Neon;
#[cfg(target_arch = "x86_64")]
use super::{Amx, Avx2, Avx512};
use super::{Portable, Simd, tiles::TileUnit};

/// A computation written once for every instruction set.
pub trait Kernel {
    /// What the computation returns.
    type Output;

    /// The computation. Mark the implementation `#[inline(always)]`: it must be inlined into the function that enables
    /// the target features, or each intrinsic becomes a call.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// An instruction set this CPU was found to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// As [`Isa::Avx512Bf16`], with large products of bfloat16 values on tiles.
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
    /// 512-bit vectors, and products of pairs of bfloat16 values.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Avx512<true>),
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// 256-bit vectors with fused multiply-add and half-precision conversion.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 128-bit vectors of 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    /// Plain Rust, on any CPU.
    Portable(Portable),
    /// As [`Isa::Portable`], with large products of bfloat16 values on tiles of the software that tests AMX's packing and loops.
    #[cfg(test)]
    SoftwareTiles(Portable),
}

impl Isa {
    /// The best instruction set of this CPU; detected once.
    pub fn detect() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::available()[0])
    }

    /// Every instruction set of this CPU, best first; the last is always [`Isa::Portable`]. Tests run each kernel with
    /// all of them.
    pub fn available() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            found.extend(Amx::detect().map(Isa::Amx));
            found.extend(Avx512::<true>::detect().map(Isa::Avx512Bf16));
            found.extend(Avx512::<false>::detect().map(Isa::Avx512));
            found.extend(Avx2::detect().map(Isa::Avx2));
        }
        #[cfg(target_arch = "aarch64")]
        found.extend(Neon::detect().map(Isa::Neon));
        found.push(Isa::Portable(Portable));
        found
    }

    /// [`Isa::available`], and tiles in software.
    #[cfg(test)]
    pub(crate) fn with_software_tiles() -> Vec<Self> {
        let mut found = Self::available();
        found.push(Isa::SoftwareTiles(Portable));
        found
    }

    /// Runs `kernel` compiled for this instruction set.
    #[inline]
    pub fn dispatch<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Amx(simd) => simd.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16(simd) => simd.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(simd) => simd.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(simd) => simd.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(simd) => simd.run(kernel),
            Isa::Portable(simd) => kernel.run(simd),
            #[cfg(test)]
            Isa::SoftwareTiles(simd) => kernel.run(simd),
        }
    }

    /// The name, for people.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Amx(_) => "AMX",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16(_) => "AVX-512 BF16",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "AVX2",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) => "NEON",
            Isa::Portable(_) => "portable",
            #[cfg(test)]
            Isa::SoftwareTiles(_) => "tiles in software",
        }
    }

    /// Whether products of bfloat16 values are multiplied in pairs: [`Simd::PAIRS`].
    pub(crate) fn has_pairs(self) -> bool {
        struct Pairs;
        impl Kernel for Pairs {
            type Output = bool;
            #[inline(always)]
            fn run<S: Simd>(self, _: S) -> bool {
                S::PAIRS
            }
        }
        self.dispatch(Pairs)
    }

    /// What multiplies large products of bfloat16 values.
    pub(crate) fn tiles(self) -> Option<TileUnit> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Amx(unit) => Some(TileUnit::Amx(unit)),
            #[cfg(test)]
            Isa::SoftwareTiles(_) => Some(TileUnit::Software { row_bytes: 4 * self.lanes() }),
            _ => None,
        }
    }

    /// f32 lanes in a vector of this instruction set.
    pub fn lanes(self) -> usize {
        struct Lanes;
        impl Kernel for Lanes {
            type Output = usize;
            #[inline(always)]
            fn run<S: Simd>(self, _: S) -> usize {
                S::LANES
            }
        }
        self.dispatch(Lanes)
    }
}
