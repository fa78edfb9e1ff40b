// A barrier of all ranks on the GPU: what is queued behind it begins on all GPUs at the same time.
// Launches are timed from here.
//
// Launch: one CTA of 32 threads. Lane p exchanges flags with ranks p, p + 32, ... A rank has one
// flag for each peer; the values of flags only grow.
// Memory order: fence.acq_rel.sys before a flag is set in the peer's memory, acquire where the peer
// reads it. Words of the clock are relaxed: they carry nothing but themselves.
#include "memory.cuh"

struct BarrierArgs {
    // [ranks] flags that the peers set, then this rank's count of barriers, then 1 + the rank for
    // which it waited until the timeout, or 0, then [ranks] words of the clock
    u64* local;
    u64* const* remote;  // [ranks] where this rank's flag lies in each peer's memory
    u32* abort;
    u32* const* aborts;
    u64 timeout_ns;
    // how long every rank stays after all have arrived, while hosts queue what follows
    u64 hold_ns;
    u64 ranks;
    u64 rank;
};

// Wait until a word that a peer sets is at least so much: whether it came in time.
static __device__ bool comes(const BarrierArgs& a, const u64* word, u64 value, u32 peer) {
    const u64 begin = now_ns();
    for (u32 polls = 0; load_acquire(word) < value; ++polls) {
        if (polls % 4096 != 4095) continue;
        if (load_relaxed(a.abort)) return false;
        if (now_ns() - begin > a.timeout_ns) {
            a.local[a.ranks + 1] = peer + 1;
            return false;
        }
    }
    return true;
}

// A moment that is the same for all ranks, in nanoseconds of this GPU's clock. Ranks see the last
// one arrive at different moments: itself at once, the others when its flag has come, so it would
// begin first. Rank 0 asks one peer after the other and is answered; half of the time until then is
// a flag's way. It tells the peer how long after the moment its question came.
static __device__ u64 common_moment(const BarrierArgs& a, u64 count, bool& is_aborted) {
    constexpr u64 ASKED = 1, TOLD = 2;  // in the low half of a word; what is told is added
    const u64 base = count << 32;
    u64* const own = a.local + a.ranks + 2;
    u64 moment = now_ns();
    if (a.rank) {
        is_aborted = !comes(a, own, base + ASKED, 0);
        const u64 asked = now_ns();
        store_relaxed(a.remote[0] + a.ranks + 2, base + ASKED);
        is_aborted |= !comes(a, own, base + TOLD, 0);
        return asked - (load_relaxed(own) - base - TOLD);
    }
    for (u32 peer = 1; peer < a.ranks && !is_aborted; ++peer) {
        u64* const remote = a.remote[peer] + a.ranks + 2;
        const u64 asked = now_ns();
        store_relaxed(remote, base + ASKED);
        is_aborted = !comes(a, own + peer, base + ASKED, peer);
        store_relaxed(remote, base + TOLD + (asked + now_ns()) / 2 - moment);
    }
    return moment;
}

extern "C" __global__ void __launch_bounds__(32)
        collbench_barrier(const __grid_constant__ BarrierArgs a) {
    const u64 count = a.local[a.ranks] + 1;
    bool is_aborted = load_relaxed(a.abort);
    if (threadIdx.x == 0 && !is_aborted) a.local[a.ranks + 1] = 0;
    __syncwarp();
    fence();
    for (u32 peer = threadIdx.x; peer < a.ranks; peer += 32) store_relaxed(a.remote[peer], count);
    for (u32 peer = threadIdx.x; peer < a.ranks && !is_aborted; peer += 32)
        is_aborted = !comes(a, a.local + peer, count, peer);
    is_aborted = __any_sync(~0u, is_aborted);
    if (a.hold_ns && !is_aborted) {
        const u64 moment = threadIdx.x ? 0 : common_moment(a, count, is_aborted);
        is_aborted = __any_sync(~0u, is_aborted);
        while (threadIdx.x == 0 && !is_aborted && now_ns() - moment < a.hold_ns) {
        }
    }
    if (is_aborted)
        for (u32 rank = 0; rank < a.ranks; ++rank) store_relaxed(a.aborts[rank], 1u);
    __syncwarp();
    if (threadIdx.x == 0) a.local[a.ranks] = count;
}
