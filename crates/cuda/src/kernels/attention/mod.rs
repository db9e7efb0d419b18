//! Attention: see `NOTES.md` beside this file for the kernels and what limits them.

mod backward;
mod flash;
mod hopper;
mod hopper_wide;
mod plain;
mod problem;
mod temporal;
#[cfg(test)]
mod tests;
mod wide;

use std::sync::Arc;

use self::{
    flash::Flash, hopper::Hopper, hopper_wide::HopperWide, plain::Plain, problem::Problem,
    temporal::Temporal, wide::Wide,
};
use super::{Call, Family, Implementation, KernelSet};
use crate::Chip;

/// The family.
pub const FAMILY: Family = Family { offer: implementations, in_place: |_, _| false };

/// Every way to run an attention or its gradients, the one to choose first; none for another op.
fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    let Some(problem) = Problem::of(call).map(Arc::new) else {
        return backward::implementations(call, chip, set);
    };
    let mut offered: Vec<Box<dyn Implementation>> = Vec::new();
    if set == KernelSet::Fused {
        offered.extend(Temporal::offered(&problem, chip).map(|temporal| Box::new(temporal) as _));
        offered.extend(Hopper::offered(&problem, chip).into_iter().map(|hopper| Box::new(hopper) as _));
        offered.extend(HopperWide::offered(&problem, chip).map(|wide| Box::new(wide) as _));
        offered.extend(Wide::offered(&problem, chip).into_iter().map(|wide| Box::new(wide) as _));
        offered.extend(Flash::offered(&problem, chip).into_iter().map(|flash| Box::new(flash) as _));
    }
    offered.push(Box::new(Plain { problem }));
    offered
}
