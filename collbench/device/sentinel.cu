// Protocol sentinel: lines of 16 bytes, all of them payload. Each word of a slot holds a marker until
// its data comes, and says by differing from it that it came: only the atomicity of 4-byte accesses
// is needed. The reader marks a line again once it has read it. FIFOs start marked.
//
// The marker is all ones, which is one NaN, or a NaN in each part of the word, in every type that
// the protocol serves. A sender clears the sign of such a word, which leaves it NaN.
//
// A slot is written again in a later launch, when its reader has begun the one after it was marked:
// the end of a launch orders its marks before all that the reader does then.
#include "reduce.cuh"

constexpr int LOADS_IN_FLIGHT = 8;  // operands whose loads are in flight together
constexpr bool CLEARS = true;
constexpr u32 LINE_PAYLOAD = 16;
constexpr u32 MARKER = 0xffffffff;  // layout.MARKER_BYTE in every byte
typedef uint4 Payload;
typedef WideSum Total;

// Sixteen bytes of user memory, of which `bytes` exist: what stands in the place of the others is of
// no use.
static __device__ __forceinline__ Payload load_payload(const char* at, int bytes, bool is_aligned) {
    if (ALIGNED || is_aligned) return load16(at);
    return joined(load16(vector_of<16>(at)), load16(vector_of<16>(at + (bytes < 16 ? bytes : 16) - 1)),
        (u64)at % 16);
}

static __device__ __forceinline__ void store_payload(char* at, Payload v, int bytes,
        bool is_aligned) {
    if ((ALIGNED || is_aligned) && (WHOLE || bytes >= 16)) {
        store16(at, v);
        return;
    }
    store8(at, low(v), bytes, (u64)at % 8 == 0);
    store8(at + 8, high(v), bytes - 8, (u64)at % 8 == 0);
}

static __device__ __forceinline__ void put(uint4& line, Payload v) { line = v; }

static __device__ __forceinline__ Payload payload_of(uint4 line) { return line; }

static __device__ __forceinline__ u32 unmarked(u32 word) {
    return word == MARKER ? MARKER >> 1 : word;
}

static __device__ __forceinline__ uint4 line_of(Payload v, u32) {
    return make_uint4(unmarked(v.x), unmarked(v.y), unmarked(v.z), unmarked(v.w));
}

static __device__ __forceinline__ bool has_arrived(uint4 line, u32) {
    return line.x != MARKER && line.y != MARKER && line.z != MARKER && line.w != MARKER;
}

#define IS_MISSING(line, flag) (!has_arrived(line, flag))

static __device__ __forceinline__ void take(char* at) {
    store16(at, make_uint4(MARKER, MARKER, MARKER, MARKER));
}

#include "lines.cuh"
