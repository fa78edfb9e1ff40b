"""MSCCL's XML: `algo` > `gpu` > `tb` > `step`. What the attributes mean follows the parser and the
kernel of Microsoft's MSCCL and AMD's RCCL, which run such files.

A thread block (tb) sends to one peer and receives from one, on one channel. Types of steps: s
sends `src`; r writes `dst`; rcs writes it and sends; rrc adds `src` and writes `dst`, rrs adds and
sends, rrcs does both; cpy and re copy and add `src` to `dst`; nop waits. A step waits until
thread block `depid` has done step `deps`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from collbench.core import xml_tree
from collbench.core.collectives import OpName, collective
from collbench.core.errors import UsageError
from collbench.core.xml_tree import Element
from collbench.schedules.formats._threads import Block, Instruction, ThreadProgram, refuse_too_large
from collbench.schedules.ir import BufferName, Edge, Operand, Round, Step

MAX_RANKS = 1024
MAX_CHUNKS = 1 << 16  # of a buffer
_BUFFERS: Mapping[str, BufferName] = {"i": "in", "o": "out", "s": "tmp"}


class _Verb(NamedTuple):
    """What a type of step does: receive, read the source, add it to dst, write dst, send."""

    receives: bool
    reads: bool
    reads_dst: bool
    writes: bool
    sends: bool


_VERBS = {
    "s": _Verb(receives=False, reads=True, reads_dst=False, writes=False, sends=True),
    "r": _Verb(receives=True, reads=False, reads_dst=False, writes=True, sends=False),
    "rcs": _Verb(receives=True, reads=False, reads_dst=False, writes=True, sends=True),
    "rrc": _Verb(receives=True, reads=True, reads_dst=False, writes=True, sends=False),
    "rrs": _Verb(receives=True, reads=True, reads_dst=False, writes=False, sends=True),
    "rrcs": _Verb(receives=True, reads=True, reads_dst=False, writes=True, sends=True),
    "cpy": _Verb(receives=False, reads=True, reads_dst=False, writes=True, sends=False),
    "re": _Verb(receives=False, reads=True, reads_dst=True, writes=True, sends=False),
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
    op, n = _op(root), _within(root, "ngpus", 2, MAX_RANKS)
    gpus = list(root.of("gpu"))
    by_id = {_within(gpu, "id", 0, n - 1): gpu for gpu in gpus}
    if len(by_id) < len(gpus) or len(gpus) < n:
        raise UsageError(f"{root.place}: {len(gpus)} <gpu> for ngpus {n}, one for each is needed")
    placements = frozenset(
        placement
        for placement, key in (("in", "inplace"), ("out", "outofplace"))
        if root.number(key, 1 if key == "outofplace" and not root.number("inplace", 0) else 0)
    )
    chunks = _chunks(op, n, root, by_id)
    counts = (
        min(step.number("cnt", 1), MAX_CHUNKS)
        for gpu in gpus
        for tb in gpu.of("tb")
        for step in tb.of("step")
    )
    refuse_too_large(op, n, chunks, sum(map(abs, counts)), name)
    return ThreadProgram(
        op=op,
        n=n,
        root=_within(root, "root", 0, n - 1, 0),
        file=name,
        chunks=chunks,
        placements=placements or frozenset({"out"}),
        ranks=tuple(_blocks(by_id[rank], rank, n) for rank in range(n)),
    )


def _op(root: Element) -> OpName:
    name = root.get("coll")
    try:
        return collective(name).name
    except UsageError as error:
        raise UsageError(f"{root.place}: coll of <algo>: {error.message}", error.hint) from None


def _chunks(op: OpName, n: int, root: Element, gpus: Mapping[int, Element]) -> int:
    """Chunks of the vector, or of a block: the same at every rank."""
    what = collective(op)
    inputs, outputs = (
        n if many == "n" and not what.is_interleaved else 1
        for many, _ in (what.inputs, what.outputs)
    )
    found: dict[int, Element] = {}
    for gpu in gpus.values():
        for key, blocks in (("i_chunks", inputs), ("o_chunks", outputs)):
            count = _within(gpu, key, 0, MAX_CHUNKS, 0)
            if count % blocks:
                raise gpu.wrong(key, f"cannot be {blocks} equal blocks of {op} over {n} ranks")
            if count:
                found.setdefault(count // blocks, gpu)
    if len(found) != 1:
        what_is_there = " and ".join(map(str, sorted(found))) or "no"
        raise UsageError(
            f"{root.place}: the buffers have {what_is_there} chunks of the vector or block",
            "every buffer of every rank is cut alike",
        )
    return next(iter(found))


def _within(element: Element, key: str, low: int, high: int, default: int | None = None) -> int:
    """An attribute that is a whole number within limits."""
    if default is None and not element.get(key).strip():
        raise UsageError(f"{element.place}: <{element.tag}> has no {key}")
    value = element.number(key, default or 0)
    if not low <= value <= high:
        raise element.wrong(key, f"is not from {low} to {high}")
    return value


def _blocks(gpu: Element, rank: int, n: int) -> tuple[Block, ...]:
    """The thread blocks of a rank, in the order of the file."""
    elements = list(gpu.of("tb"))
    numbers: dict[int, int] = {}
    steps_of: list[dict[int, int]] = []  # of each block: the instruction of a step by its number
    merged: list[list[list[Element]]] = []
    for tb in elements:
        ident = _within(tb, "id", 0, MAX_CHUNKS)
        if ident in numbers:
            raise tb.wrong("id", "another thread block of the gpu has, too")
        numbers[ident] = len(merged)
        groups = _fused(list(tb.of("step")))
        merged.append(groups)
        steps_of.append({})
        for number, group in enumerate(groups):
            for step in group:
                if steps_of[-1].setdefault(_within(step, "s", 0, MAX_CHUNKS), number) != number:
                    raise step.wrong("s", "another step of the thread block has, too")
    blocks = []
    for tb, groups in zip(elements, merged, strict=True):
        send, recv = (_edge(tb, key, rank, n) for key in ("send", "recv"))
        instructions = tuple(
            Instruction(
                place=group[0].place,
                steps=_steps(group, send, recv, gpu),
                after=_after(group[0], numbers, steps_of),
            )
            for group in groups
        )
        blocks.append(Block(name=f"tb{tb.number('id', 0)}", instructions=instructions))
    return tuple(blocks)


def _edge(tb: Element, key: str, rank: int, n: int) -> Edge | None:
    peer = _within(tb, key, -1, n - 1, -1)
    if peer == rank:
        raise tb.wrong(key, "is the gpu itself")
    return None if peer < 0 else Edge(peer, f"c{_within(tb, 'chan', 0, MAX_CHUNKS, 0)}")


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


def _after(
    step: Element, numbers: Mapping[int, int], steps_of: list[dict[int, int]]
) -> tuple[tuple[int, int], ...]:
    """The instruction that a step waits for."""
    depid = step.number("depid", -1)
    if depid < 0:
        return ()
    if depid not in numbers:
        raise step.wrong("depid", "is no thread block of the gpu")
    block = numbers[depid]
    deps = step.number("deps", -1)
    if deps not in steps_of[block]:
        raise step.wrong("deps", f"is no step of thread block {depid}")
    return ((block, steps_of[block][deps]),)


def _steps(group: list[Element], send: Edge | None, recv: Edge | None, gpu: Element) -> Round:
    """What an instruction does to each of its chunks."""
    first = group[0]
    kind = first.get("type")
    if kind == "nop":
        return ()
    if kind not in _VERBS:
        raise first.wrong("type", f"is none of {', '.join(_VERBS)}, nop")
    verb = _VERBS[kind]
    if (verb.sends and send is None) or (verb.receives and recv is None):
        which = "send" if verb.sends and send is None else "recv"
        raise first.wrong("type", f"needs a peer, and <tb> has none in {which}")
    sources = [_operands(step, "src", gpu) for step in group] if verb.reads else []
    count = first.number("cnt", 1)
    targets = _operands(first, "dst", gpu) if verb.writes else [None] * count
    read = [targets, *sources] if verb.reads_dst else sources
    return tuple(
        Step(
            src=tuple(chunks[k] for chunks in read if chunks[k] is not None),  # type: ignore[misc]
            recv=(recv,) if verb.receives and recv is not None else (),
            dst=targets[k],
            send=(send,) if verb.sends and send is not None else (),
        )
        for k in range(count)
    )


def _operands(step: Element, key: str, gpu: Element) -> list[Operand | None]:
    """The chunks of a step's source or destination."""
    letter = step.get(f"{key}buf")
    if letter not in _BUFFERS:
        raise step.wrong(f"{key}buf", "is none of i, o, s")
    count = _within(step, "cnt", 1, MAX_CHUNKS, 1)
    first = _within(step, f"{key}off", 0, MAX_CHUNKS)
    buffer = _BUFFERS[letter]
    held = gpu.number(f"{letter}_chunks", 0)
    if letter != "s" and not held:
        held = max(gpu.number("i_chunks", 0), gpu.number("o_chunks", 0))
    if first + count > held:
        raise step.wrong(f"{key}off", f"with cnt {count} ends behind the {held} chunks of {letter}")
    return [Operand(buffer, chunk) for chunk in range(first, first + count)]
