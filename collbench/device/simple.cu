// Protocol simple: data as it is, then a counter that says so.
//
// Launch: one CTA a channel and track; THREADS threads, of which the last warp only hands over and all others are workers.
// A stage: lanes of warp 0 wait, one for each mark; barrier of the workers; workers copy and reduce; barrier of all; the last warp says
// what is done while the workers go on.
// Memory order: workers' stores, barrier, fence.acq_rel.sys and relaxed store of the counter by the last warp; acquire of the counter by a
// lane of warp 0 on the other GPU, barrier, plain loads by its workers. Counters of slices read need no fence: the loads are over.
//
// Macros beside those of types.cuh: THREADS; UNROLL, 16-byte accesses in flight a thread for one operand; SHAPES, a list of
// SHAPE(sources, targets) that the program uses; WIDE if some of its steps have more operands than are unrolled, and loop over them.
#include "program.cuh"
#include "walk.cuh"
#include "spin.cuh"

constexpr u32 WORKERS = THREADS - 32;
#include "move.cuh"

static __device__ __forceinline__ void meet_workers() { asm volatile("bar.sync 1, %0;" ::"n"(WORKERS) : "memory"); }
static __device__ __forceinline__ void meet_all() { asm volatile("bar.sync 2, %0;" ::"n"(THREADS) : "memory"); }

struct Cta {
    const Args& a;
    const Program& program;
    u64 *seen_filled, *seen_read;  // the last values heard, by end
    volatile u32* given_up;
    u32 track, launch;

    __device__ __forceinline__ char* address(const Walk& w, const Ref& ref, const End* ends, Piece piece) const {
        if (ref.kind != SLOT) return buffer_at(a, w, ref, ends, piece.first);
        const End& end = ends[ref.end];
        return slot(a, w, end, slice_number(w, end, ref.message)) + ref.chunk * a.piece_bytes;
    }

    // Wait for one mark; by one lane. At the end of a launch, when no loop is left, for all that was ever sent.
    __device__ __forceinline__ void wait(const Walk& w, const Mark& mark, u32 round) const {
        const bool is_data = mark.signal == DATA;
        const End& end = is_data ? a.receiving[mark.end] : a.sending[mark.end];
        Wanted what{mark.signal, end.peer, w.channel, track, w.done, round, (u64)slice_number(w, end, mark.message) + (w.loop.slices ? 1 : 0)};
        const u64* word = heard(w, end);
        if (mark.signal == READY) {
            what.wanted = launch + 1;
            ++word;
        } else if (mark.signal == ROOM) {
            if (what.wanted <= SLOTS) return;
            what.wanted -= SLOTS;
        }
        u64* cached = is_data ? seen_filled + mark.end : seen_read + mark.end;
        if (mark.signal != READY && *cached >= what.wanted) return;
        const u64 seen = poll(a, word, what);
        if (seen == ~0ull) *given_up = 1;
        else if (mark.signal != READY) *cached = seen;
    }

    __device__ __forceinline__ void say(const Walk& w, const Mark& mark) const {
        if (mark.signal == TAIL) {
            const End& end = a.sending[mark.end];
            const u32 number = slice_number(w, end, mark.message) + 1;
#ifdef INJECT_DROP
            if (a.rank == 0 && w.channel == 0 && number > INJECT_DROP) return;
#endif
            fence();
            store_relaxed(said(w, end), number);
        } else if (mark.signal == HEAD) {
            const End& end = a.receiving[mark.end];
            store_relaxed(said(w, end), slice_number(w, end, mark.message) + 1);
        } else {  // READY
            store_relaxed(said(w, a.receiving[mark.end]) + 1, (u64)launch + 1);
        }
    }

    template <int SOURCES, int TARGETS>
    __device__ __forceinline__ void run_shape(const Walk& w, const Step& step, Piece piece) const {
        char *source[SOURCES], *target[TARGETS];
#pragma unroll
        for (int s = 0; s < SOURCES; ++s) source[s] = address(w, step.source[s], a.receiving, piece);
#pragma unroll
        for (int t = 0; t < TARGETS; ++t) target[t] = address(w, step.target[t], a.sending, piece);
        move<SOURCES, TARGETS>(source, target, piece.size, step.flags & DIVIDE, a.ranks);
    }

#if WIDE
    // Any number of operands, eight bytes or an element at a time.
    __device__ __noinline__ void run_wide(const Walk& w, const Step& step, Piece piece) const {
        u64 bits = 0;
        for (u32 s = 0; s < step.sources; ++s) bits |= (u64)address(w, step.source[s], a.receiving, piece);
        for (u32 t = 0; t < step.targets; ++t) bits |= (u64)address(w, step.target[t], a.sending, piece);
        const u32 width = bits % 8 == 0 ? 8 : ITEM;
        for (u32 at = threadIdx.x * width; at < piece.size; at += WORKERS * width) {
            const int left = (int)least(width, piece.size - at);
            Sum sum;
            uint2 v = load8(address(w, step.source[0], a.receiving, piece) + at, left, width == 8);
            if (step.sources > 1) {
                sum.start(v);
                for (u32 s = 1; s < step.sources; ++s) sum.add(load8(address(w, step.source[s], a.receiving, piece) + at, left, width == 8));
                v = sum.finish(step.flags & DIVIDE, a.ranks);
            }
            for (u32 t = 0; t < step.targets; ++t) store8(address(w, step.target[t], a.sending, piece) + at, v, left, width == 8);
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

extern "C" __global__ void __launch_bounds__(THREADS, 1) collbench_run(const __grid_constant__ Args a) {
    __shared__ Program program;
    __shared__ u64 seen[RECEIVING + SENDING];
    __shared__ u32 given_up;
    fetch(a.program, program);
    for (u32 i = threadIdx.x; i < RECEIVING + SENDING; i += THREADS) seen[i] = 0;
    if (threadIdx.x == 0) given_up = load_relaxed(a.abort);
    const State state = a.state[blockIdx.x];
    if (a.delay_ns) pause(a, state.launch);
    __syncthreads();
    if (given_up) return;
    const u32 lane = threadIdx.x % 32;
    const bool is_worker = threadIdx.x < WORKERS;
    Cta cta{a, program, seen, seen + RECEIVING, &given_up, blockIdx.x % TRACKS, state.launch};
    const Track& track = program.tracks[cta.track];
    Walk w;
    begin(a, w, blockIdx.x / TRACKS, state.done);
    if (!is_worker)
        for (u32 i = lane; i < track.readies; i += 32) cta.say(w, program.posts[track.first_ready + i]);
    while (advance(a, w)) {
        for (u32 r = track.first_round; r < (u32)track.first_round + track.rounds; ++r) {
            const Round round = program.rounds[r];
            for (w.slice = 0; w.slice < w.loop.slices; ++w.slice) {
                for (u32 i = round.first_stage; i < (u32)round.first_stage + round.stages; ++i) {
                    const Stage stage = program.stages[i];
                    if (is_worker) {
                        if (stage.waits) {
                            if (threadIdx.x < 32)
                                for (u32 k = lane; k < stage.waits && !given_up; k += 32)
                                    cta.wait(w, program.waits[stage.first_wait + k], r - track.first_round);
                            meet_workers();
                        }
                        if (!*cta.given_up)
                            for (u32 k = 0; k < stage.steps; ++k) cta.run_step(w, program.steps[stage.first_step + k]);
                        meet_all();
                    } else {
                        meet_all();
                        if (!*cta.given_up)
                            for (u32 k = lane; k < stage.posts; k += 32) cta.say(w, program.posts[stage.first_post + k]);
                    }
                }
            }
            w.slice = 0;
        }
    }
    if (threadIdx.x < 32 && !given_up)  // what was lent is back before the next launch may overwrite it
        for (u32 k = lane; k < track.backs; k += 32) cta.wait(w, program.waits[track.first_back + k], track.rounds);
    if (threadIdx.x == 0) {
        State next{w.done, state.launch + 1};
        a.state[blockIdx.x] = next;
    }
}
