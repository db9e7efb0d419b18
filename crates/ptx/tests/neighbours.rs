//! Accesses that leave the shared variable that they are based on, and end up in its neighbour.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::FindingKind;
use support::planted::{PLANTED, Planted, clean, found};

fn outside(source: &str) -> String {
    let ran = found(&Planted { source, ..PLANTED }, FindingKind::OutOfBounds);
    ran.map_or(String::new(), |ran| ran.texts())
}

#[test]
fn an_array_beside_another() {
    let said = outside(
        "__shared__ int tile[64];
        __shared__ int other[64];
        KERNEL {
            other[threadIdx.x] = 0;
            __syncthreads();
            tile[threadIdx.x + BUG * x[1]] = x[threadIdx.x]; // BUG
            __syncthreads();
            y[threadIdx.x] = other[63 - threadIdx.x] + tile[min(63 - threadIdx.x + BUG, 63)];
        }",
    );
    let wanted = "writes 4 bytes at offset 256 of the 256-byte shared variable tile, which is in other";
    assert!(said.is_empty() || said.contains(wanted), "{said}");
}

#[test]
fn arrays_within_a_kernel() {
    let said = outside(
        "KERNEL {
            __shared__ int a[64];
            __shared__ int b[64];
            a[threadIdx.x] = x[threadIdx.x];
            b[threadIdx.x] = 2;
            __syncthreads();
            int sum = 0;
            for (int i = 0; i < x[32] + BUG; i++) sum += a[i + 32]; // BUG
            y[threadIdx.x] = sum + b[63 - threadIdx.x];
        }",
    );
    let wanted = "reads 4 bytes at offset 256 of the 256-byte shared variable a";
    assert!(said.is_empty() || said.contains(wanted), "{said}");
}

#[test]
fn an_index_below_zero() {
    outside(
        "__shared__ int a[64];
        __shared__ int b[64];
        KERNEL {
            a[threadIdx.x] = 1;
            b[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            int left = BUG ? threadIdx.x - x[1] : max(0, (int)threadIdx.x - x[1]);
            y[threadIdx.x] = a[threadIdx.x] + b[left] + (BUG ? a[left + 1] : 0); // BUG
        }",
    );
}

#[test]
fn memory_that_a_kernel_divides_itself() {
    // Dynamic memory, a union, a struct and a selection between two arrays are no overflow.
    clean(&Planted {
        source: "extern __shared__ int pool[];
        KERNEL {
            int *a = pool, *b = pool + 64;
            a[threadIdx.x] = x[threadIdx.x];
            b[threadIdx.x] = 1;
            __syncthreads();
            y[threadIdx.x] = a[threadIdx.x + 64] + a[63 - threadIdx.x];
        }",
        shared: 512,
        ..PLANTED
    });
    clean(&Planted {
        source: "union Either { int whole[64]; short halves[128]; };
        struct Both { int first[64]; int second[64]; };
        __shared__ Either u; __shared__ Both p; __shared__ int q[64];
        KERNEL {
            u.halves[2 * threadIdx.x] = 1; u.halves[2 * threadIdx.x + 1] = 2;
            p.first[threadIdx.x] = 3; p.second[threadIdx.x] = 4; q[threadIdx.x] = 5;
            __syncthreads();
            int *either = x[threadIdx.x] & 1 ? q : p.second;
            const int *both = (const int *)&p;
            y[threadIdx.x] = u.whole[63 - threadIdx.x] + either[63 - threadIdx.x] + both[64 + (threadIdx.x ^ 32)];
        }",
        ..PLANTED
    });
    clean(&Planted {
        source: "__shared__ int a[64]; __shared__ int b[64];
        KERNEL {
            int *arrays[2] = {a, b};
            arrays[x[threadIdx.x] & 1][threadIdx.x] = 1;
            long distance = b - a;
            a[threadIdx.x] = 7; b[threadIdx.x] = 9;
            __syncthreads();
            int *p = a + (63 - threadIdx.x);
            y[threadIdx.x] = *p + p[distance * (x[threadIdx.x] & 1)];
        }",
        ..PLANTED
    });
}
