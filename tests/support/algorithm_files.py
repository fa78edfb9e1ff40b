"""Programs of MSCCL and MSCCL++ as texts, written for the tests."""

import json
from collections.abc import Sequence
from typing import Any

# kind, source, destination, (depid, deps); a chunk is a letter and a number, "-" is none
Row = tuple[str, str, str] | tuple[str, str, str, tuple[int, int]]


def _chunk(name: str) -> tuple[str, int]:
    return ("i", -1) if name == "-" else (name[0], int(name[1:]))


def block(number: int, send: int, recv: int, *rows: Row, chan: int = 0, count: int = 1) -> str:
    """A thread block; every step takes `count` chunks."""
    steps = []
    for s, (kind, source, target, *wait) in enumerate(rows):
        (a, x), (b, y), (depid, deps) = (
            _chunk(source),
            _chunk(target),
            wait[0] if wait else (-1, -1),
        )
        steps.append(
            f'<step s="{s}" type="{kind}" srcbuf="{a}" srcoff="{x}" dstbuf="{b}" dstoff="{y}"'
            f' cnt="{count}" depid="{depid}" deps="{deps}" hasdep="1"/>\n'
        )
    head = f'<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">\n'
    return head + "".join(steps) + "</tb>\n"


def algo(op: str, chunks: tuple[int, int, int], ranks: Sequence[str], placements: str) -> str:
    """A file of MSCCL. chunks: of input, output and scratch memory; placements: i, o or both."""
    gpus = "".join(
        f'<gpu id="{rank}" i_chunks="{chunks[0]}" o_chunks="{chunks[1]}"'
        f' s_chunks="{chunks[2]}">\n{blocks}</gpu>\n'
        for rank, blocks in enumerate(ranks)
    )
    return (
        f'<algo name="mine" proto="Simple" nchannels="1" nchunksperloop="{max(chunks)}"'
        f' ngpus="{len(ranks)}" coll="{op}" inplace="{int("i" in placements)}"'
        f' outofplace="{int("o" in placements)}" minBytes="0" maxBytes="0">\n{gpus}</algo>\n'
    )


def pairs() -> str:
    """Allreduce of two ranks, in place: each adds one half, in a thread block of its own that waits
    for the other's chunk, and is waited for.
    """

    def rank(own: int) -> str:
        mine, others = f"i{own}", f"i{1 - own}"
        link = block(
            0,
            1 - own,
            1 - own,
            ("s", others, "s0"),
            ("r", mine, "s0"),
            ("s", mine, mine, (1, 0)),
            ("r", others, others),
        )
        return link + block(1, -1, -1, ("re", "s0", mine, (0, 1)))

    return algo("allreduce", (2, 0, 1), [rank(0), rank(1)], "i")


def halves(*, swapped: bool = False) -> str:
    """Alltoall of two ranks whose blocks are cut into two chunks, each on a channel of its own;
    swapped: the second goes through scratch memory.
    """

    def rank(own: int) -> str:
        peer, blocks = 1 - own, ""
        for part in (0, 1):
            mine, others = 2 * own + part, 2 * peer + part
            received: list[Row] = [("r", f"o{others}", f"o{others}")]
            if swapped and part:
                received = [("r", "s0", "s0"), ("cpy", "s0", f"o{others}")]
            first: Row = ("s", f"i{others}", f"o{mine}")
            last: Row = ("cpy", f"i{mine}", f"o{mine}")
            blocks += block(part, peer, peer, first, *received, last, chan=part)
        return blocks

    return algo("alltoall", (4, 4, 1), [rank(0), rank(1)], "o")


Json = dict[str, Any]  # of JSON


def operation(text: str) -> Json:
    """An operation on the channel of the rank's only peer, as `put o0 > O1`: capital letters are
    chunks of the peer's. Other facts are written as `semaphore_ids=[0]`.
    """
    name, *words = text.split()
    facts = [word.partition("=") for word in words if "=" in word]
    told: Json = {"name": name, "channel_ids": [0], "channel_type": "memory"}
    told |= {key: json.loads(value) for key, _, value in facts}
    if ">" in words:
        at = words.index(">")
        ends = words[:at], words[at + 1 : len(words) - len(facts)]
        told |= zip(("src_buff", "dst_buff"), ([*map(_buffer, end)] for end in ends), strict=True)
    return told


def _buffer(word: str) -> Json:
    letter = word[0]
    own = {"type": letter} if letter.islower() else {"buffer_id": "ios".index(letter.lower())}
    return {**own, "index": int(word[1:]), "size": 1}


def plan(collective: str, chunks: tuple[int, int, int], ranks: Sequence[Sequence[str]]) -> Json:
    """An execution plan of MSCCL++ for two ranks, in place: of each rank the blocks' operations,
    with bars between them.
    """
    gpus = [
        {
            "id": rank,
            "input_chunks": chunks[0],
            "output_chunks": chunks[1],
            "scratch_chunks": chunks[2],
            "channels": [{"channel_type": "memory", "connected_to": [1 - rank]}],
            "remote_buffers": [
                {"rank": 1 - rank, "type": letter, "access_channel_types": ["memory"]}
                for letter in "ios"
            ],
            "semaphores": [{"init_value": 0}],
            "threadblocks": [
                {
                    "id": number,
                    "ops": [*map(operation, block.split(" | "))],
                    "channels": [{"channel_type": "memory", "channel_ids": [0]}],
                    "remote_buffer_refs": [
                        {"access_channel_type": "memory", "remote_buffer_ids": [0, 1, 2]}
                    ],
                }
                for number, block in enumerate(blocks)
            ],
        }
        for rank, blocks in enumerate(ranks)
    ]
    return {
        "name": "mine",
        "collective": collective,
        "protocol": "Simple",
        "inplace": True,
        "gpus": gpus,
    }


def read_and_write() -> Json:
    """Allreduce: each rank reads the other's chunk, adds, and writes the sum there."""
    text = "signal | wait | rres i{0} I{0} > i{0} I{0} | nop | signal | wait"
    return plan("allreduce", (2, 2, 0), [[text.format(rank)] for rank in (0, 1)])


def packets() -> Json:
    """Allreduce with packets: one block sends, another adds what comes and sends the sum back."""
    texts = "ppkt i{1} > S0", "respkt i{0} s0 > i{0} S1 | upkt s1 > i{1}"
    ranks = [[text.format(rank, 1 - rank) for text in texts] for rank in (0, 1)]
    return plan("allreduce", (2, 2, 2), ranks)


def put_and_get() -> Json:
    """Allgather: rank 0 puts its block, and gets the other one behind a semaphore and a barrier."""
    barrier = "barrier barrier_id=0 num_threadblocks=2"
    first = [
        f"put o0 > O0 | signal | wait | sem_release semaphore_ids=[0] | {barrier}",
        f"sem_acquire semaphore_ids=[0] | get O1 > s0 | copy s0 > o1 | {barrier}",
    ]
    return plan("allgather", (1, 2, 1), [first, ["signal | wait"]])


def texts() -> tuple[tuple[str, str], ...]:
    """One of each kind, with the ending of its name."""
    plans = read_and_write(), packets(), put_and_get()
    return (
        (pairs(), ".xml"),
        (halves(), ".xml"),
        *((json.dumps(one, indent=1), ".json") for one in plans),
    )
