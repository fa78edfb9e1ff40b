// Waiting, with an end to it: every spin polls an abort word and a clock, and whoever gives up says for whom it waited.
//
// The word is in the waiter's own memory; whoever gives up first sets it on every GPU, so that all waits, and launches queued
// behind this one, end at once. Those that are told to stop report too: where all wait in a circle, whose clock ran out first is chance.
// From then on a kernel runs to its end without waiting; what it leaves behind is rubbish by contract.
//
// Args: any kernel's arguments that have these names.
#pragma once
#include "memory.cuh"

constexpr u32 POLLS_A_LOOK = 4096;  // of the awaited word, about a millisecond, between two looks at the clock and the abort word

// Why a CTA gave up waiting.
struct Report {
    u32 is_set, done, round, signal, rank, channel, track, peer;
    u64 wanted, seen;
};

// What a wait is for.
struct Wanted {
    u32 signal, peer, channel, track, done, round;
    u64 wanted;
};

template <class Args>
static __device__ __noinline__ void give_up(const Args& a, const Wanted what, u64 seen) {
    Report* report = a.reports + blockIdx.x;
    if (atomicCAS(&report->is_set, 0u, 1u) == 0u) {
        report->done = what.done;
        report->signal = what.signal;
        report->rank = a.rank;
        report->channel = what.channel;
        report->track = what.track;
        report->round = what.round;
        report->peer = what.peer;
        report->wanted = what.wanted;
        report->seen = seen;
        fence();
        for (u32 rank = 0; rank < a.ranks; ++rank) store_relaxed(a.aborts[rank], 1u);
    }
}

// One look at the clock and the abort word, after POLLS_A_LOOK failed polls; `since` is 0 at first. Returns since when the wait lasts, or 0
// if it is over, because somebody gave up or this one does, and reports what it wanted.
template <class Args>
static __device__ __noinline__ u64 look(const Args& a, u64 since, const Wanted what, u64 seen) {
    if (!load_relaxed(a.abort)) {
        const u64 now = now_ns();
        if (!since) return now;
        if (now - since < a.timeout_ns) return since;
    }
    give_up(a, what, seen);
    return 0;
}

// Poll a counter until it is at least what is wanted; returns it, or all ones if the wait is over without it.
template <class Args>
static __device__ __noinline__ u64 poll(const Args& a, const u64* word, const Wanted what) {
    u64 since = 0, seen;
    for (u32 polls = 1; (seen = load_acquire(word)) < what.wanted; ++polls)
        if (polls % POLLS_A_LOOK == 0 && !(since = look(a, since, what, seen))) return ~0ull;
    return seen;
}

// A pause of its own for every rank, channel and launch, up to delay_ns: what a soak shakes out faults with.
template <class Args>
static __device__ __noinline__ void pause(const Args& a, u32 launch) {
    u32 hash = (launch * 0x9e3779b1u) ^ (a.rank * 0x85ebca6bu) ^ (blockIdx.x * 0xc2b2ae35u);
    hash = (hash ^ hash >> 15) * 0x2c1b3c6du;
    hash ^= hash >> 13;
    const u64 until = now_ns() + hash % a.delay_ns;
    while (now_ns() < until) {
    }
}
