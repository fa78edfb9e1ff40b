// A plain copy by a kernel: the multiprocessors move the data, without the copy engines.
//
// Launch: any grid of CTAs of 512 threads. `to` and `from` are aligned to 16 bytes; `to` may lie in
// a peer's memory. A thread has UNROLL accesses in flight. Neighbours in a warp access neighbouring
// 16 bytes.
#include "memory.cuh"

constexpr int UNROLL = 8;

extern "C" __global__ void __launch_bounds__(512)
        collbench_copy(char* to, const char* from, u64 bytes) {
    const u64 stride = (u64)gridDim.x * blockDim.x * 16;
    const u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 16;
    u64 at = first;
    for (; at + (UNROLL - 1) * stride + 16 <= bytes; at += UNROLL * stride) {
        uint4 loaded[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) loaded[k] = load16(from + at + k * stride);
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) store16(to + at + k * stride, loaded[k]);
    }
    for (; at + 16 <= bytes; at += stride) store16(to + at, load16(from + at));
    if (first == 0)
        for (u64 k = bytes / 16 * 16; k < bytes; ++k) to[k] = from[k];
}
