//! LoRAs whose strengths can be turned while a network runs.
//!
//! The weights become nodes of the clip phase, `W + (scale · up) · down`, where `scale` is made of the strengths, an input. So a
//! change of a strength is merged again on the device when the clip phase runs, and a step costs what it does without LoRAs.
//! Several LoRAs are one product: their matrices lie side by side, along the rank. Sums are in f32, and the weight is rounded
//! once. With a strength of 0 the weight is the model's own, bit for bit.

use std::collections::{BTreeMap, HashMap};

use kinora_graph::{
    DType, Editor, Graph, Op, ParameterError, Parameters, Phase, Tensor, TensorType, ValueId,
    op::{Concat, Linear, Reshape, Slice, Stage},
};

use super::{
    Adapted, Lora, LoraError,
    adapted::{Change, changes, held},
};
use crate::{networks::NetworkError, weights::channels_last};

/// The input of the graph that has the strengths: f32, one for each LoRA.
pub const STRENGTHS: &str = "lora_strengths";
const UP: &str = ".lora_up";
const DOWN: &str = ".lora_down";
/// Ranks are padded with zeros to a multiple of this, so that rows of half-precision numbers begin at multiples of 16 bytes,
/// which tensor cores are fed by.
const RANK_UNIT: usize = 8;

/// The weights of one part of a model, and LoRAs that are added to them in the graph.
#[derive(Debug)]
pub struct Adjustable<'a> {
    weights: Adapted<'a>,
    /// How many LoRAs there are.
    count: usize,
    /// What is added to a weight, by the name that a graph has for it.
    changes: HashMap<String, Vec<Change<'a>>>,
}

/// What makes the scales of a weight's ranks from the strengths: for each change its LoRA, its rank, and the bits of its scale.
type Recipe = Vec<(usize, usize, u32)>;

impl<'a> Adjustable<'a> {
    /// The weights of a part, and LoRAs that are added to them in the graph. One that does not change this part is passed over,
    /// but has its place among the strengths.
    ///
    /// # Errors
    /// As [`Adapted::new`].
    pub fn new(weights: Adapted<'a>, loras: &[&'a Lora]) -> Result<Self, LoraError> {
        let changes = changes(weights.base, weights.part, loras)?;
        Ok(Adjustable { weights, count: loras.len(), changes })
    }

    /// A graph whose weights under `network.` depend on the strengths, its input [`STRENGTHS`]. The graph itself if the LoRAs
    /// change none of its weights.
    ///
    /// # Errors
    /// If the graph has such an input already.
    pub fn attach(&self, graph: &Graph, network: &str) -> Result<Graph, NetworkError> {
        let changed = |name: &str| self.changes.get(name.strip_prefix(network)?.strip_prefix('.')?);
        let weights: Vec<(ValueId, &[Change<'_>])> =
            graph.parameters().filter_map(|(id, value)| Some((id, &**changed(&value.name)?))).collect();
        if weights.is_empty() {
            return Ok(graph.clone());
        }
        let mut editor = Editor::new(graph);
        let strengths = TensorType::new(DType::F32, [self.count]);
        let strengths = editor.input(STRENGTHS, strengths, Phase::Clip)?;
        let mut scales = Scales { strengths, made: BTreeMap::new() };
        for (weight, changes) in weights {
            let scale = scales.of(&mut editor, changes)?;
            let merged = merged(&mut editor, weight, padded_rank(changes), scale)?;
            editor.replace_uses(weight, merged)?;
        }
        Ok(editor.finish()?)
    }

    /// All `up` of a weight side by side, `[outputs, rank]`, or all `down`, `[inputs · taps, rank]`, taps before channels.
    fn matrix(
        &self,
        (name, changes): (&str, &[Change<'_>]),
        up: bool,
        dtype: DType,
    ) -> Result<Tensor, ParameterError> {
        let width = padded_rank(changes);
        let (mut rows, mut values, mut first) = (0, Vec::new(), 0);
        for change in changes {
            let rank = rank(change);
            let (ups, downs) = change.matrices().map_err(ParameterError::new)?;
            let columns = if up { transposed(&ups, rank) } else { by_tap(change, &downs, rank) };
            rows = columns.len() / rank;
            values.resize(rows * width, 0.0);
            for (i, column) in columns.chunks_exact(rows.max(1)).enumerate() {
                for (row, &value) in column.iter().enumerate() {
                    values[row * width + first + i] = value;
                }
            }
            first += rank;
        }
        let matrix = Tensor::from_f32(dtype, [rows, width], &values).map_err(ParameterError::new)?;
        held(matrix, name, changes)
    }
}

impl Parameters for Adjustable<'_> {
    fn parameter(&self, name: &str, ty: &TensorType) -> Result<Option<Tensor>, ParameterError> {
        let factor = |suffix: &str| self.changes.get(name.strip_suffix(suffix)?);
        match (factor(UP), factor(DOWN)) {
            (Some(changes), _) => self.matrix((name, changes), true, ty.dtype).map(Some),
            (_, Some(changes)) => self.matrix((name, changes), false, ty.dtype).map(Some),
            (None, None) => self.weights.parameter(name, ty),
        }
    }
}

/// The scales of ranks, made once for all weights that have the same.
struct Scales {
    strengths: ValueId,
    made: BTreeMap<Recipe, ValueId>,
}

impl Scales {
    /// `[rank]`: the strength of each rank's LoRA times its module's `alpha / rank`, and zeros.
    fn of(&mut self, editor: &mut Editor, changes: &[Change<'_>]) -> Result<ValueId, NetworkError> {
        let recipe: Recipe =
            changes.iter().map(|change| (change.of, rank(change), change.module.scale.to_bits())).collect();
        if let Some(&made) = self.made.get(&recipe) {
            return Ok(made);
        }
        let name = format!("{STRENGTHS}.{}", self.made.len());
        let mut parts = Vec::with_capacity(changes.len() + 1);
        for (i, change) in changes.iter().enumerate() {
            let slice = Op::Slice(Slice { axis: 0, start: change.of, len: 1 });
            let strength = editor.add(format!("{name}.strength.{i}"), slice, &[self.strengths])?[0];
            let scale = Tensor::from_slice([rank(change)], &vec![change.module.scale; rank(change)])?;
            let scale = editor.constant(format!("{name}.alpha.{i}"), scale);
            parts.push(editor.add(format!("{name}.{i}"), Op::Mul, &[scale, strength])?[0]);
        }
        let padding = padded_rank(changes) - changes.iter().map(rank).sum::<usize>();
        if padding > 0 {
            let zeros = Tensor::zeros(TensorType::new(DType::F32, [padding]));
            parts.push(editor.constant(format!("{name}.padding"), zeros));
        }
        let scale = match *parts {
            [only] => only,
            _ => editor.add(name, Op::Concat(Concat { axis: 0 }), &parts)?[0],
        };
        self.made.insert(recipe, scale);
        Ok(scale)
    }
}

/// A weight with what is added to it.
fn merged(
    editor: &mut Editor,
    weight: ValueId,
    rank: usize,
    scale: ValueId,
) -> Result<ValueId, NetworkError> {
    let (name, ty) = (editor.value(weight).name.clone(), editor.ty(weight).clone());
    let outputs = ty.shape.first().copied().unwrap_or(1);
    let matrix = [outputs, ty.shape.iter().skip(1).product()];
    let [up, down] = [(UP, matrix[0]), (DOWN, matrix[1])].map(|(factor, rows)| {
        editor.parameter(format!("{name}{factor}"), TensorType::new(ty.dtype, [rows, rank]))
    });
    // Its own value: what read the weight reads the merged one from now on.
    let base = editor.parameter(name.clone(), ty.clone());
    let base = reshaped(editor, format!("{name}.matrix"), base, &matrix)?;
    let scaled = editor.add(format!("{name}.lora_scaled"), Op::Mul, &[up, scale])?[0];
    let product = Op::Linear(Linear { epilogue: vec![Stage::Add], ..Linear::default() });
    let merged = editor.add(format!("{name}.lora"), product, &[scaled, down, base])?[0];
    reshaped(editor, format!("{name}.merged"), merged, &ty.shape)
}

fn reshaped(
    editor: &mut Editor,
    name: String,
    value: ValueId,
    shape: &[usize],
) -> Result<ValueId, NetworkError> {
    if *editor.ty(value).shape == *shape {
        return Ok(value);
    }
    Ok(editor.add(name, Op::Reshape(Reshape { shape: shape.into() }), &[value])?[0])
}

fn rank(change: &Change<'_>) -> usize {
    change.module.down_shape.first().copied().unwrap_or(1)
}

/// The ranks of all changes together, padded.
fn padded_rank(changes: &[Change<'_>]) -> usize {
    changes.iter().map(rank).sum::<usize>().next_multiple_of(RANK_UNIT)
}

/// The columns of a matrix with rows of this width, one after the other.
fn transposed(values: &[f32], width: usize) -> Vec<f32> {
    (0..width).flat_map(|column| values.iter().skip(column).step_by(width).copied()).collect()
}

/// The rows of `down`, each with its taps before its channels.
fn by_tap(change: &Change<'_>, down: &[f32], rank: usize) -> Vec<f32> {
    let taps: usize = change.module.down_shape.iter().skip(2).product();
    let mut rows = down.to_vec();
    if taps > 1 {
        channels_last(down, down.len() / rank, taps, &mut rows);
    }
    rows
}
