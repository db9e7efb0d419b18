//! Matrix products and convolutions.
//!
//! One kernel serves linear layers, convolutions and products of activations alike: they differ in where a row of the first
//! operand comes from. See `NOTES.md` for what limits each kernel, and for the tiles.

mod boxes;
mod gathered;
mod library;
mod mma;
mod naive;
mod normalised;
mod problem;
mod resident;
mod simt;
mod split;
mod stationary;
mod statistics;
#[cfg(test)]
mod tests;
mod turns;
mod wgmma;

use std::sync::Arc;

use kinora_graph::{DType, Op, TensorType, op::Conv};

use self::{normalised::Normalised, problem::Problem, statistics::Apart};
use super::{Call, Implementation, KernelSet, Offer, Source, epilogue};
use crate::{Architecture, Chip, vendor::Libraries};

const SOURCE_NAIVE: Source = Source { path: "matrix/naive.cu", text: include_str!("naive.cu") };
const SOURCE_SIMT: Source = Source { path: "matrix/simt.cu", text: include_str!("simt.cu") };
const SOURCE_MMA: Source = Source { path: "matrix/mma.cu", text: include_str!("mma.cu") };
const SOURCE_FINISH: Source = Source { path: "matrix/finish.cu", text: include_str!("finish.cu") };
const SOURCE_REDUCE: Source = Source { path: "matrix/reduce.cu", text: include_str!("reduce.cu") };
const SOURCE_GATHERED: Source = Source { path: "matrix/gathered.cu", text: include_str!("gathered.cu") };
const SOURCE_RESIDENT: Source = Source { path: "matrix/resident.cu", text: include_str!("resident.cu") };
const SOURCE_STATIONARY: Source =
    Source { path: "matrix/stationary.cu", text: include_str!("stationary.cu") };
const SOURCE_STATISTICS: Source =
    Source { path: "matrix/statistics.cu", text: include_str!("statistics.cu") };
const SOURCE_TURNS: Source = Source { path: "matrix/turns.cu", text: include_str!("turns.cu") };
const SOURCE_WGMMA: Source = Source { path: "matrix/wgmma.cu", text: include_str!("wgmma.cu") };

/// The kernels for a linear layer, a convolution or a product of activations, the one to choose first. `norms` gives the
/// kernels of a norm, for a call whose input is normalised first. Those of vendors' libraries come last. Empty if the call is
/// none of these.
pub fn implementations(
    call: &Call<'_>,
    chip: &Chip,
    set: KernelSet,
    libraries: &Libraries,
    norms: Offer,
) -> Vec<Box<dyn Implementation>> {
    let products = products(call, chip, set, libraries);
    let Some(prologue) = normalised::Prologue::of(call) else { return products };
    // Each product needs a norm of its own: the family's first choice.
    let normalised = |product| {
        let norm = prologue.with_call(|norm| norms(norm, chip, set)).into_iter().next()?;
        Some(Box::new(Normalised::new(&prologue, norm, product)) as Box<dyn Implementation>)
    };
    products.into_iter().filter_map(normalised).collect()
}

/// What a vendor's library offered for a call before, by its name and the scratch memory that it needed.
pub fn offered_before(
    call: &Call<'_>,
    libraries: &Libraries,
    name: &str,
    workspace: usize,
) -> Option<Box<dyn Implementation>> {
    if normalised::Prologue::of(call).is_some() {
        return None;
    }
    library::offered_before(call, libraries, name, workspace)
}

fn products(
    call: &Call<'_>,
    chip: &Chip,
    set: KernelSet,
    libraries: &Libraries,
) -> Vec<Box<dyn Implementation>> {
    let Some(problem) = Problem::of(call).map(Arc::new) else { return Vec::new() };
    let Some(statistics) = problem.statistics else { return unmeasured(problem, chip, set, libraries) };
    let mut offers = if set == KernelSet::Baseline { Vec::new() } else { measured(&problem, chip) };
    // Last, since the result is read again: for what no epilogue measures.
    let plain = Arc::new(problem.without_statistics());
    let product = unmeasured(plain, chip, set, libraries).into_iter().next();
    offers.extend(product.map(|product| {
        Box::new(Apart::new(product, statistics, &problem.result)) as Box<dyn Implementation>
    }));
    offers
}

/// The kernels whose epilogues measure the result, the one to choose first.
fn measured(problem: &Arc<Problem>, chip: &Chip) -> Vec<Box<dyn Implementation>> {
    let mut timed: Vec<(f64, Box<dyn Implementation>)> = Vec::new();
    let mut doubtful: Vec<(f64, Box<dyn Implementation>)> = Vec::new();
    for (time, offer) in wgmma::offers(problem, chip) {
        timed.push((time, Box::new(offer)));
    }
    by_time(&mut timed);
    for (time, offer) in turns::offers(problem, chip) {
        match offer.is_ahead() {
            true => timed.push((0.0, Box::new(offer))),
            false => doubtful.push((time, Box::new(offer))),
        }
    }
    by_time(&mut timed);
    by_time(&mut doubtful);
    timed.into_iter().chain(doubtful).map(|(_, offer)| offer).collect()
}

/// Whether a product with statistics gains on a chip: if the kernel that the shape chooses can measure its result in the epilogue.
pub fn has_statistics(op: &Op, inputs: &[&TensorType], chip: &Chip) -> bool {
    let Ok(outputs) = op.infer(inputs) else { return false };
    let outputs: Vec<&TensorType> = outputs.iter().collect();
    let Some(problem) = Problem::of(&Call { layer: "", op, inputs, outputs: &outputs }) else { return false };
    let plain = Arc::new(problem.without_statistics());
    let chosen = unmeasured(plain, chip, KernelSet::Fused, &Libraries::default()).into_iter().next();
    let problem = Arc::new(problem);
    chosen.is_some_and(|chosen| measured(&problem, chip).iter().any(|offer| offer.name() == chosen.name()))
}

/// The kernels for a product that measures nothing.
fn unmeasured(
    problem: Arc<Problem>,
    chip: &Chip,
    set: KernelSet,
    libraries: &Libraries,
) -> Vec<Box<dyn Implementation>> {
    // A tile of a depthwise convolution would be empty but for a column.
    let depthwise = problem.slices > 1 && problem.window.is_some() && problem.columns < 8;
    // A few products for each result cost less than to bring them to the tensor cores: a convolution over the frames of an RGB
    // image has nine.
    let few = problem.window.is_some() && problem.columns < 8 && problem.depth < 16;
    if set == KernelSet::Baseline || depthwise || few {
        return vec![Box::new(naive::Naive { problem })];
    }
    let mut offers: Vec<Box<dyn Implementation>> = Vec::new();
    // Those on tensor cores that are expected to be fast, the fastest first. The estimate is rough; the tuner corrects it.
    let mut timed: Vec<(f64, Box<dyn Implementation>)> = Vec::new();
    // Those whose estimate proved too good: the tuner may choose them, the estimate alone may not.
    let mut doubtful: Vec<(f64, Box<dyn Implementation>)> = Vec::new();
    for (time, offer) in wgmma::offers(&problem, chip) {
        let list = if offer.is_estimated_well() { &mut timed } else { &mut doubtful };
        list.push((time, Box::new(offer)));
    }
    if !problem.subpixel {
        for (time, offer) in mma::offers(&problem, chip) {
            timed.push((time, Box::new(offer)));
        }
    }
    by_time(&mut timed);
    timed.truncate(10);
    by_time(&mut doubtful);
    doubtful.truncate(4);
    for (time, offer) in turns::offers(&problem, chip) {
        match offer.is_ahead() {
            // Ahead of all that are estimated.
            true => timed.push((0.0, Box::new(offer))),
            false => doubtful.push((time, Box::new(offer))),
        }
    }
    // The others take types of 16 bits and more, and no squares of pixels.
    if problem.subpixel || problem.scale.is_some() {
        by_time(&mut timed);
        offers.extend(timed.into_iter().chain(doubtful).map(|(_, offer)| offer));
        offers.push(Box::new(naive::Naive { problem }));
        return offers;
    }
    // Those for few columns or little depth, which are seldom far behind.
    if let Some((time, offer)) = resident::offer(&problem, chip) {
        timed.push((time, Box::new(offer)));
    }
    if let Some((time, offer)) = stationary::offer(&problem, chip) {
        timed.push((time, Box::new(offer)));
    }
    if let Some((time, offer)) = gathered::offer(&problem, chip) {
        timed.push((time, Box::new(offer)));
    }
    // In f32 the tensor cores multiply three times, and the ordinary units may be as fast. Other types come to them last.
    let mut ordinary: Vec<(f64, Box<dyn Implementation>)> = Vec::new();
    for (time, offer) in simt::offers(&problem, chip) {
        let list = if problem.a.dtype == DType::F32 { &mut timed } else { &mut ordinary };
        list.push((time, Box::new(offer)));
    }
    by_time(&mut timed);
    offers.extend(timed.into_iter().chain(doubtful).chain(ordinary).map(|(_, offer)| offer));
    offers.extend(library::offers(&problem, libraries));
    offers
}

/// Whether a sub-pixel convolution is faster on a chip than the convolution of the doubled image: if tiles of its filters have columns
/// of one pixel each, and there are so many pixels that its weight, 16/9 of the other's, is not what takes the time.
pub fn has_subpixel(op: &Conv, inputs: &[&TensorType], chip: &Chip) -> bool {
    const FEWEST_PIXELS: usize = 192;
    let [x, weight, ..] = inputs else { return false };
    let types = matches!(x.dtype, DType::F16 | DType::BF16 | DType::F8E4M3) && x.dtype == weight.dtype;
    let (columns, channels) = (weight.shape[0] / op.pixels(), weight.shape[4]);
    let fits = columns.is_multiple_of(64) && (channels * x.dtype.size()).is_multiple_of(16);
    chip.architecture.is_hopper() && types && fits && x.shape.rows() >= FEWEST_PIXELS
}

/// Whether a chip's tensor cores multiply the e4m3 of a product with a weight: from Ada on, in accesses of 16 bytes. Otherwise it would
/// take far longer than with 16 bits.
pub fn has_quantised(op: &Op, inputs: &[&TensorType], chip: &Chip) -> bool {
    let [_, weight, ..] = inputs else { return false };
    let (takes, strides, columns) = match op {
        Op::Linear(op) => (true, [1; 3], weight.shape[0] / if op.gate.is_some() { 2 } else { 1 }),
        Op::Conv(op) if op.subpixel => {
            (has_subpixel(op, inputs, chip), op.stride, weight.shape[0] / op.pixels())
        }
        Op::Conv(op) => (op.groups == 1, op.stride, weight.shape[0]),
        _ => return false,
    };
    // Hopper's boxes move along every axis by one.
    let boxes = strides == [1; 3] && columns.is_multiple_of(8);
    takes
        && chip.architecture >= Architecture::ADA
        && weight.shape.channels().is_multiple_of(16)
        && (boxes || !chip.architecture.is_hopper())
}

/// Sorts offers by the time that they are expected to take.
fn by_time(offers: &mut [(f64, Box<dyn Implementation>)]) {
    offers.sort_by(|(left, _), (right, _)| left.total_cmp(right));
}

/// Whether the result of an op of this family may overwrite an operand: a tensor that the epilogue reads element by element.
/// It is read by the thread that writes that element, just before; with split-K by two launches, by the second kernel alone.
pub fn in_place(op: &Op, operand: usize) -> bool {
    match op {
        Op::Linear(op) => epilogue::reads_in_place(&op.epilogue, op.first_of_epilogue(), operand),
        Op::Conv(op) => epilogue::reads_in_place(&op.epilogue, op.first_of_epilogue(), operand),
        _ => false,
    }
}

/// A boolean as the preprocessor knows it.
fn bool_constant(value: bool) -> u8 {
    u8::from(value)
}
