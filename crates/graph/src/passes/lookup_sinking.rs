//! Moves work on the looked-up rows of a table to the table itself.
//!
//! For an op `f` that treats all rows alike, `f(table)[ids] = f(table[ids])`. If the table is known earlier than the
//! ids, the left side computes `f` once for all rows and leaves the later phase only a copy of a few rows.

use super::Pass;
use crate::{Editor, GraphError, Node, NodeId, Op, Target, TensorType, ValueId};

/// As many steps as schedulers are trained for. A table with more rows, such as a vocabulary's, has rows that are never
/// looked up.
const MAX_ROWS: usize = 1000;
/// The largest new table, which is kept as long as the ids change. 50 steps of 1280 channels are 250 KiB in f32.
const MAX_TABLE_BYTES: usize = 1 << 20;

/// Moves products and elementwise ops on the result of a lookup to the table, if the table is known in an earlier
/// phase: the projections of the time embedding, which every residual block computes from the step's row, are then
/// computed once per clip for all steps.
///
/// - A product is moved whatever else reads the row: it costs more than another lookup.
/// - An elementwise op is moved if it is the only reader of the row: otherwise a lookup would replace it, at the same
///   cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupSinking;

impl Pass for LookupSinking {
    fn name(&self) -> &'static str {
        "lookup_sinking"
    }

    fn rewrite(&self, editor: &mut Editor, _target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            if let Some(lookup) = lookup_before(editor, id) {
                let Node { name, op, mut inputs, .. } = editor.node(id).clone();
                inputs[0] = lookup.table;
                let moved = editor.add(name, op, &inputs)?;
                editor.replace_node(id, lookup.name, Op::Embedding, &[moved[0], lookup.ids])?;
            }
        }
        Ok(())
    }
}

struct Lookup {
    /// Kept, since an id outside the table is an error under this name.
    name: String,
    table: ValueId,
    ids: ValueId,
}

/// The lookup whose rows the node should not wait for.
fn lookup_before(editor: &Editor, id: NodeId) -> Option<Lookup> {
    let node = editor.node(id);
    let (&x, others) = node.inputs.split_first()?;
    let (_, lookup) = editor.producer(x)?;
    let (Op::Embedding, &[table, ids]) = (&lookup.op, lookup.inputs.as_slice()) else { return None };
    let known = editor.phase(table);
    let pays = match &node.op {
        Op::Linear(linear) => {
            // Operands of an epilogue belong to the rows of the result, not to those of the table.
            linear.prologue.is_none() && linear.epilogue.iter().all(|stage| stage.operands() == 0)
        }
        Op::Activate(_) | Op::Scale(_) | Op::Cast(_) => editor.has_one_reader(x),
        _ => false,
    };
    let earlier = known < editor.phase(ids) && others.iter().all(|&v| editor.phase(v) <= known);
    let result = editor.ty(node.outputs[0]);
    let rows = editor.ty(table).shape[0];
    let moved = TensorType::new(result.dtype, [rows, result.shape.channels()]);
    let small = rows <= MAX_ROWS && moved.checked_bytes().is_some_and(|bytes| bytes <= MAX_TABLE_BYTES);
    let fits = pays && earlier && small && result.dtype.is_float();
    fits.then(|| Lookup { name: lookup.name.clone(), table, ids })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, FuseNothing, Graph, GraphBuilder, Phase, op::Activation, passes::names};

    struct Row {
        g: GraphBuilder,
        row: ValueId,
    }

    /// A row of a table, looked up at every step.
    fn row(rows: usize, table: Phase) -> Row {
        let mut g = GraphBuilder::new("g");
        let table = g.input("table", TensorType::new(DType::F32, [rows, 4]), table).unwrap();
        let ids = g.input("step", TensorType::new(DType::I32, [1]), Phase::Step).unwrap();
        let row = g.embedding("row", table, ids).unwrap();
        Row { g, row }
    }

    impl Row {
        fn linear(&mut self, name: &str, x: ValueId) -> ValueId {
            let weight = self.g.parameter("weight", TensorType::new(DType::F32, [8, 4])).unwrap();
            let bias = self.g.parameter("bias", TensorType::new(DType::F32, [8])).unwrap();
            self.g.linear(name, x, weight, Some(bias)).unwrap()
        }

        /// The nodes after the pass, which asks no backend for anything, and how many of them run at every step.
        fn run(mut self, results: &[ValueId]) -> (Graph, usize) {
            for (i, &result) in results.iter().enumerate() {
                self.g.output(&format!("y{i}"), result).unwrap();
            }
            let before = self.g.finish();
            let after = LookupSinking.run(&before, &FuseNothing).unwrap();
            for (a, b) in before.outputs().iter().zip(after.outputs()) {
                assert_eq!(before.ty(a.value), after.ty(b.value));
            }
            let phases = after.phases();
            let is_step = |node: &&Node| phases[node.outputs[0].index()] == Phase::Step;
            let step = after.nodes().iter().filter(is_step).count();
            (after, step)
        }
    }

    #[test]
    fn a_chain_is_computed_for_the_whole_table() {
        let mut r = row(25, Phase::Clip);
        let x = r.g.activate("silu", r.row, Activation::Silu).unwrap();
        let x = r.linear("linear", x);
        let x = r.g.scale("scale", x, 2.0, 1.0).unwrap();
        let x = r.g.cast("cast", x, DType::F16).unwrap();
        let (after, step) = r.run(&[x]);
        assert_eq!(names(&after), ["silu", "linear", "scale", "cast", "row"]);
        assert_eq!(step, 1);
        let last = after.nodes().last().unwrap();
        assert_eq!(last.op, Op::Embedding);
        assert_eq!(*after.ty(last.inputs[0]), TensorType::new(DType::F16, [25, 8]));
    }

    #[test]
    fn another_reader_keeps_elementwise_ops_but_not_products() {
        let mut r = row(25, Phase::Clip);
        let silu = r.g.activate("silu", r.row, Activation::Silu).unwrap();
        let tanh = r.g.activate("tanh", r.row, Activation::Tanh).unwrap();
        let linear = r.linear("linear", r.row);
        let (after, step) = r.run(&[silu, tanh, linear]);
        assert_eq!(names(&after), ["row", "silu", "tanh", "linear", "row"]);
        assert_eq!(step, 4);
    }

    #[test]
    fn a_row_that_is_a_result_counts_as_read() {
        let mut r = row(25, Phase::Clip);
        let silu = r.g.activate("silu", r.row, Activation::Silu).unwrap();
        let result = r.row;
        let (after, _) = r.run(&[result, silu]);
        assert_eq!(names(&after), ["row", "silu"]);
    }

    #[test]
    fn what_is_not_known_earlier_stays() {
        let mut same_phase = row(25, Phase::Step);
        let y = same_phase.linear("linear", same_phase.row);
        assert_eq!(names(&same_phase.run(&[y]).0), ["row", "linear"]);

        let mut late_weight = row(25, Phase::Clip);
        let weight = TensorType::new(DType::F32, [8, 4]);
        let weight = late_weight.g.input("weight", weight, Phase::Step).unwrap();
        let y = late_weight.g.linear("linear", late_weight.row, weight, None).unwrap();
        assert_eq!(names(&late_weight.run(&[y]).0), ["row", "linear"]);
    }

    #[test]
    fn what_mixes_rows_or_gives_no_floats_stays() {
        let mut sum = row(25, Phase::Clip);
        let other = sum.g.input("other", TensorType::new(DType::F32, [1, 4]), Phase::Clip).unwrap();
        let y = sum.g.add("sum", sum.row, other).unwrap();
        assert_eq!(names(&sum.run(&[y]).0), ["row", "sum"]);

        let mut bytes = row(25, Phase::Clip);
        let y = bytes.g.cast("bytes", bytes.row, DType::U8).unwrap();
        assert_eq!(names(&bytes.run(&[y]).0), ["row", "bytes"]);
    }

    #[test]
    fn a_large_table_stays() {
        for (rows, moves) in [(MAX_ROWS, true), (MAX_ROWS + 1, false)] {
            let mut r = row(rows, Phase::Clip);
            let y = r.linear("linear", r.row);
            assert_eq!(r.run(&[y]).1 == 1, moves, "{rows} rows");
        }
        let mut wide = row(MAX_ROWS, Phase::Clip);
        let weight = wide.g.parameter("wide", TensorType::new(DType::F32, [300, 4])).unwrap();
        let y = wide.g.linear("linear", wide.row, weight, None).unwrap();
        assert_eq!(names(&wide.run(&[y]).0), ["row", "linear"]);
    }
}
