//! Where the time of a run goes.
//!
//! A [`Profiler`] records nested spans, the layers of a network with the arithmetic and the bytes of each, and the
//! memory that its owners hold. A profiler that is off costs one comparison per span. The recording is a [`Profile`]:
//! plain data, saved as JSON, from which everything else is computed: [totals] by name, [groups] of layers compared
//! with the machine's ceilings, [bottlenecks] ranked by what a perfect kernel would save, [steps] and how they spend
//! their time, [copies] between host and device, [kernel times](kernel_times) from two clocks, a [table] for a
//! terminal, a [trace] for Chrome's and Perfetto's viewers, and a [page](html) for a browser. Two profiles are
//! [compared](compare) as data, as a table and as a page.
//!
//! ```
//! use kinora_profile::Profiler;
//!
//! let profiler = Profiler::on();
//! {
//!     let _clip = profiler.span("clip");
//!     for _ in 0..3 {
//!         let _step = profiler.span("step");
//!     }
//! }
//! let profile = profiler.profile();
//! assert_eq!(profile.spans.len(), 4);
//! println!("{}", kinora_profile::table::text(&profile));
//! ```

pub mod bottlenecks;
mod check;
pub mod compare;
pub mod copies;
mod error;
pub mod groups;
pub mod html;
pub mod kernel_times;
mod model;
pub mod quantity;
mod recorder;
pub mod steps;
pub mod table;
pub mod totals;
pub mod trace;

pub use error::{Fault, Inconsistency, ProfileError};
pub use model::{
    Activity, ActivityKind, Ceilings, Copied, Direction, FORMAT, Lane, LaneKind, Machine, MemorySample,
    Profile, Span, Work,
};
pub use recorder::{DeviceActivity, DeviceSpan, LaneId, OpenSpan, Profiler, WorkId};
