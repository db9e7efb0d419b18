//! Operators, graphs, passes and memory plans.
