// Bounded waiting: every spin polls an abort word and a clock, and a wait that times out reports
// for whom it waited.
//
// The abort word lies in the waiter's own memory. The first CTA that times out sets it on every
// GPU, so that all waits, and launches queued behind this one, end at once. Waits that are aborted
// report too: in a cyclic wait any CTA may time out first. From then on a kernel runs to its end
// without waiting. The data that it leaves is undefined.
//
// Args: the arguments of any kernel, as long as they have the names that are used here.
#pragma once
#include "memory.cuh"

// Polls of a flag between two checks of the clock and the abort word. Checks are rare, so that they
// do not delay the polls.
constexpr u32 POLLS_PER_CHECK = 4096;

// Why a CTA gave up waiting.
struct Report {
    u32 is_set, done, round, signal, rank, channel, track, peer;
    u64 wanted, seen;
};

// What a CTA waits for: the value of a flag, and where in the program the wait stands.
struct Wait {
    u32 signal, peer, channel, track, done, round;
    u64 wanted;
};

template <class Args>
static __device__ __noinline__ void give_up(const Args& a, const Wait wait, u64 seen) {
    Report* report = a.reports + blockIdx.x;
    if (atomicCAS(&report->is_set, 0u, 1u) == 0u) {
        report->done = wait.done;
        report->signal = wait.signal;
        report->rank = a.rank;
        report->channel = wait.channel;
        report->track = wait.track;
        report->round = wait.round;
        report->peer = wait.peer;
        report->wanted = wait.wanted;
        report->seen = seen;
        fence();
        for (u32 rank = 0; rank < a.ranks; ++rank) store_relaxed(a.aborts[rank], 1u);
    }
}

// Check the clock and the abort word, after POLLS_PER_CHECK failed polls. `since` is the time of
// the first check, or 0 before it. Returns that time if the wait goes on. Returns 0 if it is over
// because this wait timed out or another one did; then the wait is reported.
template <class Args>
static __device__ __noinline__ u64 check_deadline(const Args& a, u64 since, const Wait wait,
        u64 seen) {
    if (!load_relaxed(a.abort)) {
        const u64 now = now_ns();
        if (!since) return now;
        if (now - since < a.timeout_ns) return since;
    }
    give_up(a, wait, seen);
    return 0;
}

// Poll a flag until it has at least the wanted value. Returns the value, or all ones if the wait
// was aborted.
template <class Args>
static __device__ __noinline__ u64 poll(const Args& a, const u64* flag, const Wait wait) {
    u64 since = 0, seen;
    for (u32 polls = 1; (seen = load_acquire(flag)) < wait.wanted; ++polls)
        if (polls % POLLS_PER_CHECK == 0 && !(since = check_deadline(a, since, wait, seen)))
            return ~0ull;
    return seen;
}

// A pseudo-random pause of at most delay_ns, different for every rank, CTA and launch. A stress
// test uses it to vary the order of events.
template <class Args>
static __device__ __noinline__ void delay(const Args& a, u32 launch) {
    u32 hash = (launch * 0x9e3779b1u) ^ (a.rank * 0x85ebca6bu) ^ (blockIdx.x * 0xc2b2ae35u);
    hash = (hash ^ hash >> 15) * 0x2c1b3c6du;
    hash ^= hash >> 13;
    const u64 until = now_ns() + hash % a.delay_ns;
    while (now_ns() < until) {
    }
}
