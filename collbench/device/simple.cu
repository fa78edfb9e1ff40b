// Protocol simple: plain data, then a counter that makes it valid.
//
// Launch: one CTA a channel and track, of THREADS threads. The last warp sets flags; all others are
// workers.
// A stage: the lanes of warp 0 wait, one lane a flag; barrier of the workers; the workers copy and
// reduce; barrier of all threads; the last warp signals what is done while the workers go on.
// Memory order: the workers' stores, barrier, fence.acq_rel.sys and relaxed store of the counter by
// the last warp; on the other GPU acquire of the counter by a lane of warp 0, barrier, plain loads
// by the workers. Counters of slices read need no fence, because the loads have completed.
//
// Macros besides those of types.cuh: THREADS; UNROLL, 16-byte accesses that a thread has in flight
// for one operand; SHAPES, a list of SHAPE(sources, targets) that the program uses; WIDE if some of
// its steps have more operands than are unrolled, and loop over them.
#include "program.cuh"
#include "walk.cuh"
#include "spin.cuh"
#include "trace.cuh"

constexpr u32 WORKERS = THREADS - 32;
#include "move.cuh"

static __device__ __forceinline__ void barrier_of_workers() {
    asm volatile("bar.sync 1, %0;" ::"n"(WORKERS) : "memory");
}

static __device__ __forceinline__ void barrier_of_all() {
    asm volatile("bar.sync 2, %0;" ::"n"(THREADS) : "memory");
}

struct Cta {
    const Args& a;
    const Program& program;
    u64 *seen_filled, *seen_read;  // the last values read, by end
    volatile u32* given_up;
    u32 track, launch;

    __device__ __forceinline__ char* address(const Walk& w, const OperandRef& ref,
            const ConnectionEnd* ends, Piece piece) const {
        if (ref.kind != SLOT) return buffer_at(a, w, ref, ends, piece.first);
        const ConnectionEnd& end = ends[ref.end];
        return slot(a, w, end, slice_number(w, end, ref.message)) + ref.chunk * a.piece_bytes;
    }

    // Wait for one flag, by one lane. At the end of a launch, when no loop is left, wait for all
    // slices that were ever sent.
    __device__ __forceinline__ void wait(const Walk& w, const Flag& flag, u32 round) const {
        const bool is_data = flag.signal == DATA;
        const ConnectionEnd& end = is_data ? a.receiving[flag.end] : a.sending[flag.end];
        Wait expected{flag.signal, end.peer, w.channel, track, w.done, round,
            (u64)slice_number(w, end, flag.message) + (w.loop.slices ? 1 : 0)};
        const u64* word = local_flag(w, end);
        if (flag.signal == READY) {
            expected.wanted = launch + 1;
            ++word;
        } else if (flag.signal == ROOM) {
            if (expected.wanted <= SLOTS) return;
            expected.wanted -= SLOTS;
        }
        u64* cached = is_data ? seen_filled + flag.end : seen_read + flag.end;
        if (flag.signal != READY && *cached >= expected.wanted) return;
        const u64 seen = poll(a, word, expected);
        if (seen == ~0ull) *given_up = 1;
        else if (flag.signal != READY) *cached = seen;
    }

    __device__ __forceinline__ void signal(const Walk& w, const Flag& flag) const {
        if (flag.signal == TAIL) {
            const ConnectionEnd& end = a.sending[flag.end];
            const u32 number = slice_number(w, end, flag.message) + 1;
#ifdef INJECT_DROP
            if (a.rank == 0 && w.channel == 0 && number > INJECT_DROP) return;
#endif
            fence();
            store_relaxed(remote_flag(w, end), number);
        } else if (flag.signal == HEAD) {
            const ConnectionEnd& end = a.receiving[flag.end];
            store_relaxed(remote_flag(w, end), slice_number(w, end, flag.message) + 1);
        } else {  // READY
            store_relaxed(remote_flag(w, a.receiving[flag.end]) + 1, (u64)launch + 1);
        }
    }

    template <int SOURCES, int TARGETS>
    __device__ __forceinline__ void run_shape(const Walk& w, const Step& step, Piece piece) const {
        char *source[SOURCES], *target[TARGETS];
#pragma unroll
        for (int s = 0; s < SOURCES; ++s)
            source[s] = address(w, step.source[s], a.receiving, piece);
#pragma unroll
        for (int t = 0; t < TARGETS; ++t) target[t] = address(w, step.target[t], a.sending, piece);
        if constexpr (TARGETS > 1 && !ALIGNED) {
            if (!are_alike(target, target[0])) {
                // each target by itself; the rank's own, which may be a source too, is the last
#pragma unroll 1
                for (int t = 0; t < TARGETS; ++t) {
                    char* one[1] = {address(w, step.target[t], a.sending, piece)};
                    move<SOURCES, 1>(source, one, piece.size, step.flags & DIVIDE, a.ranks);
                    barrier_of_workers();
                }
                return;
            }
        }
        move<SOURCES, TARGETS>(source, target, piece.size, step.flags & DIVIDE, a.ranks);
    }

#if WIDE
    // Any number of operands, eight bytes or one element at a time.
    __device__ __noinline__ void run_wide(const Walk& w, const Step& step, Piece piece) const {
        u64 bits = 0;
        for (u32 s = 0; s < step.sources; ++s)
            bits |= (u64)address(w, step.source[s], a.receiving, piece);
        for (u32 t = 0; t < step.targets; ++t)
            bits |= (u64)address(w, step.target[t], a.sending, piece);
        const u32 width = bits % 8 == 0 ? 8 : ITEM;
        for (u32 at = threadIdx.x * width; at < piece.size; at += WORKERS * width) {
            const int left = (int)least(width, piece.size - at);
            Sum sum;
            uint2 v = load8(address(w, step.source[0], a.receiving, piece) + at, left, width == 8);
            if (step.sources > 1) {
                sum.start(v);
                for (u32 s = 1; s < step.sources; ++s)
                    sum.add(load8(address(w, step.source[s], a.receiving, piece) + at, left,
                        width == 8));
                v = sum.finish(step.flags & DIVIDE, a.ranks);
            }
            for (u32 t = 0; t < step.targets; ++t)
                store8(address(w, step.target[t], a.sending, piece) + at, v, left, width == 8);
        }
    }

#endif

    __device__ __forceinline__ void run_step(const Walk& w, const Step& step) const {
        const Piece piece = piece_of(a, w, step.work);
        if (!piece.size) return;
        [[maybe_unused]] const u32 shape = step.sources << 8 | step.targets;
#define SHAPE(sources, targets)                          \
    if (shape == (sources << 8 | targets)) {             \
        run_shape<sources, targets>(w, step, piece);     \
        return;                                          \
    }
        SHAPES
#undef SHAPE
#if WIDE
        run_wide(w, step, piece);
#endif
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
        collbench_run(const __grid_constant__ Args a TRACE_PARAMETER) {
    begin_launch();
    TRACED(if (threadIdx.x == 0) trace.stamp(0, STAMP_BEGAN);)
    TRACED(u32 record = 0;)
    __shared__ Program program;
    __shared__ u64 seen[RECEIVING + SENDING];
    __shared__ u32 given_up;
    load_program(a.program, program);
#ifdef BLOCKS
    __shared__ Block blocks[BLOCKS];
    load_blocks(a.program, blockIdx.x / TRACKS, blocks);
#endif
    for (u32 i = threadIdx.x; i < RECEIVING + SENDING; i += THREADS) seen[i] = 0;
    wait_for_launch_in_front();
    TRACED(if (threadIdx.x == 0) trace.stamp(0, STAMP_READY);)
    if (threadIdx.x == 0) given_up = load_relaxed(a.abort);
    const State state = a.state[blockIdx.x];
    if (a.delay_ns) delay(a, state.launch);
    __syncthreads();
    if (given_up) return;
    const u32 lane = threadIdx.x % 32;
    const bool is_worker = threadIdx.x < WORKERS;
    Cta cta{a, program, seen, seen + RECEIVING, &given_up, blockIdx.x % TRACKS, state.launch};
    const Track& track = program.tracks[cta.track];
    Walk w;
#ifdef BLOCKS
    w.blocks = blocks;
#endif
    begin(a, w, blockIdx.x / TRACKS, state.done);
    if (!is_worker)
        for (u32 i = lane; i < track.readies; i += 32)
            cta.signal(w, program.signals[track.first_ready + i]);
    TRACED(if (threadIdx.x == 0) trace.stamp(0, STAMP_WORKED);)
    while (advance(a, w)) {
        for (u32 r = track.first_round; r < (u32)track.first_round + track.rounds; ++r) {
            const Round round = program.rounds[r];
            for (w.slice = 0; w.slice < w.loop.slices; ++w.slice) {
                for (u32 i = round.first_stage; i < (u32)round.first_stage + round.stages; ++i) {
                    const Stage stage = program.stages[i];
                    TRACED(++record;)
                    if (is_worker) {
                        TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_BEGAN);)
                        if (stage.waits) {
                            if (threadIdx.x < 32)
                                for (u32 k = lane; k < stage.waits && !given_up; k += 32)
                                    cta.wait(w, program.waits[stage.first_wait + k],
                                        r - track.first_round);
                            barrier_of_workers();
                        }
                        TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_READY);)
                        if (!*cta.given_up)
                            for (u32 k = 0; k < stage.steps; ++k)
                                cta.run_step(w, program.steps[stage.first_step + k]);
                        barrier_of_all();
                        TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_WORKED);)
                    } else {
                        barrier_of_all();
                        if (!*cta.given_up)
                            for (u32 k = lane; k < stage.signals; k += 32)
                                cta.signal(w, program.signals[stage.first_signal + k]);
                        TRACED(__syncwarp();)
                        TRACED(if (lane == 0) trace.stamp(record, STAMP_POSTED);)
                    }
                }
            }
            w.slice = 0;
        }
    }
    allow_launch_behind();
    TRACED(++record;)
    TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_BEGAN);)
    // wait until the peers have read what they pull zero-copy, before the next launch overwrites it
    if (threadIdx.x < 32 && !given_up)
        for (u32 k = lane; k < track.backs; k += 32)
            cta.wait(w, program.waits[track.first_back + k], track.rounds);
    TRACED(if (threadIdx.x < 32) __syncwarp();)
    TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_READY);)
    if (threadIdx.x == 0) {
        State next{w.done, state.launch + 1};
        a.state[blockIdx.x] = next;
    }
    TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_WORKED);)
    TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_POSTED);)
}
