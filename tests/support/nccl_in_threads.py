"""NCCL, in the place of its binding nccl.bindings.nccl, on the GPUs of gpus_in_threads.py: a launch
waits in its stream until all ranks of the communicator have come to it, and then computes what NCCL
would.

Like NCCL it refuses what ranks do not call alike, runs the launches of a communicator one after the
other, makes one launch of a group's calls on a communicator, and waits, when a communicator is
destroyed or aborted, for its launches and for all graphs that hold some. Which ways of using it
NCCL does not allow is noted in `faults`. How many kernels find room on a GPU is not simulated.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, cast
from weakref import WeakSet

import numpy as np
import pytest

from collbench.backends.nccl import backend
from collbench.backends.nccl.backend import NCCL_REDOPS, NCCL_TYPES
from collbench.core.collectives import collective
from collbench.core.dtypes import DtypeName, RedopName, divide, dtype, ufunc
from tests.support.gpus_in_threads import Card, Graph, Machine, Work

WAIT_S = 20.0  # for other ranks, launches and graphs, before something must be wrong
_TYPES = {number: dtype(cast(DtypeName, name)) for name, number in NCCL_TYPES.items()}
_REDOPS = {number: cast(RedopName, name) for name, number in NCCL_REDOPS.items()}


class PretendedError(RuntimeError):
    """In the place of NCCLError."""


@dataclass(frozen=True)
class Call:
    """A collective, or a send or receive, of one rank. what: what all ranks must call alike."""

    what: tuple[Any, ...]
    source: int = 0
    target: int = 0

    @property
    def is_message(self) -> bool:
        return self.what[0] in ("send", "recv")


@dataclass
class Clique:
    """The communicators of one id: what has come to each launch, and messages on their way."""

    ranks: set[int] = field(default_factory=set)
    launches: dict[int, dict[int, list[Call]]] = field(default_factory=lambda: defaultdict(dict))
    done: set[int] = field(default_factory=set)
    messages: dict[tuple[int, int], deque[np.ndarray]] = field(
        default_factory=lambda: defaultdict(deque)
    )


class Comm:
    """One rank's communicator."""

    def __init__(self, clique: Clique, n: int, rank: int, card: Card) -> None:
        self.clique, self.n, self.rank, self.card = clique, n, rank, card
        self.begun = self.queued = 0  # launches
        self.graphs = WeakSet[Graph]()  # that hold some
        self.is_busy = self.is_aborted = False
        self.state = "live"


class PretendedNccl:
    """The functions of the binding. refused: those that raise. calls: of each launch."""

    NCCLError = PretendedError

    def __init__(self, machine: Machine, *refused: str, version: int = 22809) -> None:
        self.machine, self.refused, self.version = machine, refused, version
        self.faults: list[str] = []
        self.calls: list[int] = []
        self.comms: list[Comm] = []
        self.allocated: set[int] = set()
        self.held: dict[int, tuple[str, Comm, int, int]] = {}
        self._numbers, self._cliques = count(1), dict[bytes, Clique]()
        self._changed, self._group = threading.Condition(), threading.local()
        self.UniqueId = self  # its only function is from_buffer

    def left(self) -> list[object]:
        """What has not been given back."""
        return [comm for comm in self.comms if comm.state == "live"] + [*self.allocated, *self.held]

    def _refuse(self, what: str) -> None:
        if what in self.refused:
            raise PretendedError(f"NCCL_ERROR_INVALID_USAGE: {what}\nmore of it")

    def get_version(self) -> int:
        return self.version

    # Communicators

    def get_unique_id(self) -> bytes:
        return next(self._numbers).to_bytes(128, "little")

    def from_buffer(self, data: bytes) -> bytes:
        return data

    def comm_init_rank(self, n: int, unique_id: bytes, rank: int) -> Comm:
        """Waits for all ranks, and so shows orders in which ranks wait for each other."""
        self._refuse("comm_init_rank")
        with self._changed:
            clique = self._cliques.setdefault(unique_id, Clique())
            assert rank not in clique.ranks
            clique.ranks.add(rank)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: len(clique.ranks) == n, WAIT_S), "ranks wait"
            self.comms.append(Comm(clique, n, rank, self.machine.here.card))
            return self.comms[-1]

    def comm_destroy(self, comm: Comm) -> None:
        self._end(comm, "destroyed")

    def comm_abort(self, comm: Comm) -> None:
        """What is registered with the communicator goes with it."""
        comm.is_aborted = True
        with self._changed:
            self.held = {number: one for number, one in self.held.items() if one[1] is not comm}
        self._end(comm, "aborted")

    def _end(self, comm: Comm, how: str) -> None:
        if comm.state != "live":
            self.faults.append(f"{how} after {comm.state}")
        comm.state = how
        self.in_group(partial(self._wait_until_idle, comm))

    def _wait_until_idle(self, comm: Comm) -> None:
        end = time.monotonic() + WAIT_S
        while comm.queued or comm.graphs:
            with self.machine.lock:
                self.machine.step()
            if time.monotonic() > end:
                self.faults.append(f"{comm.queued} launches and {len(comm.graphs)} graphs are left")
                return
            time.sleep(0)

    # Groups

    def group_start(self) -> None:
        waiting = self._group.__dict__
        waiting["depth"] = waiting.get("depth", 0) + 1
        if waiting["depth"] == 1:
            waiting["calls"], waiting["others"] = [], []

    def group_end(self) -> None:
        waiting = self._group.__dict__
        waiting["depth"] -= 1
        if waiting["depth"]:
            return
        self._refuse("group_end")
        of_comm: dict[tuple[Comm, int], list[Call]] = {}
        for comm, stream, call in waiting["calls"]:
            of_comm.setdefault((comm, stream), []).append(call)
        for (comm, stream), calls in of_comm.items():
            self._launch(comm, stream, calls)
        for other in waiting["others"]:
            other()

    def in_group(self, work: Callable[[], None]) -> None:
        """Do something at the end of the group, now if there is none."""
        if self._group.__dict__.get("depth", 0):
            self._group.others.append(work)
        else:
            work()

    def _call(self, comm: Comm, stream: int, call: Call) -> None:
        self._refuse(call.what[0])
        if comm.state != "live":
            self.faults.append(f"{call.what[0]} on what was {comm.state}")
        self.group_start()
        self._group.calls.append((comm, stream, call))
        self.group_end()

    # Collectives

    def __getattr__(self, name: str) -> Callable[..., None]:
        """A collective by its name in the binding."""
        collective(name.replace("_", ""))

        def call(a: int, b: int, *what: Any) -> None:
            *alike, comm, stream = what
            self._call(comm, stream, Call((name, *alike), a, b))

        return call

    def send(self, a: int, size: int, kind: int, peer: int, comm: Comm, stream: int) -> None:
        self._call(comm, stream, Call(("send", size, kind, peer), source=a))

    def recv(self, b: int, size: int, kind: int, peer: int, comm: Comm, stream: int) -> None:
        self._call(comm, stream, Call(("recv", size, kind, peer), target=b))

    # Memory

    def mem_alloc(self, size: int) -> int:
        self._refuse("mem_alloc")
        address = self.machine.allocate(size)
        self.allocated.add(address)
        return address

    def mem_free(self, address: int) -> None:
        self.allocated.remove(address)

    def comm_register(self, comm: Comm, address: int, size: int) -> int:
        return self._hold("comm_register", comm, address, size)

    def comm_window_register(self, comm: Comm, address: int, size: int, flags: int) -> int:
        assert flags == 1
        return self._hold("comm_window_register", comm, address, size)

    def _hold(self, what: str, comm: Comm, address: int, size: int) -> int:
        self._refuse(what)
        with self._changed:
            number = next(self._numbers)
            self.held[number] = what, comm, address, size
        return number

    def comm_deregister(self, comm: Comm, number: int) -> None:
        assert self.held.pop(number)[:2] == ("comm_register", comm)

    def comm_window_deregister(self, comm: Comm, number: int) -> None:
        assert self.held.pop(number)[:2] == ("comm_window_register", comm)

    # Launches

    def _launch(self, comm: Comm, stream: int, calls: list[Call]) -> None:
        card = comm.card
        if card.captured is not None:
            card.when_captured.append(comm.graphs.add)
        self.calls.append(len(calls))
        card.queue(stream, partial(self._begin, comm, stream, calls), "run")

    def _begin(self, comm: Comm, stream: int, calls: list[Call]) -> Work:
        comm.queued += 1
        return self._run(comm, stream, calls)

    def _run(self, comm: Comm, stream: int, calls: list[Call]) -> Work:
        machine = self.machine
        comm.card.launching.add(stream)
        while comm.is_busy and not comm.is_aborted:
            yield True
        comm.is_busy = True
        steps = self._steps(comm, calls)
        while not comm.is_aborted and (is_waiting := next(steps, None)) is not None:
            machine.changes += not is_waiting
            yield is_waiting
        machine.changes += 1
        comm.is_busy = False
        comm.queued -= 1

    def _steps(self, comm: Comm, calls: list[Call]) -> Iterator[bool]:
        """A launch: its collectives, then its sends and receives."""
        if collectives := [call for call in calls if not call.is_message]:
            yield from self._together(comm, collectives)
        if messages := [call for call in calls if call.is_message]:
            yield from self._messages(comm, messages)

    def _messages(self, comm: Comm, calls: list[Call]) -> Iterator[bool]:
        """A group of sends and receives."""
        messages = comm.clique.messages
        for call in calls:
            name, size, kind, peer = call.what
            if name == "send":
                messages[comm.rank, peer].append(self._view(call.source, size, kind).copy())
        yield False
        for call in calls:
            name, size, kind, peer = call.what
            while name == "recv" and not messages[peer, comm.rank]:
                yield True
            if name == "recv":
                self._view(call.target, size, kind)[:] = messages[peer, comm.rank].popleft()

    def _together(self, comm: Comm, calls: list[Call]) -> Iterator[bool]:
        """A collective, or several in a group."""
        clique, number = comm.clique, comm.begun
        comm.begun += 1
        come = clique.launches[number]
        come[comm.rank] = calls
        yield False
        while len(come) < comm.n:
            yield True
        if number not in clique.done:
            clique.done.add(number)
            for of_ranks in zip(*(come[rank] for rank in range(comm.n)), strict=True):
                if len({call.what for call in of_ranks}) > 1:
                    self.faults.append(f"ranks call {[call.what for call in of_ranks]}")
                    return
                self._compute(of_ranks)

    def _view(self, address: int, size: int, kind: int) -> np.ndarray:
        element = _TYPES[kind]
        return self.machine.view(address, size * element.item_bytes).view(element.numpy())

    def _compute(self, calls: tuple[Call, ...]) -> None:
        """What one collective leaves, by its definition."""
        name, size, kind, *more = calls[0].what
        op, n, root = collective(name.replace("_", "")), len(calls), more[-1] if more else 0
        inputs = [
            self._view(call.source, op.blocks("in", n, root, rank) * size, kind).copy()
            for rank, call in enumerate(calls)
        ]
        for rank, call in enumerate(calls):
            for want in op.wants(n, root, rank):
                blocks = [inputs[giver][want.in_block * size :][:size] for giver in want.ranks]
                output = self._view(call.target, (want.out_block + 1) * size, kind)
                output[-size:] = self._reduced(blocks, kind, more) if op.is_reduction else blocks[0]

    def _reduced(self, blocks: list[np.ndarray], kind: int, more: list[int]) -> np.ndarray:
        element, redop = _TYPES[kind], _REDOPS[more[0]]
        total = blocks[0].astype(element.accumulator())
        with np.errstate(all="ignore"):  # sums in place grow from launch to launch
            for block in blocks[1:]:
                ufunc(redop)(total, block.astype(total.dtype), total)
        if redop == "avg":
            divide(total, len(blocks))
        return total.astype(element.numpy())


def nccl_on(machine: Machine, monkeypatch: pytest.MonkeyPatch, *refused: str) -> PretendedNccl:
    """From now on the nccl backend has this NCCL. refused: functions that raise."""
    nccl = PretendedNccl(machine, *refused)
    monkeypatch.setattr(backend, "load_nccl", lambda: nccl)
    monkeypatch.setattr(backend.BACKEND, "why_not", lambda group: "")
    return nccl
