//! The figures of known chips.
//!
//! All of them are published. Multiprocessors, clocks, cache sizes, bandwidths and peak rates of matrix products come from NVIDIA (data
//! sheets of T4, A100, H100, H200 and B200; white papers of the Turing, GA100, GA102, AD102 and H100 architectures), limits
//! and the rates of other units from the CUDA C++ Programming Guide's tables by compute capability. Latencies and the rate of `mma` on
//! Hopper come from public microbenchmarks (Jia et al. for Turing, Abdelkhalik et al. for Ampere, Luo et al. for Ada and Hopper),
//! rounded. Our own measurements are in a [`Calibration`](crate::Calibration).

use super::{ChipSpec, Latencies, Limits, MemorySystem, Units};

/// Latencies have hardly changed since Volta.
const LATENCIES: Latencies = Latencies {
    arithmetic: 4.0,
    special: 20.0,
    tensor: 33.0,
    shared: 29.0,
    l1: 33.0,
    l2: 260.0,
    dram: 600.0,
    bulk_copy: 350.0,
    barrier: 20.0,
    block: 300.0,
};

/// A launch in a stream, on any chip.
const LAUNCH_SECONDS: f64 = 4.0e-6;

impl ChipSpec {
    /// The names that [`ChipSpec::named`] takes.
    pub const NAMES: [&'static str; 7] = ["t4", "rtx3090", "rtx4090", "a100", "h100", "h200", "b200"];

    /// A chip by its name; case does not matter.
    pub fn named(name: &str) -> Option<ChipSpec> {
        Some(match name.to_lowercase().as_str() {
            "t4" => ChipSpec::t4(),
            "rtx3090" => ChipSpec::rtx_3090(),
            "rtx4090" => ChipSpec::rtx_4090(),
            "a100" => ChipSpec::a100(),
            "h100" => ChipSpec::h100(),
            "h200" => ChipSpec::h200(),
            "b200" => ChipSpec::b200(),
            _ => return None,
        })
    }

    /// A Tesla T4 (Turing).
    pub fn t4() -> ChipSpec {
        ChipSpec {
            name: "T4".to_owned(),
            capability: (7, 5),
            multiprocessors: 40,
            shared_bytes: 64 << 10,
            cluster_blocks: 1,
            limits: Limits {
                warps: 32,
                blocks: 16,
                registers: 65536,
                shared_bytes: 64 << 10,
                reserved_shared_bytes: 0,
                shared_granule: 256,
            },
            clock_hz: 1.59e9,
            units: Units {
                schedulers: 4,
                float: 64.0,
                half: 64.0,
                double: 2.0,
                integer: 64.0,
                special: 16.0,
                shuffle: 32.0,
                shared_bytes: 128.0,
                tensor: 512.0,
                tensor_by_warp: 1.0,
            },
            memory: MemorySystem {
                dram_bytes: 320e9,
                l2_bytes: 4 << 20,
                l2_rate: 1024.0,
                l2_port: 64.0,
                l1_bytes: 96 << 10,
            },
            latencies: LATENCIES,
            launch_seconds: LAUNCH_SECONDS,
        }
    }

    /// A GeForce RTX 3090 (Ampere).
    pub fn rtx_3090() -> ChipSpec {
        let turing = ChipSpec::t4();
        ChipSpec {
            name: "RTX 3090".to_owned(),
            capability: (8, 6),
            multiprocessors: 82,
            shared_bytes: 99 << 10,
            limits: Limits {
                warps: 48,
                shared_bytes: 100 << 10,
                reserved_shared_bytes: 1 << 10,
                shared_granule: 128,
                ..turing.limits
            },
            clock_hz: 1.695e9,
            // Accumulating in f32 runs at half the rate of accumulating in f16.
            units: Units { float: 128.0, tensor: 256.0, ..turing.units },
            memory: MemorySystem {
                dram_bytes: 936e9,
                l2_bytes: 6 << 20,
                l2_rate: 1536.0,
                l2_port: 64.0,
                l1_bytes: 128 << 10,
            },
            ..turing
        }
    }

    /// A GeForce RTX 4090 (Ada).
    pub fn rtx_4090() -> ChipSpec {
        let ampere = ChipSpec::rtx_3090();
        ChipSpec {
            name: "RTX 4090".to_owned(),
            capability: (8, 9),
            multiprocessors: 128,
            limits: Limits { blocks: 24, ..ampere.limits },
            clock_hz: 2.52e9,
            memory: MemorySystem { dram_bytes: 1008e9, l2_bytes: 72 << 20, l2_rate: 2048.0, ..ampere.memory },
            ..ampere
        }
    }

    /// An A100 with 80 GB (Ampere).
    pub fn a100() -> ChipSpec {
        let turing = ChipSpec::t4();
        ChipSpec {
            name: "A100".to_owned(),
            capability: (8, 0),
            multiprocessors: 108,
            shared_bytes: 163 << 10,
            limits: Limits {
                warps: 64,
                blocks: 32,
                shared_bytes: 164 << 10,
                reserved_shared_bytes: 1 << 10,
                shared_granule: 128,
                ..turing.limits
            },
            clock_hz: 1.41e9,
            units: Units { half: 128.0, double: 32.0, tensor: 1024.0, ..turing.units },
            memory: MemorySystem {
                dram_bytes: 2039e9,
                l2_bytes: 40 << 20,
                l2_rate: 5120.0,
                l2_port: 64.0,
                l1_bytes: 192 << 10,
            },
            ..turing
        }
    }

    /// An H100 with 132 multiprocessors (Hopper), the SXM module.
    pub fn h100() -> ChipSpec {
        let ampere = ChipSpec::a100();
        ChipSpec {
            name: "H100".to_owned(),
            capability: (9, 0),
            multiprocessors: 132,
            shared_bytes: 227 << 10,
            cluster_blocks: 16,
            limits: Limits { shared_bytes: 228 << 10, ..ampere.limits },
            // The clock at which 132 multiprocessors reach the data sheet's 989.4 TFLOP/s.
            clock_hz: 1.83e9,
            units: Units { float: 128.0, double: 64.0, tensor: 2048.0, tensor_by_warp: 0.63, ..ampere.units },
            // L2 has as many slices for its 50 MB as an A100 for its 40.
            memory: MemorySystem {
                dram_bytes: 3352e9,
                l2_bytes: 50 << 20,
                l1_bytes: 256 << 10,
                ..ampere.memory
            },
            ..ampere
        }
    }

    /// An H200 (Hopper): an H100 with other memory.
    pub fn h200() -> ChipSpec {
        let h100 = ChipSpec::h100();
        ChipSpec {
            name: "H200".to_owned(),
            memory: MemorySystem { dram_bytes: 4800e9, ..h100.memory },
            ..h100
        }
    }

    /// A B200 (Blackwell), for kernels of older generations: `tcgen05` is not simulated.
    pub fn b200() -> ChipSpec {
        let hopper = ChipSpec::h100();
        ChipSpec {
            name: "B200".to_owned(),
            capability: (10, 0),
            multiprocessors: 148,
            clock_hz: 1.85e9,
            units: Units { tensor: 4096.0, tensor_by_warp: 0.25, ..hopper.units },
            memory: MemorySystem {
                dram_bytes: 8000e9,
                l2_bytes: 126 << 20,
                l2_rate: 2.0 * hopper.memory.l2_rate,
                ..hopper.memory
            },
            ..hopper
        }
    }
}
