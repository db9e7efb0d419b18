//! The noise levels that a model was trained on.
//!
//! PyTorch computes them in f32, and 1 − ᾱ at the first timesteps keeps few of its digits; so these are the same f32
//! operations in the same order, and every level is equal to the bit.

use super::{config::Fields, error::SchedulerError};

/// A limit against nonsense: published models have 1000.
const MOST_TIMESTEPS: usize = 100_000;
/// What ᾱ becomes if sigmas are needed and it would be zero: the smallest f16.
const SMALLEST_ALPHA: f32 = 1.0 / (1 << 24) as f32;

/// The cumulative signal ᾱ by timestep.
#[derive(Clone, Debug)]
pub(super) struct Training {
    /// ᾱ, falling.
    pub(super) alphas: Vec<f32>,
    /// The betas are by the capped squared cosine.
    pub(super) cosine: bool,
}

#[derive(Clone, Copy)]
enum BetaSchedule {
    Linear,
    ScaledLinear,
    SquaredCosine,
}

/// The default range and curve of a class's betas.
#[derive(Clone, Copy)]
pub(super) struct BetaDefaults {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) schedule: &'static str,
}

/// What most classes have.
pub(super) const LINEAR_BETAS: BetaDefaults = BetaDefaults { start: 1e-4, end: 0.02, schedule: "linear" };
/// What LCM has.
pub(super) const LATENT_BETAS: BetaDefaults =
    BetaDefaults { start: 0.000_85, end: 0.012, schedule: "scaled_linear" };

impl Training {
    /// The levels by the configuration.
    pub(super) fn read(fields: &Fields<'_>, defaults: BetaDefaults) -> Result<Self, SchedulerError> {
        const COUNT: &str = "num_train_timesteps";
        let count = fields.integer(COUNT, 1000)?;
        let count = usize::try_from(count)
            .ok()
            .filter(|count| (2..=MOST_TIMESTEPS).contains(count))
            .ok_or_else(|| fields.bad(COUNT, count.into(), &format!("from 2 to {MOST_TIMESTEPS}")))?;
        let start = fields.number("beta_start", defaults.start)?;
        let end = fields.number("beta_end", defaults.end)?;
        let schedule = fields.choice(
            "beta_schedule",
            defaults.schedule,
            &[
                ("linear", BetaSchedule::Linear),
                ("scaled_linear", BetaSchedule::ScaledLinear),
                ("squaredcos_cap_v2", BetaSchedule::SquaredCosine),
            ],
        )?;
        let trained: Option<Vec<f64>> = fields.get("trained_betas", None, "a list of numbers, or null")?;
        if trained.is_none() && !matches!(schedule, BetaSchedule::SquaredCosine) {
            // All betas lie between these two.
            for (field, beta) in [("beta_start", start), ("beta_end", end)] {
                if !is_beta(beta as f32) {
                    return Err(fields.bad(field, beta.into(), "between 0 and 1"));
                }
            }
        }
        let betas: Vec<f32> = match (trained, schedule) {
            (Some(betas), _) => trained_betas(fields, &betas, count)?,
            (None, BetaSchedule::Linear) => linspace(start, end, count),
            (None, BetaSchedule::ScaledLinear) => {
                let roots = linspace(start.sqrt(), end.sqrt(), count);
                roots.into_iter().map(|root| root * root).collect()
            }
            (None, BetaSchedule::SquaredCosine) => squared_cosine(count),
        };
        let betas = if fields.flag("rescale_betas_zero_snr", false)? { zero_terminal(&betas) } else { betas };
        Ok(Training { alphas: cumulative(&betas), cosine: matches!(schedule, BetaSchedule::SquaredCosine) })
    }

    /// As [`read`](Self::read), with no level that has an infinite sigma.
    pub(super) fn read_for_sigmas(fields: &Fields<'_>) -> Result<Self, SchedulerError> {
        let mut training = Self::read(fields, LINEAR_BETAS)?;
        if fields.flag("rescale_betas_zero_snr", false)?
            && let Some(last) = training.alphas.last_mut()
        {
            *last = SMALLEST_ALPHA;
        }
        Ok(training)
    }

    /// How many timesteps there are.
    pub(super) fn len(&self) -> usize {
        self.alphas.len()
    }

    /// σ = √((1−ᾱ)/ᾱ) by timestep.
    pub(super) fn sigmas(&self) -> Vec<f32> {
        self.alphas.iter().map(|&alpha| ((1.0 - alpha) / alpha).sqrt()).collect()
    }
}

fn is_beta(beta: f32) -> bool {
    beta > 0.0 && beta < 1.0
}

/// Betas that are listed one by one.
fn trained_betas(fields: &Fields<'_>, betas: &[f64], count: usize) -> Result<Vec<f32>, SchedulerError> {
    const FIELD: &str = "trained_betas";
    if betas.len() != count {
        let got = format!("a list of {}", betas.len());
        return Err(fields.bad(FIELD, got.into(), &format!("{count} numbers (`num_train_timesteps`)")));
    }
    match betas.iter().find(|&&beta| !is_beta(beta as f32)) {
        Some(&beta) => Err(fields.bad(FIELD, beta.into(), "numbers between 0 and 1")),
        None => Ok(betas.iter().map(|&beta| beta as f32).collect()),
    }
}

/// `torch.linspace` in f32: from both ends towards the middle, each product joined with its sum.
pub fn linspace(start: f64, end: f64, count: usize) -> Vec<f32> {
    let (start, end) = (start as f32, end as f32);
    if count == 1 {
        return vec![start];
    }
    let step = (end - start) / (count.max(2) - 1) as f32;
    (0..count)
        .map(|i| {
            if i < count / 2 {
                step.mul_add(i as f32, start)
            } else {
                step.mul_add(-((count - 1 - i) as f32), end)
            }
        })
        .collect()
}

fn squared_cosine(count: usize) -> Vec<f32> {
    let level = |t: f64| ((t + 0.008) / 1.008 * std::f64::consts::PI / 2.0).cos().powi(2);
    (0..count)
        .map(|i| {
            let (from, to) = (i as f64 / count as f64, (i + 1) as f64 / count as f64);
            (1.0 - level(to) / level(from)).min(0.999) as f32
        })
        .collect()
}

/// ᾱ: the running product of 1 − β. PyTorch accumulates in f64.
fn cumulative(betas: &[f32]) -> Vec<f32> {
    let products = betas.iter().scan(1.0, |product, &beta| {
        *product *= f64::from(1.0 - beta);
        Some(*product as f32)
    });
    products.collect()
}

/// Shifts and stretches √ᾱ so that the last level has no signal at all (Lin et al. 2023, algorithm 1).
fn zero_terminal(betas: &[f32]) -> Vec<f32> {
    let roots: Vec<f32> = cumulative(betas).into_iter().map(f32::sqrt).collect();
    let (Some(&first), Some(&last)) = (roots.first(), roots.last()) else { return Vec::new() };
    let stretch = first / (first - last);
    let alphas = roots.into_iter().map(|root| ((root - last) * stretch).powi(2));
    let ratios = alphas.scan(1.0, |before, alpha| Some(1.0 - alpha / std::mem::replace(before, alpha)));
    ratios.collect()
}
