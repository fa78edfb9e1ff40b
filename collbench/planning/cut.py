"""How an algorithm's messages are cut: channels, loops, chunks, slices and slots, and which slots
the steps of a rank empty and fill. For who learns; nothing runs by it.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.errors import UsageError
from collbench.core.text import counted, table, titled, wrapped
from collbench.core.units import exact_size
from collbench.planning.limits import fits_one_loop, needs_no_credits, slot_wire_bytes
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.drawings.page import Slots
from collbench.schedules.drawings.schedule import LEGEND, step_text
from collbench.schedules.ir import Edge, Schedule
from collbench.schedules.playback import Playback, play

_TITLE = 12  # columns
STEP_HEADS = ("round", "primitive", "step")
SLOT_HEADS = ("empties", "head", "fills", "tail")
_MOST_CELLS, _MOST_LOOPS = 24, 4  # of a rank on a page


def given_back(plan: Plan) -> int:
    """How many slots a receiver gives back at a time; 0: none before the launch ends."""
    if plan.proto != "simple" and fits_one_loop(plan):
        return 0
    return plan.kernel.credit_batch(plan.slots) if plan.kernel is not None else 1


def of_slots(plan: Plan) -> str:
    """Who moves the numbers of slots."""
    protocol, batch = PROTOCOLS.load(plan.proto), given_back(plan)
    fills = "A sender fills a slot and moves the tail on."
    if hasattr(protocol, "FLAG_BYTES"):
        fills = (
            "A sender fills a slot, whose lines have a flag within: the number of the slice, from 1"
            " on, which is the tail."
        )
    elif protocol.CLEARS:
        fills = (
            "A sender fills a slot, each word of which says by itself that it came: the tail is"
            " what it counts. A receiver reads and clears it."
        )
    if plan.proto != "simple" and needs_no_credits(plan):
        return (
            f"{fills} No head comes back: the slots hold two launches, and no rank ends one before"
            " those that it sends to have begun it."
        )
    if protocol.CLEARS:
        return f"{fills} The head moves on when the next launch begins, which takes other slots."
    if not batch:
        return f"{fills} The head moves on when the launch ends, all of which fits the slots."
    back = " A receiver empties it and moves the head on, which gives it back."
    if batch > 1:
        back = (
            f" A receiver empties it; when {batch} are empty, and when the launch ends, it moves"
            " the head on, which gives them back."
        )
    return (
        f"{fills}{back} A sender waits while tail less head is all slots. Both go on from loop to"
        " loop."
    )


def cut(
    op: OpName, algo: str, ranks: int, root: int, size: int, proto: str, channels: int, slots: int
) -> Plan:
    """The plan of kernels whose every message goes through slots. proto: `auto`, channels and
    slots: 0, where the tool's choice is meant. Raises ScheduleError if it cannot be cut so, and
    UsageError if it has no element for every block.
    """
    case = Case(
        op=op, backend="cuda", algo=algo, ranks=ranks, root=root, size_bytes=size,
        proto=proto, channels=channels, slots=slots, direct="off", transport="p2p",
    )  # fmt: skip
    if not case.block_count:
        raise UsageError(
            f"{exact_size(size)} of float32 have no element for every block", "give a larger --size"
        )
    return resolve(case.rounded()).plan


def cut_parts(plan: Plan) -> dict[str, str]:
    """What the data is cut into, in words, from the largest part to the smallest."""
    count = plan.loop_count(0)
    first, last = plan.loop(0, 0), plan.loop(0, count - 1)
    shares = [plan.channel_range(channel)[1] for channel in range(plan.channels)]
    each = "each " * (plan.channels > 1)
    less = dict.fromkeys(exact_size(size) for size in shares if size != shares[0])
    rest = f", the last with {' and '.join(less)}" if less else ""
    protocol, slot = PROTOCOLS.load(plan.proto), exact_size(plan.slot_bytes)
    flags = "its flag is the tail, which is written behind the data"
    if hasattr(protocol, "FLAG_BYTES"):
        data, flag = protocol.DATA_BYTES, protocol.FLAG_BYTES
        flags = f"{exact_size(slot_wire_bytes(plan))} with flags: {flag} bytes behind each {data}"
    elif protocol.CLEARS:
        flags = "each word says by itself that it came"
    of = "the vector" if plan.is_interleaved else "each block"
    return {
        "protocol": plan.proto,
        "channel": f"{plan.channels}, {each}with {exact_size(shares[0])} of {of}{rest}",
        "loop": f"{count} of a channel, of {exact_size(first.size)} each"
        + (f", the last one of {exact_size(last.size)}" if last.size != first.size else ""),
        "chunk": f"{exact_size(first.chunk)}, {plan.parts} in a loop"
        + (f"; {exact_size(last.chunk)} in the last one" if last.chunk != first.chunk else ""),
        "message": "up to " * (plan.widest > 1)
        + f"{counted(plan.widest, 'chunk')}, in {counted(first.slices, 'slice')}",
        "slot": f"{plan.slots} of a connection, of {slot} of data each; {flags}",
        "connection": f"{len(plan.connections)}, {exact_size(plan.fifo_bytes)} of data in slots",
    }


def playback_of(plan: Plan) -> tuple[Playback, Slots]:
    """The first loops of channel 0, as many as a page has room for, and their slots."""
    loops = [loop.slices for loop in islice(plan.loops(0), _MOST_LOOPS)]
    cells = max(map(len, play(plan.schedule).keys()))
    count = 1
    while count < len(loops) and sum(loops[: count + 1]) * cells <= _MOST_CELLS:
        count += 1
    is_whole = count == plan.loop_count(0)
    shown = (
        "all"
        if is_whole
        else f"the first {counted(count, 'loop')}"
        if count > 1
        else "the first loop"
    )
    slots = Slots(
        count=plan.slots,
        batch=given_back(plan),
        is_ended=is_whole
        and not PROTOCOLS.load(plan.proto).CLEARS
        and (plan.proto == "simple" or not needs_no_credits(plan)),
        says=of_slots(plan),
        parts={**cut_parts(plan), "played": f"{shown} of channel 0"},
    )
    return play(plan.schedule, loops[:count], plan.slots), slots


def step_rows(schedule: Schedule, rank: int, plan: Plan | None = None) -> Iterator[list[str]]:
    """The steps of a rank in its first loop, in STEP_HEADS, and with a plan in SLOT_HEADS, too: the
    numbers of the head, where it moves, and the tail are those after the step.
    """
    slots, slices, batch = 0, 1, 1
    if plan is not None:
        slots, slices, batch = plan.slots, plan.loop(0, 0).slices, given_back(plan)
    moved: tuple[Counter[Edge], Counter[Edge]] = Counter(), Counter()
    for track in schedule.program(rank):
        for number, steps in enumerate(track.rounds):
            for step in steps:
                row = [f"{track.name} {number}", step.verb, step_text(step)]
                for done, edges, by in zip(moved, (step.recv, step.send), (batch, 1), strict=True):
                    firsts = [done[edge] * slices for edge in edges]
                    row += [",".join(_places(first, slots, slices) for first in firsts)]
                    row += [",".join(_moved(first, first + slices, by) for first in firsts)]
                yield row if slots else row[: len(STEP_HEADS)]
            moved[0].update({edge for step in steps for edge in step.recv})
            moved[1].update({edge for step in steps for edge in step.send})


def _moved(before: int, after: int, batch: int) -> str:
    """A number that moves on by so many at a time, if it does; 0: it does not."""
    return str(after - after % batch) if batch and after // batch > before // batch else "-"


def _places(first: int, slots: int, slices: int) -> str:
    """The slots of a message."""
    last = first + slices - 1
    return f"{first % slots}-{last % slots}" if slots and slices > 1 else str(first % (slots or 1))


def cut_lines(plan: Plan, columns: int) -> list[str]:
    """How the messages of a plan are cut, and the slots of each step of each rank; of ranks that do
    the same, those of rank 0.
    """
    what = plan.problem
    size = collective(what.op).size_bytes(what.block_count, what.item_bytes, plan.n)
    title = f"How a size of {exact_size(size)} is cut, if every message goes through slots:"
    lines = ["", *wrapped(title, columns)]
    lines += [*titled(cut_parts(plan).items(), _TITLE, columns), "", *LEGEND.split("\n")]
    lines += wrapped(of_slots(plan), columns, "")
    is_alike = plan.schedule.is_symmetric
    for rank in range(1 if is_alike else plan.n):
        rows = step_rows(plan.schedule, rank, plan)
        lines += ["", f"rank {rank}" + "; the others do the same, shifted" * is_alike]
        lines += table([*STEP_HEADS, *SLOT_HEADS], rows, (), columns)
    return lines


def steps_data(schedule: Schedule, plan: Plan | None) -> dict[str, object]:
    """The steps of every rank, and how messages are cut if there is a plan, as JSON takes them."""
    heads = (*STEP_HEADS, *(SLOT_HEADS if plan is not None else ()))
    steps = [
        {"rank": rank, **dict(zip(heads, row, strict=True))}
        for rank in range(schedule.n)
        for row in step_rows(schedule, rank, plan)
    ]
    parts = cut_parts(plan) if plan is not None else {}
    return {"collective": schedule.op, "algorithm": schedule.name, **parts, "steps": steps}
