//! On a device that does not see accesses outside of allocations, guard zones show them.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use kinora_lab::{
    Manner, attempt,
    compile::{CompileError, Compiled, Request, compile},
    execute::{Address, Device, ExecuteError, Launch, Launched, ModuleId, SimulatedDevice},
};
use kinora_ptx::{Checks, ChipSpec};
use support::Bench;

/// A device that sees nothing, as a GPU.
struct Blind(SimulatedDevice);

impl Device for Blind {
    fn name(&self) -> String {
        "a blind device".to_owned()
    }

    fn multiprocessors(&self) -> usize {
        self.0.multiprocessors()
    }

    fn shared_bytes(&self) -> usize {
        self.0.shared_bytes()
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn allocate(&mut self, bytes: usize) -> Result<Address, ExecuteError> {
        self.0.allocate(bytes)
    }

    fn free(&mut self, address: Address) -> Result<(), ExecuteError> {
        self.0.free(address)
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> Result<(), ExecuteError> {
        self.0.write(to, bytes)
    }

    fn read(&self, from: Address, into: &mut [u8]) -> Result<(), ExecuteError> {
        self.0.read(from, into)
    }

    fn written(&self, _: Address, _: usize) -> Result<Option<Vec<bool>>, ExecuteError> {
        Ok(None)
    }

    fn load(&mut self, code: &Compiled) -> Result<ModuleId, ExecuteError> {
        self.0.load(code)
    }

    fn launch(&mut self, launch: &Launch) -> Result<Launched, ExecuteError> {
        self.0.launch(launch).map(|_| Launched::default())
    }
}

const TASK: &str = "
[kernel]
source = \"kernel.cu\"
grid = 1
block = 32
arguments = [\"x\", \"y\"]
[[input]]
name = \"x\"
element = \"f32\"
shape = 32
[[output]]
name = \"y\"
element = \"f32\"
shape = 32
";

#[test]
fn what_is_written_beside_a_buffer_is_seen() {
    for (store, beyond) in [
        ("y[i] = x[i];", vec![]),
        ("y[i] = x[i]; y[32] = 0;", vec![(1, "after")]),
        ("y[i] = x[i]; y[-1] = 0;", vec![(1, "before")]),
        ("y[i] = x[i]; y[i + 500] = 0; ((float *)x)[-7] = 1;", vec![(0, "before"), (1, "after")]),
    ] {
        let source =
            format!("__global__ void k(const float *x, float *y) {{ int i = threadIdx.x; {store} }}");
        let bench = Bench::new(&[("task.toml", TASK), ("kernel.cu", &source)]);
        let task = bench.open().unwrap();
        let code = match compile(&task.read_source().unwrap(), &Request::ptx((8, 0))) {
            Err(CompileError::NoCompiler(_)) => return,
            code => code.unwrap(),
        };
        let kernels = [code.kernel(None).unwrap()];
        let scope = task.scope(&task.sizes[0]).unwrap();
        let x: Vec<u8> = (0..32u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
        let mut device = Blind(SimulatedDevice::new(ChipSpec::a100(), Checks::default()));
        let manner = Manner { poison: Some(0xFF), alias: None };
        let given = [x.clone(), Vec::new()];
        let ran =
            attempt(&task, &scope, (&code, &kernels), &mut device, &given, manner, &mut |_, _| {}).unwrap();
        assert_eq!(ran.beyond, beyond, "{store}");
        assert_eq!(ran.contents[1], x);
        assert_eq!(ran.unwritten, [None, None]);
    }
}

/// What a kernel does not write keeps the poison, which is no number.
#[test]
fn what_is_not_written_stays_poisoned() {
    let source = "__global__ void k(const float *x, float *y) { if (threadIdx.x < 31) y[threadIdx.x] = x[threadIdx.x]; }";
    let bench = Bench::new(&[("task.toml", TASK), ("kernel.cu", source)]);
    let task = bench.open().unwrap();
    let Ok(code) = compile(&task.read_source().unwrap(), &Request::ptx((8, 0))) else { return };
    let kernels = [code.kernel(None).unwrap()];
    let scope = task.scope(&task.sizes[0]).unwrap();
    let mut device = Blind(SimulatedDevice::new(ChipSpec::a100(), Checks::default()));
    let manner = Manner { poison: Some(0xFF), alias: None };
    let given = [vec![0; 128], Vec::new()];
    let ran = attempt(&task, &scope, (&code, &kernels), &mut device, &given, manner, &mut |_, _| {}).unwrap();
    assert!(f32::from_le_bytes(ran.contents[1][124..].try_into().unwrap()).is_nan());
}
