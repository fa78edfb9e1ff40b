"""Which ranks belong to one communicator where a log does not name it.

NCCL prints of an operation the size of its communicator and no name of it, and older versions none
where ranks join either. Where several have one size, ranks that were seen to call the same under
the same counter belong together, if no others did.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from collbench.core.grouping import grouped
from collbench.jobs.nccl_log.lines import LogSource
from collbench.jobs.nccl_log.model import Communicator, LoggedCalls, LoggedRank

_MOST_MEMBERS = 1024  # of communicators of one size


class _Member(NamedTuple):
    """What a process called in one communicator. joined: its rank there, if the log tells."""

    source: LogSource
    calls: LoggedCalls
    joined: LoggedRank | None


def pair(every: Sequence[Communicator]) -> set[str]:
    """Give the members of communicators without a name to those where they fit. Returns what
    stands for the names of those of which nobody can tell who belongs to which.
    """
    unsure = set()
    nameless = (known for known in every if known.name[:1] in ("?", "#") and known.calls)
    by_size = grouped(((known.name[0], known.nranks), known) for known in nameless)
    for (_, nranks), some in by_size.items():
        if len(some) < 2:
            continue
        joined = {
            (one.host, one.pid, one.device, index): one
            for index, known in enumerate(some)
            for one in known.ranks.values()
        }
        members = [
            _Member(source, calls, joined.pop((*source[:2], source.device, index), None))
            for index, known in enumerate(some)
            for source, calls in known.calls.items()
        ]
        found = None if joined else _fitting(members, nranks)
        if found is None or len(found) > len(some):
            unsure |= {known.name for known in some}
            continue
        for known, together in zip(some, [*found, *([[]] * len(some))], strict=False):
            known.calls = {one.source: one.calls for one in together}
            known.ranks = {one.joined.rank: one.joined for one in together if one.joined}
    return unsure


def _fitting(members: Sequence[_Member], nranks: int) -> list[list[_Member]] | None:
    """Members by what they called; None if one fits in two places, or in none that is whole."""
    found: list[list[_Member]] = []
    if len(members) > _MOST_MEMBERS:
        return None
    for member in sorted(members, key=lambda one: -len(one.calls.opcounts)):
        places = [
            some
            for some in found
            if not any(_excludes(member, other) for other in some)
            and _fits(some[0].calls, member.calls)
        ]
        if len(places) > 1 or any(len(some) == nranks for some in places):
            return None
        if not places:
            found.append([])
        (places or found)[-1].append(member)
    return found if sum(len(some) < nranks for some in found) < 2 else None


def _excludes(a: _Member, b: _Member) -> bool:
    """Whether two cannot be of one communicator: they are one process, or have one rank."""
    ranks = [one.joined.rank for one in (a, b) if one.joined]
    return a.source == b.source or (len(ranks) == 2 and ranks[0] == ranks[1])


def _fits(a: LoggedCalls, b: LoggedCalls) -> bool:
    """Whether two called the same where both are in the log, which they must be somewhere."""
    if not a.opcounts or not b.opcounts:
        return False
    low = max(a.opcounts[0], b.opcounts[0])
    high = min(a.opcounts[-1], b.opcounts[-1])
    parts = [
        calls.signatures[bisect_left(calls.opcounts, low) : bisect_right(calls.opcounts, high)]
        for calls in (a, b)
    ]
    length = min(map(len, parts))  # a group call may be cut off
    return length > 0 and (parts[0][:length] == parts[1][:length] or _fits_with_gaps(a, b))


def _fits_with_gaps(a: LoggedCalls, b: LoggedCalls) -> bool:
    """The same of calls of which lines are lost: by their counters, where each call has its own."""
    known, other = (dict(zip(one.opcounts, one.signatures, strict=True)) for one in (a, b))
    both = known.keys() & other.keys()
    is_counted = len(known) == len(a.opcounts) and len(other) == len(b.opcounts)
    return is_counted and bool(both) and all(known[at] == other[at] for at in both)
