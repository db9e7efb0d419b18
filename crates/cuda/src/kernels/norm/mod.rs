//! Normalisations and softmax.

mod affine;
mod group;
mod rows;

use kinora_graph::{
    Op, TensorType,
    op::{BatchNorm, Norm},
};

use affine::Affine;
use group::{Chunks, Extents, Operands, Whole};
use rows::Share;

use super::{
    Call, DevicePointer, Implementation, KernelSet, Launch, Places,
    pointwise::{Elementwise, Operand},
};
use crate::{Chip, CudaError};

/// The implementations of an op of this family, the one to choose first; none for another op.
pub fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    let plain = set == KernelSet::Baseline;
    match call.op {
        Op::Norm(norm) => {
            let ways = if plain { vec![Way::Plain] } else { ways(norm, call.inputs[0], chip) };
            ways.into_iter().map(|way| Box::new(Normalisation { way }) as Box<dyn Implementation>).collect()
        }
        Op::BatchNorm(_) => vec![Box::new(Statistics { plain, chip: chip.clone() })],
        Op::Softmax => vec![Box::new(Softmax { plain })],
        _ => Vec::new(),
    }
}

/// Whether an op's result may lie over one of its operands. Statistics are complete, behind a barrier or in another
/// launch, before the first element is written, and then each thread reads an element before it writes it.
pub fn in_place(op: &Op, operand: usize) -> bool {
    matches!(op, Op::Norm(_) | Op::BatchNorm(_) | Op::Softmax) && operand == 0
}

/// The launches of a norm: of an op of its own, or of what a matrix product does first.
///
/// # Errors
/// Where the tensor is larger than the kernels count.
pub fn launches_for(
    norm: &Norm,
    x: &TensorType,
    x_at: DevicePointer,
    affine: &[(&TensorType, DevicePointer)],
    y_at: DevicePointer,
    workspace: DevicePointer,
    chip: &Chip,
) -> Result<Vec<Launch>, CudaError> {
    let operands = Operands { x, x_at, affine: Affine::new(affine), y_at, workspace };
    best_way(norm, x, chip).launches(norm, &operands)
}

/// Bytes of scratch memory that [`launches_for`] needs.
pub fn workspace_for(norm: &Norm, x: &TensorType, chip: &Chip) -> usize {
    best_way(norm, x, chip).workspace(norm, x)
}

/// A way to normalise.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// One block for all that shares statistics.
    Plain,
    /// Rows, shared out among threads.
    Rows(Share),
    /// Groups that a block holds whole.
    Whole(Whole),
    /// Statistics of chunks in one launch, all else in another.
    Chunks(Chunks),
}

/// The ways that a norm can take, the one to choose first.
fn ways(norm: &Norm, x: &TensorType, chip: &Chip) -> Vec<Way> {
    let Some(extents) = Extents::of(norm, x) else { return vec![Way::Rows(Share::of(x, false))] };
    let whole = Whole::cut(extents, x).map(Way::Whole);
    let chunks = Chunks::cut(extents, x, chip).map(Way::Chunks);
    let ways: Vec<Way> = whole.into_iter().chain(chunks).collect();
    if ways.is_empty() { vec![Way::Plain] } else { ways }
}

fn best_way(norm: &Norm, x: &TensorType, chip: &Chip) -> Way {
    ways(norm, x, chip).into_iter().next().unwrap_or(Way::Plain)
}

impl Way {
    fn workspace(self, norm: &Norm, x: &TensorType) -> usize {
        match (self, Extents::of(norm, x)) {
            (Way::Chunks(chunks), Some(extents)) => chunks.workspace(extents),
            _ => 0,
        }
    }

    fn launches(self, norm: &Norm, operands: &Operands<'_>) -> Result<Vec<Launch>, CudaError> {
        let Some(extents) = Extents::of(norm, operands.x) else {
            let share = if let Way::Rows(share) = self { share } else { Share::of(operands.x, true) };
            return Ok(vec![rows::norm(norm, share, operands)?]);
        };
        match self {
            Way::Whole(whole) => Ok(vec![whole.launch(norm, extents, operands)?]),
            Way::Chunks(chunks) => chunks.launches(norm, extents, operands),
            Way::Plain | Way::Rows(_) => Ok(vec![group::plain(norm, extents, operands)?]),
        }
    }
}

/// A group, layer or RMS norm.
#[derive(Debug)]
struct Normalisation {
    way: Way,
}

impl Implementation for Normalisation {
    fn name(&self) -> String {
        match self.way {
            Way::Plain => "norm-plain",
            Way::Rows(_) => "norm-rows",
            Way::Whole(_) => "norm-whole",
            Way::Chunks(_) => "norm-chunks",
        }
        .to_owned()
    }

    fn workspace(&self, call: &Call<'_>) -> usize {
        match call.op {
            Op::Norm(norm) => self.way.workspace(norm, call.inputs[0]),
            _ => 0,
        }
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let Op::Norm(norm) = call.op else {
            return Err(CudaError::Internal(format!("{} is no norm", call.op)));
        };
        let affine: Vec<(&TensorType, DevicePointer)> =
            call.inputs.iter().copied().zip(places.inputs.iter().copied()).skip(1).collect();
        let operands = Operands {
            x: call.inputs[0],
            x_at: places.inputs[0],
            affine: Affine::new(&affine),
            y_at: places.outputs[0],
            workspace: places.workspace,
        };
        self.way.launches(norm, &operands)
    }
}

/// A batch norm, whose statistics are given: a function of single elements.
#[derive(Debug)]
struct Statistics {
    /// One element a thread.
    plain: bool,
    chip: Chip,
}

impl Implementation for Statistics {
    fn name(&self) -> String {
        if self.plain { "batch-norm-plain" } else { "batch-norm" }.to_owned()
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let Op::BatchNorm(BatchNorm { epsilon }) = call.op else {
            return Err(CudaError::Internal(format!("{} is no batch norm", call.op)));
        };
        let result = call.outputs[0];
        let operands = call.inputs.iter().zip(&places.inputs);
        let call = Elementwise {
            expression: "(x[0] - x[1]) / sqrtf(x[2] + p) * x[3] + x[4]".into(),
            numbers: [*epsilon, 0.0],
            extents: result.shape.to_vec(),
            operands: operands.map(|(ty, &at)| Operand::broadcast(ty, at, &result.shape)).collect(),
            result: (result.dtype, places.outputs[0]),
        };
        Ok(vec![call.launch(self.plain, &self.chip)?])
    }
}

/// A softmax over the last axis.
#[derive(Debug)]
struct Softmax {
    /// One block a row.
    plain: bool,
}

impl Implementation for Softmax {
    fn name(&self) -> String {
        if self.plain { "softmax-plain" } else { "softmax" }.to_owned()
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let x = call.inputs[0];
        let share = Share::of(x, self.plain);
        Ok(vec![rows::softmax(share, x, places.inputs[0], places.outputs[0])?])
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{
        DType,
        op::{self, Activation, NormKind},
    };

    use super::*;
    use crate::{
        Architecture,
        kernels::{Argument, geometry::words, testing},
    };

    fn norm(kind: NormKind, affine: op::Affine) -> Norm {
        Norm { kind, epsilon: 1e-5, affine, activation: Some(Activation::Silu) }
    }

    #[test]
    fn every_norm_has_launches() {
        for channels in [1, 3, 8, 33, 320, 1280, 3000] {
            let x = TensorType::new(DType::F16, [2, 3, 5, channels]);
            let vector = TensorType::new(DType::F32, [channels]);
            for kind in [
                NormKind::Layer,
                NormKind::Rms,
                NormKind::Group { groups: 1, frames: 2 },
                NormKind::Group { groups: channels, frames: 1 },
            ] {
                let op = Op::Norm(norm(kind, op::Affine::ScaleShift));
                let launches = testing::launches(implementations, &op, &[&x, &vector, &vector]).unwrap();
                let affine = words([testing::place(1), testing::place(2)]);
                assert!(launches.last().unwrap().arguments.contains(&affine), "{kind:?}");
                let op = Op::Norm(norm(kind, op::Affine::None));
                testing::launches(implementations, &op, &[&x]).unwrap();
            }
            testing::launches(implementations, &Op::Softmax, &[&x]).unwrap();
            let op = Op::BatchNorm(BatchNorm { epsilon: 1e-3 });
            testing::launches(implementations, &op, &[&x, &vector, &vector, &vector, &vector]).unwrap();
        }
    }

    #[test]
    fn a_prologue_is_launched_as_the_op_is() {
        let chip = Chip::typical(Architecture::HOPPER);
        let x = TensorType::new(DType::F16, [28, 72, 128, 320]);
        let norm = norm(NormKind::Group { groups: 32, frames: 14 }, op::Affine::None);
        let (x_at, y_at) = (testing::place(0), testing::place(1));
        let launches = launches_for(&norm, &x, x_at, &[], y_at, testing::WORKSPACE, &chip).unwrap();
        assert_eq!(launches, testing::launches(implementations, &Op::Norm(norm), &[&x]).unwrap());
        assert_eq!(launches.len(), 2);
        assert!(workspace_for(&norm, &x, &chip) > 0);
        assert_eq!(launches[1].arguments[0], Argument::Pointer(y_at));
    }
}
