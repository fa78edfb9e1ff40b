// Inputs and checks on the GPU: the values that pattern.py defines are written and compared where
// the data is. They repeat with a period. `table` holds one period, element by element; element i
// of a range is table[(i + phase) mod period].
//
// Launch: any grid of CTAs of any size. Row y of the grid works on set y of the user buffers; sets
// are `set` bytes apart, and their phases `shift` elements. ITEM is the width of an element.
#include "memory.cuh"

#if ITEM == 1
typedef u8 Item;
#elif ITEM == 2
typedef u16 Item;
#elif ITEM == 4
typedef u32 Item;
#else
typedef u64 Item;
#endif

// Writes every step-th element, and the last. flip inverts every bit: the poison differs from the expected output
// in every element that it writes.
extern "C" __global__ void collbench_fill(Item* to, const Item* table, u64 count, u64 phase,
        u64 set, u64 shift, u64 step, u32 period, u32 flip) {
    to = (Item*)((char*)to + blockIdx.y * set);
    phase += blockIdx.y * shift;
    const u64 stride = gridDim.x * blockDim.x * step;
    for (u64 i = (blockIdx.x * blockDim.x + threadIdx.x) * step; i < count; i += stride) {
        const Item value = table[(i + phase) % period];
        to[i] = flip ? (Item)~value : value;
    }
    if (count && blockIdx.x == 0 && threadIdx.x == 0) {
        const Item value = table[(count - 1 + phase) % period];
        to[count - 1] = flip ? (Item)~value : value;
    }
}

// found[0] is the number of elements that differ, found[1] the index of the first of them, counted
// from `first`. The caller sets them to 0 and to all ones before the launch.
extern "C" __global__ void collbench_compare(const Item* of, const Item* table, u64 count,
        u64 phase, u64 set, u64 shift, u64 first, u64* found, u32 period) {
    of = (const Item*)((const char*)of + blockIdx.y * set);
    phase += blockIdx.y * shift;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 wrong = 0, least = ~0ull;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        if (of[i] != table[(i + phase) % period]) {
            ++wrong;
            least = least < first + i ? least : first + i;
        }
    if (wrong) {
        atomicAdd(found, wrong);
        atomicMin(found + 1, least);
    }
}

// Writes `values` to the elements of `data` at some places, or keeps what is there in `seen`;
// either may be missing.
extern "C" __global__ void collbench_exchange(
        Item* data, const u64* places, const Item* values, Item* seen, u64 count) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        if (seen)
            seen[i] = data[places[i]];
        if (values)
            data[places[i]] = values[i];
    }
}
