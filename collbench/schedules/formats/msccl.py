"""MSCCL's XML: `algo` > `gpu` > `tb` > `step`. What the attributes mean follows the parser and the
kernel of Microsoft's MSCCL and AMD's RCCL, which run such files.

A thread block (tb) sends to one peer and receives from one, on one channel. Types of steps: s
sends `src`; r writes `dst`; rcs writes it and sends; rrc adds `src` and writes `dst`, rrs adds and
sends, rrcs does both; cpy and re copy and add `src` to `dst`; nop waits. A step waits until
thread block `depid` has done step `deps`.
"""

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
from collbench.util import xml_tree
from collbench.util.errors import UsageError
from collbench.util.xml_tree import Element

_MAX_SLOTS = 1 << 10  # of a program's connections; real ones need one or two
_NUMBERS = 1 << 16  # of thread blocks, steps, channels
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
    if root.tag != "algo":
        raise UsageError(
            f"{root.place}: <{root.tag[:40]}> begins no program of MSCCL", "it begins with <algo>"
        )
    n = _within(root, "ngpus", 2, MAX_RANKS)
    gpus = sorted(root.of("gpu"), key=lambda gpu: _within(gpu, "id", 0, n - 1))
    if [gpu.number("id", 0) for gpu in gpus] != list(range(n)):
        raise UsageError(f"{root.place}: {len(gpus)} <gpu> for ngpus {n}, one for each is needed")
    buffers = Buffers(
        f"{root.place}: coll of <algo>",
        root.get("coll"),
        [{letter: gpu.number(f"{letter}_chunks", 0) for letter in "ios"} for gpu in gpus],
        root=_within(root, "root", 0, n - 1, 0),
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


def _within(element: Element, key: str, low: int, high: int, default: int | None = None) -> int:
    """An attribute that is a whole number within limits."""
    if default is None and not element.get(key).strip():
        raise UsageError(f"{element.place}: <{element.tag}> has no {key}")
    value = element.number(key, default or 0)
    if not low <= value <= high:
        raise element.wrong(key, f"is not from {low} to {high}")
    return value


def _blocks(gpu: Element, rank: int, first: int, buffers: Buffers) -> list[Block]:
    """The thread blocks of a rank, the first of which has that number."""
    tbs = {_within(tb, "id", 0, _NUMBERS): tb for tb in gpu.of("tb")}
    groups_of = {ident: _fused(list(tb.of("step"))) for ident, tb in tbs.items()}
    if len(tbs) < len(list(gpu.of("tb"))):
        raise UsageError(f"{gpu.place}: two thread blocks have the same id")
    events: dict[tuple[int, int], Event] = {}  # by the numbers of the thread block and the step
    for block, (ident, groups) in enumerate(groups_of.items(), first):
        for number, group in enumerate(groups):
            for step in group:
                key, event = (ident, _within(step, "s", 0, _NUMBERS)), Event(block, number)
                if events.setdefault(key, event) != event:
                    raise step.wrong("s", "another step of the thread block has, too")
    blocks = []
    for ident, tb in tbs.items():
        ends = {key: _edges(tb, key, rank, buffers.program.n) for key in ("recv", "send")}
        work = [
            _operation(group[0], _steps(group, ends, rank, buffers), rank, events)
            for group in groups_of[ident]
        ]
        blocks.append(Block(rank, f"tb{ident}", work))
    return blocks


def _operation(
    step: Element, steps: Round, rank: int, events: dict[tuple[int, int], Event]
) -> Operation:
    """What a step takes and gives: a message on every connection, a slot, and what it waits for."""
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
    peer = _within(tb, key, -1, n - 1, -1)
    if peer == rank:
        raise tb.wrong(key, "is the gpu itself")
    return () if peer < 0 else (Edge(peer, f"c{_within(tb, 'chan', 0, _NUMBERS, 0)}"),)


def _fused(steps: list[Element]) -> list[list[Element]]:
    """Steps by instruction: reductions into one chunk that follow each other, with none waiting and
    none waited for, are one, as they are in MSCCL's kernel.
    """
    groups: list[list[Element]] = []
    for step in steps:
        last = groups[-1][-1] if groups else None
        if (
            last is not None
            and step.get("type") == last.get("type") == "re"
            and all(step.get(key) == last.get(key) for key in ("dstbuf", "dstoff", "cnt"))
            and step.number("depid", -1) < 0
            and not last.number("hasdep", 0)
        ):
            groups[-1].append(step)
        else:
            groups.append([step])
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
        return buffers.cells(
            step.place,
            rank,
            step.get(f"{key}buf"),
            _within(step, f"{key}off", 0, _NUMBERS),
            step.number("cnt", 1),
        )

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
