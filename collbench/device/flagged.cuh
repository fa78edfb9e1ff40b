// The kernel of the protocols whose data carries its own flags (ll, ll128): no barrier and no fence in a step.
//
// Every thread (ll) or warp (ll128) sends and receives its own lines, always the same ones of a chunk, so it needs nobody else of its CTA.
// It checks by itself that slots are free, from a counter that it read at the start. Slots are given back for the whole CTA, behind a
// barrier: each time BATCH of them were read, half a window, and at the end of the launch.
//
// A protocol defines AT_ONCE, includes this and then defines run_step.
// Macros: THREADS; BATCH; SINGLE if no channel has more than one loop and all of a launch's messages fit the window; UNCREDITED if, further, a rank
// cannot end a launch before all that it sends to have begun it, and two launches' messages fit: then what it overwrites was read long
// ago, and nobody counts slots; FENCED if tracks of a rank pass data to each other through memory, so that lines must not overtake it.
#pragma once
#include "program.cuh"
#include "walk.cuh"
#include "spin.cuh"

// Move one piece. With AHEAD `rest` is called when the first loads of this step are on their way, before any of them is waited for.
template <bool AHEAD, class S, class Rest>
static __device__ __forceinline__ void run_step(const Args& a, const Walk& w, const S& step, Piece piece, u32 round, bool& given_up, Rest&& rest);

#ifdef COMPILED_PROGRAM
// How many steps of a stage may have their first loads on the way at once: such as pass on what lies in user memory, and write none of it.
// To ask early for lines that are still on their way only delays them: 8 KiB from three peers would take 3.35 us, not 3.07.
static constexpr u32 together(u32 first, u32 count) {
    u32 most = 1;
    for (u32 k = first; k < first + count; ++k) {
        const auto& step = PROGRAM.steps[k];
        most = step.sources > most ? step.sources : most;
        for (u32 s = 0; s < step.sources; ++s)
            if (step.source[s].kind == SLOT) return 1;
        for (u32 t = 0; t < step.targets; ++t)
            if (step.target[t].kind != SLOT) return 1;
    }
    return most < AT_ONCE ? AT_ONCE / most : 1;
}

// The steps of a stage.
template <u32 K, u32 COUNT, u32 TOGETHER>
static __device__ __forceinline__ void run_steps(const Args& a, const Walk& w, u32 round, bool& given_up) {
    if constexpr (COUNT > 0) {
        constexpr const auto& step = PROGRAM.steps[K];
        if constexpr (TOGETHER > 1 && COUNT > 1) {
            run_step<true>(a, w, step, piece_of(a, w, step.work), round, given_up, [&]() __attribute__((always_inline)) {
                run_steps<K + 1, (COUNT < TOGETHER ? COUNT : TOGETHER) - 1, TOGETHER - 1>(a, w, round, given_up);
            });
            if constexpr (COUNT > TOGETHER) run_steps<K + TOGETHER, COUNT - TOGETHER, TOGETHER>(a, w, round, given_up);
        } else {
            run_step<false>(a, w, step, piece_of(a, w, step.work), round, given_up, [] {});
            run_steps<K + 1, COUNT - 1, TOGETHER>(a, w, round, given_up);
        }
    }
}
#endif

// Wait until slice `number` of a sending end has a free slot, of which the end has `seen` come back.
static __device__ __forceinline__ void wait_for_room(const Args& a, const Walk& w, const End& end, u64& seen, u32 number, u32 round, bool& given_up) {
    if (__builtin_expect(number >= SLOTS + seen, 0) && !given_up) {
        seen = poll(a, heard(w, end), Wanted{ROOM, end.peer, w.channel, blockIdx.x % TRACKS, w.done, round, number + 1ull - SLOTS});
        if (seen == ~0ull) given_up = true;
    }
}

// A failed poll of a line; false if the wait is over without it.
static __device__ __forceinline__ bool keep_waiting(const Args& a, const Walk& w, const End& end, u32 number, u32 flag, u32 round, u32& polls, u64& since) {
    if (__builtin_expect(++polls % POLLS_A_LOOK != 0, 1)) return true;
    since = look(a, since, Wanted{DATA, end.peer, w.channel, blockIdx.x % TRACKS, w.done, round, number + 1ull}, flag);
    return since;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) collbench_run(const __grid_constant__ Args a) {
    const State state = a.state[blockIdx.x];
    bool given_up = false;  // the abort word is looked at by waits that last: asking here would delay every launch
    Walk w;
    begin(a, w, blockIdx.x / TRACKS, state.done);
#ifdef COMPILED_PROGRAM
    u64 seen[SENDING + !SENDING];
#if !UNCREDITED
#pragma unroll
    for (int e = 0; e < SENDING; ++e) seen[e] = load_relaxed(heard(w, a.sending[e]));
#endif
#else
    __shared__ Program program;
    __shared__ u64 seen[SENDING + !SENDING];
    fetch(a.program, program);
    for (int e = threadIdx.x; e < SENDING; e += THREADS) seen[e] = load_relaxed(heard(w, a.sending[e]));
    __syncthreads();
#endif
    if (a.delay_ns) pause(a, state.launch);
    MY_TRACK(t, {
        ENTRY(track, tracks, t);
#if SINGLE
        if (advance(a, w)) {
#else
        while (advance(a, w)) {
#endif
            EACH(r, track.first_round, track.rounds, {
                ENTRY(round, rounds, r);
                EACH(i, round.first_stage, round.stages, {
                    ENTRY(stage, stages, i);
                    EACH(k, stage.first_wait, stage.waits, {
                        ENTRY(mark, waits, k);
                        if (!UNCREDITED && mark.signal == ROOM) {
                            const End& end = a.sending[mark.end];
                            wait_for_room(a, w, end, seen[mark.end], slice_number(w, end, mark.message), u32(r) - track.first_round, given_up);
                        }
                    });
#ifdef COMPILED_PROGRAM
                    run_steps<stage.first_step, stage.steps, together(stage.first_step, stage.steps)>(a, w, u32(r) - track.first_round, given_up);
#else
                    EACH(k, stage.first_step, stage.steps, {
                        ENTRY(step, steps, k);
                        run_step<false>(a, w, step, piece_of(a, w, step.work), u32(r) - track.first_round, given_up, [] {});
                    });
#endif
#if !SINGLE
                    EACH(k, stage.first_post, stage.posts, {
                        ENTRY(mark, posts, k);
                        if (mark.signal == HEAD) {
                            const End& end = a.receiving[mark.end];
                            const u32 next = slice_number(w, end, mark.message) + 1;
                            if (next % BATCH == 0) {
                                __syncthreads();
                                if (threadIdx.x == 0) store_relaxed(said(w, end), next);
                            }
                        }
                    });
#endif
                });
            });
        }
#if SINGLE
        advance(a, w);
#endif
        __syncthreads();  // all have read the state and their lines
#if !UNCREDITED
        EACH(k, track.first_head, track.heads, {
            ENTRY(mark, posts, k);
            const End& end = a.receiving[mark.end];
            if (threadIdx.x == u32(k) % THREADS) store_relaxed(said(w, end), (u64)(w.done * end.per_loop));
        });
#endif
    });
    if (threadIdx.x == 0) {
        State next{w.done, state.launch + 1};
        a.state[blockIdx.x] = next;
    }
}
