//! Programs on a GPU, with plain kernels of these tests' own: what is tested is the runtime, not the kernels.
//!
//! Without a GPU each test says so and does nothing; with `KINORA_REQUIRE_GPU=1` that is a failure.

#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod gpu;

use std::{ops::ControlFlow, sync::Arc};

use gpu::open;
use kinora_cuda::{
    Architecture, CodeForm, CudaError, CudaOptions, LoadOptions, Planned, Program,
    compiler::CompilerOptions,
    cupti::Cupti,
    driver::Device,
    kernels::{Argument, Call, Choose, Implementation, Kernel, Launch, Places, Source},
};
use kinora_graph::{DType, Graph, GraphBuilder, Op, Phase, Tensor, TensorType};
use kinora_profile::{
    Activity, ActivityKind, Direction, Profiler, copies::copies, kernel_times::kernel_times, steps::steps,
};
use kinora_runtime::{RunError, StepLoop, StepResults, Tensors};

const SOURCE: Source = Source {
    path: "test/plain.cu",
    text: r#"
#include "specialisation.cuh"
#include "numbers.cuh"
extern "C" __global__ void plain_add(const float *a, const float *b, float *y, i64 count) {
    i64 at = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count) y[at] = a[at] + b[at];
}
extern "C" __global__ void plain_scale(const float *x, float *y, i64 count, float factor, float offset) {
    i64 at = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count) y[at] = x[at] * factor + offset;
}
extern "C" __global__ void plain_lookup(const float *table, const i32 *ids, float *y, i64 count, int rows, int channels,
                                        i32 *fault, int number) {
    i64 at = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= count) return;
    i32 id = ids[at / channels];
    if (id < 0 || id >= rows) {
        if (atomicCAS(fault, 0, number) == 0) fault[1] = id;
        return;
    }
    y[at] = table[i64(id) * channels + at % channels];
}
extern "C" __global__ void wild(float *y) { y[1ll << 40] = 1.0f; }
"#,
};

/// Sums of equal shapes, scales and lookups of f32. `Wild` writes outside all memory instead of scaling.
#[derive(Debug)]
enum Plain {
    Right,
    Wild,
}

impl Choose for Plain {
    fn choose(&self, call: &Call<'_>) -> Result<Arc<dyn Implementation>, CudaError> {
        Ok(Arc::new(PlainKernel {
            wild: matches!(self, Plain::Wild),
            op: call.op.clone(),
            shape: call.inputs[0].shape.to_vec(),
            count: call.outputs[0].elements(),
        }))
    }
}

/// A call as these kernels run it.
#[derive(Debug)]
struct PlainKernel {
    wild: bool,
    op: Op,
    /// Of the first operand.
    shape: Vec<usize>,
    /// Elements of the result.
    count: usize,
}

// SAFETY: the kernels stay within `count` elements; `wild` leaves them on purpose, to make the GPU report it.
unsafe impl Implementation for PlainKernel {
    fn name(&self) -> String {
        "plain".into()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let count = self.count;
        let mut pointers: Vec<Argument> =
            places.inputs.iter().chain(&places.outputs).map(|&address| Argument::Pointer(address)).collect();
        let (entry, rest) = match &self.op {
            Op::Add => ("plain_add", vec![Argument::I64(count as i64)]),
            Op::Scale(_) if self.wild => {
                pointers.remove(0);
                ("wild", Vec::new())
            }
            Op::Scale(op) => (
                "plain_scale",
                vec![Argument::I64(count as i64), Argument::F32(op.factor), Argument::F32(op.offset)],
            ),
            Op::Embedding => (
                "plain_lookup",
                vec![
                    Argument::I64(count as i64),
                    Argument::I32(self.shape[0] as i32),
                    Argument::I32(self.shape[1] as i32),
                    Argument::Pointer(places.fault),
                    Argument::I32(places.number),
                ],
            ),
            op => return Err(CudaError::Internal(format!("{op:?} is not in this test"))),
        };
        let arguments = [pointers, rest].concat();
        Ok(vec![Launch::new(Kernel::new(SOURCE, entry), count.div_ceil(128) as u32, 128, arguments)])
    }
}

fn options(device: &Device, kernels: Plain) -> CudaOptions {
    let choice: Option<Arc<dyn Choose>> = Some(Arc::new(kernels));
    CudaOptions {
        choice,
        optimise: false,
        poison: Some(0xff),
        ..CudaOptions::for_device(device, kinora_cpu::CpuOps::shared())
    }
}

const SHAPE: [usize; 3] = [3, 7, 50];

/// A clip value, a lookup by a counter, and latents that are fed back.
fn graph() -> Graph {
    let f32s = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let mut g = GraphBuilder::new("loop");
    let clip = g.input("clip", f32s(&SHAPE), Phase::Clip).unwrap();
    let latents = g.input("latents", f32s(&SHAPE), Phase::Step).unwrap();
    let step = g.input("step", TensorType::new(DType::I32, [1]), Phase::Step).unwrap();
    let same = g.input("same", f32s(&[1, 1050]), Phase::Step).unwrap();
    let noise = g.input("noise", f32s(&[1, 1050]), Phase::Step).unwrap();
    let table = g.parameter("table", f32s(&[4, 1050])).unwrap();
    let doubled = g.scale("doubled", table, 2.0, 0.0).unwrap();
    let clip = g.scale("clip.scale", clip, 0.5, 1.0).unwrap();
    let row = g.embedding("row", doubled, step).unwrap();
    let row = g.add("row.same", row, same).unwrap();
    let row = g.add("row.noise", row, noise).unwrap();
    let row = g.reshape("row.shape", row, SHAPE).unwrap();
    let y = g.scale("shrink", latents, 0.75, 0.125).unwrap();
    let y = g.add("plus.row", y, row).unwrap();
    let y = g.add("plus.clip", y, clip).unwrap();
    g.output("next", y).unwrap();
    g.output("doubled", doubled).unwrap();
    g.finish()
}

fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37 + seed * 101) % 64) as f32 / 16.0 - 2.0).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

fn weights() -> Tensors {
    Tensors::from([("table".to_owned(), numbers(&[4, 1050], 1))])
}

fn clip_inputs() -> Tensors {
    Tensors::from([("clip".to_owned(), numbers(&SHAPE, 2))])
}

fn step_inputs(step: i32) -> Tensors {
    Tensors::from([
        ("latents".to_owned(), numbers(&SHAPE, 3)),
        ("step".to_owned(), Tensor::from_slice([1], &[step]).unwrap()),
        ("same".to_owned(), numbers(&[1, 1050], 4)),
        ("noise".to_owned(), numbers(&[1, 1050], 5)),
    ])
}

fn all_inputs(step: i32) -> Tensors {
    clip_inputs().into_iter().chain(step_inputs(step)).collect()
}

fn on_cpu() -> kinora_cpu::Program {
    let options = kinora_cpu::Options { optimise: false, ..kinora_cpu::Options::default() };
    kinora_cpu::Program::new(&graph(), &weights(), options).unwrap()
}

fn load(device: &Device, options: &CudaOptions) -> Program {
    Planned::new(&graph(), options).unwrap().load(device, &weights()).unwrap()
}

/// The numbers are such that every sum is exact: the results are equal, not only close.
fn assert_equal(got: &Tensors, expected: &Tensors) {
    assert_eq!(got.len(), expected.len());
    for (name, tensor) in expected {
        assert!(got[name] == *tensor, "{name}: {:?}, expected {tensor:?}", got[name]);
    }
}

#[test]
fn a_program_gives_what_the_cpu_gives() {
    let Some(device) = open() else { return };
    let mut cpu = on_cpu();
    for (cuda_graphs, synchronise_every_launch) in [(true, false), (false, false), (true, true)] {
        let options = CudaOptions { cuda_graphs, synchronise_every_launch, ..options(&device, Plain::Right) };
        let mut program = load(&device, &options);
        assert_equal(&program.run(&all_inputs(1)).unwrap(), &cpu.run(&all_inputs(1)).unwrap());
        program.run_clip(&clip_inputs()).unwrap();
        cpu.run_clip(&clip_inputs()).unwrap();
        for step in [0, 3, 2] {
            let inputs = step_inputs(step);
            assert_equal(&program.run_step(&inputs).unwrap(), &cpu.run_step(&inputs).unwrap());
        }
        assert_eq!(program.time_replays(3).unwrap().len(), 3);
    }
}

#[test]
fn a_profile_has_every_layer_on_the_gpus_clock_and_changes_nothing() {
    let Some(device) = open() else { return };
    let mut program = load(&device, &options(&device, Plain::Right));
    let expected = program.run(&all_inputs(1)).unwrap();
    let profiler = Profiler::on();
    program.profile(&profiler, "a program", None).unwrap();
    program.run_clip(&clip_inputs()).unwrap();
    let (launched, steps) = (program.launches(Phase::Step), 3);
    for _ in 0..steps {
        assert_equal(&program.run_step(&step_inputs(1)).unwrap(), &expected);
    }
    let profile = profiler.profile();
    profile.check().unwrap();
    let runs: Vec<_> = profile.spans.iter().filter(|span| span.name == "step").collect();
    assert_eq!(runs.len(), steps);
    // A launch takes time, and what runs afterwards comes later.
    assert!(runs.iter().all(|run| run.nanoseconds() > 0));
    assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start));
    let layers = profile.spans.iter().filter(|span| span.work.is_some());
    let launches: u64 = layers
        .filter(|span| span.parent.is_some_and(|parent| profile.spans[parent].name == "step"))
        .map(|span| profile.works[span.work.unwrap()].launches)
        .sum();
    assert_eq!(launches, (steps * launched) as u64);
    assert!(profile.duration() < profiler.now() + 1_000_000);

    program.profile(&Profiler::off(), "", None).unwrap();
    assert_equal(&program.run(&all_inputs(1)).unwrap(), &expected);
    assert_eq!(profiler.profile().spans.len(), profile.spans.len());
}

/// Every kernel is seen once, in order, and knows the layer that launched it; a layer's kernels take no longer than it does.
#[test]
fn cupti_sees_every_kernel_and_copy() {
    let Some(device) = open() else { return };
    let cupti = match Cupti::find() {
        Ok(cupti) => cupti,
        Err(error) => {
            println!("not run: {error}");
            return;
        }
    };
    println!("{cupti:?}");
    let mut program = load(&device, &options(&device, Plain::Right));
    let profiler = Profiler::on();
    program.profile(&profiler, "a program", Some(cupti)).unwrap();
    let steps = 3;
    program.run_clip(&clip_inputs()).unwrap();
    for _ in 0..steps {
        program.run_step(&step_inputs(1)).unwrap();
    }
    let launched = program.launches(Phase::Clip) + steps * program.launches(Phase::Step);
    let profile = profiler.profile();
    profile.check().unwrap();
    assert_eq!(profile.notes, Vec::<String>::new());
    let kernels: Vec<_> =
        profile.activity.iter().filter(|activity| activity.kind == ActivityKind::Kernel).collect();
    println!("{} kernels of {launched} launches", kernels.len());
    let unknown: Vec<_> = kernels.iter().filter(|kernel| kernel.work.is_none()).collect();
    assert_eq!(unknown, Vec::<&&Activity>::new(), "kernels without a layer");
    assert_eq!(kernels.len(), launched);
    assert!(kernels.iter().all(|kernel| kernel.name.starts_with("plain_")), "{kernels:?}");
    // In the order in which the layers ran.
    let layers: Vec<_> = profile.spans.iter().filter_map(|span| span.work).collect();
    assert_eq!(kernels.iter().filter_map(|kernel| kernel.work).collect::<Vec<_>>(), layers);
    for time in kernel_times(&profile) {
        println!("{time:?}");
        // Each is one kernel, and takes as long as that.
        assert!(0 < time.traced_nanoseconds, "{time:?}");
        assert_eq!([time.layer_nanoseconds, time.nanoseconds], [time.traced_nanoseconds; 2], "{time:?}");
    }
    // Inputs and results are seen by both.
    let copied = |name: &str| profile.activity.iter().filter(|a| a.name == name).count();
    let spans = copies(&profile);
    println!("{spans:?}");
    for (name, direction) in [("inputs", Direction::ToDevice), ("results", Direction::FromDevice)] {
        let of = spans.iter().find(|of| of.name == name && of.direction == direction).unwrap();
        assert!(of.bytes > 0 && of.nanoseconds > 0 && copied(direction.name()) >= of.count as usize);
    }
    // Once it is off, nothing more is seen.
    program.profile(&Profiler::off(), "", None).unwrap();
    program.run_step(&step_inputs(1)).unwrap();
    assert_eq!(profiler.profile().activity.len(), profile.activity.len());
}

/// What the host waits for is a span a step, in which the layers of the GPU lie; weights are copied in spans as well.
#[test]
fn steps_and_copies_are_spans() {
    let Some(device) = open() else { return };
    let profiler = Profiler::on();
    let planned = Planned::new(&graph(), &options(&device, Plain::Right)).unwrap();
    let load = LoadOptions { profiler: profiler.clone(), ..LoadOptions::default() };
    let mut program = planned.load_with(&device, &weights(), &load).unwrap();
    let uploaded = copies(&profiler.profile());
    let bytes = uploaded.iter().filter(|of| of.name == "weights").map(|of| of.bytes).sum::<u64>();
    // The tensors themselves; the plan also counts the gaps up to where the next may start.
    let (graph, plan) = (program.graph(), program.plan());
    let tensors: usize = plan.resident().iter().map(|&weight| graph.ty(weight).bytes()).sum();
    assert_eq!(bytes, tensors as u64);
    assert!(plan.weight_bytes() >= tensors && program.memory().weights == plan.weight_bytes());
    program.profile(&profiler, "a program", None).unwrap();
    program.run_clip(&clip_inputs()).unwrap();
    let count = 3;
    let step_loop = StepLoop { count, feedback: &[], counters: &[], fresh: &[] };
    program
        .run_steps(&step_loop, &step_inputs(1), Some(&mut |_, _: &dyn StepResults| ControlFlow::Continue(())))
        .unwrap();
    let profile = profiler.profile();
    profile.check().unwrap();
    let found = steps(&profile);
    println!("{found:?}");
    assert_eq!(found.len(), count);
    let layers: u64 = found.iter().map(|step| step.layer_nanoseconds).sum();
    assert!(layers > 0 && found.iter().all(|step| step.nanoseconds > 0 && step.active_nanoseconds.is_none()));
}

#[test]
fn ceilings_are_those_of_a_gpu() {
    let Some(device) = open() else { return };
    let ceilings =
        kinora_cuda::ceilings::measure(&device, CompilerOptions::from_environment(), DType::F16).unwrap();
    println!("{ceilings:?}");
    // Any GPU that has ever run this code lies between these.
    assert!((1e12..1e16).contains(&ceilings.flops_per_second), "{ceilings:?}");
    assert!((1e10..1e14).contains(&ceilings.bytes_per_second), "{ceilings:?}");
    assert!((100.0..1e6).contains(&ceilings.launch_nanoseconds), "{ceilings:?}");
}

#[test]
fn an_older_chips_code_runs_as_ptx() {
    let Some(device) = open() else { return };
    let mut options = options(&device, Plain::Right);
    options.chip.architecture = Architecture::TURING;
    options.chip.form = CodeForm::Ptx;
    let mut program = load(&device, &options);
    assert_equal(&program.run(&all_inputs(1)).unwrap(), &on_cpu().run(&all_inputs(1)).unwrap());
}

#[test]
fn memory_is_what_the_plan_said() {
    let Some(device) = open() else { return };
    let program = load(&device, &options(&device, Plain::Right));
    let memory = program.memory();
    assert_eq!(memory.arena, program.plan().arena_bytes());
    assert_eq!(memory.weights, program.plan().weight_bytes());
    assert_eq!(memory.planned, program.plan().peak_bytes());
}

#[test]
fn errors_are_the_cpus_errors() {
    let Some(device) = open() else { return };
    let mut program = load(&device, &options(&device, Plain::Right));
    let mut cpu = on_cpu();
    let host = |error: CudaError| match error {
        CudaError::Run(error) => error,
        error => panic!("{error}"),
    };
    assert_eq!(host(program.run_step(&step_inputs(0)).unwrap_err()), RunError::ClipNotRun);
    for step in [4, -1] {
        let expected = cpu.run(&all_inputs(step)).unwrap_err();
        assert_eq!(host(program.run(&all_inputs(step)).unwrap_err()), expected);
    }
    let missing = Tensors::new();
    assert_eq!(
        host(program.run_clip(&missing).unwrap_err()).to_string(),
        cpu.run_clip(&missing).unwrap_err().to_string()
    );
    // After an error the program runs on.
    assert_equal(&program.run(&all_inputs(2)).unwrap(), &cpu.run(&all_inputs(2)).unwrap());
    // A bad step leaves the clip as it is.
    assert!(program.run_step(&step_inputs(9)).is_err());
    assert_equal(&program.run_step(&step_inputs(1)).unwrap(), &cpu.run_step(&step_inputs(1)).unwrap());
}

#[test]
fn a_loop_gives_what_single_steps_give() {
    let Some(device) = open() else { return };
    let noises: Vec<Tensor> = (0..4).map(|step| numbers(&[1, 1050], 10 + step)).collect();
    let mut cpu = on_cpu();
    cpu.run_clip(&clip_inputs()).unwrap();
    let mut expected = Tensors::new();
    for (step, noise) in noises.iter().enumerate() {
        let mut inputs = step_inputs(step as i32);
        inputs.insert("noise".into(), noise.clone());
        if let Some(next) = expected.remove("next") {
            inputs.insert("latents".into(), next);
        }
        expected = cpu.run_step(&inputs).unwrap();
    }

    let mut program = load(&device, &options(&device, Plain::Right));
    program.run_clip(&clip_inputs()).unwrap();
    let fresh = [("noise", &noises[..])];
    let steps = StepLoop { count: 4, feedback: &[("next", "latents")], counters: &["step"], fresh: &fresh };
    for _ in 0..2 {
        assert_equal(&program.run_steps(&steps, &step_inputs(0), None).unwrap(), &expected);
    }
    // An observer sees the results of every step, though the next one runs already, and may stop the loop.
    let mut nexts = Vec::new();
    cpu.run_steps(
        &steps,
        &step_inputs(0),
        Some(&mut |_, results| {
            nexts.push(results.get("next"));
            ControlFlow::Continue(())
        }),
    )
    .unwrap();
    for last in 1..=4 {
        let mut seen = Vec::new();
        let mut observer = |done: usize, results: &dyn StepResults| {
            assert_eq!(results.get("next"), nexts[done - 1], "step {done}");
            seen.push(done);
            if done == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let stopped = program.run_steps(&steps, &step_inputs(0), Some(&mut observer)).unwrap_err();
        assert!(matches!(stopped, CudaError::Run(RunError::Stopped)), "{stopped}");
        assert_eq!(seen, (1..=last).collect::<Vec<_>>());
    }
    let mut go_on = |_: usize, _: &dyn StepResults| ControlFlow::Continue(());
    assert_equal(&program.run_steps(&steps, &step_inputs(0), Some(&mut go_on)).unwrap(), &expected);
    // The counter leaves its table in the last step but one.
    let error = program.run_steps(&steps, &step_inputs(2), None).unwrap_err();
    let expected = RunError::Token { layer: "row".into(), id: 4, rows: 4 };
    assert!(matches!(&error, CudaError::Run(host) if *host == expected), "{error}");
}

#[test]
fn a_loop_allocates_nothing_and_waits_once() {
    let Some(device) = open() else { return };
    let noises: Vec<Tensor> = (0..4).map(|step| numbers(&[1, 1050], 10 + step)).collect();
    let fresh = [("noise", &noises[..])];
    let steps = StepLoop { count: 4, feedback: &[("next", "latents")], counters: &["step"], fresh: &fresh };
    for cuda_graphs in [false, true] {
        let mut program = load(&device, &CudaOptions { cuda_graphs, ..options(&device, Plain::Right) });
        program.run_clip(&clip_inputs()).unwrap();
        // The first loop makes its copies of the inputs, and records the step.
        program.run_steps(&steps, &step_inputs(0), None).unwrap();
        let before = program.context().activity();
        program.run_steps(&steps, &step_inputs(0), None).unwrap();
        let after = program.context().activity();
        assert_eq!((after.allocations, after.waits), (before.allocations, before.waits + 1));
    }
}

#[test]
fn a_loop_refuses_what_does_not_fit() {
    let Some(device) = open() else { return };
    let mut program = load(&device, &options(&device, Plain::Right));
    program.run_clip(&clip_inputs()).unwrap();
    let fresh = [("noise", &[][..])];
    for wrong in [
        StepLoop { count: 2, feedback: &[("nothing", "latents")], ..StepLoop::default() },
        StepLoop { count: 2, feedback: &[("next", "nothing")], ..StepLoop::default() },
        StepLoop { count: 2, feedback: &[("next", "same")], ..StepLoop::default() },
        StepLoop { count: 2, counters: &["same"], ..StepLoop::default() },
        StepLoop { count: 2, counters: &["clip"], ..StepLoop::default() },
        StepLoop { count: 2, fresh: &fresh, ..StepLoop::default() },
    ] {
        assert!(program.run_steps(&wrong, &step_inputs(0), None).is_err(), "{wrong:?}");
    }
}

#[test]
fn after_a_fault_of_the_device_the_process_goes_on() {
    const CHILD: &str = "KINORA_TEST_FAULT";
    let Some(device) = open() else { return };
    if std::env::var_os(CHILD).is_none() {
        // In a process of its own: the other tests run at the same time on the same GPU.
        drop(device);
        let name = "after_a_fault_of_the_device_the_process_goes_on";
        let program = std::env::current_exe().unwrap();
        let status = std::process::Command::new(program)
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let named = CudaOptions { synchronise_every_launch: true, ..options(&device, Plain::Wild) };
    let mut program = load(&device, &named);
    let error = program.run(&all_inputs(0)).unwrap_err();
    let CudaError::DuringRun { phase: Phase::Clip, layer: Some(layer), .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(layer, "clip.scale");
    assert!(error.is_context_lost(), "{error}");
    let error = program.run(&all_inputs(0)).unwrap_err();
    assert!(error.is_context_lost() && error.to_string().contains("open the device"), "{error}");
    assert!(device.context().is_lost());

    // Today's drivers want a new process after such a fault, and say so; the CPU goes on.
    match Device::open(0) {
        Ok(device) => {
            let mut program = load(&device, &options(&device, Plain::Right));
            assert_equal(&program.run(&all_inputs(1)).unwrap(), &on_cpu().run(&all_inputs(1)).unwrap());
        }
        Err(error) => {
            assert!(matches!(error, CudaError::ProcessLost(_)), "{error}");
            assert!(error.to_string().contains("restart the program"), "{error}");
        }
    }
}
