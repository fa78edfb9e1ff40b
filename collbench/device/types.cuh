// What the host and the kernels share: the program of a rank, the ends of its connections, the arguments of a launch.
//
// The host packs these structures byte by byte (device/program.py), so their order and sizes are a contract; the sizes of the variable
// ones come as macros and are asserted below.
//
//   MAX_SOURCES, MAX_TARGETS   operands of the widest step          RECEIVING, SENDING   ends of the rank's connections, some perhaps none
//   TRACKS, ROUNDS, STAGES, STEPS, WAITS, POSTS   lengths of the program's tables
#pragma once

#include "memory.cuh"

// Memory that a step reads or writes: a chunk of the rank's own buffers, a place in a FIFO's slot, or a chunk of a peer's buffers.
enum Kind : u16 { IN = 0, OUT = 1, TMP = 2, SLOT = 3, PEER_IN = 4, PEER_OUT = 5 };

struct Ref {
    u16 kind;
    u16 end;      // SLOT, PEER_*: the connection's end, receiving for a source, sending for a target
    u16 message;  // SLOT: which message of a loop on that connection
    u16 chunk;    // of the buffer; SLOT: place in the message
};

enum StepFlags : u16 { DIVIDE = 1 };

// One step of the schedule: reduce the sources in order, write the result to every target.
struct Step {
    u16 sources;
    u16 targets;
    u16 flags;
    u16 work;  // the chunk of the loop that it works on, which gives its size
    Ref source[MAX_SOURCES];
    Ref target[MAX_TARGETS];
};

// What a stage waits for, and what it says when it is done. DATA and TAIL: slices filled; ROOM, BACK and HEAD: slices read; READY: a launch begun.
enum Signal : u16 { DATA = 0, ROOM = 1, BACK = 2, READY = 3, TAIL = 4, HEAD = 5 };

struct Mark {
    u16 signal;
    u16 end;
    u16 message;
    u16 unused;
};

// Steps of a round that wait together, run one after the other and then hand over together.
struct Stage {
    u16 first_step, steps;
    u16 first_wait, waits;
    u16 first_post, posts;
};

struct Round {
    u16 first_stage, stages;
};

struct Track {
    u16 first_round, rounds;
    u16 first_ready, readies;  // marks among the posts: said at the start of a launch
    u16 first_head, heads;     // marks among the posts: said at its end, one for each receiving end
    u16 first_back, backs;     // marks among the waits: heard at its end
};

struct Program {
    Track tracks[TRACKS];
    Round rounds[ROUNDS];
    Stage stages[STAGES];
    Step steps[STEPS];
    Mark waits[WAITS];
    Mark posts[POSTS];
};

// One end of a connection on channel 0; the strides lead to the other channels.
struct End {
    char* slots;     // FIFO slots, in whichever rank's memory
    u64* heard;      // a word in the rank's own memory that the other end sets; [1] of a sending end: launches begun there
    u64* said;       // the word that this end sets, in the other rank's memory
    char* peer_in;   // the other rank's buffers, of set 0
    char* peer_out;
    u32 slots_stride, heard_stride, said_stride;
    u16 per_loop;    // messages in a loop
    u16 peer;
};

// Counters of one CTA that live from launch to launch.
struct State {
    u32 done;    // slices a message: the sum over all loops so far
    u32 launch;
};

struct Report;  // spin.cuh

struct Args {
    char *in, *out, *tmp;
    u64 set;            // offset of the launch's set of user buffers
    u64 block_bytes;    // of a block; interleaved: of the vector
    u64 share_bytes;    // of a block that a channel owns
    State* state;
    u32* abort;         // a word of the rank's own memory
    u32* const* aborts; // the same word of every rank
    Report* reports;
    const Program* program;
    u64 timeout_ns;
    u32 chunk_bytes, piece_bytes, slot_bytes;
    u32 tmp_stride;     // bytes of a channel's scratch memory
    u32 rank, ranks;
    u32 shift_in, shift_out, shift_tmp, shift_work;  // what a chunk's number moves by, modulo the number of ranks
    u32 delay_ns;       // the longest random pause before a launch's work, for soaks
    u32 unused;
    End receiving[RECEIVING + !RECEIVING];
    End sending[SENDING + !SENDING];
};

static_assert(sizeof(Args) == ARGS_BYTES, "the host packs other arguments");
static_assert(sizeof(Program) == PROGRAM_BYTES, "the host packs another program");
