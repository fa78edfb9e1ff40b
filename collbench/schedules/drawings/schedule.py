"""A schedule as text: what it costs, and what every rank does in every round."""

from fractions import Fraction
from itertools import zip_longest

from collbench.core.text import counted
from collbench.schedules.ir import Operand, Program, Schedule, Step
from collbench.schedules.passes import Traffic, direct_count, message_count, pull_zero_copy, traffic
from collbench.schedules.verify.check import Proof
from collbench.schedules.zero_copy import push_zero_copy

# direct writes are looked for up to here: every rank is followed, half a second at 64, growing with
# the cube
PLACED_RANKS = 64
LEGEND = (
    "  i2 o2 t2   chunk 2 of the input, the output, scratch memory\n"
    "  <3  >1     receive from rank 3, send to rank 1\n"
    "  a + b =o2  reduce, write output chunk 2\n"
    "Steps of a round happen at once. Rounds of a track follow each other; tracks\n"
    "run side by side."
)


def share(value: Fraction) -> str:
    """A fraction of the size S.

    >>> share(Fraction(3, 2)), share(Fraction(0)), share(Fraction(31, 16))
    ('1.5 S', '0', '1.94 S')
    """
    return "0" if value == 0 else f"{float(value):.3g} S"


def step_text(step: Step) -> str:
    """One step in short.

    >>> from collbench.schedules.ir import Edge
    >>> step_text(
    ...     Step(
    ...         src=(Operand("in", 2),),
    ...         recv=(Edge(3, "ring"),),
    ...         dst=Operand("out", 2),
    ...         send=(Edge(1, "ring"),),
    ...     )
    ... )
    '<3 + i2 =o2 >1'
    """
    operands = [f"<{edge.peer}" for edge in step.recv] + [_operand(operand) for operand in step.src]
    parts = [" + ".join(operands)]
    if step.dst is not None:
        parts.append(f"={_operand(step.dst)}")
    if step.send:
        parts.append(">" + ",".join(str(edge.peer) for edge in step.send))
    return " ".join(parts)


def _operand(operand: Operand) -> str:
    return f"{operand.buffer[0]}{operand.chunk}"


def summary(schedule: Schedule, proof: Proof) -> str:
    """What is known of a checked schedule, in a few lines."""
    moved: Traffic = traffic(schedule)
    programs = (
        "one program, shifted for every rank"
        if schedule.is_symmetric
        else f"{len(schedule.programs)} programs, one for each rank"
    )
    chunks = ", ".join(f"{count} of {name}" for name, count in schedule.chunks.items() if count)
    messages = message_count(schedule)
    busiest = counted(moved.messages, "message")
    read = f"{direct_count(pull_zero_copy(schedule, in_place=False))} of {messages}, all ranks"
    written = f"not counted above {PLACED_RANKS} ranks"
    if schedule.n <= PLACED_RANKS:
        written = (
            f"{direct_count(push_zero_copy(schedule, in_place=False))} of {messages}, all ranks"
        )
    return (
        f"{schedule.op} by {schedule.name} over {schedule.n} ranks: checked\n"
        f"  hops on the longest chain    {proof.hops}\n"
        f"  busiest rank sends           {share(moved.sent)} in {busiest}\n"
        f"  busiest rank receives        {share(moved.received)}\n"
        f"  messages read in place       {read}\n"
        f"  messages written in place    {written}\n"
        f"  chunks                       {chunks}\n"
        f"  written as                   {programs}"
    )


def drawing(schedule: Schedule, columns: int) -> list[str]:
    """Every round of every rank, ranks side by side as far as the columns reach, the rest below."""
    programs = [schedule.program(rank) for rank in range(schedule.n)]
    names = list(dict.fromkeys(track.name for program in programs for track in program))
    boxes = [[_boxes(program, name) for program in programs] for name in names]
    width = max(
        (len(line) for track in boxes for rank in track for box in rank for line in box), default=0
    )
    width = max(width, len(f"rank {schedule.n - 1}"))
    label = (
        max(len(f"{name} {max(map(len, track))}") for name, track in zip(names, boxes, strict=True))
        + 2
    )
    at_once = max(1, (columns - label) // (width + 3))
    lines: list[str] = []
    for first in range(0, schedule.n, at_once):
        ranks = range(first, min(first + at_once, schedule.n))
        lines.append(
            " " * label + " | ".join(f"{f'rank {rank}':<{width}}" for rank in ranks).rstrip()
        )
        for name, track in zip(names, boxes, strict=True):
            for number, row in enumerate(
                zip_longest(*[track[rank] for rank in ranks], fillvalue=())
            ):
                for index, line in enumerate(zip_longest(*row, fillvalue="")):
                    head = f"{name} {number}" if index == 0 else ""
                    lines.append(
                        f"{head:<{label}}"
                        + " | ".join(f"{cell:<{width}}" for cell in line).rstrip(" ")
                    )
        lines.append("")
    return lines


def _boxes(program: Program, name: str) -> list[list[str]]:
    """The rounds of one track of a rank, each a list of steps in short."""
    return [
        [step_text(step) for step in steps]
        for track in program
        if track.name == name
        for steps in track.rounds
    ]
