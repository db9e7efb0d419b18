use std::collections::HashMap;

use super::{Pass, linear_parts::LinearParts};
use crate::{
    DType, Editor, GraphError, NodeId, Op, Phase, Target, TensorType, ValueId,
    calibration::{Largest, parameters_of},
    e4m3::E4M3,
    op::{Quantise, Reshape, Stage},
};

/// Multiplies in 8 bits what was measured: `x · wᵀ` becomes `e4m3(x·f) · e4m3(w/s)ᵀ · (s/f)`, with a factor `f` for the activation, and a
/// scale `s` for each filter, which is found when weights are loaded. The largest number of a filter becomes 448. The largest that was
/// measured of an activation becomes at most half of that, by a power of two: another photo may have larger ones, and a float loses
/// nothing by being half as large. A norm whose result is read by such products alone writes e4m3 itself.
///
/// It changes results by what 8 bits leave out, and so only graphs that ask for it, by [`Graph::calibrated`](crate::Graph::calibrated).
/// It runs once, after all other passes, which know nothing of e4m3. Products of few rows stay as they are: those of timesteps, to
/// which everything is sensitive, and which take no time. So do the first and the last convolution, of few channels.
#[derive(Clone, Copy, Debug)]
pub struct Quantisation;

/// The fewest rows, channels and columns of a product that is worth it.
const LEAST_ROWS: usize = 64;
const LEAST_CHANNELS: usize = 32;

impl Pass for Quantisation {
    fn name(&self) -> &'static str {
        "quantisation"
    }

    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError> {
        let Some(largest) = editor.graph().calibration().cloned() else { return Ok(()) };
        // A picture that starts from noise is all known when a clip begins.
        let results = editor.graph().outputs().iter().map(|output| editor.phase(output.value));
        let Some(last) = results.max() else { return Ok(()) };
        let of = |id| Product::of(editor, target, id, (&largest, last));
        let chosen: Vec<Product> = editor.node_ids().filter_map(of).collect();
        let products = chosen.iter().map(|product| (product.node, product.factor)).collect();
        let mut quantised = Quantised { products, values: HashMap::new() };
        for product in chosen {
            product.rewrite(editor, &mut quantised)?;
        }
        Ok(())
    }
}

/// A product to quantise.
struct Product {
    node: NodeId,
    /// As it will be.
    op: Op,
    factor: f32,
    blocks: usize,
}

impl Product {
    /// Of an activation that is known in the phase of the graph's results.
    fn of(
        editor: &Editor,
        target: &dyn Target,
        id: NodeId,
        (largest, last): (&Largest, Phase),
    ) -> Option<Product> {
        let node = editor.node(id);
        let mut parts = LinearParts::of(node)?;
        let [x, weight, result] = [parts.x, parts.weight, *node.outputs.first()?].map(|v| editor.ty(v));
        let columns = result.shape.channels();
        let worth = x.shape.rows() >= LEAST_ROWS
            && x.shape.channels() >= LEAST_CHANNELS
            && columns >= LEAST_CHANNELS
            && parts.scale.is_none()
            && parts.norm().is_none();
        // A weight that is known when a clip begins, such as one with a LoRA whose strength is turned, is quantised then.
        let phases = editor.phase(parts.x) == last && editor.phase(parts.weight) < Phase::Step;
        if !worth || !phases || !x.dtype.is_float() {
            return None;
        }
        let largest = *parameters_of(editor, parts.weight).find_map(|name| largest.get(name))?;
        // The power of two below it.
        let factor = f32::from_bits((0.5 * E4M3::MAX / largest).to_bits() & f32::INFINITY.to_bits());
        if !(factor.is_finite() && factor > 0.0) {
            return None;
        }
        let blocks = match &mut parts.op {
            Op::Conv(op) => {
                op.quantised = Some(x.dtype);
                op.pixels()
            }
            Op::Linear(op) => {
                op.quantised = Some(x.dtype);
                1
            }
            _ => return None,
        };
        // Its operands as they will be.
        let e4m3 = |ty: &TensorType| TensorType::new(DType::F8E4M3, ty.shape.clone());
        let (x, scale) = (e4m3(x), TensorType::new(DType::F32, [weight.shape[0] / blocks]));
        let weight = e4m3(weight);
        let mut operands = vec![&x, &weight, &scale];
        operands.extend(editor.types(&node.inputs[2..]));
        let fits = parts.op.infer(&operands).is_ok_and(|results| results == [result.clone()]);
        (fits && target.fuses(&parts.op, &operands)).then_some(Product {
            node: id,
            op: parts.op,
            factor,
            blocks,
        })
    }

    fn rewrite(mut self, editor: &mut Editor, quantised: &mut Quantised) -> Result<(), GraphError> {
        // Its operands as they are by now: products before it have been replaced.
        let node = editor.node(self.node);
        let Some(mut parts) = LinearParts::of(node) else { return Ok(()) };
        let name = node.name.clone();
        parts.x = quantised.value(editor, parts.x, self.factor)?;
        let filters = Quantise::Filters { blocks: self.blocks, activation: 1.0 / self.factor };
        let filters = editor.add(format!("{name}.weight.e4m3"), Op::Quantise(filters), &[parts.weight])?;
        (parts.weight, parts.scale) = (filters[0], Some(filters[1]));
        let inputs = parts.inputs();
        let result = editor.node(self.node).outputs[0];
        match (&mut self.op, quantised.factor_of_readers(editor, result)) {
            (Op::Linear(op), Some(factor)) if op.gate.is_some() => {
                op.quantised = Some(DType::F8E4M3);
                op.epilogue.push(Stage::Scale(factor));
                let value = editor.add(name, self.op, &inputs)?[0];
                quantised.values.insert((result, factor.to_bits()), value);
            }
            _ => {
                editor.replace_node(self.node, name, self.op, &inputs)?;
            }
        }
        Ok(())
    }
}

/// The values that are in e4m3 so far.
struct Quantised {
    /// The products that will read such values, with their factors.
    products: HashMap<NodeId, f32>,
    /// By the value and the bits of the factor.
    values: HashMap<(ValueId, u32), ValueId>,
}

impl Quantised {
    /// A value times a factor in e4m3.
    fn value(&mut self, editor: &mut Editor, x: ValueId, factor: f32) -> Result<ValueId, GraphError> {
        let key = (x, factor.to_bits());
        if let Some(&known) = self.values.get(&key) {
            return Ok(known);
        }
        let value = match self.source(editor, x) {
            Some(Source::Reshape(rows)) => {
                let rows = self.value(editor, rows, factor)?;
                let shape = editor.ty(x).shape.clone();
                editor.add(
                    format!("{}.view", editor.value(x).name),
                    Op::Reshape(Reshape { shape }),
                    &[rows],
                )?[0]
            }
            Some(Source::Norm(node)) => {
                let node = editor.node(node);
                let (name, inputs) = (node.name.clone(), node.inputs.clone());
                let op = match node.op {
                    Op::Norm(norm) => Op::Norm(crate::op::Norm { quantise: Some(factor), ..norm }),
                    ref op => op.clone(),
                };
                editor.add(name, op, &inputs)?[0]
            }
            None => {
                let name = format!("{}.e4m3", editor.value(x).name);
                editor.add(name, Op::Quantise(Quantise::Tensor { factor }), &[x])?[0]
            }
        };
        self.values.insert(key, value);
        Ok(value)
    }

    /// Where a value can come from in e4m3, if it has no other readers.
    fn source(&self, editor: &Editor, x: ValueId) -> Option<Source> {
        let factor = self.factor_of_readers(editor, x)?;
        let (id, node) = editor.producer(x)?;
        match node.op {
            Op::Norm(norm) if norm.quantise.is_none() => Some(Source::Norm(id)),
            Op::Reshape(_) => {
                let rows = node.inputs[0];
                let known = self.values.contains_key(&(rows, factor.to_bits()));
                (known || self.source(editor, rows).is_some()).then_some(Source::Reshape(rows))
            }
            _ => None,
        }
    }

    /// The factor with which all readers of a value will read it, some through views; `None` if one reads it as it is.
    fn factor_of_readers(&self, editor: &Editor, x: ValueId) -> Option<f32> {
        let factor = |&reader: &NodeId| match self.products.get(&reader) {
            Some(&factor) => (editor.node(reader).inputs[0] == x).then_some(factor),
            None => {
                let node = editor.node(reader);
                let view = matches!(node.op, Op::Reshape(_)).then(|| node.outputs[0])?;
                self.factor_of_readers(editor, view)
            }
        };
        let mut factors = editor.readers(x).iter().map(factor);
        let first = factors.next()??;
        (!editor.is_output(x) && factors.all(|factor| factor == Some(first))).then_some(first)
    }
}

/// What gives a value in e4m3.
enum Source {
    Norm(NodeId),
    Reshape(ValueId),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        FuseAll, FuseNothing, Graph, GraphBuilder,
        op::{Activation, Conv, Linear, Norm, NormKind},
        passes::{names, optimise},
    };

    fn ty(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F16, shape)
    }

    /// A layer norm and two products of it, one of them behind a view; what they give is added up.
    fn graph(rows: usize, inspect: impl FnOnce(&mut GraphBuilder, ValueId)) -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(&[2, rows / 2, 32]), Phase::Step).unwrap();
        let [a, b] = ["a.weight", "b.weight"].map(|name| g.parameter(name, ty(&[48, 32])).unwrap());
        let bias = g.parameter("a.bias", ty(&[48])).unwrap();
        let h = g.norm("norm", x, NormKind::Layer, 1e-5, None, None).unwrap();
        inspect(&mut g, h);
        let a = g.linear("a", h, a, Some(bias)).unwrap();
        let a = g.reshape("a.rows", a, [rows, 48]).unwrap();
        let view = g.reshape("view", h, [rows, 32]).unwrap();
        let b = g.linear("b", view, b, None).unwrap();
        let y = g.add("sum", b, a).unwrap();
        g.output("y", y).unwrap();
        g.finish()
    }

    fn calibrated(graph: Graph, sizes: &[(&str, f32)]) -> Graph {
        graph.calibrated(Arc::new(sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect()))
    }

    const SIZES: [(&str, f32); 2] = [("a.weight", 3.5), ("b.weight", 3.5)];

    fn quantised(graph: &Graph) -> Vec<&str> {
        let is = |op: &Op| match op {
            Op::Linear(op) => op.quantised.is_some(),
            Op::Conv(op) => op.quantised.is_some(),
            _ => false,
        };
        graph.nodes().iter().filter(|node| is(&node.op)).map(|node| node.name.as_str()).collect()
    }

    #[test]
    fn a_norm_that_such_products_alone_read_writes_e4m3() {
        let before = calibrated(graph(64, |_, _| ()), &SIZES);
        let after = Quantisation.run(&before, &FuseAll).unwrap();
        assert_eq!(quantised(&after), ["a", "b"]);
        let norms: Vec<&Norm> = after
            .nodes()
            .iter()
            .filter_map(|n| if let Op::Norm(norm) = &n.op { Some(norm) } else { None })
            .collect();
        assert_eq!(norms.iter().map(|norm| norm.quantise).collect::<Vec<_>>(), [Some(64.0)]);
        let a = after.nodes().iter().find(|node| node.name == "a").unwrap();
        let names: Vec<&str> = a.inputs.iter().map(|&v| after.value(v).name.as_str()).collect();
        assert_eq!(names[3], "a.bias");
        assert_eq!(after.ty(a.inputs[0]), &TensorType::new(DType::F8E4M3, [2, 32, 32]));
        assert_eq!(after.ty(a.inputs[1]), &TensorType::new(DType::F8E4M3, [48, 32]));
        assert_eq!(after.ty(a.inputs[2]), &TensorType::new(DType::F32, [48]));
        assert_eq!(after.ty(a.outputs[0]), &ty(&[2, 32, 48]));
        let filters = Quantise::Filters { blocks: 1, activation: 1.0 / 64.0 };
        assert!(after.nodes().iter().any(|node| node.op == Op::Quantise(filters)));
    }

    #[test]
    fn another_reader_of_the_norm_has_it_in_f16() {
        let before = calibrated(
            graph(64, |g, h| {
                g.output("h", h).unwrap();
            }),
            &SIZES,
        );
        let after = Quantisation.run(&before, &FuseAll).unwrap();
        assert_eq!(quantised(&after), ["a", "b"]);
        let tensors =
            after.nodes().iter().filter(|n| n.op == Op::Quantise(Quantise::Tensor { factor: 64.0 }));
        // The view is of what the other product reads.
        assert_eq!(tensors.count(), 1);
        assert!(after.nodes().iter().all(|n| !matches!(n.op, Op::Norm(Norm { quantise: Some(_), .. }))));
    }

    #[test]
    fn it_comes_after_fusion() {
        let before = calibrated(graph(64, |_, _| ()), &SIZES);
        let after = optimise(&before, &FuseAll).unwrap();
        // Norms stay out of the products for it.
        assert_eq!(quantised(&after), ["a", "b"], "{:?}", names(&after));
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(&[1, 8, 8, 32]), Phase::Step).unwrap();
        let weight = g.parameter("conv.weight", ty(&[32, 1, 3, 3, 32])).unwrap();
        let y = g.conv("conv", x, weight, None, Conv::spatial([3, 3], 1, 1)).unwrap();
        let y = g.add("residual", y, x).unwrap();
        g.output("y", y).unwrap();
        let after = optimise(&calibrated(g.finish(), &[("conv.weight", 2.0)]), &FuseAll).unwrap();
        let conv = after.nodes().iter().find(|node| node.name == "conv").unwrap();
        let expected =
            Conv { quantised: Some(DType::F16), epilogue: vec![Stage::Add], ..Conv::spatial([3, 3], 1, 1) };
        assert_eq!(conv.op, Op::Conv(expected));
    }

    #[test]
    fn a_gated_product_writes_e4m3_for_the_next_one() {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(&[2, 64, 32]), Phase::Step).unwrap();
        let [inner, outer] = [("in.weight", [128, 32]), ("out.weight", [32, 64])]
            .map(|(name, shape)| g.parameter(name, ty(&shape)).unwrap());
        let gated = Linear { gate: Some(Activation::Gelu), ..Linear::default() };
        let h = g.node("in", Op::Linear(gated.clone()), &[x, inner]).unwrap()[0];
        let h = g.reshape("rows", h, [128, 64]).unwrap();
        let y = g.linear("out", h, outer, None).unwrap();
        g.output("y", y).unwrap();
        // Powers of two below 224 / 7 and 224 / 60.
        let graph = calibrated(g.finish(), &[("in.weight", 7.0), ("out.weight", 60.0)]);
        let after = Quantisation.run(&graph, &FuseAll).unwrap();
        assert_eq!(quantised(&after), ["in", "out"]);
        let node = after.nodes().iter().find(|node| node.name == "in").unwrap();
        let expected = Linear { quantised: Some(DType::F8E4M3), epilogue: vec![Stage::Scale(2.0)], ..gated };
        assert_eq!(node.op, Op::Linear(expected));
        assert_eq!(after.ty(node.inputs[0]).dtype, DType::F8E4M3);
        let tensors = after.nodes().iter().filter(|n| matches!(n.op, Op::Quantise(Quantise::Tensor { .. })));
        assert_eq!(
            tensors.map(|n| n.op.clone()).collect::<Vec<_>>(),
            [Op::Quantise(Quantise::Tensor { factor: 32.0 })]
        );
    }

    /// As with a LoRA whose strength is turned: `w + (s · up) · down`, known by the name of `w`.
    #[test]
    fn a_weight_that_a_clip_changes_is_quantised_when_it_begins() {
        for phase in [Phase::Step, Phase::Clip] {
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", ty(&[64, 32]), phase).unwrap();
            let strength = g.input("s", ty(&[8]), Phase::Clip).unwrap();
            let [up, down] = ["w.up", "w.down"].map(|name| g.parameter(name, ty(&[32, 8])).unwrap());
            let base = g.parameter("w", ty(&[32, 32])).unwrap();
            let up = g.mul("scaled", up, strength).unwrap();
            let merge = Linear { epilogue: vec![Stage::Add], ..Linear::default() };
            let weight = g.node("merged", Op::Linear(merge), &[up, down, base]).unwrap()[0];
            let y = g.linear("y", x, weight, None).unwrap();
            g.output("y", y).unwrap();
            let graph = calibrated(g.finish(), &[("w", 3.5)]);
            let after = Quantisation.run(&graph, &FuseAll).unwrap();
            assert_eq!(quantised(&after), ["y"]);
            let filters = after.nodes().iter().position(|n| n.name == "y.weight.e4m3").unwrap();
            let of = after.nodes()[filters].outputs[0];
            assert_eq!(after.phases()[of.index()], Phase::Clip);
        }
    }

    /// What is known before the results are is small, and was not measured under this weight's name.
    #[test]
    fn a_product_of_an_earlier_phase_stays() {
        let mut g = GraphBuilder::new("g");
        let known = g.input("known", ty(&[64, 32]), Phase::Clip).unwrap();
        let x = g.input("x", ty(&[64, 32]), Phase::Step).unwrap();
        let weight = g.parameter("w", ty(&[32, 32])).unwrap();
        let early = g.linear("early", known, weight, None).unwrap();
        let late = g.linear("late", x, weight, None).unwrap();
        let y = g.add("sum", early, late).unwrap();
        g.output("y", y).unwrap();
        let after = Quantisation.run(&calibrated(g.finish(), &[("w", 3.5)]), &FuseAll).unwrap();
        assert_eq!(quantised(&after), ["late"]);
    }

    #[test]
    fn what_was_not_asked_for_stays() {
        let unchanged = |before: &Graph, target: &dyn Target| {
            let after = Quantisation.run(before, target).unwrap();
            assert_eq!(names(&after), names(before));
            assert_eq!(quantised(&after), [] as [&str; 0]);
        };
        unchanged(&graph(64, |_, _| ()), &FuseAll);
        for (rows, sizes, target) in [
            (64, &SIZES[..0], &FuseAll as &dyn Target),
            (64, &[("a.weight", 0.0), ("b.weight", f32::INFINITY)], &FuseAll),
            // Few rows, and a backend that cannot.
            (62, &SIZES, &FuseAll),
            (64, &SIZES, &FuseNothing),
        ] {
            let before = calibrated(graph(rows, |_, _| ()), sizes);
            unchanged(&before, target);
        }
        // One of two.
        let before = calibrated(graph(64, |_, _| ()), &SIZES[..1]);
        assert_eq!(quantised(&Quantisation.run(&before, &FuseAll).unwrap()), ["a"]);
    }
}
