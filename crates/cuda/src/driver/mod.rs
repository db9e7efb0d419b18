//! The GPU itself: devices, contexts, streams, memory, modules, launches.
//!
//! A thin layer over the driver's own interface, which is found at run time. Everything that lives in a context keeps it
//! alive and is freed when it is dropped. A context is made current for each call and given back after it, so that
//! objects may be used from any thread.
//!
//! A fault on the device (a bad address, say) ends its context: it is destroyed at once, every later call is a
//! [`CudaError::ContextLost`](crate::CudaError::ContextLost), and the device can be opened again.

mod context;
mod device;
mod event;
mod graph;
mod launch;
mod library;
mod memory;
mod module;
mod pinned;
mod status;
mod stream;
mod tensor_map;

pub use context::{Activity, Context, MemoryFigures};
pub use device::{Device, DeviceInfo};
pub use event::Event;
pub use graph::ExecutableGraph;
pub use launch::PreparedLaunch;
pub use library::{CudaVersion, MINIMUM_VERSION, driver_version};
pub use memory::DeviceBuffer;
pub use module::{Function, Module};
pub use pinned::PinnedBuffer;
pub(crate) use status::{ends_the_context, is_out_of_memory};
pub use stream::Stream;
