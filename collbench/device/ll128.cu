// Protocol ll128: lines of 128 bytes, 120 of payload and a flag of 8 at the end. A warp's store of
// a line arrives whole and in order over NVLink, so the flag at the end of a line covers all of it.
// The flag is the slice's number plus one.
//
// Launch: one CTA a channel and track, of THREADS threads. A warp moves a tile of 16 lines at a
// time: 1920 bytes of payload in 2048 bytes of a slot. A lane has four vectors of 16 bytes, vector
// g of lane l at byte 512 g + 16 l. Every eighth lane ends a line: its second word is the flag. To
// read user memory 16 bytes at a time, such a lane loads 16 bytes for an even vector only, and
// their second half becomes the first word of its next vector. All ranks do the same, so reductions
// work word by word. With RELOAD a line is read again after its flag was seen: the flag in lane 7
// does not order what other lanes had loaded before.
#include "reduce.cuh"

constexpr int LOADS_IN_FLIGHT = 4;  // operands whose loads are in flight together
constexpr bool CLEARS = false;
[[maybe_unused]] constexpr bool PREPARES = false;

#include "flagged.cuh"

constexpr u32 TILE_PAYLOAD = 1920, TILE_BYTES = 2048;  // bytes of a warp's tile

// Bytes of a slot that a payload takes.
static __device__ __forceinline__ u32 wire_bytes(u32 bytes) {
    return (bytes + TILE_PAYLOAD - 1) / TILE_PAYLOAD * TILE_BYTES;
}

constexpr u32 WINDOW = MAX_SOURCES < LOADS_IN_FLIGHT ? MAX_SOURCES : LOADS_IN_FLIGHT;

struct Words {
    uint4 v[4];
};

static __device__ __forceinline__ uint4 shuffled(uint4 v, u32 from) {
    return make_uint4(__shfl_sync(~0u, v.x, from), __shfl_sync(~0u, v.y, from),
        __shfl_sync(~0u, v.z, from), __shfl_sync(~0u, v.w, from));
}

// The 16-byte unit of payload that vector g of a lane holds; -1 for an odd vector of a lane that
// ends a line.
static __device__ __forceinline__ int unit_of(int g, u32 lane) {
    if (g % 2 == 0) return g / 2 * 60 + lane;
    return lane % 8 == 7 ? -1 : (int)(g / 2 * 60 + 32 + lane - lane / 8);
}

// Where a vector is not aligned, elements of four bytes and more are moved as words; narrower ones
// are joined out of two vectors and shifted between lanes, which is longer code.
static __device__ __forceinline__ u32 load_word(const char* at) {
    u32 v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

static __device__ __forceinline__ void store_word(char* at, u32 v) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

// Sixteen bytes at a multiple of 4, of which `bytes` exist.
static __device__ __forceinline__ uint4 load_words(const char* at, int bytes) {
    uint4 v = make_uint4(0, 0, 0, 0);
    v.x = load_word(at);
    if (bytes > 4) v.y = load_word(at + 4);
    if (bytes > 8) v.z = load_word(at + 8);
    if (bytes > 12) v.w = load_word(at + 12);
    return v;
}

static __device__ __forceinline__ void store_words(char* at, uint4 v, int bytes) {
    store_word(at, v.x);
    if (bytes > 4) store_word(at + 4, v.y);
    if (bytes > 8) store_word(at + 8, v.z);
    if (bytes > 12) store_word(at + 12, v.w);
}

static __device__ __forceinline__ void load_user(Words& words, const char* from, int bytes,
        u32 lane, int pairs) {
    const u32 skip = ALIGNED ? 0 : (u64)from % 16;
    uint4 next[4];
#pragma unroll
    for (int g = 0; g < 4; ++g) {
        words.v[g] = next[g] = make_uint4(0, 0, 0, 0);
        const int first = unit_of(g, lane) * 16;
        const int last = (first + 16 < bytes ? first + 16 : bytes) - 1;
        if (g >= pairs * 2 || first < 0 || first >= bytes) continue;
        if (ITEM >= 4 && skip) {
            words.v[g] = load_words(from + first, bytes - first);
            continue;
        }
        words.v[g] = load16(from + first - skip);
        if (skip) next[g] = load16(vector_of<16>(from + last));
    }
    if (ITEM < 4 && skip) {
#pragma unroll
        for (int g = 0; g < 4; ++g) words.v[g] = joined(words.v[g], next[g], skip);
    }
    if (lane % 8 == 7) {
#pragma unroll
        for (int g = 1; g < 4; g += 2) {
            words.v[g].x = words.v[g - 1].z;
            words.v[g].y = words.v[g - 1].w;
        }
    }
}

// Store the bytes [first, first + 16) of a tile's payload, as far as they exist, in elements.
static __device__ __noinline__ void store_part(char* to, int first, uint4 v, int bytes) {
    const u64 halves[2] = {(u64)v.y << 32 | v.x, (u64)v.w << 32 | v.z};
#pragma unroll 1
    for (int at = 0; at < 16; at += ITEM)
        if (first + at >= 0 && first + at < bytes)
            store_item(to + first + at, (at < 8 ? halves[0] : halves[1]) >> at % 8 * 8);
}

// Where `to` is not aligned, for elements of one or two bytes: a lane joins the end of the unit
// before its own with the beginning of its own, and stores the aligned vector. Elements fill the
// first and the last vector. Not inlined: long code comes too late.
static __device__ __noinline__ void store_shifted(char* to, const Words words, int bytes, u32 lane,
        int pairs) {
    const u32 skip = (u64)to % 16;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
        if (g >= pairs * 2) break;
        // the unit before is the previous lane's, passing over a lane that ends a line
        const u32 previous = lane - (g % 2 && lane % 8 == 0 ? 2 : 1);
        const int unit = unit_of(g, lane), first = unit * 16 - (int)skip;
        const uint4 own = words.v[g], carried = words.v[g > 0 ? g - 1 : 0];
        uint4 before = shuffled(own, previous);
        const uint4 last = shuffled(carried, g % 2 ? 31 : 30);
        if (lane == 0) before = last;
        if (unit < 0 || unit * 16 >= bytes) continue;
        const uint4 v = joined(before, own, 16 - skip);
        if (first >= 0 && first + 16 <= bytes) store16(to + first, v);
        else store_part(to, first, v, bytes);
        if (unit * 16 + 16 >= bytes) store_part(to, first + 16, joined(own, own, 16 - skip), bytes);
    }
}

static __device__ __forceinline__ void store_user(char* to, Words words, int bytes, u32 lane,
        int pairs) {
    if (lane % 8 == 7) {
#pragma unroll
        for (int g = 1; g < 4; g += 2) {
            words.v[g - 1].z = words.v[g].x;
            words.v[g - 1].w = words.v[g].y;
        }
    }
    const bool is_aligned = ALIGNED || (u64)to % 16 == 0;
    if (ITEM < 4 && !is_aligned) {
        store_shifted(to, words, bytes, lane, pairs);
        return;
    }
#pragma unroll
    for (int g = 0; g < 4; ++g) {
        const int first = unit_of(g, lane) * 16;
        if (g >= pairs * 2 || first < 0 || first >= bytes) continue;
        if (is_aligned && (WHOLE || first + 16 <= bytes)) store16(to + first, words.v[g]);
        else if (ITEM >= 4) store_words(to + first, words.v[g], bytes - first);
        else store_part(to, first, words.v[g], bytes);
    }
}

static __device__ __forceinline__ void load_lines(Words& words, const char* from, int pairs) {
#pragma unroll
    for (int g = 0; g < 4; ++g)
        if (g < pairs * 2) words.v[g] = load_line(from + g * 512);
}

static __device__ __forceinline__ bool has_arrived(const Words& words, u64 flag, u32 lane,
        int pairs) {
    bool is_missing = false;
#pragma unroll
    for (int g = 0; g < 4; ++g)
        if (g < pairs * 2)
            is_missing |= words.v[g].z != (u32)flag || words.v[g].w != (u32)(flag >> 32);
    return !__any_sync(0xffffffff, lane % 8 == 7 && is_missing);
}

// Issue the loads of a warp's tile of operands `base` and following. User memory, which needs no
// flag, comes first.
template <class S>
static __device__ __forceinline__ void issue_loads(const Args& a, const Walk& w, const S& step,
        Piece piece, u32 tile, u32 base, Words (&words)[WINDOW]) {
    const u32 lane = threadIdx.x % 32;
    const int bytes = (int)least(piece.size - tile * TILE_PAYLOAD, TILE_PAYLOAD);
    const int pairs = bytes > (int)TILE_PAYLOAD / 2 ? 2 : 1;  // of vectors that carry payload
#pragma unroll
    for (u32 k = 0; k < WINDOW; ++k) {
        if (base + k >= step.sources) break;
        const OperandRef ref = step.source[base + k];
        if (ref.kind == SLOT) continue;
        const char* from = buffer_at(a, w, ref, a.receiving, piece.first) + tile * TILE_PAYLOAD;
        load_user(words[k], from, bytes, lane, pairs);
    }
#pragma unroll
    for (u32 k = 0; k < WINDOW; ++k) {
        if (base + k >= step.sources) break;
        const OperandRef ref = step.source[base + k];
        if (ref.kind != SLOT) continue;
        const ConnectionEnd& end = a.receiving[ref.end];
        const char* from = slot(a, w, end, slice_number(w, end, ref.message))
            + ref.chunk * wire_bytes(a.piece_bytes) + tile * TILE_BYTES + lane * 16;
        load_lines(words[k], from, pairs);
    }
}

template <bool AHEAD, class S, class Rest>
static __device__ __forceinline__ void run_step(const Args& a, const Walk& w, const S& step,
        const Ready& ready, u32 round, bool& given_up, Rest&& rest) {
    const Piece piece = ready.piece;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Words words[WINDOW];
    if constexpr (AHEAD) {
        if (warp * TILE_PAYLOAD < piece.size) issue_loads(a, w, step, piece, warp, 0, words);
        rest();
    }
    for (u32 tile = warp; tile * TILE_PAYLOAD < piece.size; tile += THREADS / 32) {
        const int bytes = (int)least(piece.size - tile * TILE_PAYLOAD, TILE_PAYLOAD);
        const int pairs = bytes > (int)TILE_PAYLOAD / 2 ? 2 : 1;  // of vectors that carry payload
        Words result;
        WideSum sum[4];
        OPERANDS for (u32 base = 0; base < step.sources; base += WINDOW) {
            if (!AHEAD || base || tile != warp) issue_loads(a, w, step, piece, tile, base, words);
#pragma unroll
            for (u32 k = 0; k < WINDOW; ++k) {
                if (base + k >= step.sources) break;
                const OperandRef ref = step.source[base + k];
                if (ref.kind == SLOT) {
                    const ConnectionEnd& end = a.receiving[ref.end];
                    const u32 number = slice_number(w, end, ref.message);
                    const u64 flag = number + 1ull;
                    const char* from = slot(a, w, end, number)
                        + ref.chunk * wire_bytes(a.piece_bytes)
                        + tile * TILE_BYTES + lane * 16;
                    u32 polls = 0;
                    u64 since = 0;
                    while (!has_arrived(words[k], flag, lane, pairs)) {
                        given_up = __any_sync(0xffffffff,
                            given_up
                                || !keep_waiting(a, w, end, number, words[k].v[0].z, round, polls,
                                    since));
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
                        if (base + k == 0) sum[g].start(words[k].v[g]);
                        else sum[g].add(words[k].v[g]);
                    }
                }
            }
        }
        if (step.sources > 1) {
#pragma unroll
            for (int g = 0; g < 4; ++g) result.v[g] = sum[g].finish(step.flags & DIVIDE, a.ranks);
        }
#pragma unroll
        for (u32 t = 0; t < MAX_TARGETS; ++t) {
            if (t >= step.targets) break;
            const OperandRef ref = step.target[t];
            if (ref.kind == SLOT) {
                const ConnectionEnd& end = a.sending[ref.end];
                const u32 number = slice_number(w, end, ref.message);
                const u64 flag = number + 1ull;
                char* to = slot(a, w, end, number) + ref.chunk * wire_bytes(a.piece_bytes)
                    + tile * TILE_BYTES + lane * 16;
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
                store_user(buffer_at(a, w, ref, a.sending, piece.first) + tile * TILE_PAYLOAD,
                    result, bytes, lane, pairs);
            }
        }
    }
}
