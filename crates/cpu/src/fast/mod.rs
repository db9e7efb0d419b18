//! The fast implementation: vectors and threads, one file a family of ops.

pub(crate) mod activation;
pub(crate) mod arrange;
pub(crate) mod blocks;
pub(crate) mod cast;
pub(crate) mod elementwise;
pub(crate) mod embedding;
pub(crate) mod group_norm;
pub(crate) mod in_place;
pub(crate) mod mean;
pub(crate) mod norm;
pub(crate) mod pointwise;
pub(crate) mod resample;
pub(crate) mod sampler;
pub(crate) mod softmax;
pub(crate) mod sums;
pub(crate) mod tasks;
pub(crate) mod temporal;
#[cfg(test)]
mod tests;
