// The data that the host and the kernels share: the program of a rank, the ends of its connections,
// and the arguments of a launch.
//
// The host packs these structures byte by byte (device/layout.py), so their order and sizes are a
// contract. Macros give the sizes of the variable ones, which are asserted below.
//
//   MAX_SOURCES, MAX_TARGETS   operands of the widest step
//   RECEIVING, SENDING         ends of the rank's connections; either may be 0
//   TRACKS, ROUNDS, STAGES, STEPS, WAITS, SIGNALS   lengths of the program's tables
//   BLOCKS                     length of a channel's table of blocks; only where these are unequal
#pragma once

#include "memory.cuh"

// The memory of an operand: a chunk of the rank's own buffers, a part of a FIFO slot, or a chunk of
// a peer's buffers.
enum Kind : u16 { IN = 0, OUT = 1, TMP = 2, SLOT = 3, PEER_IN = 4, PEER_OUT = 5 };

struct OperandRef {
    u16 kind;
    u16 end;      // SLOT, PEER_*: the number of the receiving (source) or sending (target) end
    u16 message;  // SLOT: the number of the message in a loop on that connection
    u16 chunk;    // the chunk of the buffer; SLOT: the chunk's position in the message
};

enum StepFlags : u16 { DIVIDE = 1 };

// One step of the schedule: reduce the sources in order, write the result to every target.
struct Step {
    u16 sources;
    u16 targets;
    u16 flags;
    u16 work;  // the chunk of the loop that it works on, which gives its size
    OperandRef source[MAX_SOURCES];
    OperandRef target[MAX_TARGETS];
};

// The meaning of a flag. DATA and TAIL count slices filled, seen by the receiver and the sender.
// ROOM and HEAD count slices read, seen by the sender and the receiver. BACK also counts slices
// read, where the receiver pulls zero-copy from the sender's buffer. READY counts launches begun.
enum Signal : u16 { DATA = 0, ROOM = 1, BACK = 2, READY = 3, TAIL = 4, HEAD = 5 };

// A flag that a stage waits for, or that it sets when it is done.
struct Flag {
    u16 signal;
    u16 end;
    u16 message;
    u16 unused;
};

// Steps of a round that wait together, run one after the other and then signal together.
struct Stage {
    u16 first_step, steps;
    u16 first_wait, waits;
    u16 first_signal, signals;
};

struct Round {
    u16 first_stage, stages;
};

struct Track {
    u16 first_round, rounds;
    u16 first_ready, readies;  // among the signals: those of the start of a launch
    u16 first_head, heads;     // among the signals: those of its end, one a receiving end
    u16 first_back, backs;     // among the waits: those of its end
};

struct Program {
    Track tracks[TRACKS];
    Round rounds[ROUNDS];
    Stage stages[STAGES];
    Step steps[STEPS];
    Flag waits[WAITS];
    Flag signals[SIGNALS];
};

// A channel's part of a block, where blocks are unequal: its first byte in the buffer that has the
// block, and its size. Operands of buffers and `work` of steps are then not numbers of chunks but of
// entries in the channel's table. Entry 0 has the size of the channel's longest part, which gives
// the number of its loops. The tables of all channels lie behind the program.
struct Block {
    u64 first, size;
};

// One end of a connection on channel 0; the strides lead to the other channels.
struct ConnectionEnd {
    char* slots;       // FIFO slots, in whichever rank's memory
    u64* local_flag;   // in memory of this rank, set by the other end; [1] of a sending end: READY
    u64* remote_flag;  // set by this end, in memory that the other rank or a proxy reads
    char* peer_in;     // the other rank's buffers, of set 0
    char* peer_out;
    u32 slots_stride, local_flag_stride, remote_flag_stride;
    u16 per_loop;      // messages in a loop
    u16 peer;
};

// Counters of one CTA that persist from launch to launch.
struct alignas(8) State {
    u32 done;  // slices a message: the sum over all loops so far
    u32 launch;
};

struct Report;  // spin.cuh

struct Args {
    char *in, *out, *tmp;
    u64 set;             // offset of the launch's set of user buffers
    u64 block_bytes;     // of a block; interleaved: of the vector
    u64 share_bytes;     // of a block that a channel owns
    State* state;
    u32* abort;          // a word of the rank's own memory
    u32* const* aborts;  // the same word of every rank
    Report* reports;
    const Program* program;
    u64 timeout_ns;
    u32 chunk_bytes, piece_bytes, slot_bytes;
    u32 tmp_stride;      // bytes of a channel's scratch memory
    u32 rank, ranks;
    // the offsets that are added to chunk numbers, modulo the number of ranks
    u32 shift_in, shift_out, shift_tmp, shift_work;
    u32 delay_ns;        // the longest random pause before a launch's work, for stress tests
    u32 unused;
    ConnectionEnd receiving[RECEIVING + !RECEIVING];
    ConnectionEnd sending[SENDING + !SENDING];
};

static_assert(sizeof(Args) == ARGS_BYTES, "the host packs other arguments");
static_assert(sizeof(Program) == PROGRAM_BYTES, "the host packs another program");
