//! Every op at its edges: the fast kernels against the reference.

mod executors;

use kinora_graph::DType;
use kinora_testing::{
    edge_cases::{Family, check_family, check_measured_products, check_overflow, check_quantised_products},
    executor::Reference,
};

fn check(family: Family, dtype: DType) {
    check_family(family, dtype, &executors::fast());
}

kinora_testing::edge_tests!(crate::check);

#[test]
fn quantised_products() {
    for result in [DType::F32, DType::F16, DType::F8E4M3] {
        check_quantised_products(result, &executors::fast());
    }
}

#[test]
fn measured_products() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        check_measured_products(dtype, &executors::fast());
    }
}

#[test]
fn overflow_in_f16_is_the_same_infinity() {
    let mut executors = executors::fast();
    executors.push(&Reference);
    check_overflow(&executors);
}
