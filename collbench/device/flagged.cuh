// The kernel of the protocols whose data says that it came (ll, ll128, sentinel): a step has no
// barrier and no fence.
//
// Every thread (ll, sentinel) or warp (ll128) sends and receives its own lines, always the same ones of a
// chunk, so it does not synchronise with the rest of its CTA. It checks by itself that slots are
// free, by a counter that it read at the start. Slots are freed for the whole CTA behind a barrier:
// each time BATCH of them were read, which is half of the FIFO, and at the end of the launch.
//
// A protocol defines LOADS_IN_FLIGHT, CLEARS and PREPARES, includes this file and then defines
// run_step and, if it PREPARES addresses before the launch in front has ended, prepare. CLEARS: its
// readers clear what they read. Then a slot is free once the launch that cleared it has ended, which
// orders its stores: the next launch frees the slots of the one before, at its start.
// Macros: THREADS; BATCH; SINGLE if no channel has more than one loop and all messages of a launch
// fit the FIFO; UNCREDITED if, further, a rank cannot end a launch before all ranks that it sends
// to have begun it, and the messages of two launches fit: then every slot that it overwrites was
// read before, and no credits are counted; FENCED if tracks of a rank pass data to each other
// through memory, so that lines must not overtake it; ONE_PASS if a thread takes all its lines of a
// piece at once.
#pragma once
#include "program.cuh"
#include "walk.cuh"
#include "spin.cuh"
#include "trace.cuh"

// What is known of a step before the launch in front has ended: its piece and, if PREPARED, where
// the first lines of this thread lie in its operands, in slots in the first one of the FIFO.
struct Ready {
    Piece piece;
    char* source[MAX_SOURCES];
    char* target[MAX_TARGETS];
};

#ifdef COMPILED_PROGRAM
constexpr u32 operands() {
    u32 count = 0;
    for (const auto& step : PROGRAM.steps) count += step.sources + step.targets;
    return count;
}

// Addresses; more of them would take registers that data needs.
constexpr u32 MOST_PREPARED = THREADS > 512 ? 12 : 24;
constexpr bool PREPARED = PREPARES && SINGLE && TRACKS == 1 && operands()
    && operands() <= MOST_PREPARED;
// The state of the next launch is known from the start, and kept while data is on its way.
constexpr bool COUNTS_EARLY = SINGLE && (UNCREDITED || !RECEIVING) && TRACKS == 1;
#else
constexpr bool PREPARED = false, COUNTS_EARLY = false;
#endif

// Move one piece. With AHEAD, `rest` is called when the first loads of this step are in flight,
// before the step waits for any of them.
template <bool AHEAD, class S, class Rest>
static __device__ __forceinline__ void run_step(const Args& a, const Walk& w, const S& step,
        const Ready& ready, u32 round, bool& given_up, Rest&& rest);

#ifdef COMPILED_PROGRAM
// The number of steps of a stage that may have their first loads in flight at once. Only steps that
// read user memory and write none of it qualify: an early load of a line that has not arrived yet
// only delays it.
static constexpr u32 concurrent_steps(u32 first, u32 count) {
    u32 most = 1;
    for (u32 k = first; k < first + count; ++k) {
        const auto& step = PROGRAM.steps[k];
        most = step.sources > most ? step.sources : most;
        for (u32 s = 0; s < step.sources; ++s)
            if (step.source[s].kind == SLOT) return 1;
        for (u32 t = 0; t < step.targets; ++t)
            if (step.target[t].kind != SLOT) return 1;
    }
    return most < LOADS_IN_FLIGHT ? LOADS_IN_FLIGHT / most : 1;
}

// Fill in what step K has; returns the bits of all of it. K makes the call depend on a template:
// without PREPARED there need be no such function.
template <u32 K, class S>
static __device__ __forceinline__ u64 prepare(const Args& a, const Walk& w, const S& step,
        Ready& ready);

typedef Ready AllReady[PREPARED ? STEPS : 1];

template <u32 K>
static __device__ __forceinline__ u64 prepare_from(const Args& a, const Walk& w, AllReady& ready) {
    if constexpr (PREPARED && K < STEPS)
        return prepare<K>(a, w, PROGRAM.steps[K], ready[K]) | prepare_from<K + 1>(a, w, ready);
    return 0;
}

template <u32 K>
static __device__ __forceinline__ Ready ready_of(const Args& a, const Walk& w,
        const AllReady& ready) {
    if constexpr (PREPARED) return ready[K];
    return Ready{piece_of(a, w, PROGRAM.steps[K].work)};
}

// Run the steps of a stage, behind `waits`. Addresses that are PREPARED let loads be issued first.
template <u32 K, u32 COUNT, u32 CONCURRENT, class Waits>
static __device__ __forceinline__ void run_steps(const Args& a, const Walk& w,
        const AllReady& ready, u32 round, bool& given_up, Waits&& waits) {
    if constexpr (COUNT == 0) {
        waits();
    } else {
        constexpr const auto& step = PROGRAM.steps[K];
        auto nothing = []() __attribute__((always_inline)) {};
        if constexpr (CONCURRENT > 1 && (COUNT > 1 || PREPARED)) {
            constexpr u32 NEXT = (COUNT < CONCURRENT ? COUNT : CONCURRENT) - 1;
            auto rest = [&]() __attribute__((always_inline)) {
                run_steps<K + 1, NEXT, CONCURRENT - 1>(a, w, ready, round, given_up, waits);
            };
            run_step<true>(a, w, step, ready_of<K>(a, w, ready), round, given_up, rest);
            if constexpr (COUNT > CONCURRENT)
                run_steps<K + CONCURRENT, COUNT - CONCURRENT, CONCURRENT>(
                    a, w, ready, round, given_up, nothing);
        } else {
            constexpr bool AHEAD = PREPARED && !UNCREDITED && ONE_PASS;
            if constexpr (!AHEAD) waits();
            run_step<AHEAD>(a, w, step, ready_of<K>(a, w, ready), round, given_up, waits);
            run_steps<K + 1, COUNT - 1, CONCURRENT>(a, w, ready, round, given_up, nothing);
        }
    }
}
#endif

// Wait until slice `number` of a sending end has a free slot. `seen` is the number of slices that
// the receiver was last seen to have read.
static __device__ __forceinline__ void wait_for_room(const Args& a, const Walk& w,
        const ConnectionEnd& end, u64& seen, u32 number, u32 round, bool& given_up) {
    if (__builtin_expect(number >= SLOTS + seen, 0) && !given_up) {
        seen = poll(a, local_flag(w, end), Wait{ROOM, end.peer, w.channel, blockIdx.x % TRACKS,
            w.done, round, number + 1ull - SLOTS});
        if (seen == ~0ull) given_up = true;
    }
}

// Tell the senders of a track that the slices of so many were read.
#if UNCREDITED
#define GIVE_BACK(slices)
#else
#define GIVE_BACK(slices)                                                                \
    EACH(k, track.first_head, track.heads, {                                             \
        ENTRY(flag, signals, k);                                                         \
        const ConnectionEnd& end = a.receiving[flag.end];                                \
        if (threadIdx.x == u32(k) % THREADS)                                             \
            store_relaxed(remote_flag(w, end), (u64)((slices) * end.per_loop));          \
    })
#endif

// Count a failed poll of a line; false if the wait was aborted.
static __device__ __forceinline__ bool keep_waiting(const Args& a, const Walk& w,
        const ConnectionEnd& end, u32 number, u32 flag, u32 round, u32& polls, u64& since) {
    if (__builtin_expect(++polls % POLLS_PER_CHECK != 0, 1)) return true;
    since = check_deadline(a, since, Wait{DATA, end.peer, w.channel, blockIdx.x % TRACKS, w.done,
        round, number + 1ull}, flag);
    return since;
}

static __device__ __forceinline__ void keep_state(const Args& a, State state, u32 done) {
    if (threadIdx.x == 0) a.state[blockIdx.x] = State{done, state.launch + 1};
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
        collbench_run(const __grid_constant__ Args a TRACE_PARAMETER) {
    begin_launch();
    TRACED(if (threadIdx.x == 0) trace.stamp(0, STAMP_BEGAN);)
    TRACED(u32 record = 0;)
#ifndef COMPILED_PROGRAM
    __shared__ Program program;
    load_program(a.program, program);
#endif
#ifdef BLOCKS
    __shared__ Block blocks[BLOCKS];
    load_blocks(a.program, blockIdx.x / TRACKS, blocks);
    __syncthreads();
#endif
    Walk w;
#ifdef BLOCKS
    w.blocks = blocks;
#endif
    begin(a, w, blockIdx.x / TRACKS, 0);
#if SINGLE
    const bool has_work = advance(a, w);
#endif
#ifdef COMPILED_PROGRAM
    AllReady ready;
    if (PREPARED) computed(prepare_from<0>(a, w, ready));
#endif
    wait_for_launch_in_front();
    TRACED(if (threadIdx.x == 0) trace.stamp(0, STAMP_READY);)
    const State state = a.state[blockIdx.x];
    w.done = state.done;
    // waits that last check the abort word; a check here would delay every launch
    bool given_up = false;
#ifdef COMPILED_PROGRAM
    u64 seen[SENDING + !SENDING];
#if !UNCREDITED
#pragma unroll
    for (int e = 0; e < SENDING; ++e) seen[e] = load_relaxed(local_flag(w, a.sending[e]));
#endif
#else
    __shared__ u64 seen[SENDING + !SENDING];
    for (int e = threadIdx.x; e < SENDING; e += THREADS)
        seen[e] = load_relaxed(local_flag(w, a.sending[e]));
    __syncthreads();
#endif
    if (a.delay_ns) delay(a, state.launch);
    TRACED(if (threadIdx.x == 0) trace.stamp(0, STAMP_WORKED);)
    MY_TRACK(t, {
        ENTRY(track, tracks, t);
        if constexpr (CLEARS && !PREPARED) { GIVE_BACK(state.done); }
#if SINGLE
        if (has_work) {
#else
        while (advance(a, w)) {
#endif
            EACH(r, track.first_round, track.rounds, {
                ENTRY(round, rounds, r);
                EACH(i, round.first_stage, round.stages, {
                    ENTRY(stage, stages, i);
                    TRACED(++record;)
                    TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_BEGAN);)
                    auto wait_for_all = [&]() __attribute__((always_inline)) {
                        if constexpr (CLEARS && PREPARED) {
                            // loaded once more, behind the lines: nothing before them needs it
                            if (u32(i) == 0) GIVE_BACK(load_relaxed(&a.state[blockIdx.x].done));
                        }
                        EACH(k, stage.first_wait, stage.waits, {
                            ENTRY(flag, waits, k);
                            if (!UNCREDITED && flag.signal == ROOM) {
                                const ConnectionEnd& end = a.sending[flag.end];
                                wait_for_room(a, w, end, seen[flag.end],
                                    slice_number(w, end, flag.message),
                                    u32(r) - track.first_round, given_up);
                            }
                        });
                        TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_READY);)
                    };
#ifdef COMPILED_PROGRAM
                    constexpr u32 CONCURRENT = concurrent_steps(stage.first_step, stage.steps);
                    run_steps<stage.first_step, stage.steps, CONCURRENT>(
                        a, w, ready, u32(r) - track.first_round, given_up, wait_for_all);
                    if (COUNTS_EARLY && u32(r) == track.first_round
                        && u32(i) == round.first_stage) {
                        __syncthreads();  // all threads have read the state
                        keep_state(a, state, w.done + w.loop.slices);
                    }
#else
                    wait_for_all();
                    EACH(k, stage.first_step, stage.steps, {
                        ENTRY(step, steps, k);
                        run_step<false>(a, w, step, Ready{piece_of(a, w, step.work)},
                            u32(r) - track.first_round, given_up, [] {});
                    });
#endif
                    TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_WORKED);)
#if !SINGLE
                    EACH(k, stage.first_signal, stage.signals, {
                        ENTRY(flag, signals, k);
                        if (flag.signal == HEAD) {
                            const ConnectionEnd& end = a.receiving[flag.end];
                            const u32 next = slice_number(w, end, flag.message) + 1;
                            if (next % BATCH == 0) {
                                __syncthreads();
                                if (threadIdx.x == 0) store_relaxed(remote_flag(w, end), next);
                            }
                        }
                    });
#endif
                    TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_POSTED);)
                });
            });
        }
#if SINGLE
        advance(a, w);
#endif
        allow_launch_behind();
        TRACED(++record;)
        TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_BEGAN);)
        if (!COUNTS_EARLY) __syncthreads();  // all threads have read the state and their lines
        TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_READY);)
        if constexpr (!CLEARS) { GIVE_BACK(w.done); }
    });
    if (!COUNTS_EARLY) keep_state(a, state, w.done);
    TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_WORKED);)
    TRACED(if (threadIdx.x == 0) trace.stamp(record, STAMP_POSTED);)
}
