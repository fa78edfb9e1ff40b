// Copies and reductions by the workers of a CTA: any number of operands that is known at compile
// time, at any alignment.
//
// WORKERS, the number of threads that do it, is a constant of the file that includes this one.
// UNROLL: 16-byte accesses that a thread has in flight for one operand.
#pragma once
#include "reduce.cuh"

[[maybe_unused]] constexpr u32 WARPS = WORKERS / 32;
constexpr u32 LINE = 128;  // a link carries whole lines of this size best

// The part of an operand in [begin, end), 16 bytes a thread and access, DEPTH accesses of each
// operand in flight. Targets are aligned to 16 bytes; sources too, unless ANYWHERE.
template <int DEPTH, bool ANYWHERE, int SOURCES, int TARGETS>
static __device__ __forceinline__ void move_vectors(char* const (&source)[SOURCES],
        char* const (&target)[TARGETS], u32 begin, u32 end, bool divide, u32 ranks) {
    constexpr u32 HUNK = DEPTH * 512;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u32 hunk = begin + warp * HUNK; hunk < end; hunk += WARPS * HUNK) {
        const u32 mine = hunk + lane * 16;
        uint4 v[SOURCES][DEPTH], next[SOURCES][DEPTH];
#pragma unroll
        for (int s = 0; s < SOURCES; ++s)
#pragma unroll
            for (int u = 0; u < DEPTH; ++u) {
                if (DEPTH == 1 && mine >= end) continue;
                const char* from = source[s] + mine + u * 512;
                v[s][u] = load16(ANYWHERE ? vector_of<16>(from) : from);
                if (ANYWHERE) next[s][u] = load16(vector_of<16>(from + 15));
            }
#pragma unroll
        for (int u = 0; u < DEPTH; ++u) {
            if (ANYWHERE)
#pragma unroll
                for (int s = 0; s < SOURCES; ++s)
                    v[s][u] = joined(v[s][u], next[s][u], (u64)(source[s] + begin) % 16);
            uint4 result = v[0][u];
            if constexpr (SOURCES > 1) {
                WideSum sum;
                sum.start(v[0][u]);
#pragma unroll
                for (int s = 1; s < SOURCES; ++s) sum.add(v[s][u]);
                result = sum.finish(divide, ranks);
            }
#pragma unroll
            for (int t = 0; t < TARGETS; ++t)
                if (DEPTH > 1 || mine < end) store16(target[t] + mine + u * 512, result);
        }
    }
}

// One element.
template <int SOURCES, int TARGETS>
static __device__ __forceinline__ void move_item(char* const (&source)[SOURCES],
        char* const (&target)[TARGETS], u32 at, bool divide, u32 ranks) {
    u64 word = load_item(source[0] + at);
    if constexpr (SOURCES > 1) {
        Sum sum;
        sum.start(make_uint2((u32)word, (u32)(word >> 32)));
#pragma unroll
        for (int s = 1; s < SOURCES; ++s) {
            word = load_item(source[s] + at);
            sum.add(make_uint2((u32)word, (u32)(word >> 32)));
        }
        const uint2 v = sum.finish(divide, ranks);
        word = (u64)v.y << 32 | v.x;
    }
#pragma unroll
    for (int t = 0; t < TARGETS; ++t) store_item(target[t] + at, word);
}

// Whether operands lie at the same place of their vectors.
template <int COUNT>
static __device__ __forceinline__ bool are_alike(char* const (&operand)[COUNT], const char* other) {
    u64 apart = 0;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) apart |= (u64)operand[k] - (u64)other;
    return apart % 16 == 0;
}

// Reduce sources to targets, which lie at the same place of their vectors: whole lines of the first
// target by vectors, the bytes before and after them by elements.
template <int SOURCES, int TARGETS>
static __device__ __forceinline__ void move(char* const (&source)[SOURCES],
        char* const (&target)[TARGETS], u32 bytes, bool divide, u32 ranks) {
    constexpr int DEEP = SOURCES <= 2 ? UNROLL : SOURCES <= 4 ? (UNROLL + 1) / 2 : (UNROLL + 3) / 4;
    auto vectors = [&](auto depth, auto anywhere, u32 begin, u32 end) {
        constexpr int U = decltype(depth)::value;
        constexpr bool ANYWHERE = decltype(anywhere)::value;
        const u32 deep = begin + (end - begin) / (U * 512) * (U * 512);
        if constexpr (U > 1)
            move_vectors<U, ANYWHERE>(source, target, begin, deep, divide, ranks);
        move_vectors<1, ANYWHERE>(source, target, U > 1 ? deep : begin, end, divide, ranks);
    };
    const u32 before = ALIGNED ? 0 : -(u32)(u64)target[0] % LINE;
    const u32 begin = before < bytes ? before : bytes;
    const u32 end = WHOLE ? bytes : begin + (bytes - begin) / 16 * 16;
    if (ALIGNED || are_alike(source, target[0])) vectors(Index<DEEP>{}, Index<0>{}, begin, end);
    else vectors(Index<SOURCES == 1 ? DEEP : (DEEP + 1) / 2>{}, Index<1>{}, begin, end);
    for (u32 at = threadIdx.x * ITEM; at < begin + bytes - end; at += WORKERS * ITEM)
        move_item(source, target, at < begin ? at : at - begin + end, divide, ranks);
}
