// Copies and reductions by the workers of a CTA: any number of operands that is known at compile
// time, at any alignment.
//
// WORKERS, the number of threads that do it, is a constant of the file that includes this one.
// UNROLL: 16-byte accesses that a thread has in flight for one operand.
#pragma once
#include "reduce.cuh"

[[maybe_unused]] constexpr u32 WARPS = WORKERS / 32;

[[maybe_unused]] static __device__ __forceinline__ uint2 low(uint4 v) {
    return make_uint2(v.x, v.y);
}
[[maybe_unused]] static __device__ __forceinline__ uint2 high(uint4 v) {
    return make_uint2(v.z, v.w);
}

// Reduce sources to targets: 16 bytes a thread and access where all are aligned, element by element
// where they are not.
template <int SOURCES, int TARGETS>
static __device__ __forceinline__ void move(char* const (&source)[SOURCES],
        char* const (&target)[TARGETS], u32 bytes, bool divide, u32 ranks) {
    constexpr int DEEP = SOURCES <= 2 ? UNROLL : SOURCES <= 4 ? (UNROLL + 1) / 2 : (UNROLL + 3) / 4;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 bits = 0;
#pragma unroll
    for (int s = 0; s < SOURCES; ++s) bits |= (u64)source[s];
#pragma unroll
    for (int t = 0; t < TARGETS; ++t) bits |= (u64)target[t];
    u32 at = 0;
    if (bits % 16 == 0) {
        auto pass = [&](auto depth, u32 begin, u32 end) {
            constexpr int U = decltype(depth)::value;
            constexpr u32 HUNK = U * 512;
            for (u32 hunk = begin + warp * HUNK; hunk < end; hunk += WARPS * HUNK) {
                const u32 mine = hunk + lane * 16;
                uint4 v[SOURCES][U];
#pragma unroll
                for (int s = 0; s < SOURCES; ++s)
#pragma unroll
                    for (int u = 0; u < U; ++u)
                        if (U > 1 || mine < end) v[s][u] = load16(source[s] + mine + u * 512);
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    uint4 result = v[0][u];
                    if constexpr (SOURCES > 1) {
                        Sum a, b;
                        a.start(low(v[0][u]));
                        b.start(high(v[0][u]));
#pragma unroll
                        for (int s = 1; s < SOURCES; ++s) {
                            a.add(low(v[s][u]));
                            b.add(high(v[s][u]));
                        }
                        const uint2 x = a.finish(divide, ranks), y = b.finish(divide, ranks);
                        result = make_uint4(x.x, x.y, y.x, y.y);
                    }
#pragma unroll
                    for (int t = 0; t < TARGETS; ++t)
                        if (U > 1 || mine < end) store16(target[t] + mine + u * 512, result);
                }
            }
        };
        const u32 deep = bytes / (DEEP * 512) * (DEEP * 512);
        if constexpr (DEEP > 1) pass(Index<DEEP>{}, 0, deep);
        at = bytes / 16 * 16;
        pass(Index<1>{}, DEEP > 1 ? deep : 0, at);
    }
    for (at += threadIdx.x * ITEM; at < bytes; at += WORKERS * ITEM) {
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
}
