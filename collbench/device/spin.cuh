// Waiting, with an end to it: every spin polls an abort word and a clock, and whoever gives up says for whom it waited.
//
// The word is in the waiter's own memory; whoever gives up first sets it on every GPU, so that all waits, and launches queued
// behind this one, end at once. Those that are told to stop report too: where all wait in a circle, whose clock ran out first is chance.
// From then on a kernel runs to its end without waiting; what it leaves behind is rubbish by contract.
#pragma once
#include "walk.cuh"

constexpr u32 POLLS_A_LOOK = 4096;  // of the awaited word, about a millisecond, between two looks at the clock and the abort word

static __device__ __noinline__ void give_up(const Args& a, u32 signal, u32 channel, u32 track, u32 round, u32 peer, u64 wanted, u64 seen) {
    Report* report = a.reports + blockIdx.x;
    if (atomicCAS(&report->is_set, 0u, 1u) == 0u) {
        report->signal = signal;
        report->rank = a.rank;
        report->channel = channel;
        report->track = track;
        report->round = round;
        report->peer = peer;
        report->wanted = wanted;
        report->seen = seen;
        fence();
        for (u32 rank = 0; rank < a.ranks; ++rank) store_relaxed(a.aborts[rank], 1u);
    }
}

// Whether to wait no longer: somebody gave up, or this wait took too long.
static __device__ __noinline__ bool look(const Args& a, u64 since) { return load_relaxed(a.abort) || now_ns() - since > a.timeout_ns; }

// The patience of one wait, asked after each failed poll; it looks at the clock one time in POLLS_A_LOOK.
struct Patience {
    u32 polls = 0;
    u64 since = 0;

    __device__ __forceinline__ bool is_over(const Args& a) {
        if (++polls % POLLS_A_LOOK) return false;
        if (!since) since = now_ns();
        return look(a, since);
    }
};

// A pause of its own for every rank, channel and launch, up to delay_ns: what a soak shakes out faults with.
static __device__ __noinline__ void pause(const Args& a, u32 launch) {
    u32 hash = (launch * 0x9e3779b1u) ^ (a.rank * 0x85ebca6bu) ^ (blockIdx.x * 0xc2b2ae35u);
    hash = (hash ^ hash >> 15) * 0x2c1b3c6du;
    hash ^= hash >> 13;
    const u64 until = now_ns() + hash % a.delay_ns;
    while (now_ns() < until) {
    }
}
