// Protocol ll128: lines of 128 bytes, 120 of payload and a flag of 8 at the end. A warp's store of a line arrives whole and in order
// over NVLink, so the flag that ends a line speaks for all of it. The flag is the slice's number plus one.
//
// Launch: one CTA a channel and track, THREADS threads. A warp moves 16 lines at a time, 1920 bytes of payload in 2048 of a slot: four
// vectors of 16 bytes a lane, vector g of lane l at byte 512 g + 16 l. Every eighth lane ends a line: its second word is the flag. So that
// user memory is read 16 bytes at a time, such a lane loads 16 bytes for an even vector only, and their second half becomes the
// first word of its next vector. All ranks do the same, so reductions are word by word.
// With RELOAD a line is read again once its flag was seen: lane 7's flag does not order what other lanes had loaded before.
#include "reduce.cuh"

constexpr int AT_ONCE = 4;  // operands whose loads are on their way together

#include "flagged.cuh"

constexpr u32 PAYLOAD = 1920, WIRE = 2048;  // bytes of a warp's turn

// Bytes in a slot of a chunk's payload.
static __device__ __forceinline__ u32 wire(u32 bytes) { return (bytes + PAYLOAD - 1) / PAYLOAD * WIRE; }

constexpr u32 WINDOW = MAX_SOURCES < AT_ONCE ? MAX_SOURCES : AT_ONCE;

struct Words {
    uint4 v[4];
};

// The 16-byte unit of payload that vector g of a lane holds; -1 for an odd vector of a lane that ends a line.
static __device__ __forceinline__ int unit_of(int g, u32 lane) {
    if (g % 2 == 0) return g / 2 * 60 + lane;
    return lane % 8 == 7 ? -1 : (int)(g / 2 * 60 + 32 + lane - lane / 8);
}

static __device__ __forceinline__ void load_user(Words& words, const char* from, int bytes, u32 lane, int pairs) {
    const bool is_aligned = (u64)from % 16 == 0;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
        words.v[g] = make_uint4(0, 0, 0, 0);
        const int unit = unit_of(g, lane);
        const int left = bytes - unit * 16;
        if (g >= pairs * 2 || unit < 0 || left <= 0) continue;
        if (ALIGNED || (is_aligned && left >= 16)) {
            words.v[g] = load16(from + unit * 16);
        } else {
            const bool by_eight = (u64)from % 8 == 0;
            const uint2 x = load8(from + unit * 16, left, by_eight);
            const uint2 y = left > 8 ? load8(from + unit * 16 + 8, left - 8, by_eight) : make_uint2(0, 0);
            words.v[g] = make_uint4(x.x, x.y, y.x, y.y);
        }
    }
    if (lane % 8 == 7) {
#pragma unroll
        for (int g = 1; g < 4; g += 2) {
            words.v[g].x = words.v[g - 1].z;
            words.v[g].y = words.v[g - 1].w;
        }
    }
}

static __device__ __forceinline__ void store_user(char* to, Words words, int bytes, u32 lane, int pairs) {
    const bool is_aligned = (u64)to % 16 == 0;
    if (lane % 8 == 7) {
#pragma unroll
        for (int g = 1; g < 4; g += 2) {
            words.v[g - 1].z = words.v[g].x;
            words.v[g - 1].w = words.v[g].y;
        }
    }
#pragma unroll
    for (int g = 0; g < 4; ++g) {
        const int unit = unit_of(g, lane);
        const int left = bytes - unit * 16;
        if (g >= pairs * 2 || unit < 0 || left <= 0) continue;
        if (ALIGNED || (is_aligned && left >= 16)) {
            store16(to + unit * 16, words.v[g]);
        } else {
            const bool by_eight = (u64)to % 8 == 0;
            store8(to + unit * 16, make_uint2(words.v[g].x, words.v[g].y), left, by_eight);
            if (left > 8) store8(to + unit * 16 + 8, make_uint2(words.v[g].z, words.v[g].w), left - 8, by_eight);
        }
    }
}

static __device__ __forceinline__ void load_lines(Words& words, const char* from, int pairs) {
#pragma unroll
    for (int g = 0; g < 4; ++g)
        if (g < pairs * 2) words.v[g] = load_line(from + g * 512);
}

static __device__ __forceinline__ bool has_come(const Words& words, u64 flag, u32 lane, int pairs) {
    bool is_missing = false;
#pragma unroll
    for (int g = 0; g < 4; ++g)
        if (g < pairs * 2) is_missing |= words.v[g].z != (u32)flag || words.v[g].w != (u32)(flag >> 32);
    return !__any_sync(0xffffffff, lane % 8 == 7 && is_missing);
}

// Ask for a warp's turn of operands `base` and following: user memory first, which needs no flag.
template <class S>
static __device__ __forceinline__ void ask(const Args& a, const Walk& w, const S& step, Piece piece, u32 turn, u32 base, Words (&words)[WINDOW]) {
    const u32 lane = threadIdx.x % 32;
    const int bytes = (int)least(piece.size - turn * PAYLOAD, PAYLOAD), pairs = bytes > (int)PAYLOAD / 2 ? 2 : 1;
#pragma unroll
    for (u32 k = 0; k < WINDOW; ++k) {
        if (base + k >= step.sources) break;
        const Ref ref = step.source[base + k];
        if (ref.kind != SLOT) load_user(words[k], buffer_at(a, w, ref, a.receiving, piece.first) + turn * PAYLOAD, bytes, lane, pairs);
    }
#pragma unroll
    for (u32 k = 0; k < WINDOW; ++k) {
        if (base + k >= step.sources) break;
        const Ref ref = step.source[base + k];
        if (ref.kind != SLOT) continue;
        const End& end = a.receiving[ref.end];
        load_lines(words[k], slot(a, w, end, slice_number(w, end, ref.message)) + ref.chunk * wire(a.piece_bytes) + turn * WIRE + lane * 16, pairs);
    }
}

template <bool AHEAD, class S, class Rest>
static __device__ __forceinline__ void run_step(const Args& a, const Walk& w, const S& step, Piece piece, u32 round, bool& given_up, Rest&& rest) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Words words[WINDOW];
    if constexpr (AHEAD) {
        if (warp * PAYLOAD < piece.size) ask(a, w, step, piece, warp, 0, words);
        rest();
    }
    for (u32 turn = warp; turn * PAYLOAD < piece.size; turn += THREADS / 32) {
        const int bytes = (int)least(piece.size - turn * PAYLOAD, PAYLOAD);
        const int pairs = bytes > (int)PAYLOAD / 2 ? 2 : 1;  // of vectors that carry anything
        Words result;
        Sum sum[8];
        OPERANDS for (u32 base = 0; base < step.sources; base += WINDOW) {
            if (!AHEAD || base || turn != warp) ask(a, w, step, piece, turn, base, words);
#pragma unroll
            for (u32 k = 0; k < WINDOW; ++k) {
                if (base + k >= step.sources) break;
                const Ref ref = step.source[base + k];
                if (ref.kind == SLOT) {
                    const End& end = a.receiving[ref.end];
                    const u32 number = slice_number(w, end, ref.message);
                    const u64 flag = number + 1ull;
                    const char* from = slot(a, w, end, number) + ref.chunk * wire(a.piece_bytes) + turn * WIRE + lane * 16;
                    u32 polls = 0;
                    u64 since = 0;
                    while (!has_come(words[k], flag, lane, pairs)) {
                        given_up = __any_sync(0xffffffff, given_up || !keep_waiting(a, w, end, number, words[k].v[0].z, round, polls, since));
                        if (given_up) break;
                        load_lines(words[k], from, pairs);
                    }
                    if (RELOAD) load_lines(words[k], from, pairs);
                    if (FENCED) fence();
                }
                if (step.sources == 1) {
                    result = words[k];
                } else {
#pragma unroll
                    for (int g = 0; g < 4; ++g) {
                        const uint2 x = make_uint2(words[k].v[g].x, words[k].v[g].y), y = make_uint2(words[k].v[g].z, words[k].v[g].w);
                        if (base + k == 0) {
                            sum[2 * g].start(x);
                            sum[2 * g + 1].start(y);
                        } else {
                            sum[2 * g].add(x);
                            sum[2 * g + 1].add(y);
                        }
                    }
                }
            }
        }
        if (step.sources > 1) {
#pragma unroll
            for (int g = 0; g < 4; ++g) {
                const uint2 x = sum[2 * g].finish(step.flags & DIVIDE, a.ranks), y = sum[2 * g + 1].finish(step.flags & DIVIDE, a.ranks);
                result.v[g] = make_uint4(x.x, x.y, y.x, y.y);
            }
        }
#pragma unroll
        for (u32 t = 0; t < MAX_TARGETS; ++t) {
            if (t >= step.targets) break;
            const Ref ref = step.target[t];
            if (ref.kind == SLOT) {
                const End& end = a.sending[ref.end];
                const u32 number = slice_number(w, end, ref.message);
                const u64 flag = number + 1ull;
                char* to = slot(a, w, end, number) + ref.chunk * wire(a.piece_bytes) + turn * WIRE + lane * 16;
#ifdef INJECT_DROP
                if (a.rank == 0 && w.channel == 0 && number >= INJECT_DROP) continue;
#endif
                if (FENCED) fence();
#pragma unroll
                for (int g = 0; g < 4; ++g) {
                    uint4 v = result.v[g];
                    if (lane % 8 == 7) {
                        v.z = (u32)flag;
                        v.w = (u32)(flag >> 32);
                    }
                    if (g < pairs * 2) store_line(to + g * 512, v);
                }
            } else {
                store_user(buffer_at(a, w, ref, a.sending, piece.first) + turn * PAYLOAD, result, bytes, lane, pairs);
            }
        }
    }
}
