// Litmus tests (litmus.py): two CTAs race over cells of memory that both reach, and every cell
// of every round is a trial. The accesses are those of memory.cuh that the protocols make.
//
// Launch: CTAs of 64 threads, two for each pair of sides, or one where the sides run on two GPUs.
// All of them must be resident at once. In a test of one warp the second warp only waits; in a test
// of two, a barrier stands between what the warps do. Both sides meet (fence.acq_rel.sys before the
// flag is set, acquire where it is read), pause for a random moment, make their accesses and meet
// again; then side 1 counts. A wait that times out ends the launch on all GPUs (spin.cuh).
//
// Macros: TEST, BYTES (bytes of an access), WARPS, FENCED, AGAIN (data is read before the flag, or
// the line again after it). For tests: INJECT_UNORDERED, a writer without its store order.
#include "spin.cuh"

enum Test : u32 { MP = 0, LINE = 1, SB = 2, LB = 3, ENGINE = 4 };
constexpr u32 STEPS = 16, STRIDE = 128;  // accesses of a lane in a round; bytes between cells
constexpr u32 CELLS = STEPS * (TEST == LINE && BYTES == 128 ? 4 : 32);
constexpr u32 MEET_WORDS = 16;
[[maybe_unused]] constexpr u32 MOST_LOOKS = 64;  // at a flag or a credit, in a round
[[maybe_unused]] constexpr u32 PAUSE_NS = 20000;  // by which planted flags run ahead of their data

struct LitmusArgs {
    char *x, *y;    // [pairs][CELLS] of STRIDE bytes
    u64* meet;      // [pairs][2] of MEET_WORDS
    u32* seen;      // [pairs][CELLS][2] what each side read, for side 1 to count
    u64* counts;    // [4] outcomes, in memory of side 1
    Report* reports;
    u32* abort;
    u32* const* aborts;
    u64 timeout_ns;
    u32 rank, ranks, rounds, first_round, side, delay_ns;
};

static_assert(sizeof(LitmusArgs) == 96, "the host packs other arguments");

// Both sides are here; false if the other one did not come.
static __device__ __forceinline__ bool meet(const LitmusArgs& a, u32 pair, u32 side, u64 number) {
    bool is_lost = false;
    __syncthreads();
    if (threadIdx.x == 0) {
        fence();
        store_relaxed(a.meet + (pair * 2 + side) * MEET_WORDS, number);
        const u64* other = a.meet + (pair * 2 + 1 - side) * MEET_WORDS;
        is_lost = poll(a, other, Wait{0, 1 - side, pair, 0, 0, 0, number}) == ~0ull;
    }
    return !__syncthreads_or(is_lost);
}

[[maybe_unused]] static __device__ __forceinline__ void store_data(char* at, u32 n) {
    if (BYTES == 4) store_relaxed((u32*)at, n);
    else if (BYTES == 8) store_relaxed((u64*)at, (u64)n << 32 | n);
    else store16(at, make_uint4(n, n, n, n));
}

[[maybe_unused]] static __device__ __forceinline__ bool are_new(uint4 v, u32 n) {
    return v.x == n && v.y == n && v.z == n && v.w == n;
}

[[maybe_unused]] static __device__ __forceinline__ bool load_data(const char* at, u32 n) {
    if (BYTES == 4) return load_relaxed((const u32*)at) == n;
    if (BYTES == 8) return load_relaxed((const u64*)at) == ((u64)n << 32 | n);
    return are_new(load16(at), n);
}

[[maybe_unused]] static __device__ __forceinline__ void store_flag(char* at, u32 n) {
    if (FENCED) fence();
    store_relaxed((u64*)at, (u64)n);
}

[[maybe_unused]] static __device__ __forceinline__ bool load_flag(const char* at, u32 n) {
    return (FENCED ? load_acquire((const u64*)at) : load_relaxed((const u64*)at)) == n;
}

// Planted: the flags of all cells of a round are stored so long before the first data.
[[maybe_unused]] static __device__ __forceinline__ void run_ahead() {
    const u64 until = now_ns() + PAUSE_NS;
    while (now_ns() < until) {
    }
}

struct Counts {
    u32 of[4] = {0, 0, 0, 0};

    __device__ __forceinline__ void add(bool first, bool second) {
        of[0] += !first && !second;
        of[1] += !first && second;
        of[2] += first && !second;
        of[3] += first && second;
    }
};

#if TEST == 1
static __device__ __forceinline__ void play(const LitmusArgs& a, u32 pair, u32 side, u32 n,
        Counts& counts) {
    if (threadIdx.x >= 32) return;
    constexpr u32 LANES = BYTES == 128 ? 8 : 1;  // of a line
    const u32 part = threadIdx.x % LANES;
    const u32 first = pair * CELLS + threadIdx.x / LANES;
#ifdef INJECT_UNORDERED
    for (u32 k = 0; side == 0 && k < STEPS; ++k) {
        char* at = a.x + (u64)(first + k * 32 / LANES) * STRIDE + part * 16;
        if (part == LANES - 1) store_line(at, make_uint4(n, n, n, n));
    }
    if (side == 0) run_ahead();
#endif
    for (u32 k = 0; k < STEPS; ++k) {
        char* at = a.x + (u64)(first + k * 32 / LANES) * STRIDE + part * 16;
        if (side == 0) {
            // the lanes of a warp store a line together
            store_line(at, make_uint4(n, n, n, n));
            continue;
        }
        uint4 v = load_line(at);
        if (BYTES == 8) {  // each half has a flag of its own
            counts.add(v.y == n, v.x == n);
            counts.add(v.w == n, v.z == n);
        } else if (BYTES == 16) {
            counts.add(v.w == n, v.x == n && v.y == n && v.z == n);
        } else {
            const u32 flags = __ballot_sync(~0u, v.z == n && v.w == n);
            if (AGAIN) v = load_line(at);
            const bool is_new = v.x == n && v.y == n && (part == 7 || (v.z == n && v.w == n));
            const u32 data = __ballot_sync(~0u, is_new) >> (threadIdx.x & 24) & 0xff;
            if (part == 0) counts.add(flags >> (threadIdx.x | 7) & 1, data == 0xff);
        }
    }
}
#else
static __device__ __forceinline__ void play(const LitmusArgs& a, u32 pair, u32 side, u32 n,
        Counts& counts) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 second = WARPS - 1;  // the warp that makes the second access
    [[maybe_unused]] __shared__ bool told[32];
#ifdef INJECT_UNORDERED
    for (u32 k = 0; TEST == MP && side == 0 && warp == 0 && k < STEPS; ++k) {
        char* y = a.y + (u64)(pair * CELLS + k * 32 + lane) * STRIDE;
        store_relaxed((u64*)y, (u64)n);
    }
    if (TEST == MP && side == 0) run_ahead();
#endif
    for (u32 k = 0; k < STEPS; ++k) {
        const u32 cell = pair * CELLS + k * 32 + lane;
        char *x = a.x + (u64)cell * STRIDE, *y = a.y + (u64)cell * STRIDE;
        if (TEST == MP && side == 0) {
            if (warp == 0) store_data(x, n);
            if (WARPS > 1) __syncthreads();
            if (warp == second) store_flag(y, n);
        } else if (TEST == MP) {
            if (AGAIN && warp == second) load_data(x, n);
            bool flag = false;
            if (warp == 0) flag = load_flag(y, n);
            // Fences make the writer slow: the reader would be past before the first flag. Without
            // one it looks once, because a vote would keep the data behind the flag.
            for (u32 looks = 1; FENCED && warp == 0 && looks < MOST_LOOKS; ++looks) {
                if (__any_sync(~0u, flag)) break;
                flag = load_flag(y, n);
            }
            if (WARPS > 1) {
                if (warp == 0) told[lane] = flag;
                __syncthreads();
                flag = told[lane];
            }
            if (warp == second) counts.add(flag, load_data(x, n));
            if (WARPS > 1) __syncthreads();
        } else if (TEST == SB && warp == 0) {
            store_relaxed((u64*)(side ? y : x), (u64)n);
            if (FENCED) fence();
            a.seen[(u64)cell * 2 + side] = load_relaxed((u64*)(side ? x : y)) == n;
        } else if (TEST == LB && side == 0) {
            // a line is read, then its slot is given back by another warp
            if (warp == 0) {
                const uint4 v = load_line(x);
                a.seen[(u64)cell * 2] = v.x == n || v.y == n || v.z == n || v.w == n;
            }
            __syncthreads();
            if (warp == 1) store_relaxed((u64*)y, (u64)n);
        } else if (TEST == LB && warp == 0) {
            bool is_free = false;
            for (u32 looks = 0; looks < MOST_LOOKS && !is_free; ++looks)
                is_free = load_relaxed((u64*)y) == n;
            if (is_free) store_line(x, make_uint4(n, n, n, n));
            a.seen[(u64)cell * 2 + 1] = is_free;
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(64)
        collbench_litmus(const __grid_constant__ LitmusArgs a) {
    const u32 pair = a.side < 2 ? blockIdx.x : blockIdx.x / 2;
    const u32 side = a.side < 2 ? a.side : blockIdx.x % 2;
    Counts counts;
    for (u32 round = 0; round < a.rounds; ++round) {
        const u32 n = a.first_round + round;
        if (!meet(a, pair, side, 2ull * n)) return;
        delay(a, n);
        play(a, pair, side, n, counts);
        if (!meet(a, pair, side, 2ull * n + 1)) return;
        if ((TEST == SB || TEST == LB) && side == 1 && threadIdx.x < 32)
            for (u32 k = 0; k < STEPS; ++k) {
                const u32* seen = a.seen + 2ull * (pair * CELLS + k * 32 + threadIdx.x);
                counts.add(load_relaxed(seen), load_relaxed(seen + 1));
            }
    }
    if (side == 1)
        for (u32 k = 0; k < 4; ++k)
            if (counts.of[k]) atomicAdd(a.counts + k, (u64)counts.of[k]);
}

// Behind a copy by the engine, in its stream: the flag, as collbench_signal sets one.
extern "C" __global__ void __launch_bounds__(32)
        collbench_litmus_signal(const __grid_constant__ LitmusArgs a) {
    fence();
    if (threadIdx.x == 0) store_relaxed(a.meet, (u64)a.first_round);
}

// Meanwhile: wait for the flag, then read what the engine copied; `rounds` cells of 16 bytes.
extern "C" __global__ void __launch_bounds__(64)
        collbench_litmus_await(const __grid_constant__ LitmusArgs a) {
    bool is_lost = false;
    const u32 n = a.first_round;
    if (threadIdx.x == 0) is_lost = poll(a, a.meet, Wait{0, 0, 0, 0, 0, 0, n}) == ~0ull;
    if (__syncthreads_or(is_lost)) return;
    Counts counts;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 cell = (u64)blockIdx.x * blockDim.x + threadIdx.x; cell < a.rounds; cell += stride)
        counts.add(true, are_new(load16(a.x + cell * 16), n));
    for (u32 k = 2; k < 4; ++k)
        if (counts.of[k]) atomicAdd(a.counts + k, (u64)counts.of[k]);
}
