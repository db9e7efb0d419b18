// What a launch has to do with the one before it in its stream.
#pragma once

// Waits until the launch before has ended and its writes are visible, then lets the next one start. On Hopper a program
// launches kernels whose source calls this before the one in front has ended, so that blocks start without a gap: a
// kernel calls it in all threads, before it touches global memory.
__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
