//! The simulated device: memory, modules, launches. It looks like the CUDA driver.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use rayon::prelude::*;

use crate::{
    check::{Finding, FindingKind, Findings, SourceLine},
    counters::Counters,
    decode::{self, Symbols},
    error::PtxError,
    flow,
    freedom::Freedom,
    isa::{Line, Program, Type},
    machine::{self, Constants, Geometry, Launched, Unit},
    memory::{Global, TensorMap},
    profile::Profile,
    syntax::{
        self,
        tree::{self, Space, Value},
    },
};

/// An address in the simulated device's memory.
pub type DeviceAddress = u64;

/// Instructions of warps that a launch may run where nothing else is said.
const STEPS: u64 = 4_000_000_000;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Races between threads, and missing fences.
    pub races: bool,
    /// Infinities that come out of finite operands, and NaNs that come out of operands that are none. Not looked for unless it is
    /// asked for: many kernels mean theirs.
    pub births: bool,
    /// Instructions of warps after which a launch is taken for endless.
    pub steps: u64,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { races: true, births: false, steps: STEPS }
    }
}

/// A GPU that is none.
#[derive(Debug)]
pub struct Simulator {
    profile: Profile,
    checks: Checks,
    global: Global,
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A 32-bit integer, signed or not.
    U32(u32),
    /// A 64-bit integer or an address.
    U64(u64),
    /// A 32-bit number.
    F32(f32),
    /// A struct by value.
    Bytes(Vec<u8>),
    /// A descriptor of the bulk copy engine.
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
    /// Threads of a block on each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: usize,
    /// Blocks of a cluster on each axis.
    pub cluster: [u32; 3],
    /// The arguments, in order.
    pub arguments: Vec<Argument>,
}

impl LaunchConfig {
    /// A launch over one axis, without dynamic shared memory.
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
    /// What it did wrong; nothing, one hopes.
    pub findings: Vec<Finding>,
    /// What it did, in numbers.
    pub counters: Counters,
}

/// A kernel that was decoded.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub name: String,
    pub program: Program,
    /// Where parameters lie, and how many bytes each has.
    parameters: Vec<(usize, usize)>,
    /// Threads that a block may have at most, or must have.
    threads: Option<[u64; 3]>,
    threads_required: bool,
    cluster: Option<[u64; 3]>,
    freedom: Freedom,
}

/// Loaded code.
#[derive(Debug)]
pub struct Module {
    kernels: Vec<Kernel>,
    files: Vec<String>,
    portable: bool,
}

impl Module {
    /// Reads PTX, and gives its variables memory of the device.
    ///
    /// # Errors
    /// Where it is not PTX, is for another chip, or has an instruction that is not known.
    pub fn load(simulator: &mut Simulator, ptx: &str) -> Result<Module, PtxError> {
        let tree = syntax::parse(ptx)?;
        if !simulator.profile.runs(tree.target) {
            return Err(PtxError::Launch {
                kernel: tree.functions.first().map_or("", |function| function.name).to_owned(),
                what: format!("code for {} does not run on a {}", tree.target, simulator.profile.name),
            });
        }
        let symbols = simulator.place_variables(&tree)?;
        let mut kernels = Vec::new();
        for function in tree.functions.iter().filter(|function| function.entry) {
            let mut program = decode::decode(&tree, &symbols, function)?;
            flow::prepare(&mut program);
            let mut parameters = Vec::new();
            let mut end = 0;
            for parameter in &function.parameters {
                let (offset, after) = decode::parameter_place(parameter, end)?;
                parameters.push((offset as usize, (after - offset) as usize));
                end = after;
            }
            kernels.push(Kernel {
                name: function.name.to_owned(),
                program,
                parameters,
                threads: function.threads,
                threads_required: function.threads_required,
                cluster: function.cluster,
                freedom: Freedom::of(&tree, function),
            });
        }
        let files = tree.files.iter().map(|&(_, name)| name.to_owned()).collect();
        Ok(Module { kernels, files, portable: !symbols.in_code() })
    }

    /// Whether its code names no variable in memory: it then runs on any device of the kind that it was loaded to.
    pub fn is_portable(&self) -> bool {
        self.portable
    }

    /// The kernels' names.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// What of a kernel's arithmetic a chip may do in another way.
    ///
    /// # Errors
    /// Where there is no such kernel.
    pub fn freedom(&self, kernel: &str) -> Result<&Freedom, PtxError> {
        Ok(&self.kernel(kernel)?.freedom)
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<&Kernel, PtxError> {
        self.kernels.iter().find(|kernel| kernel.name == name).ok_or_else(|| PtxError::NoKernel {
            name: name.to_owned(),
            there: self.kernels().map(str::to_owned).collect(),
        })
    }
}

impl Simulator {
    /// A device that looks for everything.
    pub fn new(profile: Profile) -> Simulator {
        Simulator { profile, checks: Checks::default(), global: Global::default() }
    }

    /// Says what is looked for.
    #[must_use]
    pub fn with_checks(mut self, checks: Checks) -> Simulator {
        self.checks = checks;
        self
    }

    /// The chip.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Allocates memory; what it holds is not known.
    ///
    /// # Errors
    /// Where the machine that simulates has not so much.
    pub fn allocate(&mut self, bytes: usize) -> Result<DeviceAddress, PtxError> {
        self.global.allocate(bytes)
    }

    /// Reserves addresses without memory behind them, however many: they read as zeros, and what is written there is
    /// forgotten. For [predictions](Simulator::predict) of launches whose tensors need not exist.
    pub fn reserve(&mut self, bytes: usize) -> DeviceAddress {
        self.global.reserve(bytes)
    }

    /// Frees an allocation. Its addresses are never given out again.
    ///
    /// # Errors
    /// Where the address is not the first of an allocation.
    pub fn free(&mut self, address: DeviceAddress) -> Result<(), PtxError> {
        self.global.free(address)
    }

    /// Writes bytes to the device.
    ///
    /// # Errors
    /// Where they do not lie within an allocation.
    pub fn copy_in(&mut self, address: DeviceAddress, from: &[u8]) -> Result<(), PtxError> {
        self.global.copy_in(address, from)
    }

    /// Reads bytes from the device.
    ///
    /// # Errors
    /// Where they do not lie within an allocation.
    pub fn copy_out(&self, address: DeviceAddress, to: &mut [u8]) -> Result<(), PtxError> {
        self.global.copy_out(address, to)
    }

    /// Allocates memory for bytes and writes them.
    ///
    /// # Errors
    /// As [`Simulator::allocate`].
    pub fn upload(&mut self, from: &[u8]) -> Result<DeviceAddress, PtxError> {
        let address = self.allocate(from.len())?;
        self.copy_in(address, from)?;
        Ok(address)
    }

    /// Gives a module's variables memory, and their first values.
    fn place_variables(&mut self, tree: &tree::Module<'_>) -> Result<Symbols, PtxError> {
        let mut places = HashMap::new();
        let in_memory =
            || tree.variables.iter().filter(|v| matches!(v.space, Space::Global | Space::Constant));
        for variable in in_memory() {
            let Some(bytes) = decode::variable_size(variable)?.filter(|_| !variable.external) else {
                let what = format!("{} is declared, but not in this module", variable.name);
                return Err(PtxError::Syntax { place: variable.place, what });
            };
            let address = self.allocate(bytes.max(1) as usize)?;
            places.insert(variable.name.to_owned(), (variable.space, address));
        }
        for variable in in_memory() {
            let size = decode::variable_size(variable)?.unwrap_or(0) as usize;
            let element = Type::named(variable.type_name).map_or(1, Type::bytes);
            let mut bytes = Vec::with_capacity(size);
            for value in &variable.values {
                let number = match *value {
                    Value::Integer(value) => value,
                    Value::Single(bits) => u64::from(bits),
                    Value::Double(bits) => bits,
                    Value::Address(name, offset) => {
                        let Some((_, address)) = places.get(name) else {
                            let what = format!("{name} is no variable in global memory");
                            return Err(PtxError::Syntax { place: variable.place, what });
                        };
                        address.wrapping_add(offset)
                    }
                };
                bytes.extend_from_slice(&number.to_le_bytes()[..element.min(8)]);
            }
            if bytes.len() > size {
                let what = format!("{} has more values than elements", variable.name);
                return Err(PtxError::Syntax { place: variable.place, what });
            }
            // What is not said is zero.
            bytes.resize(size, 0);
            self.global.copy_in(places[variable.name].1, &bytes)?;
        }
        Symbols::new(tree, places)
    }

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// Where the launch is one that no chip would take. What the kernel does wrong is in the report.
    pub fn launch(
        &mut self,
        module: &Module,
        kernel: &str,
        config: &LaunchConfig,
    ) -> Result<Report, PtxError> {
        let kernel = module.kernel(kernel)?;
        let launched = self.launched(kernel, config, self.checks.races)?;
        let geometry = launched.geometry;
        let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let clusters = geometry.cluster_count();
        let workers = (rayon::current_num_threads() as u64).min(clusters);
        let parts: Vec<(Findings, Counters)> = (0..workers)
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
                (unit.findings, unit.counters)
            })
            .collect();
        let (mut findings, mut counters) = (Findings::default(), Counters::default());
        for (found, counted) in parts {
            findings.merge(found);
            counters.merge(&counted);
        }
        let program = &kernel.program;
        let line_of = |pc: u32| program.lines[program.instructions[pc as usize].line as usize];
        let mut seen = findings.into_vec();
        let mut born = HashSet::new();
        // A line of source is many instructions, and what one of them makes the next take up in other ways.
        seen.retain(|seen| {
            let Line { file, source, caller, .. } = line_of(seen.pc);
            seen.kind != FindingKind::NotFinite || source == 0 || born.insert((file, source, caller))
        });
        let findings = seen.into_iter().map(|seen| {
            let line = line_of(seen.pc);
            let source = |file: u32, line: u32| {
                let file = module.files.get(file as usize).filter(|_| line > 0)?;
                Some(SourceLine { file: file.clone(), line })
            };
            Finding {
                kind: seen.kind,
                kernel: kernel.name.clone(),
                source: source(line.file, line.source),
                called_at: source(line.caller.0, line.caller.1),
                ptx_line: line.ptx,
                block: Geometry::split(seen.block, geometry.grid),
                thread: Geometry::split(u64::from(seen.thread), geometry.block),
                address: seen.address,
                suggestion: seen.suggestion().to_owned(),
                message: seen.message,
                count: seen.count,
            }
        });
        Ok(Report { findings: findings.collect(), counters })
    }

    /// A launch, as all units see it, with records of who touches memory where races are looked for.
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
            views: self.global.views(kernel.program.global_granule, races)?,
            wide: machine::wide(),
            races,
            births: self.checks.births,
            timed: false,
            steps_left: AtomicU64::new(self.checks.steps),
            multiprocessors: self.profile.multiprocessors,
        })
    }

    /// The same where only its course and its time matter.
    pub(crate) fn launched_timed<'a>(
        &'a self,
        kernel: &'a Kernel,
        config: &LaunchConfig,
    ) -> Result<Launched<'a>, PtxError> {
        Ok(Launched { births: false, timed: true, ..self.launched(kernel, config, false)? })
    }

    /// The first address and the bytes of every allocation.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        self.global.extents()
    }

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
            return refuse(format!("{grid:?} blocks of {block:?} threads are none"));
        }
        if threads > most_here {
            return refuse(format!("a block of {block:?} has {threads} threads, and can have {most_here}"));
        }
        if kernel.threads_required && threads != most {
            return refuse(format!("blocks of {threads} threads, but the kernel wants {most}"));
        }
        if block[2] > 64 || grid[1] > 65535 || grid[2] > 65535 || grid[0] > i32::MAX as u32 {
            return refuse(format!(
                "{grid:?} blocks of {block:?} threads are too many on an axis: 2147483647, 65535 and 65535 blocks are the most, and 64 threads \
                 on the third"
            ));
        }
        let blocks = all(&cluster.map(u64::from));
        if blocks == 0 || blocks > u64::from(self.profile.cluster_blocks) {
            let (most, chip) = (self.profile.cluster_blocks, &self.profile.name);
            return refuse(format!(
                "a cluster of {cluster:?} blocks; {most} is the most on the simulated {chip}"
            ));
        }
        if (0..3).any(|axis| grid[axis] % cluster[axis] != 0) {
            return refuse(format!("a grid of {grid:?} is not made of clusters of {cluster:?}"));
        }
        let shared = kernel.program.shared_bytes + shared_bytes;
        if shared > self.profile.shared_bytes {
            return refuse(format!(
                "a block needs {shared} bytes of shared memory, and a {} has {}",
                self.profile.name, self.profile.shared_bytes
            ));
        }
        Ok(Geometry { grid, block, cluster, dynamic_shared: shared_bytes })
    }
}

/// The arguments as they lie in the parameter space.
fn arguments(kernel: &Kernel, arguments: &[Argument]) -> Result<Vec<u8>, PtxError> {
    let refuse = |what: String| PtxError::Launch { kernel: kernel.name.clone(), what };
    if arguments.len() != kernel.parameters.len() {
        let (given, wanted) = (arguments.len(), kernel.parameters.len());
        return Err(refuse(format!("{given} arguments were given, and it takes {wanted}")));
    }
    let mut bytes = vec![0; kernel.parameters.last().map_or(0, |&(offset, size)| offset + size)];
    for (i, (argument, &(offset, size))) in arguments.iter().zip(&kernel.parameters).enumerate() {
        let value = argument.bytes()?;
        if value.len() != size {
            return Err(refuse(format!("argument {i} has {} bytes, and it takes {size}", value.len())));
        }
        bytes[offset..offset + size].copy_from_slice(&value);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every block of such a grid would take seconds; it is enough to run some at the end of what records of races know.
    #[test]
    fn blocks_beyond_what_the_records_of_races_know() {
        let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 y) {\n.reg .b64 %y;\n\
                   ld.param.u64 %y, [y];\nst.global.u64 [%y], %y;\nret;\n}\n";
        let mut simulator = Simulator::new(Profile::a100());
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
