// The steps of the protocols that move lines of 16 bytes (ll, sentinel): thread t of a CTA has lines
// t, t + THREADS, ... of every chunk, LINES of them at once, which with ONE_PASS are all. Where a
// launch has few operands, their addresses are computed while the launch in front ends: every
// instruction behind that is late.
//
// A protocol defines before: LINE_PAYLOAD, the bytes of payload of a line; Payload, which holds
// them, and Total, which reduces them; load_payload and store_payload for user memory; put, which
// places payload of user memory in the registers of a line; payload_of a line, line_of a payload;
// IS_MISSING; take, what a reader does with a line that it has read.
#pragma once
[[maybe_unused]] constexpr bool PREPARES = true;
#include "flagged.cuh"

// Bytes of a slot that a payload takes.
static __device__ __forceinline__ u32 wire_bytes(u32 bytes) { return bytes * (16 / LINE_PAYLOAD); }

// Where this thread's first line of an operand lies; of a slot, in the first one of the FIFO.
static __device__ __forceinline__ char* first_line(const Args& a, const Walk& w,
        const OperandRef& ref, const ConnectionEnd* ends, Piece piece) {
    if (ref.kind != SLOT)
        return buffer_at(a, w, ref, ends, piece.first) + threadIdx.x * LINE_PAYLOAD;
    return slot(a, w, ends[ref.end], 0) + ref.chunk * wire_bytes(a.piece_bytes) + threadIdx.x * 16;
}

template <u32 K, class S>
static __device__ __forceinline__ u64 prepare(const Args& a, const Walk& w, const S& step,
        Ready& ready) {
    ready.piece = piece_of(a, w, step.work);
    u64 bits = ready.piece.size;
#pragma unroll
    for (u32 k = 0; k < MAX_SOURCES; ++k) {
        if (k >= step.sources) break;
        ready.source[k] = first_line(a, w, step.source[k], a.receiving, ready.piece);
        bits |= (u64)ready.source[k];
    }
#pragma unroll
    for (u32 t = 0; t < MAX_TARGETS; ++t) {
        if (t >= step.targets) break;
        ready.target[t] = first_line(a, w, step.target[t], a.sending, ready.piece);
        bits |= (u64)ready.target[t];
    }
    return bits;
}

static __device__ __forceinline__ char* source_at(const Args& a, const Walk& w,
        const OperandRef& ref, const Ready& ready, u32 k) {
    return PREPARED ? ready.source[k] : first_line(a, w, ref, a.receiving, ready.piece);
}

static __device__ __forceinline__ char* target_at(const Args& a, const Walk& w,
        const OperandRef& ref, const Ready& ready, u32 t) {
    return PREPARED ? ready.target[t] : first_line(a, w, ref, a.sending, ready.piece);
}

// The number of the next slot comes from memory, as late as its line would: where lines are few, the
// same line of all slots is loaded meanwhile. What must count credits waits for nothing else.
constexpr bool READS_ALL_SLOTS = FEW_LINES && PREPARED && !UNCREDITED && RECEIVING == 1
    && LINES == 1;

constexpr u32 WINDOW = MAX_SOURCES < LOADS_IN_FLIGHT ? MAX_SOURCES : LOADS_IN_FLIGHT;

// Issue the loads of the lines `ahead`, ahead + THREADS, ... behind a thread's first one, of operands
// `base` and following. User memory, which needs no flag, comes first.
template <class S>
static __device__ __forceinline__ void issue_loads(const Args& a, const Walk& w, const S& step,
        const Ready& ready, u32 lines, u32 ahead, u32 base, uint4 (&v)[WINDOW][LINES]) {
#pragma unroll
    for (u32 k = 0; k < WINDOW; ++k) {
        if (base + k >= step.sources) break;
        const OperandRef ref = step.source[base + k];
        if (ref.kind == SLOT) continue;
        const char* from = source_at(a, w, ref, ready, base + k);
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
            const u32 further = ahead + l * THREADS, line = threadIdx.x + further;
            if (LINES > 1 && line >= lines) break;
            put(v[k][l],
                load_payload(from + further * LINE_PAYLOAD,
                    (int)(ready.piece.size - line * LINE_PAYLOAD),
                    (u64)from % LINE_PAYLOAD == 0));
        }
    }
#pragma unroll
    for (u32 k = 0; k < WINDOW; ++k) {
        if (base + k >= step.sources) break;
        const OperandRef ref = step.source[base + k];
        if (ref.kind != SLOT) continue;
        const u32 number = slice_number(w, a.receiving[ref.end], ref.message);
        const char* from = source_at(a, w, ref, ready, base + k);
        if constexpr (READS_ALL_SLOTS) {
            v[k][0] = load_line(from);
#pragma unroll
            for (u32 s = 1; s < SLOTS; ++s) {
                const uint4 line = load_line(from + s * a.slot_bytes);
                v[k][0] = number % SLOTS == s ? line : v[k][0];
            }
            continue;
        }
        from += number % SLOTS * a.slot_bytes;
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
            const u32 further = ahead + l * THREADS;
            if (LINES > 1 && threadIdx.x + further >= lines) break;
            v[k][l] = load_line(from + further * 16);
        }
    }
}

template <bool AHEAD, class S, class Rest>
static __device__ __forceinline__ void run_step(const Args& a, const Walk& w, const S& step,
        const Ready& ready, u32 round, bool& given_up, Rest&& rest) {
    const u32 lines = (ready.piece.size + LINE_PAYLOAD - 1) / LINE_PAYLOAD;
    uint4 v[WINDOW][LINES];
    if constexpr (AHEAD) {
        if (threadIdx.x < lines) issue_loads(a, w, step, ready, lines, 0, 0, v);
        rest();
    }
    for (u32 ahead = 0; threadIdx.x + ahead < lines; ahead += THREADS * LINES) {
        Payload result[LINES];
        Total sum[LINES];
        OPERANDS for (u32 base = 0; base < step.sources; base += WINDOW) {
            if (!AHEAD || base || ahead) issue_loads(a, w, step, ready, lines, ahead, base, v);
#pragma unroll
            for (u32 k = 0; k < WINDOW; ++k) {
                if (base + k >= step.sources) break;
                const OperandRef ref = step.source[base + k];
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    const u32 further = ahead + l * THREADS;
                    if (LINES > 1 && threadIdx.x + further >= lines) break;
                    if (ref.kind == SLOT) {
                        const ConnectionEnd& end = a.receiving[ref.end];
                        const u32 number = slice_number(w, end, ref.message), flag = number + 1;
                        char* from = source_at(a, w, ref, ready, base + k)
                            + number % SLOTS * a.slot_bytes + further * 16;
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
                char* to = target_at(a, w, ref, ready, t) + number % SLOTS * a.slot_bytes;
#ifdef INJECT_DROP
                if (a.rank == 0 && w.channel == 0 && number >= INJECT_DROP) continue;
#endif
                if (FENCED) fence();
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    const u32 further = ahead + l * THREADS;
                    if (LINES > 1 && threadIdx.x + further >= lines) break;
                    store_line(to + further * 16, line_of(result[l], flag));
                }
            } else {
                char* to = target_at(a, w, ref, ready, t);
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    const u32 further = ahead + l * THREADS, line = threadIdx.x + further;
                    if (LINES > 1 && line >= lines) break;
                    store_payload(to + further * LINE_PAYLOAD, result[l],
                        (int)(ready.piece.size - line * LINE_PAYLOAD),
                        (u64)to % LINE_PAYLOAD == 0);
                }
            }
        }
        if (ONE_PASS) break;
    }
}
