// Arithmetic of one element type and one reduction, on 32-bit words that hold packed elements.
//
// 16-bit floats and fp8 accumulate in float32 over all operands of a step and are rounded once.
// Integers wrap.
// DTYPE and REDOP are macros, numbered as in device/compile.py.
#pragma once
#include "memory.cuh"

enum Dtype {
    INT8 = 0, UINT8, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64, FLOAT8_E4M3, FLOAT8_E5M2
};
enum Redop { SUM = 0, PROD, MIN, MAX, AVG };

#if DTYPE == 0
typedef signed char Acc;
#elif DTYPE == 1
typedef u8 Acc;
#elif DTYPE == 2
typedef int Acc;
#elif DTYPE == 3
typedef long long Acc;
#elif DTYPE == 7
typedef double Acc;
#else
typedef float Acc;
#endif

constexpr bool IS_FLOAT = DTYPE >= FLOAT16;
constexpr int PER_8 = 8 / ITEM;  // elements in eight bytes

static __device__ __forceinline__ float half_to_float(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

static __device__ __forceinline__ u16 float_to_half(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Convert to bfloat16: to nearest, ties to even, as the conversion instruction of sm_80 does.
static __device__ __forceinline__ u16 float_to_bfloat(float value) {
#if __CUDA_ARCH__ >= 800
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

// Element i of eight bytes. The index is a constant once loops are unrolled.
static __device__ __forceinline__ Acc unpack(uint2 v, int i) {
    [[maybe_unused]] const u32 word = i * ITEM < 4 ? v.x : v.y;
    [[maybe_unused]] const int shift = i * ITEM * 8 % 32;
#if DTYPE == 0 || DTYPE == 1
    return (Acc)(word >> shift);
#elif DTYPE == 2
    return (int)word;
#elif DTYPE == 3
    return (long long)((u64)v.y << 32 | v.x);
#elif DTYPE == 4
    return half_to_float((u16)(word >> shift));
#elif DTYPE == 5
    return __uint_as_float(word >> shift << 16);
#elif DTYPE == 6
    return __uint_as_float(word);
#elif DTYPE == 7
    return __hiloint2double((int)v.y, (int)v.x);
#elif DTYPE == 8 || DTYPE == 9
    u32 halves;
    const u16 pair = (u16)(word >> shift & 0xff);
#if DTYPE == 8
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
#else
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(pair));
#endif
    return half_to_float((u16)halves);
#endif
}

static __device__ __forceinline__ void put(uint2& v, int i, u32 bits) {
    u32& word = i * ITEM < 4 ? v.x : v.y;
    word |= bits << i * ITEM * 8 % 32;
}

static __device__ __forceinline__ void pack(uint2& v, int i, Acc value) {
#if DTYPE == 0 || DTYPE == 1
    put(v, i, (u8)value);
#elif DTYPE == 2
    put(v, i, (u32)value);
#elif DTYPE == 3
    v.x = (u32)(u64)value;
    v.y = (u32)((u64)value >> 32);
#elif DTYPE == 4
    put(v, i, float_to_half(value));
#elif DTYPE == 5
    put(v, i, float_to_bfloat(value));
#elif DTYPE == 6
    put(v, i, __float_as_uint(value));
#elif DTYPE == 7
    v.x = (u32)__double2loint(value);
    v.y = (u32)__double2hiint(value);
#elif DTYPE == 8 || DTYPE == 9
    u16 pair;
#if DTYPE == 8
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(value));
#else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(value));
#endif
    put(v, i, pair & 0xff);
#endif
}

static __device__ __forceinline__ Acc combine(Acc a, Acc b) {
    if constexpr (REDOP == SUM || REDOP == AVG) {
        if constexpr (DTYPE == INT64) return (Acc)((u64)a + (u64)b);
        if constexpr (!IS_FLOAT) return (Acc)((u32)a + (u32)b);
        return a + b;
    } else if constexpr (REDOP == PROD) {
        if constexpr (DTYPE == INT64) return (Acc)((u64)a * (u64)b);
        if constexpr (!IS_FLOAT) return (Acc)((u32)a * (u32)b);
        return a * b;
    } else if constexpr (REDOP == MIN) {
        return b < a || b != b ? b : a;
    } else {
        return b > a || b != b ? b : a;
    }
}

// Divide a complete sum: floats round to nearest, integers towards zero.
static __device__ __forceinline__ Acc divided(Acc value, u32 ranks) {
    if constexpr (IS_FLOAT) return value / (Acc)ranks;
    return (Acc)((long long)value / (long long)ranks);
}

// The reduction of eight bytes in progress.
struct Sum {
    Acc value[PER_8];

    __device__ __forceinline__ void start(uint2 v) {
#pragma unroll
        for (int i = 0; i < PER_8; ++i) value[i] = unpack(v, i);
    }
    __device__ __forceinline__ void add(uint2 v) {
#pragma unroll
        for (int i = 0; i < PER_8; ++i) value[i] = combine(value[i], unpack(v, i));
    }
    __device__ __forceinline__ uint2 finish(bool divide, u32 ranks) {
        uint2 v = make_uint2(0, 0);
#pragma unroll
        for (int i = 0; i < PER_8; ++i) {
            if (REDOP == AVG && divide) value[i] = divided(value[i], ranks);
            pack(v, i, value[i]);
        }
        return v;
    }
};

// The same of sixteen bytes.
struct WideSum {
    Sum first, second;

    __device__ __forceinline__ void start(uint4 v) {
        first.start(low(v));
        second.start(high(v));
    }
    __device__ __forceinline__ void add(uint4 v) {
        first.add(low(v));
        second.add(high(v));
    }
    __device__ __forceinline__ uint4 finish(bool divide, u32 ranks) {
        const uint2 x = first.finish(divide, ranks), y = second.finish(divide, ranks);
        return make_uint4(x.x, x.y, y.x, y.y);
    }
};
