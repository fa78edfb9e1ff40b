// Loads and stores with the memory order that each needs. They are written in PTX, so that no
// compiler splits, caches or moves them.
//
// Data that a peer rewrites during a kernel is never read through the non-coherent path. A plain
// load of data comes after an acquire of the flag that covers it, by this thread or, across a
// barrier, by another thread of the CTA. ITEM is the width of an element in bytes.
#pragma once

// ALIGNED: all pieces of user memory begin at multiples of the vectors that are used. WHOLE: they
// end there, too.
#ifndef ALIGNED
#define ALIGNED 0
#define WHOLE 0
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

[[maybe_unused]] static __device__ __forceinline__ uint2 low(uint4 v) {
    return make_uint2(v.x, v.y);
}
[[maybe_unused]] static __device__ __forceinline__ uint2 high(uint4 v) {
    return make_uint2(v.z, v.w);
}

// A number that is a type, so that code which depends on it is resolved at compile time.
template <u32 K>
struct Index {
    static constexpr u32 value = K;
    constexpr operator u32() const { return K; }
};

// Have something computed by here: the compiler moves what no instruction needs behind the wait for
// the launch in front, where time counts. The bits are those of addresses, which are not all 0.
[[maybe_unused]] static __device__ __forceinline__ void computed(u64 bits) {
    if (!bits) __trap();
}

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

// The address of the aligned vector, of WIDTH bytes, that holds the byte at `at`. What lies outside
// of an allocation is never read with it, because the byte lies inside.
template <u32 WIDTH>
static __device__ __forceinline__ const char* vector_of(const char* at) {
    return (const char*)((u64)at / WIDTH * WIDTH);
}

// Sixteen bytes that begin at `skip` of the first of two neighbouring vectors.
static __device__ __forceinline__ uint4 joined(uint4 a, uint4 b, u32 skip) {
    if (skip & 8) {
        a = make_uint4(a.z, a.w, b.x, b.y);
        b.x = b.z;
        b.y = b.w;
    }
    if (skip & 4) {
        a = make_uint4(a.y, a.z, a.w, b.x);
        b.x = b.y;
    }
    const u32 bits = skip % 4 * 8;
    return make_uint4(__funnelshift_r(a.x, a.y, bits), __funnelshift_r(a.y, a.z, bits),
        __funnelshift_r(a.z, a.w, bits), __funnelshift_r(a.w, b.x, bits));
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

static __device__ __forceinline__ uint2 load_pair(const char* at) {
    uint2 v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(at)
                 : "memory");
    return v;
}

// Eight bytes of user memory, of which `bytes` exist: what stands in the place of the others is of
// no use.
static __device__ __forceinline__ uint2 load8(const char* at, int bytes, bool is_aligned) {
    if (ALIGNED || is_aligned) return load_pair(at);
    const uint2 a = load_pair(vector_of<8>(at));
    const uint2 b = load_pair(vector_of<8>(at + (bytes < 8 ? bytes : 8) - 1));
    return low(joined(make_uint4(a.x, a.y, b.x, b.y), make_uint4(0, 0, 0, 0), (u64)at % 8));
}

static __device__ __forceinline__ void store8(char* at, uint2 v, int bytes, bool is_aligned) {
    if ((ALIGNED || is_aligned) && (WHOLE || bytes >= 8)) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(v.x), "r"(v.y) : "memory");
        return;
    }
    const u64 word = (u64)v.y << 32 | v.x;
#pragma unroll
    for (int i = 0; i < 8 / ITEM; ++i)
        if (i * ITEM < bytes) store_item(at + i * ITEM, word >> (i * ITEM * 8 % 64));
}
