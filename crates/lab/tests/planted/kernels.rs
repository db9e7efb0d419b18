//! The kernels with one planted inefficiency each, and what the feedback says of them: for the test, and for the benchmark that
//! mends them on a GPU.

use std::path::PathBuf;

use kinora_lab::{
    compile::{Compiled, Form, Request, Source, compile},
    feedback::{Feedback, Rule, Subject, explain},
};
use kinora_ptx::{Argument, Calibration, Checks, ChipSpec, LaunchConfig, Module, Simulator};

/// A kernel, and what is wrong with it.
pub struct Planted {
    pub file: &'static str,
    pub rule: Rule,
    /// The launch as it is, and mended: grid, block, dynamic shared memory.
    pub launches: [([u32; 3], [u32; 3], usize); 2],
    /// Bytes of the buffers, then integers.
    pub buffers: Vec<usize>,
    pub numbers: &'static [u32],
    /// How much more work the mended launch does.
    pub work: f64,
}

const MIB: usize = 1 << 20;

fn planted(file: &'static str, rule: Rule, grid: [u32; 3], block: [u32; 3]) -> Planted {
    Planted {
        file,
        rule,
        launches: [(grid, block, 0), (grid, block, 0)],
        buffers: if file.starts_with("product") {
            vec![256 * MIB, 256 * MIB, 64 * MIB]
        } else {
            vec![256 * MIB; 2]
        },
        numbers: &[],
        work: 1.0,
    }
}

fn line(blocks: u32) -> [u32; 3] {
    [blocks, 1, 1]
}

/// All of them.
pub fn all() -> Vec<Planted> {
    let threads = [256, 1, 1];
    let numbers = |numbers: &'static [u32], planted: Planted| Planted { numbers, ..planted };
    let mut tail = numbers(&[2048], planted("tail_wave", Rule::TailWave, line(140), [1024, 1, 1]));
    tail.launches = [(line(140), [1024, 1, 1], 160 << 10), (line(132), [1024, 1, 1], 160 << 10)];
    tail.work = 132.0 / 140.0;
    let mut narrow =
        numbers(&[64 << 20], planted("bytes_one_by_one", Rule::NarrowAccess, line(262_144), threads));
    narrow.launches[1].0 = line(16_384);
    let mut warps =
        numbers(&[256], planted("blocks_of_one_warp", Rule::LowOccupancy, line(132 * 256), [32, 1, 1]));
    warps.launches[1] = (line(132 * 32), [256, 1, 1], 0);
    let mut tiny = numbers(&[1024], planted("tiny_launch", Rule::LaunchBound, line(4), threads));
    tiny.launches[1].0 = line(48);
    tiny.work = 12.0;

    vec![
        numbers(&[67_584, 512], planted("row_per_thread", Rule::UncoalescedAccess, line(264), threads)),
        numbers(
            &[8 << 20, 0x3f00_0000],
            planted("array_of_structs", Rule::UncoalescedAccess, line(32_768), threads),
        ),
        numbers(
            &[4096, 4096],
            planted("scattered_store", Rule::UncoalescedAccess, [128, 128, 1], [32, 8, 1]),
        ),
        numbers(&[2048], planted("tile_without_padding", Rule::BankConflicts, [64, 64, 1], [32, 8, 1])),
        numbers(&[64], planted("structs_in_shared_memory", Rule::BankConflicts, line(4096), threads)),
        numbers(&[4 << 20], planted("odd_and_even", Rule::Divergence, line(16_384), threads)),
        numbers(&[16 << 20], planted("uneven_loops", Rule::Divergence, line(65_536), threads)),
        numbers(&[256], planted("too_much_shared_memory", Rule::LowOccupancy, line(132 * 64), [64, 1, 1])),
        warps,
        tail,
        numbers(&[256], planted("one_load_at_a_time", Rule::ExposedLatency, line(132), [128, 1, 1])),
        narrow,
        numbers(
            &[2048],
            planted("product_without_tensor_cores", Rule::TensorCoresUnused, [32, 32, 1], [128, 1, 1]),
        ),
        tiny,
        numbers(&[16 << 20, 0], planted("one_counter", Rule::AtomicContention, line(65_536), threads)),
        numbers(&[16], planted("one_bin", Rule::AtomicContention, line(2048), threads)),
        numbers(&[16 << 20], planted("double_by_accident", Rule::SlowArithmetic, line(65_536), threads)),
        numbers(&[1024, 256], planted("division_in_a_loop", Rule::SlowArithmetic, line(8192), threads)),
        numbers(
            &[1024],
            planted("product_from_global_memory", Rule::RepeatedLoads, [64, 64, 1], [16, 16, 1]),
        ),
        numbers(
            &[16 << 20, 0x4000_0000],
            planted("power_by_function", Rule::SlowArithmetic, line(65_536), threads),
        ),
    ]
}

impl Planted {
    fn source(&self) -> Source {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/planted");
        Source::read(&folder.join(self.file).with_extension("cu")).unwrap()
    }

    /// Its code, planted or mended.
    pub fn compiled(&self, mended: bool, form: Form) -> Compiled {
        let mut request = Request { form, ..Request::ptx((9, 0)) };
        if mended {
            request.options.push("-DMENDED".to_owned());
        }
        compile(&self.source(), &request).unwrap()
    }

    /// What the feedback says of the kernel, planted or mended.
    pub fn explained(&self, mended: bool) -> Feedback {
        let source = self.source();
        let code = self.compiled(mended, Form::Ptx);
        let cubin = self.compiled(mended, Form::Cubin);
        let resources = cubin.resources.unwrap_or_default();
        let mut simulator = Simulator::new(ChipSpec::h200()).with_checks(Checks::default());
        let module = Module::load(&mut simulator, code.ptx()).unwrap();
        let mut arguments: Vec<Argument> =
            self.buffers.iter().map(|&bytes| Argument::U64(simulator.reserve(bytes))).collect();
        arguments.extend(self.numbers.iter().map(|&number| Argument::U32(number)));
        let (grid, block, shared_bytes) = self.launches[usize::from(mended)];
        let config =
            LaunchConfig { grid, block, shared_bytes, cluster: [1; 3], cooperative: false, arguments };
        let kernel = code.kernel(None).unwrap();
        let sources = [(source.name.clone(), source.text.clone())];
        let subject = Subject {
            simulator: &simulator,
            module: &module,
            kernel: &kernel,
            config: &config,
            registers: Some(resources.registers).filter(|&registers| registers > 0),
            spill_bytes: resources.spill_bytes,
            calibration: &Calibration::of(&ChipSpec::h200()),
            sources: &sources,
        };
        explain(&subject).unwrap()
    }
}
