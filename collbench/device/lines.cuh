// The steps of the protocols that move lines of 16 bytes (ll, sentinel): thread t of a CTA has lines
// t, t + THREADS, ... of every chunk, LINES of them at once.
//
// A protocol defines before: LINE_PAYLOAD, the bytes of payload of a line; Payload, which holds
// them, and Total, which reduces them; load_payload and store_payload for user memory; put, which
// places payload of user memory in the registers of a line; payload_of a line, line_of a payload;
// IS_MISSING; take, what a reader does with a line that it has read.
#pragma once
#include "flagged.cuh"

// Bytes of a slot that a payload takes.
static __device__ __forceinline__ u32 wire_bytes(u32 bytes) { return bytes * (16 / LINE_PAYLOAD); }

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
            put(v[k][l],
                load_payload(from + line * LINE_PAYLOAD, (int)(piece.size - line * LINE_PAYLOAD),
                    (u64)from % LINE_PAYLOAD == 0));
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
    const u32 lines = (piece.size + LINE_PAYLOAD - 1) / LINE_PAYLOAD;
    uint4 v[WINDOW][LINES];
    if constexpr (AHEAD) {
        if (threadIdx.x < lines) issue_loads(a, w, step, piece, lines, threadIdx.x, 0, v);
        rest();
    }
    for (u32 first = threadIdx.x; first < lines; first += THREADS * LINES) {
        Payload result[LINES];
        Total sum[LINES];
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
                        char* from = slot(a, w, end, number)
                            + ref.chunk * wire_bytes(a.piece_bytes) + line * 16;
                        u32 polls = 0;
                        u64 since = 0;
                        while (IS_MISSING(v[k][l], flag) && !given_up) {
                            if (!keep_waiting(a, w, end, number, v[k][l].y, round, polls, since))
                                given_up = true;
                            v[k][l] = load_line(from);
                        }
                        take(from);
                        if (FENCED) fence();
                    }
                    const Payload data = payload_of(v[k][l]);
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
                    store_line(to + line * 16, line_of(result[l], flag));
                }
            } else {
                char* to = buffer_at(a, w, ref, a.sending, piece.first);
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    const u32 line = first + l * THREADS;
                    if (LINES > 1 && line >= lines) break;
                    store_payload(to + line * LINE_PAYLOAD, result[l],
                        (int)(piece.size - line * LINE_PAYLOAD), (u64)to % LINE_PAYLOAD == 0);
                }
            }
        }
    }
}
