// Stamps of when a CTA did what, for `trace`. Without the macro TRACE a kernel has nothing of it:
// its machine code is what it would be without these lines.
//
// Every CTA has a table of records in the order in which it does things, the same in every launch:
// record 0 is the start of the launch, then comes each slice of each stage of its track, and at
// last what it waits for at the end. A record is four times of %globaltimer, in nanoseconds: when
// it began to wait, when it was ready, when its bytes were moved, when its flags were set. One
// thread writes each. A kernel whose data carries flags waits for data while it moves bytes, so
// only its waits for slots end at STAMP_READY.
#pragma once
#include "memory.cuh"

#ifdef TRACE
#define TRACED(...) __VA_ARGS__
#define TRACE_PARAMETER , const Trace trace

enum Stamp : u32 { STAMP_BEGAN = 0, STAMP_READY = 1, STAMP_WORKED = 2, STAMP_POSTED = 3 };

struct Trace {
    u64* stamps;  // of CTA 0; each CTA has `records` of them
    u64 records;

    __device__ __forceinline__ void stamp(u32 number, Stamp which) const {
        if (number < records) stamps[(blockIdx.x * records + number) * 4 + which] = now_ns();
    }
};
#else
#define TRACED(...)
#define TRACE_PARAMETER
#endif
