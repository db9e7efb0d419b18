//! Products and convolutions by a vendor's library, and a kernel for what the library leaves undone.
//!
//! A library adds a bias of the operands' type, and a residual that comes right after it. Everything else of an epilogue is
//! a second pass over the result. In between, the result lies in scratch memory if it is gated, or if an operand of the
//! epilogue may lie where the result will.

use std::sync::Arc;

use kinora_graph::{DType, op::Stage};

use super::{SOURCE_FINISH, bool_constant, problem::Problem};
use crate::{
    CudaError,
    kernels::{Call, DevicePointer, Implementation, Kernel, Launch, Places, Work, names::type_name},
    launch::{
        arguments,
        limits::{self, grid, long, summed},
    },
    vendor::{Convolution, ConvolutionOperands, CublasLt, Libraries, Product, ProductOperands},
};

/// Scratch memory is divided at multiples of this, the alignment of every tensor.
const ALIGNMENT: usize = 256;

/// What the libraries offer.
pub(super) fn offers(problem: &Problem, libraries: &Libraries) -> Vec<Box<dyn Implementation>> {
    let mut offers: Vec<Box<dyn Implementation>> = Vec::new();
    if let Some(product) = product(problem)
        && let Some(library) = libraries.cublaslt()
    {
        let division = Arc::new(Division::of(problem, false));
        for algorithm in 0..library.algorithms(&product).unwrap_or(0) {
            let (libraries, division) = (libraries.clone(), division.clone());
            offers.push(Box::new(ByCublasLt { libraries, algorithm, product, division }));
        }
    }
    if let Some(convolution) = convolution(problem)
        && let Some(library) = libraries.cudnn()
        && let Ok(workspace) = library.workspace(&convolution)
    {
        let division = Division::of(problem, true);
        offers.push(Box::new(ByCudnn { libraries: libraries.clone(), workspace, convolution, division }));
    }
    offers
}

/// What a library offered for a call before, by its name and the scratch memory that it needed: no library is started, or
/// asked, until the call's work is made.
pub(super) fn offered_before(
    call: &Call<'_>,
    libraries: &Libraries,
    name: &str,
    workspace: usize,
) -> Option<Box<dyn Implementation>> {
    let problem = Problem::of(call)?;
    if name == CUDNN {
        let convolution = convolution(&problem)?;
        let division = Division::of(&problem, true);
        let workspace = workspace.checked_sub(division.staged_bytes())?;
        return Some(Box::new(ByCudnn { libraries: libraries.clone(), workspace, convolution, division }));
    }
    let algorithm = name.strip_prefix(CUBLASLT)?.trim().parse().ok()?;
    let product = product(&problem)?;
    let division = Arc::new(Division::of(&problem, false));
    Some(Box::new(ByCublasLt { libraries: libraries.clone(), algorithm, product, division }))
}

const CUBLASLT: &str = "cublaslt";
const CUDNN: &str = "cudnn";

#[derive(Debug)]
struct ByCublasLt {
    libraries: Libraries,
    algorithm: usize,
    product: Product,
    division: Arc<Division>,
}

#[derive(Debug)]
struct ByCudnn {
    libraries: Libraries,
    workspace: usize,
    convolution: Convolution,
    division: Division,
}

/// What of an epilogue the library does, and what is left.
#[derive(Debug)]
struct Division {
    bias: Option<usize>,
    residual: Option<usize>,
    /// The product with the rest of its epilogue.
    rest: Problem,
    /// The library's result lies in scratch memory.
    staged: bool,
}

impl Division {
    /// `residual_needs_bias`: the library adds a residual only beside a bias.
    fn of(problem: &Problem, residual_needs_bias: bool) -> Division {
        let dtype = problem.result.dtype;
        let of_type = |&operand: &usize| problem.inputs[operand].dtype == dtype;
        let bias = problem.bias.filter(of_type);
        let mut rest = problem.clone();
        if bias.is_some() {
            rest.bias = None;
        }
        // A residual may come before a bias that is left over: both are sums.
        let first = problem.stage_operands.start;
        let residual = (problem.gate.is_none()
            && problem.stages.first() == Some(&Stage::Add)
            && (bias.is_some() || !residual_needs_bias))
            .then_some(first)
            .filter(of_type);
        if residual.is_some() {
            rest.stages.remove(0);
            rest.stage_operands = first + 1..problem.stage_operands.end;
        }
        let reads_elements = |stage: &Stage| matches!(stage, Stage::Add | Stage::Mul | Stage::Blend { .. });
        let staged = problem.gate.is_some() || rest.stages.iter().any(reads_elements);
        Division { bias, residual, rest, staged }
    }

    /// The bytes of the library's result in scratch memory; 0 if it does not lie there.
    fn staged_bytes(&self) -> usize {
        let elements = self.rest.result.elements() * if self.rest.gate.is_some() { 2 } else { 1 };
        if self.staged { (elements * self.rest.result.dtype.size()).next_multiple_of(ALIGNMENT) } else { 0 }
    }

    /// Where the library's result lies.
    fn library_result(&self, places: &Places) -> DevicePointer {
        if self.staged { places.workspace } else { places.outputs[0] }
    }

    fn place(operand: Option<usize>, places: &Places) -> DevicePointer {
        operand.map_or(DevicePointer::NULL, |operand| places.inputs[operand])
    }

    /// The launch that does the rest; `None` if nothing is left.
    fn finish(&self, places: &Places) -> Result<Option<Work>, CudaError> {
        let rest = &self.rest;
        if !self.staged && rest.bias.is_none() && rest.stages.is_empty() {
            return Ok(None);
        }
        let columns = rest.result.shape.channels();
        let mut width = 16 / rest.result.dtype.size();
        while !columns.is_multiple_of(width) {
            width /= 2;
        }
        let packs = rest.result.elements() / width;
        let mut kernel = Kernel::new(SOURCE_FINISH, "finish_rows")
            .with("TYPE", type_name(rest.result.dtype))
            .with("WIDTH", width)
            .with("GATED", bool_constant(rest.gate.is_some()));
        kernel.generated = rest.epilogue().code();
        summed(rest.result.shape.rows())?;
        let arguments = arguments![
            self.library_result(places),
            places.outputs[0],
            rest.epilogue_argument(places),
            long(packs),
            summed(columns)?,
        ];
        let grid = grid(packs.div_ceil(256))?;
        Ok(Some(Work::Launch(Launch::new(kernel, grid, 256, arguments))))
    }
}

/// Whether all operands of the product itself are of one type that the libraries know. A product that is scaled afterwards
/// may be beyond f16 before: between the library and the rest it is rounded to that.
fn one_type(problem: &Problem) -> Option<DType> {
    let dtype = problem.result.dtype;
    let scaled = problem.stages.iter().any(|stage| matches!(stage, Stage::Scale(_)));
    let known = matches!(dtype, DType::F32 | DType::F16 | DType::BF16) && !(scaled && dtype == DType::F16);
    (known && problem.a.dtype == dtype && problem.b.dtype == dtype).then_some(dtype)
}

/// The product as cuBLASLt knows it; `None` if it is a convolution, or there is nothing to multiply.
fn product(problem: &Problem) -> Option<Product> {
    let dtype = one_type(problem)?;
    let empty = [problem.rows, problem.columns, problem.depth, problem.slices].contains(&0);
    if problem.window.is_some() || empty {
        return None;
    }
    let division = Division::of(problem, false);
    Some(Product {
        dtype,
        batch: problem.slices,
        rows: problem.rows,
        columns: problem.columns,
        depth: problem.depth,
        transpose_a: problem.a.depth != 1,
        transpose_b: problem.b.depth == 1,
        shared_b: problem.b.slice == 0,
        bias: division.bias.is_some(),
        residual: division.residual.is_some(),
    })
}

/// The convolution as cuDNN knows it: over height and width, or over frames and everything else; `None` for all others.
fn convolution(problem: &Problem) -> Option<Convolution> {
    let dtype = one_type(problem)?;
    let window = problem.window?;
    let channels = window.channels * problem.slices;
    let out = problem.columns * problem.slices;
    let plain = |axis: usize| {
        window.kernel[axis] == 1
            && window.stride[axis] == 1
            && window.padding[axis] == 0
            && window.extents[axis] == window.out_extents[axis]
    };
    let [frames, height, width] = window.extents;
    let [out_frames, out_height, out_width] = window.out_extents;
    let division = Division::of(problem, true);
    let shaped = |input, output, [first, second]: [usize; 2]| Convolution {
        dtype,
        input,
        output,
        kernel: [window.kernel[first], window.kernel[second]],
        padding: [window.padding[first], window.padding[second]],
        stride: [window.stride[first], window.stride[second]],
        dilation: [window.dilation[first], window.dilation[second]],
        groups: problem.slices,
        bias: division.bias.is_some(),
        residual: division.residual.is_some(),
    };
    let images = window.clips * frames;
    let convolution = if plain(0) {
        shaped([images, height, width, channels], [images, out_height, out_width, out], [1, 2])
    } else if plain(1) && plain(2) {
        let area = height * width;
        shaped([window.clips, frames, area, channels], [window.clips, out_frames, area, out], [0, 1])
    } else {
        return None;
    };
    let countable = |extents: &[usize; 4]| (1..=limits::EXTENT).contains(&extents.iter().product::<usize>());
    // Padding after an axis that differs from that before it shows in the number of windows.
    let alike = (0..2).all(|axis| {
        let padded = convolution.input[1 + axis] + 2 * convolution.padding[axis];
        let span = convolution.dilation[axis] * convolution.kernel[axis].saturating_sub(1) + 1;
        padded >= span && (padded - span) / convolution.stride[axis] + 1 == convolution.output[1 + axis]
    });
    (countable(&convolution.input) && countable(&convolution.output) && alike).then_some(convolution)
}

// SAFETY: the product has the call's shapes, and the workspace holds its staged result and what cuBLASLt may use.
unsafe impl Implementation for ByCublasLt {
    fn name(&self) -> String {
        format!("{CUBLASLT} {}", self.algorithm)
    }

    fn is_vendors(&self) -> bool {
        true
    }

    fn workspace(&self) -> usize {
        self.division.staged_bytes() + CublasLt::workspace()
    }

    fn work(&self, places: &Places) -> Result<Vec<Work>, CudaError> {
        let division = &self.division;
        let library = self.libraries.cublaslt().ok_or_else(|| not_started("cuBLASLt"))?;
        let operands = ProductOperands {
            a: places.inputs[0],
            b: places.inputs[1],
            bias: Division::place(division.bias, places),
            residual: Division::place(division.residual, places),
            d: division.library_result(places),
            workspace: places.workspace.offset(division.staged_bytes()),
        };
        let mut work = vec![Work::Library(library.prepare(&self.product, operands, self.algorithm)?)];
        work.extend(division.finish(places)?);
        Ok(work)
    }
}

// SAFETY: the convolution has the call's shapes, and the workspace holds its staged result and what cuDNN asked for.
unsafe impl Implementation for ByCudnn {
    fn name(&self) -> String {
        CUDNN.to_owned()
    }

    fn is_vendors(&self) -> bool {
        true
    }

    fn workspace(&self) -> usize {
        self.division.staged_bytes() + self.workspace
    }

    fn work(&self, places: &Places) -> Result<Vec<Work>, CudaError> {
        let division = &self.division;
        let library = self.libraries.cudnn().ok_or_else(|| not_started("cuDNN"))?;
        let operands = ConvolutionOperands {
            x: places.inputs[0],
            weight: places.inputs[1],
            bias: Division::place(division.bias, places),
            residual: Division::place(division.residual, places),
            y: division.library_result(places),
            workspace: places.workspace.offset(division.staged_bytes()),
            workspace_bytes: self.workspace,
        };
        let mut work = vec![Work::Library(library.prepare(&self.convolution, operands)?)];
        work.extend(division.finish(places)?);
        Ok(work)
    }
}

/// A library that was measured to be the fastest, and does not start now.
fn not_started(library: &'static str) -> CudaError {
    let status = "it started when it was measured; `--tuning off` runs without it".to_owned();
    CudaError::Library { library, doing: "start".to_owned(), status }
}
