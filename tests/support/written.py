"""Programs as text. `i0 <1x =o0 >2y` is a step that adds chunk 0 of the input to what rank 1 sends
by port x, keeps it as chunk 0 of the output and sends it to rank 2 by port y; t is scratch memory.
Commas stand between the steps of a round, bars between rounds, and slashes between tracks, whose
names may come first, as in `a: i0 =t0`.
"""

import re
from collections.abc import Sequence

from collbench.core.collectives import OpName
from collbench.core.world import World
from collbench.schedules.ir import BufferName, Edge, Operand, Program, Schedule, Step, Track, build

_BUFFERS: dict[str, BufferName] = {"i": "in", "o": "out", "t": "tmp"}


def _operands(words: Sequence[str]) -> tuple[Operand, ...]:
    return tuple(Operand(_BUFFERS[word[0]], int(word[1:])) for word in words)


def _edges(words: Sequence[str], mark: str) -> tuple[Edge, ...]:
    found = (re.fullmatch(rf"{mark}(\d+)(\S+)", word) for word in words)
    return tuple(Edge(int(one[1]), one[2]) for one in found if one)


def _step(text: str) -> Step:
    words = text.split()
    kept = _operands([word[1:] for word in words if word[0] == "="])
    return Step(
        src=_operands([word for word in words if word[0] in _BUFFERS]),
        recv=_edges(words, "<"),
        dst=kept[0] if kept else None,
        send=_edges(words, ">"),
    )


def _track(text: str) -> Track:
    name, _, rounds = text.rpartition(": ")
    parts = rounds.split("|") if rounds.strip() else ()
    steps = tuple(tuple(_step(step) for step in part.split(",") if step.strip()) for part in parts)
    return Track(name=name.strip() or "main", rounds=steps)


def program(text: str) -> Program:
    """One rank's."""
    return tuple(map(_track, text.split("/")))


def schedule_of(
    programs: Sequence[str], op: OpName = "allreduce", root: int = 0, name: str = "test"
) -> Schedule:
    """The schedule of the programs of all ranks."""
    world = World(n=len(programs), root=root)
    return build(op, name, lambda world, rank: program(programs[rank]), world)
