//! What orders the lanes of a warp among each other, and what does not.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::FindingKind;
use support::planted::{PLANTED, Planted, clean, found};

fn race(source: &str) {
    found(&Planted { source, ..PLANTED }, FindingKind::Race);
}

#[test]
fn a_tile_that_synchronises_orders_only_itself() {
    race(
        "__shared__ int s[64];
        KERNEL {
            s[threadIdx.x] = x[threadIdx.x];
            __syncwarp(0xffffu << (LANE & 16));
            y[threadIdx.x] = s[threadIdx.x ^ (BUG ? 16 : 8)]; // BUG
        }",
    );
    // The same in global memory.
    race(
        "KERNEL {
            y[threadIdx.x] = x[threadIdx.x];
            __syncwarp(0xffffu << (LANE & 16));
            z[threadIdx.x] = y[threadIdx.x ^ (BUG ? 16 : 8)]; // BUG
        }",
    );
}

#[test]
fn order_is_handed_on_from_tile_to_tile() {
    race(
        "__shared__ int s[64];
        KERNEL {
            s[threadIdx.x] = x[threadIdx.x];
            __syncwarp(0xffu << (LANE & 24));
            if (!BUG && (LANE & 7) == 0) __syncwarp(0x01010101);
            __syncwarp(0xffu << (LANE & 24));
            y[threadIdx.x] = s[threadIdx.x ^ 8]; // BUG
        }",
    );
}

#[test]
fn lanes_of_a_branch_that_synchronise_among_themselves() {
    race(
        "__shared__ int s[64];
        KERNEL {
            if (LANE < 8) {
                s[threadIdx.x] = x[threadIdx.x];
                __syncwarp(0xff);
                s[threadIdx.x ^ 1] += 1;
            } else s[threadIdx.x] = 0;
            if (!BUG) __syncwarp();
            y[threadIdx.x] = s[threadIdx.x ^ 8]; // BUG
        }",
    );
}

#[test]
fn lanes_that_exit_are_not_ordered_by_the_others() {
    race(
        "__shared__ int s[64];
        KERNEL {
            s[threadIdx.x] = x[threadIdx.x];
            if (!BUG) __syncwarp();
            y[threadIdx.x] = 0;
            if (LANE == 3) return;
            __syncwarp();
            y[threadIdx.x] = s[threadIdx.x / 32 * 32 + 3]; // BUG
        }",
    );
}

#[test]
fn reconvergence_orders_nothing() {
    race(
        r#"__shared__ int s[64];
        KERNEL {
            if (LANE < 16) s[threadIdx.x] = x[threadIdx.x];
            else s[threadIdx.x] = 5;
            asm volatile("" ::: "memory");
            if (!BUG) __syncwarp();
            y[threadIdx.x] = s[threadIdx.x ^ 16]; // BUG
        }"#,
    );
}

#[test]
fn shuffles_and_votes_order_nothing() {
    race(
        r#"__shared__ int s[64];
        KERNEL {
            s[threadIdx.x] = x[threadIdx.x];
            int v = __shfl_xor_sync(0xffffffff, x[threadIdx.x], 1) + __any_sync(0xffffffff, x[threadIdx.x] == 1);
            asm volatile("" ::: "memory");
            if (!BUG) __syncwarp();
            y[threadIdx.x] = v + s[threadIdx.x ^ 1]; // BUG
        }"#,
    );
}

/// The reduction of old textbooks: the last warp goes on without barriers, and trusts its lanes to run together.
const WARP_SYNCHRONOUS: &str = "
#if BUG
#define SYNC
#else
#define SYNC __syncwarp();
#endif
__shared__ KIND int s[64];
KERNEL {
    unsigned t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < LANES) {
        s[t] += s[t + 32]; SYNC
        s[t] += s[t + 16]; SYNC // BUG
        s[t] += s[t + 8]; SYNC // BUG
        s[t] += s[t + 4]; SYNC // BUG
        s[t] += s[t + 2]; SYNC // BUG
        s[t] += s[t + 1]; // BUG
    }
    if (t == 0) y[0] = s[0];
}";

#[test]
fn warp_synchronous_code() {
    let source = WARP_SYNCHRONOUS.replace("KIND", "volatile").replace("LANES", "32");
    let Some(ran) = found(&Planted { source: &source, ..PLANTED }, FindingKind::Race) else { return };
    assert!(ran.texts().contains("volatile does not order the lanes of a warp"), "{}", ran.texts());
    let Some(mended) = clean(&Planted { source: &source, ..PLANTED }) else { return };
    assert_eq!(mended.y[0], 63 * 64 / 2);
}

#[test]
fn a_volatile_exchange_in_half_a_warp() {
    race(
        "__shared__ volatile int s[64];
        KERNEL {
            if (threadIdx.x < 16) {
                s[threadIdx.x] = x[threadIdx.x];
                if (!BUG) __syncwarp(0xffff);
                y[threadIdx.x] = s[threadIdx.x ^ 1]; // BUG
            }
        }",
    );
}

#[test]
fn a_volatile_flag_within_a_warp_is_none() {
    clean(&Planted {
        source: "__shared__ volatile int ready;
        KERNEL {
            if (threadIdx.x == 0) ready = 0;
            __syncthreads();
            if (LANE == 1 && threadIdx.x < 32) ready = 1;
            else while (ready == 0) {}
            y[threadIdx.x] = x[threadIdx.x];
        }",
        ..PLANTED
    });
}
