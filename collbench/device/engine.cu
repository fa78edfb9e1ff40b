// The kernels of a launch by copy engines: they wait for flags, set flags, and reduce data on the
// GPU that holds it. The copy engines move everything else.
//
// Launch: collbench_wait and collbench_signal are one CTA of 32 threads, one lane an entry.
// collbench_move is any grid of CTAs of THREADS threads. Streams and events order the kernels with
// the copies: a wait is queued before the copies that depend on it, a signal behind the copies that
// it reports.
// Memory order: a copy that has ended is visible to the kernel behind it. That kernel executes
// fence.acq_rel.sys and then stores the flag. The other GPU's kernel loads the flag with acquire
// and ends before anything reads the data.
//
// Macros: THREADS; UNROLL; MAX_SOURCES of any move; SHAPES, a list of SHAPE(sources) that occur;
// WIDE if some moves have more sources than are unrolled.
#include "spin.cuh"

constexpr u32 WORKERS = THREADS;
#include "move.cuh"

constexpr u64 SPAN_BYTES = 8192;  // CTAs share a move by multiples of this

// A flag to wait for or to set. Its value in a launch is launch x per_launch + number. A value
// above `limit` is never set, which tests use to inject a fault.
struct FlagEntry {
    u64* flag;
    u64 per_launch, number, limit;
    u32 signal, peer, channel, track, round;
    u32 done_per_launch, done;  // slices a message, as in State
    u32 report;
};

struct Engine {
    u64* launch;  // launches begun
    u32* abort;
    u32* const* aborts;
    Report* reports;
    u64 timeout_ns;
    u32 rank, ranks;
    u32 delay_ns, unused;
};

struct MoveArgs {
    char* target;
    u64 bytes;
    u32 sources, divide, ranks, unused;
    char* source[MAX_SOURCES];
};

extern "C" __global__ void __launch_bounds__(32)
        collbench_wait(const __grid_constant__ Engine e, const FlagEntry* entries, u32 count) {
    const u64 launch = *e.launch - 1;
    if (load_relaxed(e.abort)) return;
    for (u32 i = threadIdx.x; i < count; i += 32) {
        const FlagEntry& entry = entries[i];
        Engine own = e;
        own.reports += entry.report;
        const u32 done = (u32)launch * entry.done_per_launch + entry.done;
        poll(own, entry.flag, Wait{entry.signal, entry.peer, entry.channel, entry.track, done,
            entry.round, launch * entry.per_launch + entry.number});
    }
}

// begins: this is the first kernel of a launch, and it counts the launch.
extern "C" __global__ void __launch_bounds__(32)
        collbench_signal(const __grid_constant__ Engine e, const FlagEntry* entries, u32 count,
            u32 begins) {
    const u64 launch = *e.launch - !begins;
    __syncwarp();
    if (begins) {
        if (threadIdx.x == 0) *e.launch = launch + 1;
        if (e.delay_ns) delay(e, (u32)launch);
    }
    if (load_relaxed(e.abort)) return;
    fence();
    for (u32 i = threadIdx.x; i < count; i += 32) {
        const u64 value = launch * entries[i].per_launch + entries[i].number;
        if (value <= entries[i].limit) store_relaxed(entries[i].flag, value);
    }
}

template <int SOURCES>
static __device__ __forceinline__ void move_part(const MoveArgs& m, u64 first, u32 bytes) {
    char *source[SOURCES], *target[1] = {m.target + first};
#pragma unroll
    for (int s = 0; s < SOURCES; ++s) source[s] = m.source[s] + first;
    move<SOURCES, 1>(source, target, bytes, m.divide, m.ranks);
}

#if WIDE
// Any number of operands, eight bytes or one element at a time.
static __device__ __noinline__ void move_wide(const MoveArgs& m, u64 first, u32 bytes) {
    u64 bits = (u64)m.target;
    for (u32 s = 0; s < m.sources; ++s) bits |= (u64)m.source[s];
    const u32 width = bits % 8 == 0 ? 8 : ITEM;
    for (u32 at = threadIdx.x * width; at < bytes; at += WORKERS * width) {
        const int left = (int)(width < bytes - at ? width : bytes - at);
        Sum sum;
        sum.start(load8(m.source[0] + first + at, left, width == 8));
        for (u32 s = 1; s < m.sources; ++s)
            sum.add(load8(m.source[s] + first + at, left, width == 8));
        store8(m.target + first + at, sum.finish(m.divide, m.ranks), left, width == 8);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
        collbench_move(const __grid_constant__ MoveArgs m) {
    const u64 span = (m.bytes + gridDim.x * SPAN_BYTES - 1) / (gridDim.x * SPAN_BYTES) * SPAN_BYTES;
    const u64 first = blockIdx.x * span;
    if (first >= m.bytes) return;
    const u32 bytes = (u32)(span < m.bytes - first ? span : m.bytes - first);
#define SHAPE(count)                         \
    if (m.sources == count) {                \
        move_part<count>(m, first, bytes);   \
        return;                              \
    }
    SHAPES
#undef SHAPE
#if WIDE
    move_wide(m, first, bytes);
#endif
}
