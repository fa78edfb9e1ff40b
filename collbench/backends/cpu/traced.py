"""Launches whose every action is stamped. Those that are timed have no stamps, and are faster."""

import time
from collections.abc import Sequence

from collbench.backends.cpu.flags import LINE_WORDS, YIELDS_A_LOOK
from collbench.backends.cpu.interpreter import Bound, FlagTarget, Runner
from collbench.results.stamps import Hand, RankTrace, Stamp
from collbench.util.errors import HangError


def traced_launch(runner: Runner, programs: Sequence[Sequence[Bound]], limit_s: float) -> RankTrace:
    """One launch as Runner.launch makes it, of a protocol whose flags are apart from the data.
    Raises HangError.
    """
    flags, launches = runner.flags, runner.launches
    entered = time.monotonic()
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
                ready = time.monotonic()
                for function, args in calls:
                    function(*args)
                for word, per_launch, offset in posts:
                    flags[word] = per_launch * launches + offset
                done = time.monotonic()
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
            if polls % YIELDS_A_LOOK == 0 and (time.monotonic() > deadline or runner.is_aborted()):
                raise HangError("a rank gave up waiting in a traced launch")
    runner.launches += 1
    return RankTrace(entered_s=entered, stamps=tuple(stamps))


def _hand(runner: Runner, target: FlagTarget | None) -> Hand | None:
    """What a flag says, by its word."""
    if target is None:
        return None
    edge, kind = divmod(target.word, 2 * LINE_WORDS)
    return Hand(edge=edge % len(runner.plan.connections), is_data=kind == 0, number=target.offset)
