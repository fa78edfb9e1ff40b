// Protocol ll: lines of 16 bytes, {data, flag, data, flag}, with 8 bytes of payload. Each half has
// a flag of its own, so that only the atomicity of 8-byte accesses orders data and flag. The flag
// is the slice's number plus one, which differs from what the slot held before. FIFOs start zeroed
// and are cleared before a number exceeds 2^32.
//
// Launch: one CTA a channel and track, of THREADS threads. Thread t has lines t, t + THREADS, ...
// of every chunk, LINES of them at once.
#include "reduce.cuh"

constexpr int LOADS_IN_FLIGHT = 8;  // operands whose loads are in flight together

#include "flagged.cuh"

// Bytes of a slot that a payload takes.
static __device__ __forceinline__ u32 wire_bytes(u32 bytes) { return bytes * 2; }

constexpr u32 WINDOW = MAX_SOURCES < LOADS_IN_FLIGHT ? MAX_SOURCES : LOADS_IN_FLIGHT;

// Issue the loads of lines `first`, first + THREADS, ... of operands `base` and following. User
// memory, which needs no flag, comes first.
template <class S>
static __device__ __forceinline__ void issue_loads(const Args& a, const Walk& w, const S& step,
        Piece piece, u32 lines, u32 first, u32 base, uint4 (&v)[WINDOW][LINES]) {
#pragma unroll
    for (u32 k = 0; k < WINDOW; ++k) {
        if (base + k >= step.sources) break;
        const OperandRef ref = step.source[base + k];
        if (ref.kind == SLOT) continue;
        const char* from = buffer_at(a, w, ref, a.receiving, piece.first);
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
            const u32 line = first + l * THREADS;
            if (LINES > 1 && line >= lines) break;
            const uint2 data = load8(from + line * 8, (int)(piece.size - line * 8),
                (u64)from % 8 == 0);
            v[k][l].x = data.x;
            v[k][l].z = data.y;
        }
    }
#pragma unroll
    for (u32 k = 0; k < WINDOW; ++k) {
        if (base + k >= step.sources) break;
        const OperandRef ref = step.source[base + k];
        if (ref.kind != SLOT) continue;
        const ConnectionEnd& end = a.receiving[ref.end];
        const char* from = slot(a, w, end, slice_number(w, end, ref.message))
            + ref.chunk * wire_bytes(a.piece_bytes);
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
            const u32 line = first + l * THREADS;
            if (LINES > 1 && line >= lines) break;
            v[k][l] = load_line(from + line * 16);
        }
    }
}

template <bool AHEAD, class S, class Rest>
static __device__ __forceinline__ void run_step(const Args& a, const Walk& w, const S& step,
        Piece piece, u32 round, bool& given_up, Rest&& rest) {
    const u32 lines = (piece.size + 7) / 8;
    uint4 v[WINDOW][LINES];
    if constexpr (AHEAD) {
        if (threadIdx.x < lines) issue_loads(a, w, step, piece, lines, threadIdx.x, 0, v);
        rest();
    }
    for (u32 first = threadIdx.x; first < lines; first += THREADS * LINES) {
        uint2 result[LINES];
        Sum sum[LINES];
        OPERANDS for (u32 base = 0; base < step.sources; base += WINDOW) {
            if (!AHEAD || base || first != threadIdx.x)
                issue_loads(a, w, step, piece, lines, first, base, v);
#pragma unroll
            for (u32 k = 0; k < WINDOW; ++k) {
                if (base + k >= step.sources) break;
                const OperandRef ref = step.source[base + k];
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    const u32 line = first + l * THREADS;
                    if (LINES > 1 && line >= lines) break;
                    if (ref.kind == SLOT) {
                        const ConnectionEnd& end = a.receiving[ref.end];
                        const u32 number = slice_number(w, end, ref.message), flag = number + 1;
                        const char* from = slot(a, w, end, number)
                            + ref.chunk * wire_bytes(a.piece_bytes) + line * 16;
                        u32 polls = 0;
                        u64 since = 0;
                        while ((v[k][l].y != flag || v[k][l].w != flag) && !given_up) {
                            if (!keep_waiting(a, w, end, number, v[k][l].y, round, polls, since))
                                given_up = true;
                            v[k][l] = load_line(from);
                        }
                        if (FENCED) fence();
                    }
                    const uint2 data = make_uint2(v[k][l].x, v[k][l].z);
                    if (step.sources == 1) result[l] = data;
                    else if (base + k == 0) sum[l].start(data);
                    else sum[l].add(data);
                }
            }
        }
        if (step.sources > 1) {
#pragma unroll
            for (int l = 0; l < LINES; ++l) result[l] = sum[l].finish(step.flags & DIVIDE, a.ranks);
        }
#pragma unroll
        for (u32 t = 0; t < MAX_TARGETS; ++t) {
            if (t >= step.targets) break;
            const OperandRef ref = step.target[t];
            if (ref.kind == SLOT) {
                const ConnectionEnd& end = a.sending[ref.end];
                const u32 number = slice_number(w, end, ref.message), flag = number + 1;
                char* to = slot(a, w, end, number) + ref.chunk * wire_bytes(a.piece_bytes);
#ifdef INJECT_DROP
                if (a.rank == 0 && w.channel == 0 && number >= INJECT_DROP) continue;
#endif
                if (FENCED) fence();
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    const u32 line = first + l * THREADS;
                    if (LINES > 1 && line >= lines) break;
                    store_line(to + line * 16, make_uint4(result[l].x, flag, result[l].y, flag));
                }
            } else {
                char* to = buffer_at(a, w, ref, a.sending, piece.first);
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    const u32 line = first + l * THREADS;
                    if (LINES > 1 && line >= lines) break;
                    store8(to + line * 8, result[l], (int)(piece.size - line * 8),
                        (u64)to % 8 == 0);
                }
            }
        }
    }
}
