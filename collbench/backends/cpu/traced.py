"""Launches whose every action is stamped. Those that are timed have no stamps, and are faster."""

import struct
import time
from collections.abc import Sequence

from collbench.backends.cpu.flags import LINE_WORDS, YIELDS_A_LOOK
from collbench.backends.cpu.interpreter import Bound, FlagTarget, Runner
from collbench.launch.mpi_types import Comm, Request
from collbench.results.stamps import Hand, RankTrace, Stamp
from collbench.util.errors import HangError

_EXCHANGES = 16
_WORD = 8
_CLOCK_TAG = 32_000  # beyond those of messages of a plan, within what every MPI has


def traced_launch(
    runner: Runner, programs: Sequence[Sequence[Bound]], limit_s: float, offset_s: float
) -> RankTrace:
    """One launch as Runner.launch makes it, of a protocol whose flags are apart from the data.
    offset_s: from this rank's clock to that of rank 0. Raises HangError.
    """

    def now() -> float:
        return time.monotonic() + offset_s

    flags, launches = runner.flags, runner.launches
    entered = now()
    began = [entered] * len(programs)
    missing: list[FlagTarget | None] = [None] * len(programs)
    positions = [0] * len(programs)
    stamps: list[Stamp] = []
    polls, deadline = 0, entered + limit_s
    while any(
        position < len(program) for position, program in zip(positions, programs, strict=True)
    ):
        for index, program in enumerate(programs):
            while positions[index] < len(program):
                waits, calls, posts, _ = program[positions[index]]
                late = next(
                    (
                        one
                        for one in waits
                        if flags[one.word] < one.per_launch * launches + one.offset
                    ),
                    None,
                )
                if late is not None:
                    missing[index] = late
                    break
                ready = now()
                for function, args in calls:
                    function(*args)
                for word, per_launch, offset in posts:
                    flags[word] = per_launch * launches + offset
                done = now()
                stamps.append(
                    Stamp(
                        track=index,
                        began_s=began[index],
                        ready_s=ready,
                        done_s=done,
                        awaited=_hand(runner, missing[index]),
                        given=tuple(hand for post in posts if (hand := _hand(runner, post))),
                    )
                )
                began[index], missing[index] = done, None
                positions[index] += 1
                polls = 0
        polls += 1
        if runner.turn is not None:
            runner.turn()
        if polls > runner.polls:
            runner.offer_core()
            if polls % YIELDS_A_LOOK == 0 and (now() > deadline or runner.is_aborted()):
                raise HangError("a rank gave up waiting in a traced launch")
    runner.launches += 1
    return RankTrace(entered_s=entered, stamps=tuple(stamps))


def clock_offset_s(comm: Comm, rank: int, n: int, limit_s: float) -> float:
    """From this rank's clock to that of rank 0, by the fastest of some exchanges with it: right to
    half of their time. All ranks call it. Raises HangError.
    """
    if rank == 0:
        for peer in range(1, n):
            for _ in range(_EXCHANGES):
                _finish(comm.Irecv(bytearray(_WORD), peer, _CLOCK_TAG), peer, limit_s)
                told = struct.pack("d", time.monotonic())
                _finish(comm.Isend(told, peer, _CLOCK_TAG), peer, limit_s)
        return 0.0
    offsets: list[tuple[float, float]] = []
    for _ in range(_EXCHANGES):
        word = bytearray(_WORD)
        start = time.monotonic()
        _finish(comm.Isend(bytes(_WORD), 0, _CLOCK_TAG), 0, limit_s)
        _finish(comm.Irecv(word, 0, _CLOCK_TAG), 0, limit_s)
        end = time.monotonic()
        (there,) = struct.unpack("d", word)
        offsets.append((end - start, there - (start + end) / 2))
    _, offset_s = min(offsets)
    return offset_s


def _finish(request: Request, peer: int, limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while not request.Test():
        if time.monotonic() > until:
            raise HangError(f"rank {peer} did not tell its clock")


def _hand(runner: Runner, target: FlagTarget | None) -> Hand | None:
    """What a flag says, by its word."""
    if target is None:
        return None
    edge, kind = divmod(target.word, 2 * LINE_WORDS)
    return Hand(edge=edge % len(runner.plan.connections), is_data=kind == 0, number=target.offset)
