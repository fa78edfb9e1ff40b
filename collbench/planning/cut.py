"""How an algorithm's messages are cut: channels, loops, chunks, slices and slots, and which slots
the steps of a rank empty and fill. For who learns; nothing runs by it.
"""

from collections import Counter
from collections.abc import Iterator

from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.errors import UsageError
from collbench.core.text import counted, table, titled, wrapped
from collbench.core.units import exact_size
from collbench.planning.limits import slot_wire_bytes
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.drawings.schedule import LEGEND, step_text
from collbench.schedules.ir import Edge, Schedule

_TITLE = 12  # columns
STEP_HEADS = ("round", "primitive", "step")
SLOT_HEADS = ("empties", "head", "fills", "tail")
_BACK = (
    " A receiver empties it and moves the head on, and so gives the slot back. A sender waits while"
    " tail less head is all slots. Both go on from loop to loop."
)


def of_slots(proto: str) -> str:
    """Who moves the numbers of slots, by a protocol."""
    protocol = PROTOCOLS.load(proto)
    if protocol.CLEARS:
        return (
            "A sender fills a slot, every word of which says that it came; a receiver empties and"
            " clears it. Head and tail are what both count themselves; a launch takes the slots"
            " that the one before did not."
        )
    if hasattr(protocol, "FLAG_BYTES"):
        return (
            "A sender fills a slot, whose lines have their flags within: the tail is what it counts"
            f" itself.{_BACK}"
        )
    return f"A sender fills a slot and moves the tail on.{_BACK}"


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
    loops = [loop.size for loop in plan.loops(0)]
    last, chunk = loops[-1], exact_size(plan.chunk_bytes)
    shares = [sum(loop.size for loop in plan.loops(channel)) for channel in range(plan.channels)]
    protocol, slot = PROTOCOLS.load(plan.proto), exact_size(plan.slot_bytes)
    flags = "its flag is the tail, which is written behind the data"
    if hasattr(protocol, "FLAG_BYTES"):
        data, flag = protocol.DATA_BYTES, protocol.FLAG_BYTES
        flags = f"{exact_size(slot_wire_bytes(plan))} with flags: {flag} bytes behind each {data}"
    elif protocol.CLEARS:
        flags = "each word says by itself that it came"
    of = "the vector" if plan.is_interleaved else "each block"
    return {
        "channel": f"{plan.channels}, each with {exact_size(shares[0])} of {of}"
        + (f", the last one with {exact_size(shares[-1])}" if len(set(shares)) > 1 else ""),
        "loop": f"{len(loops)} of a channel, of {exact_size(loops[0])} each"
        + (f", the last one of {exact_size(last)}" if last != loops[0] else ""),
        "chunk": f"{chunk}, {plan.parts} in a loop",
        "message": f"{counted(plan.widest, 'chunk')}, in {counted(plan.slices, 'slice')}",
        "slot": f"{plan.slots} of a connection, of {slot} of data each; {flags}",
        "connection": f"{len(plan.connections)}, {exact_size(plan.fifo_bytes)} of data in slots",
    }


def step_rows(
    schedule: Schedule, rank: int, slots: int = 0, slices: int = 1
) -> Iterator[list[str]]:
    """The steps of a rank in its first loop, in STEP_HEADS, and with slots in SLOT_HEADS, too:
    the numbers of the head and the tail are those after the step.
    """
    moved: tuple[Counter[Edge], Counter[Edge]] = Counter(), Counter()
    for track in schedule.program(rank):
        for number, steps in enumerate(track.rounds):
            for step in steps:
                row = [f"{track.name} {number}", step.verb, step_text(step)]
                for done, edges in zip(moved, (step.recv, step.send), strict=True):
                    firsts = [done[edge] * slices for edge in edges]
                    row += [",".join(_places(first, slots, slices) for first in firsts)]
                    row += [",".join(str(first + slices) for first in firsts)]
                yield row if slots else row[: len(STEP_HEADS)]
            moved[0].update({edge for step in steps for edge in step.recv})
            moved[1].update({edge for step in steps for edge in step.send})


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
    lines += wrapped(of_slots(plan.proto), columns, "")
    is_alike = plan.schedule.is_symmetric
    for rank in range(1 if is_alike else plan.n):
        rows = step_rows(plan.schedule, rank, plan.slots, plan.slices)
        lines += ["", f"rank {rank}" + ", as all ranks" * is_alike]
        lines += table([*STEP_HEADS, *SLOT_HEADS], rows, (), columns)
    return lines


def steps_data(schedule: Schedule, plan: Plan | None) -> dict[str, object]:
    """The steps of every rank, and how messages are cut if there is a plan, as JSON takes them."""
    heads = (*STEP_HEADS, *(SLOT_HEADS if plan is not None else ()))
    knobs = (plan.slots, plan.slices) if plan is not None else ()
    steps = [
        {"rank": rank, **dict(zip(heads, row, strict=True))}
        for rank in range(schedule.n)
        for row in step_rows(schedule, rank, *knobs)
    ]
    parts = cut_parts(plan) if plan is not None else {}
    return {"collective": schedule.op, "algorithm": schedule.name, **parts, "steps": steps}
