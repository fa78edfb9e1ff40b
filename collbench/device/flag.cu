// The least launch of ranks that need something of each other, as a floor for all others: a rank
// stores a word in the memory of those that it tells, and waits for the words of those that tell
// it. Nothing else is ordered by it. The word is loaded when the launch in front has ended, as data
// are.
//
// Launch: one CTA of 32 threads, of which lane p exchanges words with rank p. The words are those of
// the barrier (barrier.cu), whose values only grow.
//
// DEPENDENT: the launch takes its place on the GPU before the one in front has ended.
// Memory order: relaxed, since a word carries nothing but its own arrival.
#include "memory.cuh"

constexpr u32 MAX_FLAGS = 32;

struct FlagArgs {
    // [ranks] words that the peers set, then this rank's count of launches, then 1 + the rank for
    // which it waited until the timeout, or 0
    u64* local;
    u64* remote[MAX_FLAGS];  // where this rank's word lies in the memory of each peer to tell, or 0
    u32* abort;
    u32* const* aborts;
    u64 timeout_ns;
    u64 ranks;    // 0: an empty launch
    u64 awaited;  // bit p: rank p tells this one
};

extern "C" __global__ void __launch_bounds__(MAX_FLAGS)
        collbench_flag(const __grid_constant__ FlagArgs a) {
    if (DEPENDENT) asm volatile("griddepcontrol.launch_dependents;");
    u64* const local = a.local + threadIdx.x;
    u64* const counter = a.local + a.ranks;
    u64* const remote = a.remote[threadIdx.x];
    const bool waits = a.awaited >> threadIdx.x & 1;
    computed((u64)local | (u64)counter | (u64)remote | waits);
    if (DEPENDENT) asm volatile("griddepcontrol.wait;" ::: "memory");
    if (!a.ranks) return;
    u64 seen = waits ? load_relaxed(local) : ~0ull;
    const u64 count = *counter + 1;
    if (remote) store_relaxed(remote, count);
    __syncwarp();  // all have read the count
    if (threadIdx.x == 0) *counter = count;
    bool is_aborted = false;
    u64 begin = 0;
    for (u32 polls = 1; seen < count && !is_aborted; ++polls) {
        seen = load_relaxed(local);
        if (polls % 4096) continue;
        const u64 now = now_ns();
        if (!begin) begin = now;
        is_aborted = load_relaxed(a.abort) || now - begin > a.timeout_ns;
    }
    if (is_aborted) {
        counter[1] = threadIdx.x + 1;
        for (u32 rank = 0; rank < a.ranks; ++rank) store_relaxed(a.aborts[rank], 1u);
    }
}
