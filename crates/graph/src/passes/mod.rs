//! Passes: rewriting a graph into a cheaper one with the same results.
//!
//! A pass is a pure function from graph to graph, written as edits of a copy. It needs no weights: a changed weight is written as nodes on the old
//! one, which lie in [`Phase::Load`] and run once. Results differ from the original's by float rounding alone.
//!
//! # The order
//!
//! 1. [`DeadCode`] first: the others count readers, and what nothing needs must not count.
//! 2. [`Identities`], [`ConstantFolding`], [`CommonSubexpressions`] bring what is equal to one form, so that "the same
//!    input" and "no op between" mean what they say.
//! 3. The exact algebra, on ops that have nothing fused into them yet: [`SingleKeyAttention`] before [`QkvMerge`], or
//!    the keys it makes useless would be packed together with the values it keeps; [`BatchNormFolding`] and
//!    [`BlendFolding`] while the op before them still ends in its bias; [`QkvMerge`] so that the norm before a
//!    projection has one reader; [`LookupSinking`] after it, since merged projections move as one, and before fusion gives
//!    a product operands that belong to the looked-up rows. [`UpsampleFolding`] after [`BatchNormFolding`], which wants a filter for
//!    each channel.
//! 4. Fusion, if the backend agrees: [`GateFusion`] before [`EpilogueFusion`], because a gate acts before the
//!    epilogue; [`NormActivation`] before [`NormPrologue`], because a prologue takes the activation along. [`SamplerBlend`]
//!    touches ops that no other one does.
//!
//! One pass may give another something to do, so that [`optimise`] repeats the list until nothing changes. [`Quantisation`] comes
//! after that, for graphs that ask for it: no other pass knows products of e4m3. [`NormStatistics`] is the last: no other pass knows
//! products with two results.

mod batch_norm_folding;
mod blend_folding;
mod common_subexpressions;
mod constant_folding;
mod dead_code;
mod epilogue_fusion;
mod gate_fusion;
mod identities;
mod linear_parts;
mod lookup_sinking;
mod norm_activation;
mod norm_prologue;
mod norm_statistics;
mod qkv_merge;
mod quantisation;
mod sampler_blend;
mod single_key_attention;
#[cfg(test)]
mod svd_blocks;
mod upsample_folding;

pub use batch_norm_folding::BatchNormFolding;
pub use blend_folding::BlendFolding;
pub use common_subexpressions::CommonSubexpressions;
pub use constant_folding::{ConstantFolding, Evaluate};
pub use dead_code::DeadCode;
pub use epilogue_fusion::EpilogueFusion;
pub use gate_fusion::GateFusion;
pub use identities::Identities;
pub use lookup_sinking::LookupSinking;
pub use norm_activation::NormActivation;
pub use norm_prologue::NormPrologue;
pub use norm_statistics::NormStatistics;
pub use qkv_merge::QkvMerge;
pub use quantisation::Quantisation;
pub use sampler_blend::SamplerBlend;
pub use single_key_attention::SingleKeyAttention;
pub use upsample_folding::UpsampleFolding;

use crate::{Editor, Graph, GraphError, Node, Op, Phase, Target};

/// A rewriting of graphs that leaves their results as they are.
pub trait Pass {
    /// The name, for reports.
    fn name(&self) -> &'static str;

    /// Rewrites a graph that is being edited. Its inputs, and the names and types of its results, stay as they are.
    ///
    /// # Errors
    /// If an op refuses what the pass made of it: a bug in the pass, not in the graph.
    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError>;

    /// The rewritten graph.
    ///
    /// # Errors
    /// As [`Pass::rewrite`].
    fn run(&self, graph: &Graph, target: &dyn Target) -> Result<Graph, GraphError> {
        let mut editor = Editor::new(graph);
        self.rewrite(&mut editor, target)?;
        editor.finish()
    }
}

/// What one run of a pass did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassEffect {
    /// The pass.
    pub pass: &'static str,
    /// The round it ran in, from 1.
    pub round: usize,
    /// Nodes that run after loading, before the pass. Reshapes, which cost nothing, are not counted.
    pub nodes_before: usize,
    /// The same after the pass.
    pub nodes_after: usize,
}

/// A graph that still changes after this many rounds is taken as it is. SVD's blocks change in two; the bound is there so
/// that no graph can hang a start.
const MAX_ROUNDS: usize = 8;

/// The standard passes, in the order the [module](self) explains. Without an evaluator, constants are only reshaped and
/// cast.
pub fn all<'a>(evaluator: Option<&'a dyn Evaluate>) -> Vec<Box<dyn Pass + 'a>> {
    vec![
        Box::new(DeadCode),
        Box::new(Identities),
        Box::new(ConstantFolding { evaluator }),
        Box::new(CommonSubexpressions),
        Box::new(SingleKeyAttention),
        Box::new(BatchNormFolding),
        Box::new(BlendFolding),
        Box::new(QkvMerge),
        Box::new(LookupSinking),
        Box::new(UpsampleFolding),
        Box::new(GateFusion),
        Box::new(NormActivation),
        Box::new(EpilogueFusion),
        Box::new(NormPrologue),
        Box::new(SamplerBlend),
    ]
}

/// Runs all passes until nothing changes.
///
/// # Errors
/// If a pass fails; see [`Pass::run`].
pub fn optimise(graph: &Graph, target: &dyn Target) -> Result<Graph, GraphError> {
    Ok(optimise_traced(graph, target, None)?.0)
}

/// [`optimise`], with a way to evaluate constants, and an account of every pass that changed something.
///
/// # Errors
/// If a pass fails; see [`Pass::run`].
pub fn optimise_traced(
    graph: &Graph,
    target: &dyn Target,
    evaluator: Option<&dyn Evaluate>,
) -> Result<(Graph, Vec<PassEffect>), GraphError> {
    let passes = all(evaluator);
    // One for all passes: to copy a network for each would take longer than what they do.
    let mut editor = Editor::new(graph);
    let mut nodes = running_nodes(&editor);
    let mut effects = Vec::new();
    for round in 1..=MAX_ROUNDS {
        let mut changed = false;
        for pass in &passes {
            pass.rewrite(&mut editor, target)?;
            if editor.settle()? {
                changed = true;
                let nodes_after = running_nodes(&editor);
                let nodes_before = std::mem::replace(&mut nodes, nodes_after);
                effects.push(PassEffect { pass: pass.name(), round, nodes_before, nodes_after });
            }
        }
        if !changed {
            break;
        }
    }
    let last: [&dyn Pass; 2] = [&Quantisation, &NormStatistics];
    let round = effects.last().map_or(1, |last: &PassEffect| last.round + 1);
    for pass in last {
        pass.rewrite(&mut editor, target)?;
        if editor.settle()? {
            let nodes_after = running_nodes(&editor);
            let nodes_before = std::mem::replace(&mut nodes, nodes_after);
            effects.push(PassEffect { pass: pass.name(), round, nodes_before, nodes_after });
        }
    }
    Ok((editor.finish()?, effects))
}

/// A pass that needs a vector of ones or zeros makes it by a layer's declared channels, before anything is compared with
/// a budget. Beyond this size it leaves the layer as it is: 262 144 floats, which no model's channels come near.
const MAX_VECTOR_BYTES: usize = 1 << 20;

/// The names of the nodes, for tests.
#[cfg(test)]
fn names(graph: &Graph) -> Vec<&str> {
    graph.nodes().iter().map(|n| n.name.as_str()).collect()
}

/// Nodes that cost something after loading.
fn running_nodes(editor: &Editor) -> usize {
    let runs = |node: &&Node| {
        !matches!(node.op, Op::Reshape(_)) && node.outputs.iter().any(|&v| editor.phase(v) > Phase::Load)
    };
    editor.graph().nodes().iter().filter(runs).count()
}
