//! Loading PTX: kernels are decoded, variables get memory.

use std::collections::HashMap;

use super::Simulator;
use crate::{
    check::SourceLine,
    decode::{self, Functions, Symbols},
    demangle::{FunctionName, demangle, without_spaces},
    error::PtxError,
    flow,
    isa::{Op, Program, Type},
    rounding_latitude::RoundingLatitude,
    syntax::{
        self,
        tree::{self, Function, Space, Value, Variable},
    },
};

/// A decoded kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub name: String,
    pub program: Program,
    /// The offset and size of each parameter in the parameter space.
    pub(super) parameters: Vec<(usize, usize)>,
    /// `.maxntid` or `.reqntid`, and whether it is the latter.
    pub(super) threads: Option<[u64; 3]>,
    pub(super) threads_required: bool,
    /// `.reqnctapercluster`.
    pub(super) cluster: Option<[u64; 3]>,
    latitude: RoundingLatitude,
    /// Its name in C++, if it is mangled.
    cpp: Option<FunctionName>,
    /// Why it cannot be launched, if its code is wrong.
    broken: Option<PtxError>,
}

impl Kernel {
    fn new(tree: &tree::Module<'_>, symbols: &Symbols, function: &Function<'_>, contract: bool) -> Kernel {
        let decoded = decode::decode(tree, symbols, function).and_then(|mut program| {
            flow::prepare(&mut program, contract);
            Ok((program, parameters(function)?))
        });
        let (program, parameters, broken) = match decoded {
            Ok((program, parameters)) => (program, parameters, None),
            Err(error) => (Program::default(), Vec::new(), Some(error)),
        };
        Kernel {
            name: function.name.to_owned(),
            program,
            parameters,
            threads: function.threads,
            threads_required: function.threads_required,
            cluster: function.cluster,
            latitude: RoundingLatitude::of(tree, function),
            cpp: demangle(function.name),
            broken,
        }
    }

    /// The kernel, if it can be launched.
    fn usable(&self) -> Result<&Kernel, PtxError> {
        self.broken.clone().map_or(Ok(self), Err)
    }

    /// Its name in C++, or as it is if it is not mangled.
    pub fn readable(&self) -> &str {
        self.cpp.as_ref().map_or(&self.name, |cpp| &cpp.full)
    }

    /// Whether a name without spaces means this kernel.
    fn is_called(&self, name: &str) -> bool {
        let Some(FunctionName { full, qualified, plain }) = &self.cpp else { return false };
        let qualified = without_spaces(qualified);
        let within =
            qualified.strip_suffix(name).is_some_and(|outer| outer.is_empty() || outer.ends_with("::"));
        within || *plain == name || without_spaces(full) == name
    }
}

/// The offset and size of each parameter.
fn parameters(function: &Function<'_>) -> Result<Vec<(usize, usize)>, PtxError> {
    let mut parameters = Vec::new();
    let mut end = 0;
    for parameter in &function.parameters {
        let (offset, after) = decode::parameter_place(parameter, end)?;
        parameters.push((offset as usize, (after - offset) as usize));
        end = after;
    }
    Ok(parameters)
}

/// A loaded PTX module.
#[derive(Debug)]
pub struct Module {
    kernels: Vec<Kernel>,
    pub(super) files: Vec<String>,
    portable: bool,
}

impl Module {
    /// The source line of an instruction, and its line in the PTX.
    pub(crate) fn line_of(&self, kernel: &Kernel, pc: usize) -> (Option<SourceLine>, u32) {
        let program = &kernel.program;
        let line = program.lines[program.instructions[pc].line as usize];
        (self.source_line(line.file, line.source), line.ptx)
    }

    /// A line of a source file; line 0 is unknown.
    pub(super) fn source_line(&self, file: u32, line: u32) -> Option<SourceLine> {
        let file = self.files.get(file as usize).filter(|_| line > 0)?;
        Some(SourceLine { file: file.clone(), line })
    }

    /// Parses and decodes PTX, and allocates its variables on the device.
    ///
    /// # Errors
    /// If the text is not PTX, targets another chip, or if the code of every kernel is wrong. A kernel beside others whose code is
    /// wrong is an error when it is launched, and an instruction that the simulator does not support is one when it is reached.
    pub fn load(simulator: &mut Simulator, ptx: &str) -> Result<Module, PtxError> {
        let tree = syntax::parse(ptx)?;
        if !simulator.chip.runs(tree.target) {
            return Err(PtxError::Launch {
                kernel: tree.functions.first().map_or("", |function| function.name).to_owned(),
                what: format!(
                    "code for {} does not run on the simulated {}",
                    tree.target, simulator.chip.name
                ),
            });
        }
        let symbols = simulator.place_variables(&tree)?;
        let kernels = tree.functions.iter().filter(|function| function.entry);
        let contract = simulator.checks.contract;
        let kernels: Vec<Kernel> =
            kernels.map(|function| Kernel::new(&tree, &symbols, function, contract)).collect();
        if let Some(Kernel { broken: Some(error), .. }) = kernels.first()
            && kernels.iter().all(|kernel| kernel.broken.is_some())
        {
            return Err(error.clone());
        }
        let files = tree.files.iter().map(|&(_, name)| name.to_owned()).collect();
        Ok(Module { kernels, files, portable: !symbols.in_code() })
    }

    /// Whether its code refers to no variable in device memory, so that it runs on any simulator of the same chip.
    pub fn is_portable(&self) -> bool {
        self.portable
    }

    /// The name of a kernel in C++, with its template arguments and parameters; as it is if it is not mangled.
    ///
    /// # Errors
    /// If there is no such kernel.
    pub fn function(&self, kernel: &str) -> Result<&str, PtxError> {
        Ok(self.kernel(kernel)?.readable())
    }

    /// The name in the PTX of the kernel that is called like this: its name in the PTX, in C++ (`scale<float>`,
    /// `void scale<float>(float*)`), or without namespaces and template arguments (`scale`).
    ///
    /// # Errors
    /// If there is no such kernel, or several.
    pub fn find(&self, name: &str) -> Result<&str, PtxError> {
        Ok(&self.kernel(name)?.name)
    }

    /// The kernels' names in the PTX.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// The parts of a kernel's arithmetic that a chip may round differently.
    ///
    /// # Errors
    /// If there is no such kernel.
    pub fn rounding_latitude(&self, kernel: &str) -> Result<&RoundingLatitude, PtxError> {
        Ok(&self.kernel(kernel)?.latitude)
    }

    /// The sums of a kernel that were contracted with a product, as [`Checks::contract`](super::Checks::contract) asked for: their source
    /// lines, if known, and their lines in the PTX.
    ///
    /// # Errors
    /// If there is no such kernel, or its code is wrong.
    pub fn contractions(&self, kernel: &str) -> Result<Vec<(Option<SourceLine>, u32)>, PtxError> {
        let kernel = self.kernel(kernel)?;
        Ok(kernel.program.contracted.iter().map(|&pc| self.line_of(kernel, pc as usize)).collect())
    }

    /// The instructions of a kernel that are not supported: a launch ends with one of these errors if it reaches it. Empty if
    /// everything is.
    ///
    /// # Errors
    /// If there is no such kernel, or its code is wrong.
    pub fn unsupported(&self, kernel: &str) -> Result<Vec<PtxError>, PtxError> {
        let kernel = self.kernel(kernel)?;
        let instructions = kernel.program.instructions.iter().zip(0..);
        let numbers = instructions.filter_map(|(instruction, pc)| match instruction.op {
            Op::Unsupported(number) => Some((0, pc, number)),
            _ => None,
        });
        Ok(numbers.map(|failure| super::unsupported(failure, self, kernel)).collect())
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<&Kernel, PtxError> {
        if let Some(exact) = self.kernels.iter().find(|kernel| kernel.name == name) {
            return exact.usable();
        }
        let wanted = without_spaces(name);
        let called: Vec<&Kernel> =
            self.kernels.iter().filter(|kernel| !wanted.is_empty() && kernel.is_called(&wanted)).collect();
        let names = |kernels: &[&Kernel]| kernels.iter().map(|kernel| kernel.readable().to_owned()).collect();
        match called.as_slice() {
            [only] => only.usable(),
            [] => Err(PtxError::NoKernel {
                name: name.to_owned(),
                there: names(&self.kernels.iter().collect::<Vec<_>>()),
            }),
            several => Err(PtxError::SeveralKernels { name: name.to_owned(), there: names(several) }),
        }
    }
}

impl Simulator {
    /// Allocates a module's variables and writes their initial values.
    fn place_variables(&mut self, tree: &tree::Module<'_>) -> Result<Symbols, PtxError> {
        let functions = Functions::new(tree, self.functions_end);
        self.functions_end = functions.end();
        let mut places = HashMap::new();
        for (name, address) in functions.addresses() {
            places.insert(name.clone(), (Space::Global, address));
        }
        let mut unavailable = HashMap::new();
        let all = || tree.variables.iter().filter(|v| matches!(v.space, Space::Global | Space::Constant));
        for variable in all() {
            let why = if Type::named(variable.type_name).is_none() {
                format!("a variable of type {}", variable.type_name)
            } else if variable.external && !all().any(|other| other.name == variable.name && !other.external)
                || variable.elements.is_none()
            {
                "which is defined in another module; only self-contained modules can be loaded".to_owned()
            } else {
                continue;
            };
            unavailable.insert(variable.name.to_owned(), why);
        }
        let in_memory = || all().filter(|variable| !unavailable.contains_key(variable.name));
        for variable in in_memory() {
            let bytes = decode::variable_size(variable)?.unwrap_or(0);
            let address = self.allocate(bytes.max(1) as usize)?;
            places.insert(variable.name.to_owned(), (variable.space, address));
        }
        for variable in in_memory() {
            let bytes = initial_bytes(variable, &places)?;
            self.global.copy_in(places[variable.name].1, &bytes)?;
        }
        Symbols::new(tree, functions, places, unavailable)
    }
}

/// A variable's initial value; elements without one are zero.
fn initial_bytes(
    variable: &Variable<'_>,
    places: &HashMap<String, (Space, u64)>,
) -> Result<Vec<u8>, PtxError> {
    let wrong = |what: String| PtxError::Syntax { place: variable.place, what };
    let address = |name: &str| {
        let known = places.get(name).map(|&(_, address)| address);
        known.ok_or_else(|| {
            wrong(format!(
                "an initialiser takes the address of {name}, which is neither a variable in global memory nor a function"
            ))
        })
    };
    let size = decode::variable_size(variable)?.unwrap_or(0) as usize;
    let element = Type::named(variable.type_name).map_or(1, Type::bytes);
    let mut bytes = Vec::with_capacity(size);
    for value in &variable.values {
        let number = match *value {
            Value::Integer(value) => value,
            Value::Single(bits) => u64::from(bits),
            Value::Double(bits) => bits,
            Value::Address(name, offset) => address(name)?.wrapping_add(offset),
            Value::Masked(mask, name, offset) => {
                let all = address(name)?.wrapping_add(offset) & mask;
                all >> mask.trailing_zeros().min(63)
            }
        };
        bytes.extend_from_slice(&number.to_le_bytes()[..element.min(8)]);
    }
    if bytes.len() > size {
        return Err(wrong(format!("{} has more initial values than elements", variable.name)));
    }
    bytes.resize(size, 0);
    Ok(bytes)
}
