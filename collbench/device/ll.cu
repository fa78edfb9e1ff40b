// Protocol ll: lines of 16 bytes, {data, flag, data, flag}, with 8 bytes of payload. Each half has
// a flag of its own, so that only the atomicity of 8-byte accesses orders data and flag. The flag
// is the slice's number plus one, which differs from what the slot held before. FIFOs start zeroed
// and are cleared before a number exceeds 2^32.
#include "reduce.cuh"

constexpr int LOADS_IN_FLIGHT = 8;  // operands whose loads are in flight together
constexpr bool CLEARS = false;
constexpr u32 LINE_PAYLOAD = 8;
typedef uint2 Payload;
typedef Sum Total;

static __device__ __forceinline__ Payload load_payload(const char* at, int bytes, bool is_aligned) {
    return load8(at, bytes, is_aligned);
}

static __device__ __forceinline__ void store_payload(char* at, Payload v, int bytes,
        bool is_aligned) {
    store8(at, v, bytes, is_aligned);
}

static __device__ __forceinline__ void put(uint4& line, Payload v) {
    line.x = v.x;
    line.z = v.y;
}

static __device__ __forceinline__ Payload payload_of(uint4 line) {
    return make_uint2(line.x, line.z);
}

static __device__ __forceinline__ uint4 line_of(Payload v, u32 flag) {
    return make_uint4(v.x, flag, v.y, flag);
}

// A macro: as a function it compiles to other code, 7 % slower in a sum of 256 KiB.
#define IS_MISSING(line, flag) ((line).y != (flag) || (line).w != (flag))

static __device__ __forceinline__ void take(char*) {}

#include "lines.cuh"
