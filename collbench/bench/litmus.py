"""Which links of this machine litmus tests are run on, and for how long each: tests to results."""

import os
import platform
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from collbench.backends.cpu.litmus import ARENA_BYTES, LitmusRank
from collbench.backends.cuda import litmus as gpu_litmus
from collbench.launch.local import LocalGroup
from collbench.machine.host import own_cores
from collbench.spec.litmus import MODEL_OF_MACHINE, PTX, Litmus, LitmusResult
from collbench.util.errors import UnavailableError

_ANSWER_S = 30.0  # for two ranks to end a test, beyond the time of it
_KINDS = ("two threads of a core", "two cores of a socket", "two sockets")
_TOPOLOGY = Path("/sys/devices/system/cpu")


class CorePair(NamedTuple):
    """Two cores of this host, and how they are related."""

    kind: str
    first: int
    second: int

    def __str__(self) -> str:
        return f"{self.kind} ({self.first}, {self.second})"


def core_pairs(cores: Sequence[int], topology: Path = _TOPOLOGY) -> list[CorePair]:
    """One pair of each kind that there is among some CPUs as Linux numbers them."""
    places = {core: _place(core, topology) for core in cores}
    found: dict[str, CorePair] = {}
    for first, second in combinations(cores, 2):
        (socket, core), (other_socket, other_core) = places[first], places[second]
        kind = _KINDS[2 if socket != other_socket else int(core != other_core)]
        found.setdefault(kind, CorePair(kind, first, second))
        if len(found) == len(_KINDS):
            break
    return [found[kind] for kind in _KINDS if kind in found]


def _place(core: int, topology: Path) -> tuple[int, int]:
    """The socket of a CPU and the number of its core there; a core of its own where Linux does not
    say it.
    """
    folder = topology / f"cpu{core}" / "topology"
    try:
        return (
            int((folder / "physical_package_id").read_text()),
            int((folder / "core_id").read_text()),
        )
    except (OSError, ValueError):
        return 0, -1 - core


def measure_on_cpus(
    tests: Sequence[Litmus], trials: int, seconds: float, plant: str = ""
) -> Iterator[LitmusResult]:
    """Every test on every kind of pair of cores, as each ends: so many trials, or what an equal
    part of the time that is left allows. plant: for tests, what the writer breaks. Raises
    UnavailableError.
    """
    cores = sorted(own_cores())
    pairs = core_pairs(cores)
    model = MODEL_OF_MACHINE.get(platform.machine().lower())
    if not pairs:
        raise UnavailableError(
            f"this process may run on core {cores[0]} alone", "allow it two cores (taskset)"
        )
    if model is None:
        raise UnavailableError(
            f"nobody has written down the memory model of {platform.machine()}",
            "use a machine with x86-64 or Armv8",
        )
    runs = [(test, pair) for test in tests for pair in pairs]
    end = time.monotonic() + seconds
    workers = LocalGroup().shared_workers(LitmusRank, 2, ARENA_BYTES)
    try:
        for number, (test, pair) in enumerate(runs):
            part_s = max(0.0, end - time.monotonic()) / (len(runs) - number)
            cells, (_, counts, took_s) = workers.call(
                LitmusRank.play,
                *(test.name, (pair.first, pair.second), trials, part_s, plant, os.getpid()),
                timeout_s=part_s + _ANSWER_S,
            )
            yield LitmusResult(
                test=test.name,
                kind="cpu",
                link=str(pair),
                model=model,
                trials=cells[0],
                counts=counts,
                seconds=took_s,
                transport="shm",
            )
    finally:
        workers.close()


def measure_on_gpus(
    tests: Sequence[Litmus], trials: int, seconds: float, *, is_unordered: bool = False
) -> Iterator[LitmusResult]:
    """As measure_on_cpus, on the links of the first two GPUs. is_unordered, for tests: writers
    without their store order.
    """
    runs = list(gpu_litmus.runs_of(tests, gpu_litmus.all_gpus()))
    end = time.monotonic() + seconds
    for number, (test, link) in enumerate(runs):
        part_s = max(0.0, end - time.monotonic()) / (len(runs) - number)
        counts, took_s = gpu_litmus.play(test, link, trials, part_s, is_unordered=is_unordered)
        yield LitmusResult(
            test=test.name,
            kind="gpu",
            link=str(link),
            model=PTX,
            trials=sum(counts),
            counts=counts,
            seconds=took_s,
            transport=link.transport,
        )
