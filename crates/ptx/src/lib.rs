#![doc = include_str!("../README.md")]

mod check;
mod chip;
mod counters;
mod decode;
mod device_runtime;
mod error;
mod flow;
mod isa;
mod machine;
mod memory;
mod numeric;
mod occupancy;
mod performance;
mod rounding_latitude;
mod simulator;
mod syntax;
mod timing;

pub use check::{Finding, FindingKind, SourceLine};
pub use chip::{ChipSpec, Latencies, Limits, MemorySystem, Units};
pub use counters::{Counters, InstructionClass, Traffic};
pub use device_runtime::{DeviceLimits, DeviceOutput};
pub use error::{Place, PtxError};
pub use memory::{MapElement, Swizzle, TensorMap, TensorMapError, TensorMapKind};
pub use occupancy::{BlockResources, Occupancy, OccupancyLimit};
pub use performance::{Calibration, CalibrationError, PredictOptions, Prediction, Resource, ResourceUse};
pub use rounding_latitude::RoundingLatitude;
pub use simulator::{Argument, Checks, DeviceAddress, LaunchConfig, Module, Report, Simulator};
