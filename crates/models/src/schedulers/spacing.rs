//! Which of the trained timesteps a run visits, and the noise levels between them.

use super::{config::Fields, error::SchedulerError};

/// How timesteps are chosen (Lin et al. 2023, table 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spacing {
    Linspace,
    Leading,
    Trailing,
}

impl Spacing {
    pub(super) fn read(fields: &Fields<'_>, default: &str) -> Result<Self, SchedulerError> {
        fields.choice(
            "timestep_spacing",
            default,
            &[
                ("linspace", Spacing::Linspace),
                ("leading", Spacing::Leading),
                ("trailing", Spacing::Trailing),
            ],
        )
    }
}

/// `numpy.linspace`.
pub(super) fn linspace(start: f64, end: f64, count: usize) -> Vec<f64> {
    let step = (end - start) / (count.max(2) - 1) as f64;
    let at = |i: usize| if i > 0 && i == count - 1 { end } else { i as f64 * step + start };
    (0..count).map(at).collect()
}

/// `count` multiples of `ratio`, largest first.
pub(super) fn leading(ratio: usize, count: usize) -> impl Iterator<Item = i64> {
    (0..count).rev().map(move |i| (i * ratio) as i64)
}

/// `count` whole timesteps down from `last`, `ratio` apart. The difference is formed as `numpy.arange` forms it, since it
/// decides how halves are rounded. (That function gives one value too many for some counts; we do not.)
pub(super) fn trailing(last: f64, ratio: f64, count: usize) -> impl Iterator<Item = i64> {
    let difference = (last - ratio) - last;
    (0..count).map(move |i| (last + i as f64 * difference).round_ties_even() as i64 - 1)
}

/// `numpy.interp` over the indices of `levels`.
pub(super) fn interpolate(levels: &[f32], at: f64) -> f64 {
    let last = levels.len().saturating_sub(1);
    let low = (at.max(0.0) as usize).min(last);
    let high = (low + 1).min(last);
    let (low_level, high_level) = (f64::from(levels[low]), f64::from(levels[high]));
    (high_level - low_level) * (at.max(0.0) - low as f64) + low_level
}

/// The spacing of sigmas, if it is not that of the timesteps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SigmaCurve {
    /// The sigmas of the timesteps.
    Timesteps,
    /// Karras et al. 2022, ρ = 7.
    Karras,
    /// Even in ln σ.
    Exponential,
}

impl SigmaCurve {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, SchedulerError> {
        const KNOWN: &str = "use Karras, exponential or plain sigmas";
        fields.refuse_flag("use_beta_sigmas", KNOWN)?;
        let karras = fields.flag("use_karras_sigmas", false)?;
        let exponential = fields.flag("use_exponential_sigmas", false)?;
        match (karras, exponential) {
            (false, false) => Ok(SigmaCurve::Timesteps),
            (true, false) => Ok(SigmaCurve::Karras),
            (false, true) => Ok(SigmaCurve::Exponential),
            (true, true) => {
                let expected = "false if `use_karras_sigmas` is true";
                Err(fields.bad("use_exponential_sigmas", true.into(), expected))
            }
        }
    }

    /// Refuses timesteps that are given if sigmas decide.
    pub(super) fn refuse_timesteps(self, class: &'static str) -> Result<(), SchedulerError> {
        match self {
            SigmaCurve::Timesteps => Ok(()),
            SigmaCurve::Karras | SigmaCurve::Exponential => {
                let reason = "`use_karras_sigmas` and `use_exponential_sigmas` take them from the sigmas";
                Err(SchedulerError::Explicit { class, reason })
            }
        }
    }

    /// Sigmas from `max` to `min`; nothing if the timesteps decide.
    pub(super) fn sigmas(self, max: f64, min: f64, count: usize) -> Option<Vec<f64>> {
        const RHO: f64 = 7.0;
        match self {
            SigmaCurve::Timesteps => None,
            SigmaCurve::Karras => {
                let (max, min) = (max.powf(1.0 / RHO), min.powf(1.0 / RHO));
                let ramp = linspace(0.0, 1.0, count);
                Some(ramp.into_iter().map(|at| (max + at * (min - max)).powf(RHO)).collect())
            }
            SigmaCurve::Exponential => {
                Some(linspace(max.ln(), min.ln(), count).into_iter().map(f64::exp).collect())
            }
        }
    }
}

/// The range of sigmas, if the configuration gives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SigmaRange {
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
}

impl SigmaRange {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, SchedulerError> {
        let range = SigmaRange {
            min: fields.optional_positive("sigma_min")?,
            max: fields.optional_positive("sigma_max")?,
        };
        match (range.min, range.max) {
            (Some(min), Some(max)) if min >= max => {
                Err(fields.bad("sigma_min", min.into(), &format!("below `sigma_max`, {max}")))
            }
            _ => Ok(range),
        }
    }
}

/// The (fractional) timesteps of sigmas, even in ln σ between the trained ones.
pub(super) fn timesteps_of(sigmas: &[f64], trained: &[f32]) -> Vec<f64> {
    let logs: Vec<f32> = trained.iter().map(|sigma| sigma.ln()).collect();
    let timestep = |&sigma: &f64| {
        let log = sigma.max(1e-10).ln();
        let below = logs.iter().rposition(|&trained| log >= f64::from(trained)).unwrap_or(0);
        let low = below.min(logs.len().saturating_sub(2));
        let weight = (f64::from(logs[low]) - log) / f64::from(logs[low] - logs[low + 1]);
        let weight = weight.clamp(0.0, 1.0);
        (1.0 - weight) * low as f64 + weight * (low + 1) as f64
    };
    sigmas.iter().map(timestep).collect()
}

/// Where the last step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalSigma {
    Zero,
    /// The smallest trained sigma.
    Smallest,
}

impl FinalSigma {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, SchedulerError> {
        let choices = [("zero", FinalSigma::Zero), ("sigma_min", FinalSigma::Smallest)];
        fields.choice("final_sigmas_type", "zero", &choices)
    }

    pub(super) fn sigma(self, trained: &[f32]) -> f64 {
        match self {
            FinalSigma::Zero => 0.0,
            FinalSigma::Smallest => trained.first().copied().map_or(0.0, f64::from),
        }
    }
}
