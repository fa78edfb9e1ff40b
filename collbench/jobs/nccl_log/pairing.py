"""Which ranks belong to one communicator where a log lacks its beginning.

NCCL prints of an operation the size of its communicator and no name of it. Where several have one
size, ranks that were seen to call the same under the same counter belong together, if no others
did.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from collbench.jobs.nccl_log.lines import LogSource
from collbench.jobs.nccl_log.model import Communicator, LoggedCalls

_MOST_MEMBERS = 1024  # of communicators of one size
_Member = tuple[LogSource, LoggedCalls]


def without_beginning(known: Communicator) -> bool:
    """Whether a communicator is known by operations alone."""
    return known.name.startswith("?")


def pair(every: Sequence[Communicator]) -> set[int]:
    """Give the members of communicators without a beginning to those where they fit. Returns the
    sizes of those of which nobody can tell who belongs to which.
    """
    unsure = set()
    by_size: dict[int, list[Communicator]] = {}
    for known in every:
        if without_beginning(known) and known.calls:
            by_size.setdefault(known.nranks, []).append(known)
    for nranks, some in by_size.items():
        if len(some) < 2:
            continue
        members = [member for known in some for member in known.calls.items()]
        found = _fitting(members, nranks)
        if found is None or len(found) > len(some):
            unsure.add(nranks)
            continue
        for known, together in zip(some, [*found, *([[]] * len(some))], strict=False):
            known.calls = dict(together)
    return unsure


def _fitting(members: Sequence[_Member], nranks: int) -> list[list[_Member]] | None:
    """Members by what they called; None if one fits in two places, or in none that is whole."""
    found: list[list[_Member]] = []
    if len(members) > _MOST_MEMBERS:
        return None
    for member in sorted(members, key=lambda one: -len(one[1].opcounts)):
        places = [
            some
            for some in found
            if all(member[0] != other[0] for other in some) and _fits(some[0][1], member[1])
        ]
        if len(places) > 1 or any(len(some) == nranks for some in places):
            return None
        if places:
            places[0].append(member)
        else:
            found.append([member])
    return found if sum(len(some) < nranks for some in found) < 2 else None


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
    return length > 0 and parts[0][:length] == parts[1][:length]
