#![doc = include_str!("../README.md")]

mod check;
mod chip;
mod counters;
mod decode;
mod demangle;
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

pub use check::{EarlierAccess, Finding, FindingKind, Severity, SourceLine, excerpt};
pub use chip::{ChipSpec, Latencies, Limits, MemorySystem, Units};
pub use counters::{ByLine, Counters, Flops, InstructionClass, LineCounters, Traffic};
pub use device_runtime::{DeviceLimits, DeviceOutput};
pub use error::{Place, PtxError};
pub use memory::{
    AddressMode, ArrayDescription, ArrayKind, ChannelKind, DeviceArray, FilterMode, MapElement, ReadMode,
    Swizzle, TensorMap, TensorMapError, TensorMapKind, TexelFormat, TextureDescription, TextureError,
    TextureSource,
};
pub use occupancy::{BlockResources, Occupancy, OccupancyLimit};
pub use performance::{
    Assumption, Calibration, CalibrationError, LinePrediction, Mended, PredictOptions, Prediction, Resource,
    ResourceUse,
};
pub use rounding_latitude::RoundingLatitude;
pub use simulator::{Argument, Checks, DeviceAddress, LaunchConfig, Module, Progress, Report, Simulator};
pub use timing::{StallReason, Stalls};
