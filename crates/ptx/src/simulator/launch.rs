//! Launching kernels.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicU64},
};

use super::{Kernel, Module, Simulator, schedule};
use crate::{
    check::{EarlierAccess, Finding, FindingKind, Findings, Seen},
    counters::{ByLine, Counters, LineCounters},
    device_runtime::{DeviceHeap, DeviceOutput},
    error::PtxError,
    isa::{Line, Unsupported},
    machine::{self, Constants, Geometry, Launched, RecordLayout},
    memory::TensorMap,
    occupancy::BlockResources,
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
    /// A cooperative launch: all blocks must fit the chip at once, and may synchronise as a grid.
    pub cooperative: bool,
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
            cooperative: false,
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
    /// What could not be checked, in sentences.
    pub unchecked: Vec<String>,
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
        let workspace = if config.cooperative { self.workspace()? } else { 0 };
        let mut launched = self.launched(kernel, config, self.checks.races)?;
        let geometry = launched.geometry;
        let resident = self.resident_clusters(kernel, &geometry);
        if config.cooperative && resident < geometry.cluster_count() {
            let (blocks, most) = (geometry.cluster_count(), resident);
            let what = if geometry.cluster_blocks() == 1 { "blocks" } else { "clusters" };
            return Err(PtxError::Launch {
                kernel: kernel.name.clone(),
                what: format!(
                    "a cooperative launch needs all of its {blocks} {what} on the chip at once; the simulated {} holds {most} of \
                     them, as far as threads and shared memory go",
                    self.chip.name
                ),
            });
        }
        launched.workspace = workspace;
        if let Some(progress) = &self.progress {
            progress.start(geometry.cluster_count() * geometry.cluster_blocks() as u64);
        }
        let mut done = schedule::run(&mut launched, resident, self.checks.steps);
        if let Some(failure) = done.failure {
            return Err(unsupported(failure, module, kernel));
        }
        if !done.aborted {
            self.add_leaks(&launched, &mut done.findings);
        }
        let by_line = done
            .by_instruction
            .map(|each| ByLine::of(&each, &kernel.program, |pc| module.line_of(kernel, pc)));
        Ok(Report {
            findings: located(done.findings, module, kernel, &geometry),
            counters: done.counters,
            printf: done.printed.finish(self.limits.printf_bytes),
            by_line,
            unchecked: done.unchecked,
        })
    }

    /// How many clusters the chip holds at once, as far as threads and shared memory go. How many registers a block needs only the
    /// assembler knows.
    fn resident_clusters(&self, kernel: &Kernel, geometry: &Geometry) -> u64 {
        let shared_bytes = kernel.program.shared_bytes + geometry.dynamic_shared;
        let block = BlockResources { threads: geometry.threads() as u32, registers: 0, shared_bytes };
        let blocks = self.chip.occupancy(&block).blocks.max(1);
        u64::from(blocks) * u64::from(self.chip.multiprocessors) / geometry.cluster_blocks().max(1) as u64
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
        let geometry = self.geometry(kernel, config)?;
        let in_order = kernel.program.depends_on_order;
        Ok(Launched {
            program: &kernel.program,
            constants: Constants::new(&kernel.program),
            parameters: arguments(kernel, &config.arguments)?,
            geometry,
            global: &self.global,
            textures: &self.textures,
            views: self.global.views(kernel.program.global_granule, races && !in_order)?,
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
            layout: RecordLayout::new(&geometry),
            conflict: AtomicBool::new(false),
            may_run_again: races && !in_order && geometry.cluster_count() > 1,
            seed: self.checks.seed,
            workspace: 0,
            progress: self.progress.clone(),
        })
    }

    /// The same launch for a prediction: it keeps time, and checks nothing.
    pub(crate) fn launched_timed<'a>(
        &'a self,
        kernel: &'a Kernel,
        config: &LaunchConfig,
        by_line: bool,
    ) -> Result<Launched<'a>, PtxError> {
        Ok(Launched {
            nonfinite: false,
            by_line,
            timed: true,
            progress: None,
            ..self.launched(kernel, config, false)?
        })
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
            let only = seen.address.and_then(|address| module.only_line(kernel, address, earlier.wrote));
            let (source, ptx_line) = only.map_or((None, None), |(source, line)| (source, Some(line)));
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
