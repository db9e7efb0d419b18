//! The CPU and the main memory.

use kinora_cpu::simd::Isa;

use super::Outcome;
use crate::{
    memory::{self, LimitSource, MemoryLimit},
    quantity,
};

/// What a clip of the published models needs in half precision, decoding two frames at a time.
const ENOUGH_MEMORY: u64 = 6_000_000_000;

pub fn cpu() -> Outcome {
    let isa = Isa::detect();
    let sets: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    let found = format!("{} threads, instruction sets {}", rayon::current_num_threads(), sets.join(", "));
    match isa {
        Isa::Portable(_) => Outcome::note(
            found,
            "this CPU's vector instructions are not used: on x86, Kinora needs AVX2 and FMA (a virtual machine may hide them)",
        ),
        _ => Outcome::good(found),
    }
}

pub fn memory() -> Outcome {
    match memory::available() {
        None => {
            Outcome::note("the system does not say how much is available", "set --memory-limit to be safe")
        }
        Some(limit) if limit.bytes < ENOUGH_MEMORY => Outcome::note(
            available(limit),
            "enough for small models; `kinora info` shows what a clip needs, and --size and --decode-chunk reduce it",
        ),
        Some(limit) => Outcome::good(available(limit)),
    }
}

/// How much memory there is, and what limits it if that is not the machine itself.
fn available(MemoryLimit { bytes, source }: MemoryLimit) -> String {
    let available = format!("{} available", quantity::bytes(bytes));
    if source == LimitSource::Machine { available } else { format!("{available}: {source}") }
}
