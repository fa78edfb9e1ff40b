"""What algorithm files share: short names for operands, and numbers around a ring."""

from collections.abc import Callable, Iterable, Mapping

from collbench.core.world import World
from collbench.schedules.ir import Edge, Operand, Program, Round, Step, Track

ProgramOf = Callable[[World, int], Program]
Serves = Mapping[str, ProgramOf]


def inp(chunk: int) -> Operand:
    """A chunk of the rank's input."""
    return Operand("in", chunk)


def out(chunk: int) -> Operand:
    """A chunk of the rank's output."""
    return Operand("out", chunk)


def tmp(chunk: int) -> Operand:
    """A chunk of scratch memory."""
    return Operand("tmp", chunk)


def one_track(*rounds: Round) -> Program:
    """A program of a single track."""
    return (Track(name="main", rounds=rounds),)


def edges(peers: list[int], port: str) -> tuple[Edge, ...]:
    """An edge to each peer, all by the same port name."""
    return tuple(Edge(peer, port) for peer in peers)


def others(world: World, rank: int) -> list[int]:
    """Every other rank, nearest successor first, so that no two ranks begin with the same peer."""
    return [(rank + k) % world.n for k in range(1, world.n)]


def send_chunks(chunks: Iterable[tuple[int, int]], port: str) -> Round:
    """Input chunks, each straight to a peer, from pairs (peer, chunk)."""
    return tuple(Step(src=(inp(chunk),), send=(Edge(peer, port),)) for peer, chunk in chunks)


def receive_chunks(chunks: Iterable[tuple[int, int]], port: str) -> Round:
    """Output chunks, each straight from a peer, from pairs (peer, chunk)."""
    return tuple(Step(recv=(Edge(peer, port),), dst=out(chunk)) for peer, chunk in chunks)
