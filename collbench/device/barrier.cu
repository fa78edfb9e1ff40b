// A barrier of all ranks on the GPU: what is queued behind it begins on all GPUs at the same time.
// Launches are timed from here.
//
// Launch: one CTA of 32 threads. Lane p exchanges flags with ranks p, p + 32, ... A rank has one
// flag for each peer; the values of flags only grow.
// Memory order: fence.acq_rel.sys before a flag is set in the peer's memory, acquire where the peer
// reads it.
#include "memory.cuh"

struct BarrierArgs {
    // [ranks] flags that the peers set, then this rank's count of barriers, then 1 + the rank for
    // which it waited until the timeout, or 0
    u64* local;
    u64* const* remote;  // [ranks] where this rank's flag lies in each peer's memory
    u32* abort;
    u32* const* aborts;
    u64 timeout_ns;
    // how long every rank stays after all have arrived, while hosts queue what follows
    u64 hold_ns;
    u64 ranks;
};

extern "C" __global__ void __launch_bounds__(32)
        collbench_barrier(const __grid_constant__ BarrierArgs a) {
    const u64 count = a.local[a.ranks] + 1;
    bool is_aborted = load_relaxed(a.abort);
    if (threadIdx.x == 0 && !is_aborted) a.local[a.ranks + 1] = 0;
    __syncwarp();
    fence();
    for (u32 peer = threadIdx.x; peer < a.ranks; peer += 32) store_relaxed(a.remote[peer], count);
    const u64 begin = now_ns();
    for (u32 peer = threadIdx.x; peer < a.ranks; peer += 32)
        for (u32 polls = 0; !is_aborted && load_acquire(a.local + peer) < count; ++polls)
            if (polls % 4096 == 4095 && !(is_aborted = load_relaxed(a.abort))
                    && now_ns() - begin > a.timeout_ns) {
                is_aborted = true;
                a.local[a.ranks + 1] = peer + 1;
            }
    if (is_aborted)
        for (u32 rank = 0; rank < a.ranks; ++rank) store_relaxed(a.aborts[rank], 1u);
    __syncwarp();
    const u64 arrived = now_ns();
    while (!is_aborted && now_ns() - arrived < a.hold_ns) {
    }
    __syncwarp();
    if (threadIdx.x == 0) a.local[a.ranks] = count;
}
