//! Data that a kernel reads as read-only and writes, and writes that collide but agree.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{FindingKind, Severity};
use support::planted::{PLANTED, Planted, found, run};

#[test]
fn read_only_data_that_is_written_before() {
    let source = "KERNEL {
        (BUG ? z : y)[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x + 64] = __ldg(z + 63 - threadIdx.x); // BUG
    }";
    let Some(ran) = found(&Planted { source, ..PLANTED }, FindingKind::ReadOnlyWritten) else { return };
    assert!(ran.texts().contains("line 6 of the same kernel writes it"), "{}", ran.texts());
}

#[test]
fn read_only_data_that_is_written_afterwards() {
    let source = "KERNEL {
        int v = __ldg(z + threadIdx.x); // BUG
        __syncthreads();
        atomicAdd((BUG ? z : z + 64) + threadIdx.x, 1);
        y[threadIdx.x] = v;
    }";
    let Some(ran) = found(&Planted { source, ..PLANTED }, FindingKind::ReadOnlyWritten) else { return };
    assert!(ran.texts().contains("line 8 of the same kernel writes it"), "{}", ran.texts());
}

/// The races of a kernel: whether their writes agree, and how bad they are.
fn races(source: &str, grid: u32) -> Vec<(bool, Severity)> {
    let Some(ran) = run(&Planted { source, grid, ..PLANTED }, true) else { return Vec::new() };
    assert!(!ran.findings.is_empty(), "no race in {source}");
    let told = ran.texts().contains("both write the same value");
    assert_eq!(told, ran.findings.iter().any(|finding| finding.same_value), "{}", ran.texts());
    ran.findings
        .iter()
        .map(|finding| {
            assert_eq!(finding.kind, FindingKind::Race);
            (finding.same_value, finding.severity)
        })
        .collect()
}

#[test]
fn a_flag_that_many_set() {
    for source in [
        "KERNEL { if (x[threadIdx.x] & 1) z[0] = 1; }",
        "__shared__ bool hit;
        KERNEL {
            hit = false;
            __syncthreads();
            if (x[threadIdx.x] & 1) hit = true;
            __syncthreads();
            y[threadIdx.x] = hit;
        }",
        "__shared__ int4 s;
        KERNEL {
            s = make_int4(1, 2, 3, x[5]);
            __syncthreads();
            y[threadIdx.x] = s.x + s.w;
        }",
    ] {
        for race in races(source, 1) {
            assert_eq!(race, (true, Severity::Warning), "{source}");
        }
    }
}

#[test]
fn a_place_that_many_write_differently() {
    for source in [
        "KERNEL { z[0] = x[threadIdx.x]; }",
        // Within a warp all agree, between the warps they do not.
        "KERNEL { z[0] = x[threadIdx.x] / 32; }",
        "__shared__ int s;
        KERNEL {
            s = x[threadIdx.x] / 32;
            __syncthreads();
            y[threadIdx.x] = s;
        }",
        "__shared__ int4 s;
        KERNEL {
            s = make_int4(1, 2, 3, x[threadIdx.x] / 48);
            __syncthreads();
            y[threadIdx.x] = s.x + s.w;
        }",
    ] {
        assert_eq!(
            races(source, 1),
            run(&PLANTED_NOTHING, true).map_or(vec![], |_| vec![(false, Severity::Error)]),
            "{source}"
        );
    }
}

/// A kernel that is right, to see whether there is a compiler.
const PLANTED_NOTHING: Planted<'static> =
    Planted { source: "KERNEL { y[threadIdx.x] = x[threadIdx.x]; }", ..PLANTED };

#[test]
fn a_flag_that_many_blocks_set() {
    for source in [
        "KERNEL { if (x[threadIdx.x] & 1) z[0] = BUG; }",
        // Blocks that may learn from each other.
        "KERNEL {
            if (threadIdx.x == 0) y[blockIdx.x] = atomicAdd(z + 1, 1);
            if (x[threadIdx.x] & 1) z[0] = 1;
        }",
    ] {
        for race in races(source, 4) {
            assert_eq!(race, (true, Severity::Warning), "{source}");
        }
        // Within a block all agree, between the blocks they do not.
        for race in races(&source.replace("z[0] = ", "z[0] = (int)blockIdx.x / 2 + "), 4) {
            assert_eq!(race, (false, Severity::Error), "{source}");
        }
    }
}
