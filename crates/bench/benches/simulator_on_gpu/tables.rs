//! The tables of cases that all backends share.

use kinora_graph::DType;
use kinora_testing::{
    edge_cases::{self, Case},
    golden,
};

const TYPES: [(&str, DType); 3] = [("f16", DType::F16), ("bf16", DType::BF16), ("f32", DType::F32)];

/// The golden tables by family, and the edge tables by family and type.
pub fn names() -> Vec<String> {
    let golden = golden::FAMILIES.iter().map(|&family| family.to_owned());
    let edges = edges().into_iter().map(|(name, ..)| name);
    golden.chain(edges).collect()
}

fn edges() -> Vec<(String, edge_cases::Family, DType)> {
    let of = |(suffix, dtype): (&str, DType)| {
        edge_cases::Family::ALL
            .map(|family| (format!("edges {family:?} {suffix}").to_lowercase(), family, dtype))
    };
    TYPES.into_iter().flat_map(of).collect()
}

/// The ops of a table with their operands.
pub fn cases(name: &str) -> Vec<Case> {
    if let Some((_, family, dtype)) = edges().into_iter().find(|(edges, ..)| edges == name) {
        return family.all_cases(dtype);
    }
    let family = golden::Family::load(name);
    family.cases.iter().map(|case| (case.op.clone(), family.inputs(case))).collect()
}
