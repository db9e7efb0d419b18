//! Launching kernels.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use rayon::prelude::*;

use super::{Kernel, Module, Simulator};
use crate::{
    check::{EarlierAccess, Finding, FindingKind, Findings, Seen},
    counters::{ByLine, Counters, CountersByInstruction, LineCounters},
    device_runtime::{DeviceHeap, DeviceOutput, Printed},
    error::PtxError,
    isa::{Line, Unsupported},
    machine::{self, Constants, Geometry, Launched, Unit},
    memory::TensorMap,
};

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A 32-bit integer, signed or not.
    U32(u32),
    /// A 64-bit integer or an address.
    U64(u64),
    /// A 32-bit floating-point number.
    F32(f32),
    /// A struct by value.
    Bytes(Vec<u8>),
    /// A tensor map for TMA copies.
    TensorMap(TensorMap),
}

impl Argument {
    fn bytes(&self) -> Result<Vec<u8>, PtxError> {
        Ok(match self {
            Argument::U32(value) => value.to_le_bytes().to_vec(),
            Argument::U64(value) => value.to_le_bytes().to_vec(),
            Argument::F32(value) => value.to_le_bytes().to_vec(),
            Argument::Bytes(bytes) => bytes.clone(),
            Argument::TensorMap(map) => map.encode()?.to_vec(),
        })
    }
}

/// How a kernel is launched.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchConfig {
    /// Blocks on each axis.
    pub grid: [u32; 3],
    /// Threads per block on each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: usize,
    /// Blocks per cluster on each axis.
    pub cluster: [u32; 3],
    /// The arguments, in order.
    pub arguments: Vec<Argument>,
}

impl LaunchConfig {
    /// A launch over one axis, without clusters and dynamic shared memory.
    pub fn new(blocks: u32, threads: u32, arguments: Vec<Argument>) -> LaunchConfig {
        LaunchConfig {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            cluster: [1; 3],
            arguments,
        }
    }
}

/// What a launch did.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// What it did wrong.
    pub findings: Vec<Finding>,
    /// What it cost.
    pub counters: Counters,
    /// What it printed.
    pub printf: DeviceOutput,
    /// What every line cost, if [`Checks::by_line`](super::Checks::by_line) asked for it.
    pub by_line: Option<ByLine<LineCounters>>,
}

impl Simulator {
    /// Runs a kernel to completion.
    ///
    /// # Errors
    /// If the chip would refuse the launch. What the kernel does wrong is in the report.
    pub fn launch(
        &mut self,
        module: &Module,
        kernel: &str,
        config: &LaunchConfig,
    ) -> Result<Report, PtxError> {
        let kernel = module.kernel(kernel)?;
        self.launches += 1;
        if kernel.program.uses_heap && self.heap.is_none() {
            let bytes = self.limits.heap_bytes;
            self.heap = Some(DeviceHeap::new(self.global.allocate(bytes)?, bytes as u64));
        }
        let launched = self.launched(kernel, config, self.checks.races)?;
        let geometry = launched.geometry;
        let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let clusters = geometry.cluster_count();
        // What `malloc` returns depends on the order of blocks.
        let most = if kernel.program.uses_heap { 1 } else { rayon::current_num_threads() as u64 };
        let workers = most.min(clusters);
        let parts: Vec<Unit<'_>> = (0..workers)
            .into_par_iter()
            .map(|_| {
                let mut unit = Unit::new(&launched);
                while !over.load(Ordering::Relaxed) {
                    let cluster = next.fetch_add(1, Ordering::Relaxed);
                    if cluster >= clusters {
                        break;
                    }
                    if !unit.run(cluster) {
                        over.store(true, Ordering::Relaxed);
                    }
                }
                unit
            })
            .collect();
        if let Some(failure) = parts.iter().filter_map(|unit| unit.failure).min() {
            return Err(unsupported(failure, module, kernel));
        }
        let (mut findings, mut counters) = (Findings::default(), Counters::default());
        let mut each = self.checks.by_line.then(|| CountersByInstruction::new(&kernel.program));
        let mut printed = Printed::default();
        let aborted = parts.iter().any(|unit| unit.aborted);
        for mut unit in parts {
            let (counted, by_instruction) = unit.counted();
            counters.merge(&counted);
            if let (Some(each), Some(by_instruction)) = (&mut each, by_instruction) {
                each.merge(&by_instruction);
            }
            findings.merge(unit.findings);
            printed.merge(unit.printed);
        }
        if !aborted {
            self.add_leaks(&launched, &mut findings);
        }
        let by_line = each.map(|each| ByLine::of(&each, &kernel.program, |pc| module.line_of(kernel, pc)));
        let printf = printed.finish(self.limits.printf_bytes);
        let findings = located(findings, module, kernel, &geometry);
        Ok(Report { findings, counters, by_line, printf })
    }

    /// Adds blocks of the heap that the launch allocated and lost.
    fn add_leaks(&self, launched: &Launched<'_>, findings: &mut Findings) {
        let (Some(heap), Some(view)) = (&self.heap, launched.heap_view) else { return };
        let words = |see: &mut dyn FnMut(u64)| self.global.words(heap.base, see);
        let memory = launched.views[view].allocation;
        let inner = |start: u64, bytes: u64, see: &mut dyn FnMut(u64)| {
            let start = start as usize;
            for offset in (start..start + bytes as usize / 8 * 8).step_by(8) {
                see(memory.load(offset, 8));
            }
        };
        for block in heap.leaks(launched.number, words, inner) {
            findings.add(FindingKind::Leak, block.pc, || {
                let message =
                    format!("loses {} bytes from malloc: nothing points to them any more", block.bytes);
                (block.block, block.thread, None, message)
            });
        }
    }

    /// A launch as all workers see it. Access records are kept if races are looked for.
    fn launched<'a>(
        &'a self,
        kernel: &'a Kernel,
        config: &LaunchConfig,
        races: bool,
    ) -> Result<Launched<'a>, PtxError> {
        Ok(Launched {
            program: &kernel.program,
            constants: Constants::new(&kernel.program),
            parameters: arguments(kernel, &config.arguments)?,
            geometry: self.geometry(kernel, config)?,
            global: &self.global,
            textures: &self.textures,
            views: self.global.views(kernel.program.global_granule, races)?,
            read_only: (races && kernel.program.read_only_writes)
                .then(|| self.global.granule_words(kernel.program.global_granule))
                .flatten(),
            wide: machine::wide(),
            races,
            nonfinite: self.checks.nonfinite,
            limits: self.limits,
            sink: self.sink.as_ref(),
            heap: self.heap.as_ref(),
            heap_view: self.heap.as_ref().and_then(|heap| self.global.find(heap.base, 1).ok()),
            number: self.launches,
            by_line: self.checks.by_line,
            timed: false,
            steps_left: AtomicU64::new(self.checks.steps),
            multiprocessors: self.chip.multiprocessors,
        })
    }

    /// The same launch for a prediction: it keeps time, and checks nothing.
    pub(crate) fn launched_timed<'a>(
        &'a self,
        kernel: &'a Kernel,
        config: &LaunchConfig,
        by_line: bool,
    ) -> Result<Launched<'a>, PtxError> {
        Ok(Launched { nonfinite: false, by_line, timed: true, ..self.launched(kernel, config, false)? })
    }

    /// The address and size of every allocation.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        self.global.extents()
    }

    /// The shape of a launch, if the chip and the kernel allow it.
    fn geometry(&self, kernel: &Kernel, config: &LaunchConfig) -> Result<Geometry, PtxError> {
        let refuse = |what: String| Err(PtxError::Launch { kernel: kernel.name.clone(), what });
        let LaunchConfig { grid, block, shared_bytes, mut cluster, .. } = *config;
        if let Some(required) = kernel.cluster {
            cluster = required.map(|extent| u32::try_from(extent).unwrap_or(u32::MAX));
        }
        let all = |extents: &[u64]| extents.iter().fold(1u64, |all, &extent| all.saturating_mul(extent));
        let threads = all(&block.map(u64::from));
        let most = kernel.threads.map_or(1024, |extents| all(&extents));
        let most_here = most.min(1024);
        if grid.contains(&0) || threads == 0 {
            return refuse(format!(
                "the grid {grid:?} or the block {block:?} is empty; every axis must be at least 1"
            ));
        }
        if threads > most_here {
            return refuse(format!(
                "a block of {block:?} has {threads} threads; at most {most_here} are allowed"
            ));
        }
        if kernel.threads_required && threads != most {
            return refuse(format!(
                "a block of {block:?} has {threads} threads; the kernel requires exactly {most}"
            ));
        }
        if block[2] > 64 || grid[1] > 65535 || grid[2] > 65535 || grid[0] > i32::MAX as u32 {
            return refuse(format!(
                "the grid {grid:?} or the block {block:?} is too large on an axis: a grid has at most 2147483647, 65535 and 65535 blocks, \
                 a block at most 64 threads on its third axis"
            ));
        }
        let blocks = all(&cluster.map(u64::from));
        if blocks == 0 || blocks > u64::from(self.chip.cluster_blocks) {
            let (most, chip) = (self.chip.cluster_blocks, &self.chip.name);
            return refuse(format!(
                "a cluster of {cluster:?} has {blocks} blocks; the simulated {chip} allows 1 to {most}"
            ));
        }
        if (0..3).any(|axis| grid[axis] % cluster[axis] != 0) {
            return refuse(format!(
                "the grid {grid:?} is not a multiple of the cluster {cluster:?} on every axis"
            ));
        }
        let shared = kernel.program.shared_bytes + shared_bytes;
        if shared > self.chip.shared_bytes {
            return refuse(format!(
                "a block needs {shared} bytes of shared memory; the simulated {} has {}",
                self.chip.name, self.chip.shared_bytes
            ));
        }
        Ok(Geometry { grid, block, cluster, dynamic_shared: shared_bytes })
    }
}

/// The error about an instruction that was reached and is not supported.
pub(crate) fn unsupported(failure: (u64, u32, u32), module: &Module, kernel: &Kernel) -> PtxError {
    let (_, pc, number) = failure;
    let program = &kernel.program;
    let Unsupported { place, what, instruction } = program.unsupported[number as usize].clone();
    let (source_line, _) = module.line_of(kernel, pc as usize);
    PtxError::Unsupported { place, what, instruction, source_line }
}

/// Findings with their source lines and coordinates.
fn located(findings: Findings, module: &Module, kernel: &Kernel, geometry: &Geometry) -> Vec<Finding> {
    let program = &kernel.program;
    let line_of = |pc: u32| program.lines[program.instructions[pc as usize].line as usize];
    let mut seen = findings.into_vec();
    let mut nonfinite = HashSet::new();
    // A source line has many instructions, and one non-finite value can lead to others within it: report the first.
    seen.retain(|seen| {
        let Line { file, source, caller, .. } = line_of(seen.pc);
        seen.kind != FindingKind::NotFinite || source == 0 || nonfinite.insert((file, source, caller))
    });
    let finding = |seen: Seen| {
        let line = line_of(seen.pc);
        let sanitizer = seen.sanitizer(&program.instructions[seen.pc as usize].op);
        let block_at = |number: u64| Geometry::split(number, geometry.grid);
        let thread_at = |number: u32| Geometry::split(u64::from(number), geometry.block);
        let earlier = seen.earlier.map(|earlier| {
            let (source, ptx_line) = match earlier.pc {
                Some(pc) => {
                    let (source, ptx_line) = module.line_of(kernel, pc as usize);
                    (source, Some(ptx_line))
                }
                None => (None, None),
            };
            EarlierAccess {
                wrote: earlier.wrote,
                block: block_at(earlier.block),
                thread: (!earlier.any_lane).then(|| thread_at(earlier.thread)),
                source,
                ptx_line,
            }
        });
        Finding {
            kind: seen.kind,
            severity: seen.severity(),
            kernel: kernel.name.clone(),
            function: kernel.readable().to_owned(),
            source: module.source_line(line.file, line.source),
            called_at: module.source_line(line.caller.0, line.caller.1),
            ptx_line: line.ptx,
            block: block_at(seen.block),
            thread: thread_at(seen.thread),
            blocks: [block_at(seen.blocks.0), block_at(seen.blocks.1)],
            threads: [thread_at(seen.threads.0), thread_at(seen.threads.1)],
            earlier,
            address: seen.address,
            suggestion: seen.suggestion().to_owned(),
            message: seen.message,
            count: seen.count,
            same_value: seen.same_value,
            sanitizer,
        }
    };
    seen.into_iter().map(finding).collect()
}

/// The arguments' bytes in the parameter space.
fn arguments(kernel: &Kernel, arguments: &[Argument]) -> Result<Vec<u8>, PtxError> {
    let refuse = |what: String| PtxError::Launch { kernel: kernel.name.clone(), what };
    if arguments.len() != kernel.parameters.len() {
        let (given, wanted) = (arguments.len(), kernel.parameters.len());
        return Err(refuse(format!("it takes {wanted} arguments, but got {given}")));
    }
    let mut bytes = vec![0; kernel.parameters.last().map_or(0, |&(offset, size)| offset + size)];
    for (i, (argument, &(offset, size))) in arguments.iter().zip(&kernel.parameters).enumerate() {
        let value = argument.bytes()?;
        if value.len() != size {
            return Err(refuse(format!("argument {i} must have {size} bytes, but has {}", value.len())));
        }
        bytes[offset..offset + size].copy_from_slice(&value);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChipSpec;

    /// Running every block of such a grid would take seconds; a few around the highest recorded block number are enough.
    #[test]
    fn blocks_beyond_the_access_records() {
        let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 y) {\n.reg .b64 %y;\n\
                   ld.param.u64 %y, [y];\nst.global.u64 [%y], %y;\nret;\n}\n";
        let mut simulator = Simulator::new(ChipSpec::a100());
        let module = Module::load(&mut simulator, ptx).unwrap();
        let y = simulator.allocate(8).unwrap();
        let mut config = LaunchConfig::new(i32::MAX as u32, 1, vec![Argument::U64(y)]);
        config.grid[1] = 4;
        let races = |clusters: [u64; 2]| {
            let launched = simulator.launched(module.kernel("k").unwrap(), &config, true).unwrap();
            let mut unit = Unit::new(&launched);
            clusters.into_iter().for_each(|cluster| assert!(unit.run(cluster)));
            unit.findings.into_vec().len()
        };
        let known = (1 << 23) - 1;
        assert_eq!(races([known - 2, known - 1]), 1);
        assert_eq!(races([known - 1, known]), 0);
        assert_eq!(races([known, 1 << 33]), 0);
    }
}
