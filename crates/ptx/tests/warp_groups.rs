//! Lanes of a warp that name different member masks: tiles, labelled partitions, and the ways to get them wrong.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::FindingKind;
use support::planted::{self, PLANTED, Planted, clean, found};

/// What lane `lane` of each 64 threads must have written.
fn expect(source: &str, value: impl Fn(u32) -> u32) {
    let Some(ran) = clean(&Planted { source, ..PLANTED }) else { return };
    let wanted: Vec<u32> = (0..64).map(value).collect();
    assert_eq!(ran.y[..64], wanted, "{source}");
}

/// The sum of the integers of the tile of a thread.
fn tile_sum(thread: u32, tile: u32) -> u32 {
    (thread / tile * tile..(thread / tile + 1) * tile).sum()
}

#[test]
fn reductions_in_tiles() {
    expect(
        "KERNEL {
            unsigned mask = 0xffffu << (LANE & 16);
            int v = x[threadIdx.x];
            for (int o = 8; o; o /= 2) v += __shfl_down_sync(mask, v, o, 16);
            y[threadIdx.x] = __shfl_sync(mask, v, 0, 16);
        }",
        |thread| tile_sum(thread, 16),
    );
    expect(
        "KERNEL {
            unsigned mask = 0xffu << (LANE & 24);
            int v = x[threadIdx.x];
            for (int o = 4; o; o /= 2) v += __shfl_xor_sync(mask, v, o, 8);
            y[threadIdx.x] = v;
        }",
        |thread| tile_sum(thread, 8),
    );
    expect(
        "KERNEL {
            unsigned mask = 0xfu << (LANE & 28);
            int v = __reduce_add_sync(mask, x[threadIdx.x]);
            int most = __reduce_max_sync(mask, x[threadIdx.x]);
            y[threadIdx.x] = v * 64 + most;
        }",
        |thread| tile_sum(thread, 4) * 64 + thread / 4 * 4 + 3,
    );
}

#[test]
fn an_inclusive_scan_in_tiles() {
    expect(
        "KERNEL {
            unsigned mask = 0xffu << (LANE & 24);
            int v = x[threadIdx.x];
            for (int o = 1; o < 8; o *= 2) {
                int before = __shfl_up_sync(mask, v, o, 8);
                if (LANE % 8 >= o) v += before;
            }
            y[threadIdx.x] = v;
        }",
        |thread| (thread / 8 * 8..=thread).sum(),
    );
}

#[test]
fn votes_and_matches_of_labelled_partitions() {
    // Lanes with the same label are a group, wherever they are.
    expect(
        "KERNEL {
            unsigned mask = __match_any_sync(0xffffffff, x[threadIdx.x] % 5);
            int sum = __reduce_add_sync(mask, x[threadIdx.x]);
            unsigned odd = __ballot_sync(mask, x[threadIdx.x] & 1);
            int all = __all_sync(mask, x[threadIdx.x] != 6);
            y[threadIdx.x] = sum * 64 + __popc(odd) * 2 + all;
        }",
        |thread| {
            let first = thread / 32 * 32;
            let group: Vec<u32> = (first..first + 32).filter(|other| other % 5 == thread % 5).collect();
            let odd = group.iter().filter(|&other| other % 2 == 1).count() as u32;
            let all = u32::from(!group.contains(&6));
            group.iter().sum::<u32>() * 64 + odd * 2 + all
        },
    );
    expect(
        "KERNEL {
            unsigned mask = 0xffu << (LANE & 24);
            unsigned same = __match_any_sync(mask, x[threadIdx.x] % 3);
            int agree;
            unsigned all = __match_all_sync(mask, threadIdx.x / 16, &agree);
            y[threadIdx.x] = __popc(same) + 100 * __popc(all) + 10000 * agree;
        }",
        |thread| {
            let same = (thread / 8 * 8..thread / 8 * 8 + 8).filter(|other| other % 3 == thread % 3).count();
            same as u32 + 100 * 8 + 10000
        },
    );
}

#[test]
fn tiles_that_go_their_own_way() {
    // Each tile has a number of rounds of its own, and every second tile another branch.
    expect(
        "KERNEL {
            unsigned tile = LANE / 8, mask = 0xffu << (8 * tile);
            int v = x[threadIdx.x];
            for (unsigned i = 0; i <= tile; i++) v = __shfl_sync(mask, v, (LANE + 1) & 7, 8);
            if (tile & 1) v += __shfl_xor_sync(mask, v, 1, 8);
            else v += 1000 * (__ballot_sync(mask, v & 1) >> 8 * tile);
            __syncwarp(mask);
            y[threadIdx.x] = v;
        }",
        |thread| {
            let (first, tile) = (thread / 8 * 8, thread % 32 / 8);
            let turned = |lane: u32| first + (lane + tile + 1) % 8;
            let v = turned(thread % 8);
            match tile & 1 {
                1 => v + turned((thread % 8) ^ 1),
                _ => v + 1000 * (0..8).fold(0, |all, lane| all | (turned(lane) & 1) << lane),
            }
        },
    );
}

#[test]
fn lanes_that_are_active_together() {
    expect(
        "KERNEL {
            int v = 7;
            if (x[threadIdx.x] % 3 == 1) {
                unsigned mask = __activemask();
                v = __popc(mask) * 100 + __shfl_sync(mask, x[threadIdx.x], __ffs(mask) - 1);
            }
            y[threadIdx.x] = v;
        }",
        |thread| {
            let first = thread / 32 * 32;
            let mut group = (first..first + 32).filter(|other| other % 3 == 1);
            let leader = group.clone().next().unwrap();
            if thread % 3 == 1 { group.by_ref().count() as u32 * 100 + leader } else { 7 }
        },
    );
}

#[test]
fn lanes_that_have_exited_are_not_waited_for() {
    expect(
        "KERNEL {
            y[threadIdx.x] = 1;
            if (LANE >= 20) return;
            unsigned mask = LANE < 16 ? 0xffffu : 0xffff0000u;
            y[threadIdx.x] = __popc(__ballot_sync(mask, 1));
        }",
        |thread| match thread % 32 {
            0..16 => 16,
            16..20 => 4,
            _ => 1,
        },
    );
}

#[test]
fn groups_that_a_predicate_parts() {
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z) {\n\
               .reg .b32 %t, %v;\n.reg .b64 %y;\n.reg .pred %p;\nld.param.u64 %y, [y];\nmov.u32 %t, %tid.x;\n\
               setp.lt.u32 %p, %t, 8;\nmad.wide.u32 %y, %t, 4, %y;\nmov.u32 %v, 0;\n\
               @%p vote.sync.ballot.b32 %v, %p, 0x000000ff;\n@!%p vote.sync.ballot.b32 %v, %p, 0xffffff00;\n\
               @%p bar.warp.sync 0x000000ff;\n@!%p bar.warp.sync 0xffffff00;\nbar.warp.sync -1;\nst.global.u32 [%y], %v;\nret;\n}\n";
    let ran = planted::run_ptx(&Planted { block: 32, ..PLANTED }, ptx);
    assert!(ran.findings.is_empty(), "{}", ran.texts());
    let wanted: Vec<u32> = (0..32).map(|lane| if lane < 8 { 0xff } else { 0 }).collect();
    assert_eq!(ran.y[..32], wanted);
}

/// The messages of a bug's findings.
fn messages(source: &str, kind: FindingKind) -> String {
    found(&Planted { source, block: 32, ..PLANTED }, kind).map_or(String::new(), |ran| ran.texts())
}

#[test]
fn a_lane_that_is_not_in_its_own_mask() {
    let said = messages(
        "KERNEL {
            unsigned mask = 0xffu << (LANE & 24);
            if (BUG && LANE == 9) mask = 0xffu;
            y[threadIdx.x] = __any_sync(mask, x[threadIdx.x] == 3); // BUG
        }",
        FindingKind::WarpSyncMismatch,
    );
    assert!(said.is_empty() || said.contains("0x000000ff does not include it"), "{said}");
}

#[test]
fn masks_that_overlap() {
    let said = messages(
        "KERNEL {
            unsigned mask = LANE < 16 ? 0xffffu : BUG ? 0xffffff00u : 0xffff0000u;
            y[threadIdx.x] = __reduce_add_sync(mask, x[threadIdx.x]); // BUG
        }",
        FindingKind::WarpSyncMismatch,
    );
    let wanted =
        "lanes 0xffff0000 name the member mask 0xffffff00, but lanes 0x0000ff00 of it name 0x0000ffff";
    assert!(said.is_empty() || said.contains(wanted), "{said}");
}

#[test]
fn lanes_that_never_come() {
    let said = messages(
        r#"KERNEL {
            int v = x[threadIdx.x];
            if (LANE < 16) {
                asm volatile("// one" ::: "memory");
                v = __shfl_sync(BUG ? 0xffffffffu : 0xffffu, v, 3); // BUG
            } else {
                asm volatile("// another" ::: "memory");
                v = __shfl_sync(BUG ? 0xffffffffu : 0xffff0000u, v, 20); // BUG
            }
            y[threadIdx.x] = v;
        }"#,
        FindingKind::WarpSyncMismatch,
    );
    let wanted = "wait for lanes 0x";
    assert!(
        said.is_empty() || said.contains(wanted) && said.contains("which wait at another instruction"),
        "{said}"
    );
}

#[test]
fn lanes_that_wait_at_a_barrier_instead() {
    let said = messages(
        "KERNEL {
            if (LANE < 16) __syncwarp(BUG ? 0xffffffffu : 0xffffu); // BUG
            __syncthreads(); // BUG
            y[threadIdx.x] = x[threadIdx.x];
        }",
        FindingKind::Deadlock,
    );
    assert!(
        said.is_empty()
            || said.contains("for lanes 0xffff0000 of its warp, of which 0xffff0000 wait at a barrier"),
        "{said}"
    );
}
