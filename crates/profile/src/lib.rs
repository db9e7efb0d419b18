//! Where the time of a run goes.
//!
//! A [`Profiler`] records nested spans, the layers of a network with the arithmetic and the bytes of each, and the memory
//! that its owners hold. One that is off costs a comparison a span. What it recorded is a [`Profile`]: plain data, kept as
//! JSON, from which everything else is computed: [totals] by name, [groups] of layers against what the
//! machine could do, [bottlenecks] ranked by what a perfect kernel would save, a [table] for a terminal, a [trace]
//! for Chrome's and Perfetto's viewers, and a [page](html) for a browser. Two profiles are [compared](compare) as data, as a
//! table and as a page.
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
pub mod compare;
pub mod groups;
pub mod html;
mod model;
pub mod quantity;
mod recorder;
pub mod table;
pub mod totals;
pub mod trace;

pub use model::{Ceilings, FORMAT, Lane, LaneKind, Machine, MemorySample, Profile, ProfileError, Span, Work};
pub use recorder::{DeviceSpan, LaneId, OpenSpan, Profiler, WorkId};
