// Clusters: blocks that run at the same time and read each other's shared memory. Wrappers are named after their
// instructions.
#pragma once
#include "numbers.cuh"

// Arrives at the barrier of all threads of the cluster; what they wrote before is visible to those that wait.
__device__ __forceinline__ void barrier_cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void barrier_cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Four floats that lie in another block of the cluster as they do here. That block must not end before they are read.
__device__ __forceinline__ float4 load_from_block(const float4 *own, u32 rank) {
    float4 result;
    u32 address = u32(__cvta_generic_to_shared(own));
    asm volatile(
        "{\n"
        ".reg .u32 there;\n"
        "mapa.shared::cluster.u32 there, %4, %5;\n"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
        "}\n"
        : "=f"(result.x), "=f"(result.y), "=f"(result.z), "=f"(result.w)
        : "r"(address), "r"(rank)
        : "memory");
    return result;
}

// The address of another block's shared memory that corresponds to an address of this block's.
__device__ __forceinline__ u32 mapa(u32 own, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
    return there;
}

// Four floats at an address that `mapa` gave. That block must not end before they are read.
__device__ __forceinline__ float4 load_shared_cluster(u32 from) {
    float4 result;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(result.x), "=f"(result.y), "=f"(result.z), "=f"(result.w)
                 : "r"(from)
                 : "memory");
    return result;
}
