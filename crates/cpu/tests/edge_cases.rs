//! Every op at its edges: the fast kernels against the reference.

mod executors;

use kinora_testing::{
    edge_cases::{Family, check_family, check_overflow},
    executor::Reference,
};

#[test]
fn matrix_products() {
    check_family(Family::Products, &executors::fast());
}

#[test]
fn normalisations() {
    check_family(Family::Norms, &executors::fast());
}

#[test]
fn elementwise_ops() {
    check_family(Family::Elements, &executors::fast());
}

#[test]
fn moves_and_means() {
    check_family(Family::Moves, &executors::fast());
}

#[test]
fn attention_over_positions_and_frames() {
    check_family(Family::Attention, &executors::fast());
}

#[test]
fn overflow_in_f16_is_the_same_infinity() {
    let mut executors = executors::fast();
    executors.push(&Reference);
    check_overflow(&executors);
}
