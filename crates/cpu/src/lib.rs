//! Kinora on a plain CPU.
