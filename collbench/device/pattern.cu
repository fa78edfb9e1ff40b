// Inputs and answers on the GPU: what pattern.py says, written and compared where the data is. Values repeat with a period; `table` holds
// one period, item by item, and element i of a piece is item (i + phase) mod period.
//
// Launch: any grid of any block; row y of the grid works on set y of the user buffers, `set` bytes after the one before. ITEM is the width
// of an element.
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

// flip inverts every bit: poison is what differs from the answer everywhere.
extern "C" __global__ void collbench_fill(Item* to, const Item* table, u64 count, u64 phase, u64 set, u32 period, u32 flip) {
    to = (Item*)((char*)to + blockIdx.y * set);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        const Item value = table[(i + phase) % period];
        to[i] = flip ? (Item)~value : value;
    }
}

// found[0]: how many elements differ; found[1]: the index, from `first` on, of the first of them. Set to 0 and all ones before.
extern "C" __global__ void collbench_compare(const Item* of, const Item* table, u64 count, u64 phase, u64 set, u64 first, u64* found, u32 period) {
    of = (const Item*)((const char*)of + blockIdx.y * set);
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
