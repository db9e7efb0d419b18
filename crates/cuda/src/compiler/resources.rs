//! What a kernel takes of a multiprocessor, as the compiler's log tells it.

use serde::{Deserialize, Serialize};

/// The resources of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread stores and loads again because registers do not suffice.
    pub spill_bytes: u32,
    /// Bytes of a thread's stack, spills among them.
    pub stack_bytes: u32,
    /// Bytes of a block's shared memory that the source declares with its size.
    pub shared_bytes: u32,
}

impl Resources {
    /// Reads the log of a source with one kernel; of several, the largest figure of each counts. `None` if the log has
    /// no such figures: that of PTX.
    pub(crate) fn from_log(log: &str) -> Option<Resources> {
        let mut found = false;
        let mut resources = Resources::default();
        for line in log.lines() {
            if let Some(registers) = number_before(line, " registers") {
                found = true;
                resources.registers = resources.registers.max(registers);
            }
            if let Some(shared) = number_before(line, " bytes smem") {
                resources.shared_bytes = resources.shared_bytes.max(shared);
            }
            if let Some(stack) = number_before(line, " bytes stack frame") {
                resources.stack_bytes = resources.stack_bytes.max(stack);
            }
            let spills = [" bytes spill stores", " bytes spill loads"];
            let spilled: u32 = spills.iter().filter_map(|spill| number_before(line, spill)).sum();
            resources.spill_bytes = resources.spill_bytes.max(spilled);
        }
        found.then_some(resources)
    }
}

/// The number that stands right before some words.
fn number_before(line: &str, words: &str) -> Option<u32> {
    let before = &line[..line.find(words)?];
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_registers_and_spills() {
        let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
ptxas         .     1200 bytes stack frame, 36 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1200 bytes cumulative stack size, 128 bytes smem, 364 bytes cmem[0]
ptxas info    : Compile time = 233.976 ms";
        let resources = Resources { registers: 32, spill_bytes: 76, stack_bytes: 1200, shared_bytes: 128 };
        assert_eq!(Resources::from_log(log), Some(resources));
        assert_eq!(Resources::from_log("k.cu(3): warning: a registers"), None);
        assert_eq!(Resources::from_log(""), None);
    }
}
