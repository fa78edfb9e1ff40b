"""The slices of a connection between shared-memory domains, for a proxy that sends them: the bytes
of a slot, and the lines whose flags the proxy checks.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from collbench.device.layout import piece_of
from collbench.device.program import SLOT, lower
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS


class WireMessage(NamedTuple):
    """A slice in its slot. size: bytes from the start of the slot to the last one that is used;
    parts: the offset and size of each chunk that is not empty.
    """

    size: int
    parts: tuple[tuple[int, int], ...]


def messages(
    plan: Plan, rank: int, channel: int, end: int, block_count: int = 0
) -> list[WireMessage]:
    """Every slice that one launch sends along a rank's sending end on a channel. block_count: of
    the problem, if it has another size than the plan's.
    """
    return list(_messages(plan, rank, channel, end, block_count or plan.problem.block_count))


def _messages(
    plan: Plan, rank: int, channel: int, end: int, block_count: int
) -> Iterator[WireMessage]:
    program, wire = lower(plan, rank), PROTOCOLS.load(plan.proto).wire_bytes
    # by message and position in it, the chunk that a step works on
    works: list[dict[int, int]] = [{} for _ in range(program.sending[end].per_loop)]
    for step in program.steps:
        for ref in step.targets:
            if ref.kind == SLOT and ref.end == end:
                works[ref.message][ref.chunk] = step.work
    known: dict[tuple[object, ...], WireMessage] = {}
    what = plan.problem
    for loop in replace(plan, problem=replace(what, block_count=block_count)).loops(channel):
        before = loop.offset if what.counts else 0  # other blocks end there
        for number, work in enumerate(works):
            for part in range(loop.slices):
                key = before, loop.size, loop.chunk, number, part
                if key not in known:
                    sizes = {
                        place: piece_of(plan, rank, channel, loop, part, of)[1]
                        for place, of in work.items()
                    }
                    parts = tuple(
                        (place * int(wire(plan.piece_bytes)), int(wire(size)))
                        for place, size in sorted(sizes.items())
                        if size
                    )
                    known[key] = WireMessage(
                        max((first + size for first, size in parts), default=0), parts
                    )
                yield known[key]
