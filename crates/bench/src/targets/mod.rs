//! The figures that were promised, each with its goal and how it is measured.
//!
//! A target is one case, timed in turns with one peer. Whether it passes follows from the two times alone. What could not be
//! measured is never a pass.

mod judgement;
mod table;

use serde::{Deserialize, Serialize};

pub use judgement::{Judgement, Means, Outcome};
pub use table::table;

/// The case of a network with either set of kernels.
pub(crate) const KERNEL_SETS: &str = "kernel sets";
/// The network that is run with them, and whose step is compared with diffusers'.
pub(crate) const UNET: &str = "unet";
/// Our own other contestant there.
pub(crate) const BASELINE: &str = "baseline kernels";

/// A promised figure.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is of.
    pub name: &'static str,
    /// How it is measured.
    pub case: TargetCase,
    /// What was promised.
    pub goal: Goal,
    /// Whom it is over.
    pub over: Over,
}

/// What is measured for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetCase {
    /// A layer of the table `kernels`, by its name.
    Layer(&'static str),
    /// A guided step of a clip's UNet.
    Unet,
    /// The same network with our fused kernels and with the baseline's.
    KernelSets,
}

impl TargetCase {
    /// The case's name.
    pub fn name(self) -> &'static str {
        match self {
            TargetCase::Layer(name) => name,
            TargetCase::Unet => UNET,
            TargetCase::KernelSets => KERNEL_SETS,
        }
    }

    /// The kind of op, or `network`.
    pub fn family(self) -> &'static str {
        match self {
            TargetCase::Layer(name) => name.split('.').next().unwrap_or(name),
            TargetCase::Unet | TargetCase::KernelSets => "network",
        }
    }
}

/// Whom a figure is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// One of PyTorch's ways, by its name.
    Way(&'static str),
    /// The fastest of PyTorch's ways.
    Fastest,
    /// Our own baseline kernels.
    Baseline,
}

/// What was promised. The range is what was hoped for; its lower end is the goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Goal {
    /// So many times the speed.
    Speedup {
        /// At least.
        least: f64,
        /// At most, as it was promised; more is no failure.
        most: Option<f64>,
    },
    /// So much less time, as a share.
    LessTime {
        /// At least.
        least: f64,
        /// At most, as it was promised; more is no failure.
        most: Option<f64>,
    },
}

const TWO_TO_THREE: Goal = Goal::Speedup { least: 2.0, most: Some(3.0) };
const HALF_AS_FAST_AGAIN: Goal = Goal::Speedup { least: 1.5, most: Some(2.0) };

const fn attention(name: &'static str, case: &'static str) -> Target {
    Target { name, case: TargetCase::Layer(case), goal: TWO_TO_THREE, over: Over::Way("unfused") }
}

const fn temporal(name: &'static str, case: &'static str) -> Target {
    Target { name, case: TargetCase::Layer(case), goal: HALF_AS_FAST_AGAIN, over: Over::Fastest }
}

/// All of them. Attention is named by batch × heads × sequence × channels of a head.
pub const TARGETS: [Target; 10] = [
    attention("attention 2×8×64×64", "attention.small_2x8x64"),
    attention("attention 4×12×128×64", "attention.small_4x12x128"),
    attention("attention 2×16×256×64", "attention.small_2x16x256"),
    attention("attention 2×8×77×64", "attention.small_2x8x77"),
    temporal("temporal convolution, 320 channels", "conv.svd_temporal0"),
    temporal("temporal convolution, 640 channels", "conv.svd_temporal1"),
    temporal("temporal convolution, 1280 channels", "conv.svd_temporal2"),
    Target {
        name: "sampler step",
        case: TargetCase::Layer("sampler.svd"),
        goal: Goal::LessTime { least: 0.2, most: Some(0.3) },
        over: Over::Way("eager"),
    },
    Target {
        name: "guided step of a clip",
        case: TargetCase::Unet,
        goal: Goal::LessTime { least: 0.3, most: Some(0.4) },
        over: Over::Way("eager"),
    },
    Target {
        name: "fused kernels",
        case: TargetCase::KernelSets,
        goal: Goal::Speedup { least: 1.0, most: None },
        over: Over::Baseline,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::kernels;

    #[test]
    fn every_layer_is_in_the_table_of_kernels() {
        let table = kernels().unwrap();
        for target in TARGETS {
            if let TargetCase::Layer(name) = target.case {
                let case = table.iter().find(|case| case.name == name);
                let case = case.unwrap_or_else(|| panic!("there is no layer {name}"));
                assert_eq!(case.work.family(), target.case.family());
            }
        }
    }
}
