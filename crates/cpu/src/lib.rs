//! Kinora on a plain CPU: two implementations of every op, and programs that run a planned graph.
//!
//! [`reference`](mod@reference) is plain loops in f64, the truth that everything else is compared with. The fast
//! implementation uses every core and the widest vectors the CPU has; a [`Program`] runs a graph with it, in memory
//! planned before anything is allocated.
//!
//! ```
//! use kinora_cpu::{Options, Program};
//! use kinora_graph::{DType, GraphBuilder, Phase, Tensor, TensorType, op::Activation};
//! use kinora_runtime::Tensors;
//!
//! let mut g = GraphBuilder::new("example");
//! let x = g.input("x", TensorType::new(DType::F32, [2, 3]), Phase::Step)?;
//! let weight = g.parameter("weight", TensorType::new(DType::F32, [1, 3]))?;
//! let y = g.linear("linear", x, weight, None)?;
//! let y = g.activate("relu", y, Activation::Relu)?;
//! g.output("y", y)?;
//!
//! let weights = Tensors::from([("weight".to_owned(), Tensor::from_slice([1, 3], &[1.0f32, 2.0, 3.0])?)]);
//! let mut program = Program::new(&g.finish(), &weights, Options::default())?;
//! let x = Tensor::from_slice([2, 3], &[1.0f32, 1.0, 1.0, -1.0, -1.0, -1.0])?;
//! let results = program.run(&Tensors::from([("x".to_owned(), x)]))?;
//! assert_eq!(results["y"].to_f32(), [6.0, 0.0]);
//! // The passes made one node of the two.
//! assert_eq!(program.graph().nodes().len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backend;
pub mod ceilings;
mod fast;
mod gemm;
mod profile;
mod program;
pub mod reference;
pub mod simd;
mod target;
mod tasks;
#[cfg(test)]
mod testing;
pub mod threads;
mod view;

pub use backend::{CpuBackend, CpuOps};
pub use fast::run_on_tensors;
pub use program::{Options, Planned, Program};
pub use target::CpuTarget;
