"""The rates of pairs of ranks: the pairs of a round at once, or each alone, in each direction."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collbench.bench.pair_links import arena_bytes
from collbench.bench.pair_rank import PairJob, PairRank, PairTime
from collbench.core.assessment import hostlist
from collbench.core.errors import UnavailableError
from collbench.core.group import Group, WorkerGroup
from collbench.core.pairwise import Mode, PairSample, PairWorld, world_of
from collbench.core.text import counted
from collbench.core.units import rate_gbs

SIZES = {"cpu": 1 << 20, "cuda": 64 << 20, "nccl": 64 << 20}  # of a message, in bytes
WINDOW_S = 0.02  # how long a pair repeats its message
_CALL_TIMEOUTS = 8  # of a message, until the ranks must have answered: they notice by themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSettings:
    """How pairs are measured. is_both: both directions at once, not one after the other."""

    size_bytes: int
    timeout_s: float
    is_both: bool = False


class Pairs:
    """The ranks, ready to measure pairs. Use as a context. n: of the ranks, without a launcher."""

    def __init__(self, group: Group, n: int, backend: str, settings: PairSettings) -> None:
        if group.ranks and n not in (0, group.ranks):
            raise UnavailableError(
                f"the launcher started {group.ranks} ranks, not {n}",
                "start as many, or leave --ranks out",
            )
        n = group.ranks or n
        self.settings, self._is_on_cores = settings, backend == "cpu"
        self.world = world_of(group.hosts if group.ranks else [group.hosts[0]] * n)
        self._workers: WorkerGroup[PairRank] | None = None
        if group.ranks:
            self._workers = group.mpi_workers(_rank_of(backend), n)
        elif backend == "cpu":
            self._workers = group.shared_workers(PairRank, n, arena_bytes(n))

    def __enter__(self) -> "Pairs":
        return self

    def __exit__(self, *_: object) -> None:
        if self._workers is not None:
            self._workers.close()

    def busy_hosts(self) -> dict[str, str]:
        """Hosts whose ranks may wait for cores, and why: others were busy there in the last minute
        or the ranks are more than cores, which matters on CPUs alone, or hosts are one machine.
        """
        if self._workers is None:
            return {}
        loads = self._workers.call(PairRank.load, timeout_s=self.settings.timeout_s)
        hosts = dict(zip(self.world.hosts, loads, strict=True))
        ranks = Counter(self.world.hosts)
        machines: dict[str, list[str]] = defaultdict(list)
        for host, (*_, machine) in hosts.items():
            machines[machine or host].append(host)
        busy = {}
        for host, (load, cores, machine) in hosts.items():
            if len(alike := machines[machine or host]) > 1:
                busy[host] = f"{hostlist(alike)} (one machine with {counted(cores, 'core')})"
            elif self._is_on_cores and load > cores:
                busy[host] = f"{host} (load {load:.1f} on {counted(cores, 'core')})"
            elif self._is_on_cores and ranks[host] > cores:
                busy[host] = f"{host} ({ranks[host]} ranks on {counted(cores, 'core')})"
        return busy

    def measure(self, pairs: Sequence[tuple[int, int]], mode: Mode) -> Iterator[PairSample]:
        """The pairs of a round in this mode, in one direction and then in the other."""
        turns = [tuple(pairs)] if mode == "together" else [(pair,) for pair in pairs]
        for turn in turns:
            yield from self._run(turn, mode)
            if not self.settings.is_both:
                yield from self._run(tuple((b, a) for a, b in turn), mode)

    def _run(self, pairs: tuple[tuple[int, int], ...], mode: Mode) -> list[PairSample]:
        load = loads(pairs, self.world)
        return [
            self._sample(*pair, mode, load[pair], time)
            for pair, time in zip(pairs, self._times(pairs), strict=True)
        ]

    def _times(self, pairs: tuple[tuple[int, int], ...]) -> list[PairTime]:
        """What the slower rank of each pair saw."""
        settings = self.settings
        if self._workers is None:
            return _on_gpus(pairs, settings)
        job = PairJob(
            pairs=pairs,
            size_bytes=settings.size_bytes,
            window_s=WINDOW_S,
            deadline_s=settings.timeout_s,
            is_both=settings.is_both,
        )
        answers = self._workers.call(
            PairRank.exchange, job, timeout_s=_CALL_TIMEOUTS * settings.timeout_s
        )
        times = []
        for pair in pairs:
            one, other = (answers[rank] for rank in pair)
            assert one is not None and other is not None
            slower = max(one, other, key=lambda time: time.seconds)
            times.append(replace(slower, wrong=one.wrong + other.wrong))
        return times

    def _sample(self, a: int, b: int, mode: Mode, sharing: int, time: PairTime) -> PairSample:
        size_bytes = self.settings.size_bytes
        return PairSample(
            a=a,
            b=b,
            gbs=None if time.wrong else rate_gbs(size_bytes, time.seconds),
            is_both=self.settings.is_both,
            mode=mode,
            sharing=sharing,
            size_bytes=size_bytes,
            reason=f"{counted(time.wrong, 'byte')} came out wrong" if time.wrong else "",
        )


def _rank_of(backend: str) -> type[PairRank]:
    """A rank's part, under a launcher."""
    if backend == "cuda":
        from collbench.bench.pair_gpus import GpuPairRank

        return GpuPairRank
    if backend == "nccl":
        from collbench.bench.pair_nccl import NcclPairRank

        return NcclPairRank
    return PairRank


def _on_gpus(pairs: Sequence[tuple[int, int]], settings: PairSettings) -> list[PairTime]:
    """Copies between the GPUs of this process, all pairs at once."""
    from collbench.device.copies import copy_rates

    ways = [way for a, b in pairs for way in ((a, b), (b, a))] if settings.is_both else [*pairs]
    rates = copy_rates(ways, settings.size_bytes, WINDOW_S)
    each = len(ways) // len(pairs)
    return [
        PairTime(
            seconds=max(rate.seconds for rate in rates[first : first + each]),
            messages=1,
            wrong=sum(rate.wrong for rate in rates[first : first + each]),
        )
        for first in range(0, len(ways), each)
    ]


def loads(pairs: Sequence[tuple[int, int]], world: PairWorld) -> dict[tuple[int, int], int]:
    """How many pairs between hosts the busier host of each pair has.

    >>> loads([(0, 2), (1, 3)], PairWorld(("a", "a", "b", "c"), (0, 1, 0, 0)))
    {(0, 2): 2, (1, 3): 2}
    """
    hosts = world.hosts
    between = [(a, b) for a, b in pairs if hosts[a] != hosts[b]]
    of_host = Counter(hosts[rank] for pair in between for rank in pair)
    return {
        (a, b): max(1, of_host[hosts[a]], of_host[hosts[b]]) if hosts[a] != hosts[b] else 1
        for a, b in pairs
    }
