"""The terms of the proof: symbolic values, places, connections, and what messages name."""

from dataclasses import dataclass
from typing import NamedTuple

from collbench.core.text import some_of
from collbench.schedules.ir import At, Schedule


class Value(NamedTuple):
    """The reduction of one input chunk of the ranks in the mask; `piece` tells launch, loop and
    slice apart.
    """

    piece: int
    chunk: int
    mask: int


class Place(NamedTuple):
    """One step of one program, for messages and marks."""

    program: int
    track: int
    round: int
    step: int


class Key(NamedTuple):
    """A connection."""

    src: int
    dst: int
    port: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a checked schedule is known to do.

    complete: the steps at which a reduction of all ranks becomes complete (there avg divides).
    chunks: which input chunk each step works on; givers: a rank whose input that is. hops: message
    hand-overs on the longest chain of one loop.
    """

    complete: frozenset[Place]
    chunks: dict[Place, int]
    givers: dict[Place, int]
    hops: int


def name_of(schedule: Schedule) -> str:
    """The name of a schedule in error messages."""
    return f"{schedule.op} {schedule.name} over {schedule.n} ranks"


def where(schedule: Schedule, place: At | Place) -> str:
    """The name of a place in error messages."""
    track = schedule.programs[place.program][place.track].name
    who = "every rank (seen from rank 0)" if schedule.is_symmetric else f"rank {place.program}"
    return f"{who}, track {track}, round {place.round}"


def tell(value: Value | None) -> str:
    """The name of a value in error messages."""
    if value is None:
        return "nothing"
    ranks = [str(rank) for rank in range(value.mask.bit_length()) if value.mask >> rank & 1]
    of = f"rank{'s' * (len(ranks) > 1)} {some_of(ranks, 8)}"
    return f"input chunk {value.chunk} of {of} (piece {value.piece})"
