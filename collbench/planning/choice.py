"""What the planner returns, and what all of its ways (CPUs, kernels, copy engines) share."""

from dataclasses import replace
from typing import NamedTuple

from collbench.core.case import Case
from collbench.core.errors import ScheduleError
from collbench.core.units import format_size
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.ir import Schedule

VECTOR_BYTES = 16  # chunks in a slot begin at multiples of this, where kernels or lines read them
Orders = tuple[tuple[int, ...], ...]


class Choice(NamedTuple):
    """A case with nothing left to decide, and its plan."""

    case: Case
    plan: Plan


def choice_of(case: Case, schedule: Schedule, plan: Plan) -> Choice:
    """The choice of a case whose other knobs are those of its plan."""
    return Choice(
        replace(
            case,
            algo=schedule.name,
            transport=plan.transport,
            proto=plan.proto,
            channels=plan.channels,
            slots=plan.slots,
            chunk=plan.chunk_bytes,
            slices=plan.slices,
        ),
        plan,
    )


def slot_bytes_of(
    case: Case,
    slots: int,
    chunks: int,
    proto: str,
    grain: int,
    hint: str = "use a larger --buffsize",
) -> int:
    """The payload of a slot of the buffer that the case asks for; 0 where it asks for none.

    chunks: of a message; each begins at a multiple of grain bytes. Raises ScheduleError.
    """
    if not case.buffsize:
        return 0
    part = PROTOCOLS.load(proto).payload_bytes(case.buffsize // slots // max(1, chunks))
    slot_bytes = chunks * (int(part) // grain * grain)
    if not slot_bytes:
        raise ScheduleError(
            f"a buffer of {format_size(case.buffsize)} has no room for {slots} slots", hint
        )
    return slot_bytes
