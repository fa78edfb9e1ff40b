"""How far each rank has come: which operation it did not come to, and where ranks disagree.

NCCL prints a counter of operations with each, by which logs that begin in the middle are aligned.
It stays at zero in some versions: then operations are counted from the first that the log has, if
it has the beginning of the communicator, and else nobody can tell who is behind. Sends and receives
have an order of their own on every rank; of them the numbers by pair are compared.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collbench.core.grouping import grouped
from collbench.jobs.nccl_log.lanes import Lane, LoggedGroup
from collbench.jobs.nccl_log.model import REDUCTIONS, Communicator, LogReport, Signature
from collbench.jobs.nccl_log.pairing import pair
from collbench.jobs.nccl_log.summary import dtype_name, redop_name, size_of
from collbench.jobs.nccl_log.torch_text import UNNAMED, Timeout

P2P = ("Send", "Recv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The first operation at which ranks disagree: names of ranks by what they called. is_by_one:
    one rank alone called something else.
    """

    group: str
    number: int
    calls: dict[str, tuple[str, ...]]
    places: tuple[str, ...]
    is_by_one: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A rank that did not come to an operation. waiting: those that did; last: what it called
    last; is_blocked: it waits in another group itself, so that it is not to blame; is_running: as
    of its group; is_cut: it may have come behind the end of the text; is_waiting: it says that it
    waits in the last one it called; is_by_one: one line of one rank makes it late.
    """

    group: str
    name: str
    made: int
    most: int
    missed: str
    waiting: tuple[str, ...]
    place: str
    last: str
    is_blocked: bool
    is_waiting: bool
    is_running: bool
    is_cut: bool
    is_by_one: bool


def groups_of(report: LogReport) -> list[LoggedGroup]:
    """The communicators of a log whose operations were printed."""
    texts = [described(one) for one in report.signatures]
    unsure = pair(report.communicators)
    groups = []
    for known in report.communicators:
        if known.calls:
            group = _group(known, report, texts)
            if known.name in unsure:
                ends = {lane.end for lane in group.lanes}
                group.is_aligned &= len(ends) < 2 and _first_difference(group.lanes) is None
            groups.append(group)
    return groups


def described(one: Signature) -> str:
    """An operation in words.

    >>> described(Signature("AllReduce", 1024, 7, 0, 0))
    'AllReduce of 1024 float32, sum'
    """
    text = f"{one.op} of {one.count} {dtype_name(one.dtype)}"
    if one.op in REDUCTIONS:
        text += f", {redop_name(one.redop)}"
    return text + (f", root {one.root}" if one.op in ("Broadcast", "Reduce") else "")


def watchdog_groups(report: LogReport) -> list[LoggedGroup]:
    """The ranks of PyTorch's groups whose watchdog spoke, up to the operation that did not end:
    programs ask for more before it does.
    """
    groups = []
    for name, ranks in report.torch.by_group():
        texts: dict[str, int] = {}
        number = max((one.number for one in ranks.values() if one.number is not None), default=None)
        known = {one.number: one.text for one in ranks.values() if one.text}
        lanes = [
            _of_timeout(rank, timeout, number, known, texts)
            for rank, timeout in sorted(ranks.items())
        ]
        if lanes:
            groups.append(
                LoggedGroup(
                    name=f"process group {name}",
                    nranks=len(lanes),
                    lanes=lanes,
                    texts=list(texts),
                    # groups that were split off have one name, those of old PyTorch none
                    is_aligned=len({one.local for one in ranks.values()}) == len(ranks)
                    and not (name == UNNAMED and report.torch.is_of_several(ranks)),
                )
            )
    return groups


def _of_timeout(
    rank: int,
    timeout: Timeout,
    most: int | None,
    known: Mapping[int | None, str],
    texts: dict[str, int],
) -> Lane:
    """How far a rank came. most: the operation that did not end; known: what others say of it."""
    number = timeout.enqueued if timeout.enqueued is not None else timeout.number or 0
    number = number if most is None else min(number, most)
    # which operation it is, is known of the one that did not end
    text = (timeout.text if number == timeout.number else "") or known.get(number, "")
    is_waiting = timeout.number is not None and number == timeout.number
    lane = Lane(rank=rank, who=f"rank {rank}", first=max(0, number - 1), is_waiting=is_waiting)
    if number:
        lane.kinds.append(texts.setdefault(text, len(texts)))
    if timeout.place is not None:
        lane.file = timeout.place.file
        lane.lines.append(timeout.place.line)
    return lane


def _group(known: Communicator, report: LogReport, texts: Sequence[str]) -> LoggedGroup:
    ranks = {(one.host, one.pid, one.device): one.rank for one in known.ranks.values()}
    lanes = []
    for member, calls in known.calls.items():
        rank = ranks.get((member.host, member.pid, member.device))
        lanes.append(
            Lane(
                rank=rank,
                who=f"{member.host}:{member.pid} [{member.device}]",
                kinds=calls.signatures,
                opcounts=calls.opcounts,
                files=calls.files,
                lines=calls.lines,
            )
        )
    named = {lane.rank for lane in lanes}
    # a rank that joined and has called nothing yet
    lanes += [
        Lane(rank=one.rank, who=f"{one.host}:{one.pid} [{one.device}]")
        for one in known.ranks.values()
        if one.rank not in named
    ]
    lanes.sort(key=lambda lane: (lane.rank is None, lane.rank or 0, lane.who))
    # the beginning of the communicator is in the log
    is_whole = bool(known.ranks)
    is_aligned = _align(lanes)
    is_from_start = is_whole and all(lane.first == 0 for lane in lanes)
    name = "its beginning is not in the log" if known.name[0] == "?" else known.name
    return LoggedGroup(
        name=f"{known.nranks} ranks ({name})",
        nranks=known.nranks,
        lanes=lanes,
        texts=texts,
        p2p_texts=tuple(_unpaired(known, report, ranks)) if is_from_start else (),
        is_aligned=is_aligned if is_aligned is not None else is_whole or len(lanes) < 2,
        is_cut=any(name in report.cut for lane in lanes for _, name in lane.files),
    )


def _align(lanes: Sequence[Lane]) -> bool | None:
    """Number the operations of lanes by NCCL's counter, which several of one group call share.
    Returns whether they fit; None if the counter does not move.
    """
    counted = [lane for lane in lanes if lane.opcounts]
    zeros = [lane.opcounts.count(0) for lane in counted]
    moves = sum(len(lane.opcounts) for lane in counted) - sum(zeros)
    if not moves or (moves == 1 and max(zeros) > 1):  # one damaged digit moves no counter
        return None
    for lane in counted:
        if any(a > b for a, b in zip(lane.opcounts, lane.opcounts[1:], strict=False)):
            return None  # another communicator at the same address
    longest = min(counted, key=lambda lane: (lane.opcounts[0], -len(lane.opcounts))).opcounts
    if any(lane.opcounts[0] > longest[-1] for lane in counted):
        return False  # it begins behind the end of another
    every = longest
    if any(_tail(lane, longest)[1] < len(lane.opcounts) for lane in counted):
        # lines are lost, or one is ahead
        numbers: Counter[int] = Counter()
        for lane in counted:
            numbers |= Counter(lane.opcounts)
        every = array("I", sorted(numbers.elements()))
    for lane in counted:
        end, length = _tail(lane, every)
        lane.keep_last(length)
        lane.first = end - length
    return True


def _tail(lane: Lane, every: "array[int]") -> tuple[int, int]:
    """How many operations there are up to a lane's last, of which several may share its counter,
    and how many of them the lane has behind the last line that it lacks.
    """
    last, length = lane.opcounts[-1], len(lane.opcounts)
    end = bisect_left(every, last) + length - bisect_left(lane.opcounts, last)
    if every[max(0, end - length) : end] != lane.opcounts:
        same = zip(reversed(every[:end]), reversed(lane.opcounts), strict=False)
        length = next((at for at, (a, b) in enumerate(same) if a != b), min(end, length))
    return end, length


def _unpaired(
    known: Communicator, report: LogReport, ranks: dict[tuple[str, int, int], int]
) -> Iterable[str]:
    """Pairs whose sends and receives differ in number or in bytes, of ranks that are all in the
    log.
    """
    sent: dict[tuple[int, int], Counter[int]] = {}
    received: dict[tuple[int, int], Counter[int]] = {}
    present = set()
    for member, calls in known.calls.items():
        rank = ranks.get((member.host, member.pid, member.device))
        if rank is None:
            return
        present.add(rank)
        for number, times in Counter(calls.p2p).items():
            one = report.signatures[number]
            is_send = one.op == "Send"
            pair = (rank, one.root) if is_send else (one.root, rank)
            ways = sent if is_send else received
            size = size_of(one.op, one.count, one.dtype, known.nranks)
            ways.setdefault(pair, Counter())[size] += times
    for pair in sorted(sent.keys() | received.keys()):
        given, taken = sent.get(pair, Counter()), received.get(pair, Counter())
        if given == taken or not set(pair) <= present:
            continue
        source, target = pair
        if given.total() != taken.total():
            yield (
                f"rank {source} sent {_times(given.total())} to rank {target}, which received"
                f" {_times(taken.total())} from it"
            )
        else:
            size, other = next(iter(given - taken)), next(iter(taken - given))
            yield (
                f"rank {source} sent {size} bytes to rank {target}, which received {other} bytes"
                " from it"
            )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def mismatches(groups: Iterable[LoggedGroup]) -> list[Mismatch]:
    """Where ranks of a group first called what does not fit."""
    found = []
    for group in groups:
        number = _first_difference(group.lanes) if group.is_aligned else None
        if number is None:
            continue
        calls = grouped(
            (group.texts[lane.kinds[number - lane.first]], lane)
            for lane in group.lanes
            if lane.first <= number < lane.end
        )
        ordered = sorted(calls.items(), key=lambda item: -len(item[1]))
        found.append(
            Mismatch(
                group=group.name,
                number=number,
                calls={text: tuple(lane.name for lane in lanes) for text, lanes in ordered},
                places=tuple(lanes[0].place(number) for _, lanes in ordered),
                is_by_one=len(ordered[-1][1]) == 1,
            )
        )
    return found


def _first_difference(lanes: Sequence[Lane]) -> int | None:
    """The first operation that is not the same on all lanes that have it."""
    first = None
    one = max(lanes, key=lambda lane: len(lane.kinds))
    for lane in lanes:
        low = max(one.first, lane.first)
        high = min(one.end, lane.end, first if first is not None else lane.end)
        a = one.kinds[low - one.first : high - one.first] if high > low else one.kinds[:0]
        b = lane.kinds[low - lane.first : high - lane.first] if high > low else lane.kinds[:0]
        if a != b:
            first = low + next(at for at, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    return first


def behind(groups: Sequence[LoggedGroup]) -> list[Behind]:
    """Ranks that others wait for, those first that wait for nobody."""
    # one line of a rank alone in a communicator: its address may be damaged
    strays = {
        group.lanes[0].who
        for group in groups
        if group.nranks > len(group.lanes) == 1 and len(group.lanes[0].lines) == 1
    }
    groups = [group for group in groups if group.is_aligned]
    waiting = {
        lane.who
        for group in groups
        for lane in group.lanes
        if lane.end > min(one.end for one in group.lanes)
    }
    found = []
    for group in groups:
        most = max((lane.end for lane in group.lanes), default=0)
        ahead = sum(lane.end == most for lane in group.lanes)
        for lane in group.lanes:
            if lane.end == most:
                continue
            past = [one for one in group.lanes if one.end > lane.end >= one.first]
            missed = past[0].kinds[lane.end - past[0].first] if past else None
            found.append(
                Behind(
                    group=group.name,
                    name=lane.name,
                    made=lane.end,
                    most=most,
                    missed=group.texts[missed] if missed is not None else "",
                    waiting=tuple(one.name for one in past),
                    place=lane.place(lane.end - 1),
                    last=group.texts[lane.kinds[-1]] if lane.kinds else "",
                    is_blocked=lane.who in waiting,
                    is_waiting=lane.is_waiting,
                    is_running=group.is_running,
                    is_cut=group.is_cut and lane.end + 1 == most,
                    is_by_one=(ahead == 1 or lane.who in strays)
                    and lane.end + 1 == most
                    and bool(lane.lines),
                )
            )
    return sorted(found, key=lambda one: (one.is_blocked, one.made))
