//! How a backend that has several kernels for an op chooses among them.

use std::{fmt, str::FromStr};

/// A name that is none of the values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not one of {expected}")]
pub struct UnknownName {
    /// What was given.
    pub name: String,
    /// The valid names.
    pub expected: String,
}

/// The value with this name.
fn named<T: Copy + fmt::Display>(all: &[T], name: &str) -> Result<T, UnknownName> {
    all.iter().copied().find(|value| value.to_string() == name).ok_or_else(|| UnknownName {
        name: name.to_owned(),
        expected: all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    })
}

/// Which kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelSet {
    /// The fast ones, with everything fused that can be.
    #[default]
    Fused,
    /// The plain ones, one for each op of the unfused graph: what the fast ones are compared with.
    Baseline,
}

impl KernelSet {
    /// Both of them.
    pub const ALL: [KernelSet; 2] = [KernelSet::Fused, KernelSet::Baseline];
}

impl fmt::Display for KernelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            KernelSet::Fused => "fused",
            KernelSet::Baseline => "baseline",
        })
    }
}

impl FromStr for KernelSet {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        named(&Self::ALL, name)
    }
}

/// Which kernels a tuner compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Candidates {
    /// Ours, and those of the vendor's libraries that are installed.
    #[default]
    All,
    /// Ours alone.
    Ours,
    /// The vendor's libraries, if they run the op; ours otherwise.
    Vendor,
}

impl Candidates {
    /// All of them.
    pub const ALL: [Candidates; 3] = [Candidates::All, Candidates::Ours, Candidates::Vendor];
}

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Candidates::All => "all",
            Candidates::Ours => "ours",
            Candidates::Vendor => "vendor",
        })
    }
}

impl FromStr for Candidates {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        named(&Self::ALL, name)
    }
}

/// How to choose among the kernels for an op and its shape. The baseline has one for each op, and no choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// By earlier measurements of all kernels on this device ([`Tuning::Measure`]); by shape if there are none.
    #[default]
    Auto,
    /// By shape alone.
    Off,
    /// By measuring: each candidate is verified and timed before a shape first runs. This takes minutes, and the results
    /// are kept for later runs.
    Measure(Candidates),
}

impl Tuning {
    /// All of them.
    pub const ALL: [Tuning; 5] = [
        Tuning::Auto,
        Tuning::Off,
        Tuning::Measure(Candidates::All),
        Tuning::Measure(Candidates::Ours),
        Tuning::Measure(Candidates::Vendor),
    ];
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tuning::Auto => f.pad("auto"),
            Tuning::Off => f.pad("off"),
            Tuning::Measure(candidates) => candidates.fmt(f),
        }
    }
}

impl FromStr for Tuning {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        named(&Self::ALL, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for kernels in KernelSet::ALL {
            assert_eq!(kernels.to_string().parse(), Ok(kernels));
        }
        for candidates in Candidates::ALL {
            assert_eq!(candidates.to_string().parse(), Ok(candidates));
        }
        for tuning in Tuning::ALL {
            assert_eq!(tuning.to_string().parse(), Ok(tuning));
        }
        let unknown = "best".parse::<Tuning>().unwrap_err().to_string();
        assert_eq!(unknown, "`best` is not one of auto, off, all, ours, vendor");
    }
}
