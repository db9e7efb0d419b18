//! Runs NVIDIA PTX on the CPU: executes it, checks it, counts what it does.
//!
//! Most machines have no GPU. A [`Simulator`] takes the PTX that NVIDIA's compilers make, matrix instructions, bulk copies
//! and clusters included, and runs it on ordinary processors. What it computes is what the chip computes, up to the last
//! places of approximate functions and of the order in which matrix units add. While it runs, it looks for what a chip
//! would not tell: accesses outside of allocations, reads of memory that nobody wrote, races, barriers that not all
//! threads reach, waits that are missing. Each [`Finding`] names the line of the source.
//!
//! ```
//! use kinora_ptx::{Argument, LaunchConfig, Module, Profile, Simulator};
//!
//! let ptx = "
//! .version 9.0
//! .target sm_80
//! .address_size 64
//! .visible .entry twice(.param .u64 x) {
//!     .reg .b32 %r<3>;
//!     .reg .b64 %rd<4>;
//!     ld.param.u64 %rd1, [x];
//!     mov.u32 %r1, %tid.x;
//!     mul.wide.u32 %rd2, %r1, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     ld.global.u32 %r2, [%rd3];
//!     shl.b32 %r2, %r2, 1;
//!     st.global.u32 [%rd3], %r2;
//!     ret;
//! }";
//! let mut simulator = Simulator::new(Profile::a100());
//! let module = Module::load(&mut simulator, ptx)?;
//! let x = simulator.upload(&7u32.to_le_bytes().repeat(32))?;
//! let report = simulator.launch(&module, "twice", &LaunchConfig::new(1, 32, vec![Argument::U64(x)]))?;
//! assert!(report.findings.is_empty());
//! let mut result = [0; 4];
//! simulator.copy_out(x, &mut result)?;
//! assert_eq!(u32::from_le_bytes(result), 14);
//! # Ok::<(), kinora_ptx::PtxError>(())
//! ```

mod check;
mod counters;
mod decode;
mod error;
mod flow;
mod freedom;
mod isa;
mod machine;
mod memory;
mod numeric;
mod occupancy;
mod performance;
mod profile;
mod simulator;
mod syntax;
mod timing;

pub use check::{Finding, FindingKind, SourceLine};
pub use counters::{Counters, InstructionClass, Traffic};
pub use error::{Place, PtxError};
pub use freedom::Freedom;
pub use memory::{MapElement, Swizzle, TensorMap, TensorMapKind};
pub use occupancy::{BlockResources, Occupancy, OccupancyLimit};
pub use performance::{Calibration, CalibrationError, PredictOptions, Prediction, Resource, ResourceUse};
pub use profile::{Latencies, Limits, MemorySystem, Profile, Units};
pub use simulator::{Argument, Checks, DeviceAddress, LaunchConfig, Module, Report, Simulator};
