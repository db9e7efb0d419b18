//! The processor and its memory.

use kinora_cpu::simd::Isa;

use super::Outcome;
use crate::{memory, quantity::bytes};

/// What a clip of the published models takes in half precision, two frames decoded at a time.
const ENOUGH_MEMORY: u64 = 6_000_000_000;

pub fn processor() -> Outcome {
    let isa = Isa::detect();
    let sets: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    let found = format!("{} threads, instruction sets {}", rayon::current_num_threads(), sets.join(", "));
    match isa {
        Isa::Portable(_) => Outcome::note(
            found,
            "vectors of this processor are not used: on x86 they need AVX2 and FMA (a virtual machine may hide them)",
        ),
        _ => Outcome::good(found),
    }
}

pub fn memory() -> Outcome {
    match memory::available() {
        None => {
            Outcome::note("the system does not say how much is available", "give --memory-limit to be safe")
        }
        Some(limit) if limit.bytes < ENOUGH_MEMORY => Outcome::note(
            format!("{} available: {}", bytes(limit.bytes), limit.source),
            "small models run; `kinora info` says what a clip takes, --size and --decode-chunk lower it",
        ),
        Some(limit) => Outcome::good(format!("{} available: {}", bytes(limit.bytes), limit.source)),
    }
}
