"""Litmus tests of GPUs: what two sides do to memory that both reach, and what they may see of it.

Every cell of a test is one trial. It starts with the value of the round before ("old"); a side
writes the number of the round ("new"). One outcome of each test is `weak`: the one that surprises
whoever thinks that accesses happen in the order of the program. PTX may allow it, and the protocols
of `needed_by` return wrong data where it happens. The two are independent: LL128 needs what no
model promises. Source: PTX ISA, "Memory Consistency Model" (vector accesses are several scalar
ones, in no order).

One thread drives both GPUs. What both sides reach (cells, meeting words, the abort word) lies in
the memory of the link: of one GPU, of the GPU that reads where the other one writes over the link,
or of the host. Only counts and reports are a GPU's own.
"""

import ctypes
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from collbench.core.errors import HangError
from collbench.device.card import Card, Launch, device_count
from collbench.device.compile import Source, compile_source
from collbench.device.copies import queue_copy
from collbench.device.host_memory import HostMemory

Shape = Literal["mp", "line", "sb", "lb", "engine"]
KERNELS = Path(__file__).with_name("litmus.cu")
_NUMBER: dict[Shape, int] = {"mp": 0, "line": 1, "sb": 2, "lb": 3, "engine": 4}  # as there
_THREADS, _STEPS, _STRIDE = 64, 16, 128  # as in litmus.cu
_MEET_BYTES, _REPORT_BYTES, _COUNTS = 128, 48, 4
_MOST_PAIRS = 32
_TIMEOUT_NS = 10**10
_DEADLINE_S = 30.0  # of a launch, in which a wait has timed out long before
_DELAY_NS = 500  # the longest random moment by which one side begins later
_FIRST_ROUNDS, _MOST_ROUNDS, _ENOUGH_S = 32, 1 << 16, 0.05
_ENGINE_CELLS = 1 << 20
_ENGINE_CTAS = 64
_ARGS = struct.Struct("<9Q6I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Litmus:
    """One test. width: of an access in bytes; warps: how many of a side take part; is_allowed: by
    PTX. Its four outcomes are counted in this order: neither side saw what is new, the second, the
    first, both.
    """

    name: str
    shape: Shape
    width: int
    has_fence: bool = False
    warps: int = 1
    is_allowed: bool = True
    needed_by: tuple[str, ...] = ()
    is_reloaded: bool = False

    @property
    def weak(self) -> int:
        """The number of the outcome in question: new flag and old data; both old (store buffering);
        both new (load buffering).
        """
        return {"sb": 0, "lb": 3}.get(self.shape, 2)

    @property
    def chances(self) -> tuple[int, ...]:
        """The outcomes of trials in which the one in question might have come out."""
        return {"sb": (0, 1, 2, 3), "lb": (1, 2, 3)}.get(self.shape, (2, 3))


def _message_passing() -> Iterable[Litmus]:
    """Write data, then a flag; read the flag, then the data. Between warps stands a barrier."""
    for has_fence in (False, True):
        end = "-fence" if has_fence else ""
        for width, warps in ((4, 1), (8, 1), (16, 1), (16, 2)):
            yield Litmus(
                name=f"mp-{width}" + ("-warps" if warps > 1 else "") + end,
                shape="mp",
                width=width,
                has_fence=has_fence,
                warps=warps,
                is_allowed=not has_fence,
                needed_by=("simple",) if has_fence else (),
            )


TESTS = (
    *_message_passing(),
    # store_line of data, flag, data, flag
    Litmus(name="line-8", shape="line", width=8, needed_by=("ll",)),
    # the last word is the flag of all
    Litmus(name="line-16", shape="line", width=16),
    # 8 lanes, the last word is the flag; ll128 reads a line again unless --ll128-reload is off
    Litmus(name="line-128", shape="line", width=128),
    Litmus(name="line-128-reload", shape="line", width=128, needed_by=("ll128",), is_reloaded=True),
    # write x, read y; write y, read x
    Litmus(name="sb", shape="sb", width=8),
    Litmus(name="sb-fence", shape="sb", width=8, has_fence=True),
    # one warp reads a line, another gives its slot back behind a barrier
    Litmus(name="lb-warps", shape="lb", width=16, warps=2, needed_by=("ll", "ll128")),
    # data is read before the flag, and after it
    Litmus(
        name="read-again",
        shape="mp",
        width=16,
        has_fence=True,
        is_allowed=False,
        needed_by=("simple",),
        is_reloaded=True,
    ),
    # the engine copies data, and a kernel behind it sets the flag
    Litmus(
        name="copy-engine",
        shape="engine",
        width=16,
        has_fence=True,
        is_allowed=False,
        needed_by=("ce",),
    ),
)
BY_NAME = {test.name: test for test in TESTS}


class LitmusResult(NamedTuple):
    """What was seen of a test on a link: the trials of each outcome."""

    test: Litmus
    link: "GpuLink"
    counts: tuple[int, ...]

    @property
    def weak_count(self) -> int:
        """How often the outcome in question was seen."""
        return self.counts[self.test.weak]

    @property
    def chance_count(self) -> int:
        """The trials in which it might have come out: a flag that was not seen says nothing."""
        return sum(self.counts[outcome] for outcome in self.test.chances)


def litmus_source(test: Litmus, *, is_unordered: bool = False) -> Source:
    """The kernels of a test. is_unordered: a writer without its store order."""
    values = {
        "ITEM": 4,
        "TEST": _NUMBER[test.shape],
        "BYTES": test.width,
        "WARPS": test.warps,
        "FENCED": int(test.has_fence),
        "AGAIN": int(test.is_reloaded),
        **({"INJECT_UNORDERED": 1} if is_unordered else {}),
    }
    return Source(file=str(KERNELS), macros=tuple((key, str(values[key])) for key in values))


class GpuLink(NamedTuple):
    """What two sides race over: the GPUs of side 0 and side 1, and whether host memory is between
    them.
    """

    writer: int
    reader: int
    in_host: bool
    by_engine: bool = False

    @property
    def is_in_one_gpu(self) -> bool:
        """Whether both sides are one GPU, which has the memory, too."""
        return self.writer == self.reader and not self.in_host


def links_of(test: Litmus, gpus: Sequence[int]) -> list[GpuLink]:
    """The links that a test is run on: inside the first GPU, through host memory, and from the
    first GPU to the next where there are several.
    """
    first, last = gpus[0], gpus[min(1, len(gpus) - 1)]
    if test.shape == "engine":
        return [GpuLink(first, first, in_host=True, by_engine=True)]
    links = [GpuLink(first, first, in_host=False), GpuLink(first, last, in_host=True)]
    return links + [GpuLink(first, last, in_host=False)] * (first != last)


class _Memory:
    """Addresses in one allocation, one behind the other."""

    def __init__(self, base: int) -> None:
        self.base, self.size = base, 0

    def take(self, size: int) -> int:
        """So many bytes, from a multiple of the cells' distance on."""
        start = self.size
        self.size += -(-size // _STRIDE) * _STRIDE
        return self.base + start


class LitmusRun:
    """A test on a link: the memory, the kernels and the counts."""

    def __init__(self, test: Litmus, link: GpuLink, *, is_unordered: bool = False) -> None:
        self.test, self.link = test, link
        self.cards = [Card(index) for index in dict.fromkeys((link.writer, link.reader))]
        self.reader, self.host, self.round = self.cards[-1], list[HostMemory](), 1
        source = litmus_source(test, is_unordered=is_unordered)
        try:
            self._allocate()
            self._functions = [self._load(card, source) for card in self.cards]
        except BaseException:
            self.close()
            raise

    def _allocate(self) -> None:
        lanes = 4 if self.test.shape == "line" and self.test.width == 128 else 32
        self.pairs = min(_MOST_PAIRS, *(card.multiprocessors // 2 for card in self.cards))
        cells = self.pairs * _STEPS * lanes
        if self.test.shape == "engine":
            cells = _ENGINE_CELLS * 16 // _STRIDE
        size = 2 * cells * _STRIDE + cells * 8 + 2 * self.pairs * _MEET_BYTES + 8 * _STRIDE
        self._use(self.reader)
        if self.link.in_host and not self.link.by_engine:
            self.host.append(self.reader.own_host(size))
            base = self.host[0].address
            ctypes.memset(base, 0, size)
        else:
            base = self.reader.allocate(size)
        if not self.link.in_host:
            for card in self.cards[:-1]:
                self._use(card)
                card.open(self.reader.export(base, to_processes=False))
        memory = _Memory(base)
        self.x, self.y = memory.take(cells * _STRIDE), memory.take(cells * _STRIDE)
        self.seen = memory.take(cells * 8)
        self.meet = memory.take(2 * self.pairs * _MEET_BYTES)
        self.abort = memory.take(4)
        self.own: list[tuple[int, int, int]] = []  # of each card: counts, reports, abort words
        for card in self.cards:
            self._use(card)
            reports = 2 * max(self.pairs, _ENGINE_CTAS) * _REPORT_BYTES
            own = _Memory(card.allocate(reports + 2 * _STRIDE))
            places = own.take(8 * _COUNTS), own.take(8), own.take(reports)
            card.upload(places[1], struct.pack("<Q", self.abort))
            self.own.append((places[0], places[2], places[1]))
        if self.link.by_engine:
            self.host.append(self.reader.own_host(_ENGINE_CELLS * 16))

    def _use(self, card: Card) -> None:
        card.runtime.setDevice(card.index)

    def _load(self, card: Card, source: Source) -> dict[str, int]:
        self._use(card)
        code, _ = compile_source(source, card.arch)
        kernels = ("collbench_litmus", "collbench_litmus_signal", "collbench_litmus_await")
        return {name: card.function(code, name) for name in kernels}

    def _args(self, number: int, rounds: int, side: int) -> bytes:
        counts, reports, aborts = self.own[number]
        return _ARGS.pack(
            *(self.x, self.y, self.meet, self.seen, counts, reports, self.abort, aborts),
            _TIMEOUT_NS,
            *(side % 2, 1, rounds, self.round, side, _DELAY_NS),
        )

    def launch(self, rounds: int) -> None:
        """So many rounds. Raises HangError if the sides lost each other."""
        if self.link.by_engine:
            for _ in range(rounds):
                self._copy_round()
            return
        is_one = len(self.cards) == 1
        for number, card in enumerate(self.cards):
            self._use(card)
            args = self._args(number, rounds, 2 if is_one else number)
            grid = self.pairs * (2 if is_one else 1), 1
            function = self._functions[number]["collbench_litmus"]
            Launch(card, function, grid, _THREADS, [args])(card.stream)
        self.round += rounds
        self._wait()

    def _copy_round(self) -> None:
        """The engine copies cells from the host, and a kernel behind it sets the flag for which
        another one waits.
        """
        card, kernels, source = self.reader, self._functions[-1], self.host[0]
        words = (ctypes.c_uint32 * 4)(*[self.round] * 4)
        whole = (ctypes.c_char * (_ENGINE_CELLS * 16)).from_address(source.address)
        ctypes.memmove(whole, bytes(words) * _ENGINE_CELLS, _ENGINE_CELLS * 16)
        args = [self._args(0, _ENGINE_CELLS, 1)]
        grid = min(_ENGINE_CTAS, card.multiprocessors // 2), 1
        Launch(card, kernels["collbench_litmus_await"], grid, _THREADS, args)(card.stream)
        copies = card.side_stream
        queue_copy(card.runtime, self.x, source.address, _ENGINE_CELLS * 16, copies)
        Launch(card, kernels["collbench_litmus_signal"], (1, 1), 32, args)(copies)
        self.round += 1
        self._wait()

    def _wait(self) -> None:
        for card in self.cards:
            self._use(card)
            card.wait(_DEADLINE_S)
        if self._is_aborted():
            raise HangError(
                f"litmus test {self.test.name}: the sides on {self.link} lost each other"
            )

    def _is_aborted(self) -> bool:
        if self.link.in_host and not self.link.by_engine:
            return any(ctypes.string_at(self.abort, 4))
        self._use(self.reader)
        return any(self.reader.download(self.abort, 4))

    def counts(self) -> tuple[int, ...]:
        """The outcomes until now."""
        self._use(self.reader)
        data = self.reader.download(self.own[-1][0], 8 * _COUNTS)
        return tuple(struct.unpack(f"<{_COUNTS}Q", data))

    def close(self) -> None:
        """Give all memory back."""
        for card in self.cards:
            self._use(card)
            card.runtime.deviceSynchronize()
        for memory in self.host:
            memory.close()
        for card in self.cards:
            self._use(card)
            card.close()


def play(
    test: Litmus, link: GpuLink, trials: int, seconds: float, *, is_unordered: bool = False
) -> tuple[int, ...]:
    """Launches until there are so many trials or the seconds are over; the counts of each
    outcome.
    """
    with closing(LitmusRun(test, link, is_unordered=is_unordered)) as run:
        start, rounds = time.monotonic(), 1 if link.by_engine else _FIRST_ROUNDS
        run.launch(rounds)
        while sum(run.counts()) < trials and (spent := time.monotonic() - start) < seconds:
            before = time.monotonic()
            run.launch(rounds)
            is_short = time.monotonic() - before < min(_ENOUGH_S, (seconds - spent) / 4)
            if is_short and not link.by_engine:
                rounds = min(2 * rounds, _MOST_ROUNDS)
        return run.counts()


def measured(
    tests: Sequence[Litmus], trials: int, seconds: float, *, is_unordered: bool = False
) -> Iterator[LitmusResult]:
    """Every test on every link of the first two GPUs, as each ends: so many trials, or what an
    equal part of the time that is left allows. is_unordered: writers without their store order.
    """
    gpus = range(device_count())
    runs = [(test, link) for test in tests for link in links_of(test, gpus)]
    end = time.monotonic() + seconds
    for number, (test, link) in enumerate(runs):
        part_s = max(0.0, end - time.monotonic()) / (len(runs) - number)
        yield LitmusResult(test, link, play(test, link, trials, part_s, is_unordered=is_unordered))
