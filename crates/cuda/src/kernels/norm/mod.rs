//! Normalisations and softmax.

mod affine;
mod group;
mod rows;

use kinora_graph::{
    Op, TensorType,
    op::{Affine, BatchNorm, Norm, NormKind, Statistics},
};

use self::{
    affine::AffineTypes,
    group::{Chunks, Extents, Whole},
    rows::Share,
};
use super::{
    Call, DevicePointer, Family, Implementation, Kernel, KernelSet, Launch, Places,
    pointwise::{ByElements, Elementwise},
};
use crate::{Chip, CudaError};

/// The family.
pub const FAMILY: Family = Family { offer: implementations, in_place };

/// The implementations of an op of this family, the one to choose first; none for another op.
pub(super) fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    let plain = set == KernelSet::Baseline;
    match call.op {
        Op::Norm(norm) => {
            let problem = Problem::new(*norm, call.inputs);
            let ways = if plain { vec![Way::plain(&problem)] } else { ways(&problem, chip) };
            ways.into_iter()
                .map(|way| {
                    Box::new(Normalisation { problem: problem.clone(), way }) as Box<dyn Implementation>
                })
                .collect()
        }
        Op::BatchNorm(BatchNorm { epsilon }) => {
            let expression = "(x[0] - x[1]) / sqrtf(x[2] + p) * x[3] + x[4]".to_owned();
            let function = Elementwise::broadcast(call, expression, [*epsilon, 0.0]);
            let names = ["batch-norm-plain", "batch-norm"];
            vec![Box::new(ByElements { names, plain, chip: chip.clone(), function })]
        }
        Op::Softmax => {
            let x = call.inputs[0].clone();
            vec![Box::new(Softmax { share: Share::of(&x, plain), x, plain })]
        }
        _ => Vec::new(),
    }
}

/// Whether a group norm of some elements reads them twice on a chip, so that it gains if it is given their statistics.
pub fn reads_twice(statistics: Statistics, x: &TensorType, chip: &Chip) -> bool {
    let Statistics { groups, frames } = statistics;
    let kind = NormKind::Group { groups, frames };
    let norm =
        Norm { kind, epsilon: 1.0, affine: Affine::None, activation: None, quantise: None, measured: false };
    let ways = ways(&Problem::new(norm, &[x]), chip);
    matches!(ways.first(), Some(Way::Chunks(..)))
}

/// Whether an op's result may lie over one of its operands. Statistics are complete, after a barrier or in another
/// launch, before the first element is written, and then each thread reads an element before it writes it.
fn in_place(op: &Op, operand: usize) -> bool {
    matches!(op, Op::Norm(_) | Op::BatchNorm(_) | Op::Softmax) && operand == 0
}

/// A group, layer or RMS norm and what it is of.
#[derive(Clone, Debug)]
struct Problem {
    norm: Norm,
    x: TensorType,
    affine: AffineTypes,
}

impl Problem {
    fn new(norm: Norm, inputs: &[&TensorType]) -> Problem {
        let (learned, _) = norm.operands(inputs);
        Problem { norm, x: inputs[0].clone(), affine: AffineTypes::of(learned) }
    }

    /// A kernel with what every norm is specialised with.
    fn specialise(&self, kernel: Kernel) -> Kernel {
        self.affine.specialise(kernel, &self.norm, &self.x)
    }

    /// Where the statistics lie, if they are given: after all other operands.
    fn given(&self, places: &Places) -> DevicePointer {
        let given = self.norm.measured.then(|| places.inputs.last().copied()).flatten();
        given.unwrap_or_default()
    }

    /// What a result in e4m3 is multiplied by.
    fn factor(&self) -> f32 {
        self.norm.quantise.unwrap_or(1.0)
    }
}

/// A way to normalise.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A row of a layer or RMS norm, by a block.
    PlainRows,
    /// Rows of a layer or RMS norm, shared out among threads.
    Rows(Share),
    /// A group by a block.
    PlainGroups(Extents),
    /// Groups that a block or a cluster of blocks holds whole.
    Whole(Extents, Whole),
    /// Statistics of chunks in one launch, all else in another.
    Chunks(Extents, Chunks),
    /// Chunks of rows, if the statistics are given.
    Given(Extents, Chunks),
}

/// The ways that a norm can take, the one to choose first.
fn ways(problem: &Problem, chip: &Chip) -> Vec<Way> {
    let x = &problem.x;
    let Some(extents) = Extents::of(&problem.norm, x) else { return vec![Way::Rows(Share::of(x, false))] };
    if problem.norm.measured {
        let chunks = Chunks::cut_for_writing(extents, x, chip);
        return vec![chunks.map_or(Way::PlainGroups(extents), |chunks| Way::Given(extents, chunks))];
    }
    let whole = Whole::cuts(extents, x, chip);
    let chunks = Chunks::cut(extents, x, chip);
    let chunks_first = whole.first().zip(chunks).is_some_and(|(whole, chunks)| {
        !whole.is_portable() || chunks.clocks(extents, x, chip) < whole.clocks(extents, x, chip)
    });
    let whole = whole.into_iter().map(|whole| Way::Whole(extents, whole));
    let mut ways: Vec<Way> = whole.chain(chunks.map(|chunks| Way::Chunks(extents, chunks))).collect();
    if chunks_first {
        ways.rotate_right(1);
    }
    if ways.is_empty() { vec![Way::PlainGroups(extents)] } else { ways }
}

impl Way {
    fn plain(problem: &Problem) -> Way {
        Extents::of(&problem.norm, &problem.x).map_or(Way::PlainRows, Way::PlainGroups)
    }
}

/// A group, layer or RMS norm.
#[derive(Debug)]
struct Normalisation {
    problem: Problem,
    way: Way,
}

// SAFETY: the extents are the operand's, and the workspace holds every chunk's statistics.
unsafe impl Implementation for Normalisation {
    fn name(&self) -> String {
        match self.way {
            Way::PlainRows | Way::PlainGroups(_) => "norm-plain".to_owned(),
            Way::Rows(_) => "norm-rows".to_owned(),
            Way::Whole(_, whole) => whole.name(),
            Way::Chunks(..) => "norm-chunks".to_owned(),
            Way::Given(..) => "norm-given".to_owned(),
        }
    }

    fn workspace(&self) -> usize {
        if let Way::Chunks(extents, chunks) = self.way { chunks.workspace(extents) } else { 0 }
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        match self.way {
            Way::PlainRows => Ok(vec![rows::norm(problem, Share::of(&problem.x, true), places)?]),
            Way::Rows(share) => Ok(vec![rows::norm(problem, share, places)?]),
            Way::PlainGroups(extents) => Ok(vec![group::plain(problem, extents, places)?]),
            Way::Whole(extents, whole) => Ok(vec![whole.launch(problem, extents, places)?]),
            Way::Chunks(extents, chunks) => chunks.launches(problem, extents, places),
            Way::Given(extents, chunks) => Ok(vec![chunks.writing(problem, extents, places)?]),
        }
    }
}

/// A softmax over the last axis.
#[derive(Debug)]
struct Softmax {
    x: TensorType,
    share: Share,
    /// One block a row.
    plain: bool,
}

// SAFETY: the rows are those of the operand, and the result has as many.
unsafe impl Implementation for Softmax {
    fn name(&self) -> String {
        if self.plain { "softmax-plain" } else { "softmax" }.to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        Ok(vec![rows::softmax(self.share, &self.x, places)?])
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, op::Activation};

    use super::*;
    use crate::kernels::testing;

    fn norm(kind: NormKind, affine: Affine) -> Norm {
        Norm {
            kind,
            epsilon: 1e-5,
            affine,
            activation: Some(Activation::Silu),
            quantise: None,
            measured: false,
        }
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
                let op = Op::Norm(norm(kind, Affine::ScaleShift));
                let launches = testing::launches(implementations, &op, &[&x, &vector, &vector]).unwrap();
                let affine = affine::Affine { scale: testing::place(1), shift: testing::place(2) }.into();
                assert!(launches.last().unwrap().arguments.contains(&affine), "{kind:?}");
                let op = Op::Norm(norm(kind, Affine::None));
                testing::launches(implementations, &op, &[&x]).unwrap();
            }
            testing::launches(implementations, &Op::Softmax, &[&x]).unwrap();
            let op = Op::BatchNorm(BatchNorm { epsilon: 1e-3 });
            testing::launches(implementations, &op, &[&x, &vector, &vector, &vector, &vector]).unwrap();
        }
    }

    #[test]
    fn large_groups_are_measured_in_chunks_first() {
        let x = TensorType::new(DType::F16, [28, 72, 128, 320]);
        let norm = norm(NormKind::Group { groups: 32, frames: 14 }, Affine::None);
        let launches = testing::launches(implementations, &Op::Norm(norm), &[&x]).unwrap();
        assert_eq!(launches.len(), 2);
        assert_eq!(launches[1].arguments[0], testing::place(1).into());
    }
}
