// The program as kernels see it: compiled in as constants, or copied into shared memory at the
// start of a launch. The same source serves both forms.
//
// In the compiled form, loops over the program are unrolled, their indices are constants of the
// type Index<K>, and the entries are constant-folded.
#pragma once
#include "types.cuh"

#ifdef COMPILED_PROGRAM
#include COMPILED_PROGRAM  // static constexpr Program PROGRAM = {...};

template <u32 FIRST, u32 COUNT, class Body>
static __device__ __forceinline__ void unrolled(Body&& body) {
    if constexpr (COUNT > 0) {
        body(Index<FIRST>{});
        unrolled<FIRST + 1, COUNT - 1>(body);
    }
}

// These macros hide the difference between the two forms. ENTRY declares `name` as an entry of a
// table. EACH loops over a range of indices. MY_TRACK selects the track that this CTA runs.
// OPERANDS precedes a loop over a step's operands. In the compiled form an entry is a reference: a
// copy would lie in local memory wherever one of its fields is not a constant yet.
#define ENTRY(name, table, index) constexpr const auto& name = PROGRAM.table[decltype(index)::value]
#define EACH(index, first, count, ...) \
    unrolled<(first), (count)>([&](auto index) __attribute__((always_inline)) __VA_ARGS__)
#define MY_TRACK(index, ...) \
    EACH(index, 0, TRACKS, { if (blockIdx.x % TRACKS == decltype(index)::value) __VA_ARGS__ })
#define OPERANDS _Pragma("unroll")
#else
#define ENTRY(name, table, index) const auto& name = program.table[index]
#define EACH(index, first, count, ...)                                                       \
    for (u32 index = (first), index##_end = (first) + (count); index < index##_end; ++index) \
    __VA_ARGS__
#define MY_TRACK(index, ...) EACH(index, blockIdx.x % TRACKS, 1, __VA_ARGS__)
#define OPERANDS _Pragma("unroll 1")
#endif

// Programmatic dependent launch: PDL says when the launch behind this one may take its place on the
// GPU, which it does once every CTA has allowed it.
enum Pdl { PDL_OFF = 0, PDL_EARLY = 1, PDL_LATE = 2 };

// The first instruction of a launch, as what comes before it delays the launch behind.
static __device__ __forceinline__ void begin_launch() {
    if (PDL == PDL_EARLY) asm volatile("griddepcontrol.launch_dependents;");
}

// Wait until the launch in front has ended and all that it wrote is visible. Nothing that a launch
// writes may be read before.
static __device__ __forceinline__ void wait_for_launch_in_front() {
    if (PDL != PDL_OFF) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The work of this CTA is nearly done.
static __device__ __forceinline__ void allow_launch_behind() {
    if (PDL == PDL_LATE) asm volatile("griddepcontrol.launch_dependents;");
}

// Copy the program to shared memory, by all threads together. A barrier must follow.
static __device__ __forceinline__ void load_program(const Program* from, Program& to) {
    static_assert(sizeof(Program) % 4 == 0, "copied by words");
    for (u32 i = threadIdx.x; i < sizeof(Program) / 4; i += blockDim.x)
        ((u32*)&to)[i] = ((const u32*)from)[i];
}

#ifdef BLOCKS
// Copy a channel's table of blocks, which lies behind the program, to shared memory, by all threads
// together. A barrier must follow.
static __device__ __forceinline__ void load_blocks(const Program* program, u32 channel,
        Block (&to)[BLOCKS]) {
    constexpr u64 BEHIND = (sizeof(Program) + sizeof(Block) - 1) / sizeof(Block) * sizeof(Block);
    const Block* from = (const Block*)((const char*)program + BEHIND) + channel * BLOCKS;
    for (u32 i = threadIdx.x; i < BLOCKS; i += blockDim.x) to[i] = from[i];
}
#endif
