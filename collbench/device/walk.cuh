// How a CTA walks its part of the data: the geometry of plan.py's loops, chunks and slices, and the
// addresses of a program's operands.
//
// Macros: ITEM, the width of an element; SLOTS of a FIFO; PARTS, the chunks of a loop, 0 if the
// collective is blocked; SLICED if messages may have more than one slice; NARROW if a set of user
// buffers is smaller than 2 GiB. They are macros because constants need no division and no 64-bit
// arithmetic.
// With BLOCKS (types.cuh) a table says where blocks begin and end. Loops go on until the longest
// part of a block is done; pieces of shorter ones are empty by then.
#pragma once
#include "types.cuh"

constexpr u64 GRAIN = 64;  // plan.GRAIN_BYTES

#if NARROW
typedef u32 Size;  // counts the bytes of a set of user buffers
#else
typedef u64 Size;
#endif

static __device__ __forceinline__ Size least(Size a, Size b) { return a < b ? a : b; }

// One loop of a channel: its first byte in the block, its size, the size of a chunk, and the slices
// of a message.
struct Loop {
    Size offset, size;
    u32 chunk, slices;
};

// The position of a CTA: its channel, the end of its range, the slices done over all launches, the
// loop and the slice.
struct Walk {
    u32 channel;
    Size end;
    u32 done;
    Loop loop;
    u32 slice;
#ifdef BLOCKS
    const Block* blocks;  // the channel's, set before begin()
#endif
};

static __device__ __forceinline__ void begin(const Args& a, Walk& w, u32 channel, u32 done) {
    w.channel = channel;
    w.done = done;
    w.slice = 0;
#ifdef BLOCKS
    w.loop.offset = 0;
    w.end = (Size)w.blocks[0].size;
#else
    w.loop.offset = least(channel * (Size)a.share_bytes, a.block_bytes);
    w.end = w.loop.offset + least((Size)a.share_bytes, (Size)a.block_bytes - w.loop.offset);
#endif
    w.loop.size = 0;
    w.loop.chunk = w.loop.slices = 0;
}

// Go on to the next loop; false if there is none.
static __device__ __forceinline__ bool advance(const Args& a, Walk& w) {
    w.done += w.loop.slices;
    w.loop.offset += w.loop.size;
    w.loop.slices = 0;
    if (w.loop.offset >= w.end) return false;
    const Size left = w.end - w.loop.offset;
    constexpr u32 CUT = PARTS ? PARTS : 1;
    const Size full = (Size)CUT * a.chunk_bytes;
    w.loop.chunk = a.chunk_bytes;
    w.loop.size = full;
    if (left < full) {
        const Size even = (left + CUT - 1) / CUT;
        const Size grain = even > GRAIN ? GRAIN : ITEM;
        w.loop.chunk = (u32)least((even + grain - 1) & ~(grain - 1), a.chunk_bytes);
        w.loop.size = left;
    }
    w.loop.slices = 1;
    if (SLICED && a.piece_bytes < w.loop.chunk)
        w.loop.slices = (w.loop.chunk + a.piece_bytes - 1) / a.piece_bytes;
    return true;
}

static __device__ __forceinline__ u32 shifted(u32 chunk, u32 shift, u32 ranks) {
    chunk += shift;
    return chunk >= ranks && shift ? chunk - ranks : chunk;
}

// The first byte within a chunk, and the size, of the current slice of the chunk that a step works
// on.
struct Piece {
    u32 first, size;
};

static __device__ __forceinline__ Piece piece_of(const Args& a, const Walk& w, u32 work) {
    Size size = w.loop.size;
#ifdef BLOCKS
    const Size part = (Size)w.blocks[work].size;
    size = w.loop.offset < part ? least(w.loop.chunk, part - w.loop.offset) : 0;
#endif
    if (PARTS) {
        const Size start = (Size)shifted(work, a.shift_work, a.ranks) * w.loop.chunk;
        size = start < w.loop.size ? least(w.loop.chunk, w.loop.size - start) : 0;
    }
    Piece p;
    p.first = SLICED ? (u32)least((Size)w.slice * a.piece_bytes, size) : 0;
    p.size = (u32)least(a.piece_bytes, size - p.first);
    return p;
}

// The number of a slice on a connection since the FIFOs were cleared. The host clears them before
// it exceeds 2^32.
static __device__ __forceinline__ u32 slice_number(const Walk& w, const ConnectionEnd& end,
        u32 message) {
    return w.done * end.per_loop + message * (SLICED ? w.loop.slices : 1) + w.slice;
}

static __device__ __forceinline__ u64* local_flag(const Walk& w, const ConnectionEnd& end) {
    return (u64*)((char*)end.local_flag + (u64)w.channel * end.local_flag_stride);
}

static __device__ __forceinline__ u64* remote_flag(const Walk& w, const ConnectionEnd& end) {
    return (u64*)((char*)end.remote_flag + (u64)w.channel * end.remote_flag_stride);
}

static __device__ __forceinline__ char* slot(const Args& a, const Walk& w, const ConnectionEnd& end,
        u32 number) {
    return end.slots + (u64)w.channel * end.slots_stride + number % SLOTS * a.slot_bytes;
}

// The offset of a chunk in a rank's input or output.
static __device__ __forceinline__ Size chunk_offset(const Args& a, const Walk& w, u32 chunk) {
#ifdef BLOCKS
    return (Size)w.blocks[chunk].first + least(w.loop.offset, (Size)w.blocks[chunk].size);
#else
    return w.loop.offset
        + (PARTS ? least((Size)chunk * w.loop.chunk, w.loop.size) : chunk * (Size)a.block_bytes);
#endif
}

// The address of a chunk of the rank's own or a peer's buffers; not of a slot.
static __device__ __forceinline__ char* buffer_at(const Args& a, const Walk& w,
        const OperandRef& ref, const ConnectionEnd* ends, u32 first) {
    if (ref.kind == TMP)
        return a.tmp + (u64)w.channel * a.tmp_stride
            + (u64)shifted(ref.chunk, a.shift_tmp, a.ranks) * a.chunk_bytes + first;
    const bool is_in = ref.kind == IN || ref.kind == PEER_IN;
#ifdef BLOCKS
    const u32 chunk = ref.chunk;
#else
    const u32 chunk = shifted(ref.chunk, is_in ? a.shift_in : a.shift_out, a.ranks);
#endif
    char* base = ref.kind == IN ? a.in
        : ref.kind == OUT ? a.out
        : is_in ? ends[ref.end].peer_in
        : ends[ref.end].peer_out;
    return base + a.set + chunk_offset(a, w, chunk) + first;
}
