// Loads and stores with the memory order that each needs. They are written in PTX, so that no
// compiler splits, caches or moves them.
//
// Data that a peer rewrites during a kernel is never read through the non-coherent path. A plain
// load of data comes after an acquire of the flag that covers it, by this thread or, across a
// barrier, by another thread of the CTA. ITEM is the width of an element in bytes.
#pragma once

#ifndef ALIGNED
#define ALIGNED 0
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A number that is a type, so that code which depends on it is resolved at compile time.
template <u32 K>
struct Index {
    static constexpr u32 value = K;
    constexpr operator u32() const { return K; }
};

static __device__ __forceinline__ u64 load_acquire(const u64* at) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

static __device__ __forceinline__ u64 load_relaxed(const u64* at) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

static __device__ __forceinline__ u32 load_relaxed(const u32* at) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

static __device__ __forceinline__ void store_relaxed(u64* at, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

static __device__ __forceinline__ void store_relaxed(u32* at, u32 value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

// Order all accesses before the fence with all accesses after it, for all GPUs. Accesses that other
// threads of the CTA made before a barrier are included.
static __device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

static __device__ __forceinline__ u64 now_ns() {
    u64 value;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(value));
    return value;
}

// Sixteen bytes of data in one access.
static __device__ __forceinline__ uint4 load16(const char* at) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void store16(char* at, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// A whole line with its flags. It never comes from a cache that the peer's store does not reach.
static __device__ __forceinline__ uint4 load_line(const char* at) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void store_line(char* at, uint4 v) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// One element of ITEM bytes, in the low bits of a 64-bit word.
static __device__ __forceinline__ u64 load_item(const char* at) {
#if ITEM == 1
    return *(const volatile u8*)at;
#elif ITEM == 2
    return *(const volatile u16*)at;
#elif ITEM == 4
    return *(const volatile u32*)at;
#else
    return *(const volatile u64*)at;
#endif
}

static __device__ __forceinline__ void store_item(char* at, u64 bits) {
#if ITEM == 1
    *(volatile u8*)at = (u8)bits;
#elif ITEM == 2
    *(volatile u16*)at = (u16)bits;
#elif ITEM == 4
    *(volatile u32*)at = (u32)bits;
#else
    *(volatile u64*)at = bits;
#endif
}

// Eight bytes of user memory, of which `bytes` exist, aligned to the element. With ALIGNED all of
// them exist and are aligned to eight bytes.
static __device__ __forceinline__ uint2 load8(const char* at, int bytes, bool is_aligned) {
    uint2 v = make_uint2(0, 0);
    if (ALIGNED || (is_aligned && bytes >= 8)) {
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                     : "=r"(v.x), "=r"(v.y)
                     : "l"(at)
                     : "memory");
        return v;
    }
    u64 word = 0;
#pragma unroll
    for (int i = 0; i < 8 / ITEM; ++i)
        if (i * ITEM < bytes) word |= load_item(at + i * ITEM) << (i * ITEM * 8 % 64);
    return make_uint2((u32)word, (u32)(word >> 32));
}

static __device__ __forceinline__ void store8(char* at, uint2 v, int bytes, bool is_aligned) {
    if (ALIGNED || (is_aligned && bytes >= 8)) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(v.x), "r"(v.y) : "memory");
        return;
    }
    const u64 word = (u64)v.y << 32 | v.x;
#pragma unroll
    for (int i = 0; i < 8 / ITEM; ++i)
        if (i * ITEM < bytes) store_item(at + i * ITEM, word >> (i * ITEM * 8 % 64));
}
