// All ranks meet on the GPU, so that what is queued behind begins on all of them at once: launches are timed from here.
//
// Launch: one CTA of 32 threads; lane p speaks with rank p, p + 32, ... A rank's words, one for each peer, only grow.
// Memory order: fence.acq_rel.sys before the word is set in the peer's memory, acquire when it is read there.
#include "memory.cuh"

struct Meeting {
    u64* mine;          // [ranks] words that the peers set, then this rank's count of meetings, then 1 + the rank that it waited for in vain
    u64* const* peers;  // [ranks] where this rank's word lies in each peer's memory
    u32* abort;
    u32* const* aborts;
    u64 timeout_ns;
    u64 hold_ns;        // how long everybody stays after all have come: until their hosts have queued what follows
    u64 ranks;
};

extern "C" __global__ void __launch_bounds__(32) collbench_meet(const __grid_constant__ Meeting m) {
    const u64 count = m.mine[m.ranks] + 1;
    bool is_late = load_relaxed(m.abort);
    if (threadIdx.x == 0 && !is_late) m.mine[m.ranks + 1] = 0;
    __syncwarp();
    fence();
    for (u32 peer = threadIdx.x; peer < m.ranks; peer += 32) store_relaxed(m.peers[peer], count);
    const u64 begin = now_ns();
    for (u32 peer = threadIdx.x; peer < m.ranks; peer += 32)
        for (u32 polls = 0; !is_late && load_acquire(m.mine + peer) < count; ++polls)
            if (polls % 4096 == 4095 && !(is_late = load_relaxed(m.abort)) && now_ns() - begin > m.timeout_ns) {
                is_late = true;
                m.mine[m.ranks + 1] = peer + 1;
            }
    if (is_late)
        for (u32 rank = 0; rank < m.ranks; ++rank) store_relaxed(m.aborts[rank], 1u);
    __syncwarp();
    const u64 met = now_ns();
    while (!is_late && now_ns() - met < m.hold_ns) {
    }
    __syncwarp();
    if (threadIdx.x == 0) m.mine[m.ranks] = count;
}
