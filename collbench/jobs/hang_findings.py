"""Which rank others wait for, as findings."""

from collections.abc import Iterator, Sequence
from itertools import islice

from collbench.core.grouping import grouped
from collbench.core.text import some_of
from collbench.doctor.check import Finding
from collbench.jobs.log_finding import told
from collbench.jobs.nccl_log.lanes import LoggedGroup
from collbench.jobs.nccl_log.progress import Behind, behind, mismatches
from collbench.jobs.nccl_log.torch_text import UNNAMED

_MOST_NAMED = 8
_ONE_LINE = " One line of one rank makes the difference: a digit that was damaged there would, too."
_UNNAMED = (
    " These lines name no group: if they are of several, this says of nobody that it is late."
)


def hang_findings(groups: Sequence[LoggedGroup]) -> list[Finding]:
    """Mismatched collectives first, then ranks that did not come, then what the logs lack."""
    return [*_mismatched(groups), *_behind(groups), *_not_told(groups)]


def _mismatched(groups: Sequence[LoggedGroup]) -> Iterator[Finding]:
    for one in mismatches(groups):
        calls = [
            f"{some_of(names, _MOST_NAMED)} called {text}" + (f" ({place})" if place else "")
            for (text, names), place in zip(one.calls.items(), one.places, strict=True)
        ]
        yield told(
            "mismatched-collective",
            f"operation {one.number + 1} of {one.group}",
            "; ".join(calls[:4]),
            row="collectives-differ",
            more=_ONE_LINE * one.is_by_one,
        )


def _behind(groups: Sequence[LoggedGroup]) -> Iterator[Finding]:
    """A finding for the ranks of a group that stand at the same operation."""
    late = behind(groups)
    together = [*grouped(((one.group, one.made, one.is_blocked), one) for one in late).values()]
    yield from map(_stuck, together[:_MOST_NAMED])
    rest = [one for same in together[_MOST_NAMED:] for one in same]
    if rest:
        names = some_of((f"{one.name} of {one.group}" for one in rest), _MOST_NAMED)
        many = f"{len(rest)} more ranks of {len({one.group for one in rest})} communicators"
        yield told("rank-behind", many, f"{names} are behind", row="more-behind")


def _stuck(same: Sequence[Behind]) -> Finding:
    """Ranks that came to the same operation and not to the next."""
    one, names = same[0], some_of([each.name for each in same], _MOST_NAMED)
    now = one.is_running
    last = f", the last is {one.last}" if one.last else ""
    where = f" ({one.place})" if one.place else ""
    waiting = f"; waiting: {some_of(one.waiting, _MOST_NAMED)}" if one.waiting else ""
    missed = f" {one.missed}," if one.missed else ""
    # several ranks of what runs are one operation behind most of the time
    is_many = len(same) > 1 or " ranks" in one.name
    is_unnamed = one.group.endswith(UNNAMED)
    is_open = one.is_cut or is_unnamed or (now and is_many and one.most == one.made + 1)
    kind = "blocked" if one.is_blocked else "waiting" if one.is_waiting else "late"
    kind = "cut" if one.is_cut else "running" if kind == "late" and now else kind
    return told(
        "rank-behind",
        f"{names} of {one.group}",
        f"came to {one.made} of {one.most} operations{last}{where}; did not come to{missed}"
        f" operation {one.made + 1}{waiting}",
        "remark" if one.is_blocked else "risk" if is_open else "fault",
        row=f"behind-{kind}",
        more=_ONE_LINE * one.is_by_one + _UNNAMED * is_unnamed,
        is_general=True,
    )


def _not_told(groups: Sequence[LoggedGroup]) -> Iterator[Finding]:
    """What the logs lack, and sends without receives."""
    for group in groups:
        if group.p2p_texts:
            yield told("unpaired-send", group.name, "; ".join(group.p2p_texts[:4]))
        if not group.is_aligned:
            names = some_of([one.name for one in group.lanes], _MOST_NAMED)
            seen = f"what these called cannot be held against each other: {names}"
            row = "hang-unaligned" + "-torch" * (not any(lane.opcounts for lane in group.lanes))
            yield told("hang-unaligned", group.name, seen, row=row)
        if group.nranks > len(group.lanes) and any(lane.rank is not None for lane in group.lanes):
            there = {lane.rank for lane in group.lanes}
            unseen = (rank for rank in range(group.nranks) if rank not in there)
            absent = [f"rank {rank}" for rank in islice(unseen, _MOST_NAMED)]
            more = group.nranks - len(group.lanes) - len(absent)
            others = f" and {more} more" if more > 0 else ""
            seen = f"no operation of {', '.join(absent)}{others} is in the files"
            yield told("rank-missing", group.name, seen, row="logs-missing")
