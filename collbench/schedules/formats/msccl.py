"""MSCCL's XML: `algo` > `gpu` > `tb` > `step`. What the attributes mean follows the parser and the
kernel of Microsoft's MSCCL and AMD's RCCL, which run such files.

A thread block (tb) sends to one peer and receives from one, on one channel. Types of steps: s
sends `src`; r writes `dst`; rcs writes it and sends; rrc adds `src` and writes `dst`, rrs adds and
sends, rrcs does both; cpy and re copy and add `src` to `dst`; nop waits. A step waits until
thread block `depid` has done step `deps`.
"""

from collbench.core import xml_tree
from collbench.core.errors import UsageError
from collbench.core.xml_tree import Element
from collbench.schedules.formats._program import (
    MAX_RANKS,
    Block,
    Buffers,
    Event,
    Operation,
    Play,
    ThreadProgram,
    Turn,
)
from collbench.schedules.ir import Edge, Operand, Round, Step
from collbench.schedules.verify.proof import Key

_MAX_SLOTS = 1 << 10  # of a program's connections; real ones need one or two
# what a type of step does: receive, add `src` or what `dst` held, write `dst`, send
_TYPES = {
    "s": "src send",
    "r": "recv dst",
    "rcs": "recv dst send",
    "rrc": "recv src dst",
    "rrs": "recv src send",
    "rrcs": "recv src dst send",
    "cpy": "src dst",
    "re": "held src dst",
    "nop": "",
}


def is_mine(text: str) -> bool:
    """Whether a text can be such a file."""
    return text.lstrip().startswith("<")


def read(text: str, name: str) -> ThreadProgram:
    """The program. Raises UsageError with the line and what is wrong."""
    root = xml_tree.parse(text, name)
    n, at = root.number("ngpus", 0), root.number("root", 0)
    gpus = sorted(root.of("gpu"), key=lambda gpu: gpu.number("id", -1))
    has_all = [gpu.number("id", -1) for gpu in gpus] == list(range(n))
    if root.tag != "algo" or not (2 <= n <= MAX_RANKS and 0 <= at < n and has_all):
        raise UsageError(
            f"{root.place}: <{root.tag[:40]}> begins no program of MSCCL",
            f"it begins with <algo>, and has a <gpu> for each of ngpus, 2 to {MAX_RANKS}",
        )
    buffers = Buffers(
        f"{root.place}: coll of <algo>",
        root.get("coll"),
        [{letter: gpu.number(f"{letter}_chunks", 0) for letter in "ios"} for gpu in gpus],
        root=at,
        is_aliased=root.number("inplace", 0) != 0 == root.number("outofplace", 0),
        file=name,
    )
    blocks: list[Block] = []
    for rank, gpu in enumerate(gpus):
        blocks += _blocks(gpu, rank, len(blocks), buffers)
    return _played(buffers.program, blocks)


def _played(program: ThreadProgram, blocks: list[Block]) -> ThreadProgram:
    """The program of some blocks, with the fewest slots between ranks with which they can run.
    Raises ScheduleError with the place where they wait for ever.
    """
    works = [(number, one) for number, block in enumerate(blocks) for one in block.work]
    rooms = {room for _, one in works for room in one.credits}
    slots = 1
    while True:
        play = Play(blocks, dict.fromkeys(rooms, slots))
        turns = [
            Turn((time,), event.block, play.operation(event).place, play.operation(event).steps)
            for time, event in play.run()
        ]
        if not play.waiting:
            joined = [(number, event.block) for number, one in works for event in one.after]
            return program.played(blocks, joined, turns)
        slots *= 2
        if slots > _MAX_SLOTS or rooms.isdisjoint(play.waiting):
            raise play.hang()


def _blocks(gpu: Element, rank: int, first: int, buffers: Buffers) -> list[Block]:
    """The thread blocks of a rank, the first of which has that number."""
    tbs = [(tb.number("id", -1), tb, _fused(tb)) for tb in gpu.of("tb")]
    events = {  # by the numbers of the thread block and the step
        (ident, step.number("s", -1)): Event(block, number)
        for block, (ident, _, groups) in enumerate(tbs, first)
        for number, group in enumerate(groups)
        for step in group
    }
    if len(events) < sum(len(group) for _, _, groups in tbs for group in groups):
        raise UsageError(f"{gpu.place}: two steps have the same numbers")
    blocks = []
    for ident, tb, groups in tbs:
        ends = {key: _edges(tb, key, rank, buffers.program.n) for key in ("recv", "send")}
        steps = [_steps(group, ends, rank, buffers) for group in groups]
        work = [_operation(*one, rank, events) for one in zip(groups, steps, strict=True)]
        blocks.append(Block(rank, f"tb{ident}", work))
    return blocks


def _operation(
    group: list[Element], steps: Round, rank: int, events: dict[tuple[int, int], Event]
) -> Operation:
    """What a step takes and gives: a message on every connection, a slot, and what it waits for."""
    step = group[0]
    after, deps = step.number("depid", -1), step.number("deps", -1)
    if after >= 0 and (after, deps) not in events:
        raise step.wrong("deps", f"is no step of a thread block {after}")
    sent = {Key(rank, edge.peer, edge.port): None for step in steps for edge in step.send}
    received = {Key(edge.peer, rank, edge.port): None for step in steps for edge in step.recv}
    return Operation(
        place=step.place,
        takes=(*received, *(("room", key) for key in sent)),
        after=(events[after, deps],) if after >= 0 else (),
        gives=tuple(sent),
        credits=tuple(("room", key) for key in received),
        steps=steps,
    )


def _edges(tb: Element, key: str, rank: int, n: int) -> tuple[Edge, ...]:
    """The connection to the peer, if there is one."""
    peer = tb.number(key, -1)
    if peer == rank or not -1 <= peer < n:
        raise tb.wrong(key, "is no other gpu")
    return () if peer < 0 else (Edge(peer, f"c{tb.number('chan', 0)}"),)


def _fused(tb: Element) -> list[list[Element]]:
    """Steps by instruction: reductions into one chunk that follow each other, with none waiting and
    none waited for, are one, as they are in MSCCL's kernel.
    """
    groups: list[list[Element]] = []
    last = tb
    for step in tb.of("step"):
        if (
            step.get("type") == last.get("type") == "re"
            and all(step.get(key) == last.get(key) for key in ("dstbuf", "dstoff", "cnt"))
            and step.number("depid", -1) < 0
            and not last.number("hasdep", 0)
        ):
            groups[-1].append(step)
        else:
            groups.append([step])
        last = step
    return groups


def _steps(
    group: list[Element], ends: dict[str, tuple[Edge, ...]], rank: int, buffers: Buffers
) -> Round:
    """What an instruction does to each of its chunks."""
    first = group[0]
    if first.get("type") not in _TYPES:
        raise first.wrong("type", f"is none of {', '.join(_TYPES)}")
    does = _TYPES[first.get("type")].split()
    for key, edges in ends.items():
        if key in does and not edges:
            raise first.wrong("type", f"needs a peer, and <tb> has none in {key}")

    def cells(step: Element, key: str) -> list[Operand]:
        at, count = step.number(f"{key}off", -1), step.number("cnt", 1)
        return buffers.cells(step.place, rank, step.get(f"{key}buf"), at, count)

    sources = [cells(step, "src") for step in group] if "src" in does else []
    targets = cells(first, "dst") if "dst" in does else []
    read = [targets, *sources] if "held" in does else sources
    return tuple(
        Step(
            src=tuple(chunks[k] for chunks in read),
            recv=ends["recv"] if "recv" in does else (),
            dst=targets[k] if targets else None,
            send=ends["send"] if "send" in does else (),
        )
        for k in range(len([targets, *sources][-1]))
    )
