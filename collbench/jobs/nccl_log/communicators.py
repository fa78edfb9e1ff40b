"""Which communicator a message of a log is about: messages name a pointer of their process, or are
of a thread that joins one.
"""

import re
from collections import Counter, defaultdict

from collbench.jobs.nccl_log.lines import LogMessage, LogSource
from collbench.jobs.nccl_log.model import Communicator, LoggedRank
from collbench.jobs.nccl_log.places import LogPlace, Seen, merged


class Communicators:
    """Those of a log. found: all of them so far, in the order in which the log has them."""

    def __init__(self, found: list[Communicator]) -> None:
        self._found = found
        self._has_starts = False  # whether joining a communicator has a first line
        # which one a thread, a device or a pointer of a process is at
        self._of_pointer: dict[tuple[str, int, str], Communicator] = {}
        self._of_thread: dict[LogSource, Communicator] = {}
        self._of_device: dict[tuple[str, int, int], Communicator] = {}
        self._named: dict[str, Communicator] = {}
        self._nameless: defaultdict[tuple[str, int], list[Communicator]] = defaultdict(list)
        # where to look on
        self._after: Counter[tuple[str, int, int | LogSource | None]] = Counter()
        self._pending: dict[LogSource, Communicator] = {}

    def of_pointer(self, source: LogSource, pointer: str) -> Communicator | None:
        """The one that a process has at a pointer, as far as the log says."""
        return self._of_pointer.get((source.host, source.pid, pointer))

    def joining(self, source: LogSource) -> Communicator:
        """The communicator that a thread joins, or else the last that its device was at. Before
        2.18 one is named only when its rings are there.
        """
        known = self._of_thread.get(source)
        if known is None and self._has_starts:
            known = self._of_device.get(_device(source))
        if known is None:
            known = self._pending.get(source)
        if known is None:
            known = self._pending[source] = Communicator(name="", nranks=0)
        return known

    def start(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        """A thread says that it begins to join one."""
        self._has_starts = True
        self.drop(message.source, match["comm"])  # a pointer may be of an earlier one that is gone
        self._join(message.source, match, place)

    def complete(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        """A thread says that it has joined one."""
        self._join(message.source, match, place).complete.add(int(match["rank"]))
        self._of_thread.pop(message.source, None)

    def drop(self, source: LogSource, pointer: str) -> None:
        """The one at a pointer is gone."""
        self._of_pointer.pop((source.host, source.pid, pointer), None)

    def calling(
        self, source: LogSource, pointer: str, nranks: int, place: LogPlace
    ) -> tuple[Communicator, LogSource]:
        """The one in which a rank calls an operation, and the rank in it: all threads of a GPU."""
        known, member = self.of_pointer(source, pointer), source._replace(tid=0)
        if known is None or known.nranks != nranks:
            known = self._unnamed("?", nranks, member)
            self._of_pointer[source.host, source.pid, pointer] = known
            known.seen.add(place, source.host)
        self._of_device[_device(source)] = known
        return known, member

    def finish(self) -> None:
        """Keep what was said of communicators that never got a name: their ranks stopped earlier,
        or the log is cut.
        """
        rest = Communicator(name="unfinished", nranks=0)
        for source, pending in self._pending.items():
            # before 2.18: connections that were made later
            _merge(self._of_device.get(_device(source), rest), pending)
        if rest.links or rest.rings or rest.trees:
            ranks = {rank for pair in rest.links for rank in pair[:2]}
            ranks |= {rank for ring in rest.rings.values() for rank in ring}
            rest.nranks = len(ranks)
            self._found.append(rest)
        self._pending.clear()

    def _join(self, source: LogSource, match: re.Match[str], place: LogPlace) -> Communicator:
        nranks, rank = int(match["nranks"]), int(match["rank"])
        known = self.of_pointer(source, match["comm"])
        if known is None or known.nranks != nranks:
            known = self._communicator(source, match, nranks, rank)
            self._of_pointer[source.host, source.pid, match["comm"]] = known
        known.call = match["call"] or known.call
        known.ranks[rank] = LoggedRank(
            rank=rank,
            host=source.host,
            pid=source.pid,
            device=int(match["device"]),
            bus=match["bus"].lower(),
            place=place,
        )
        known.seen.add(place, source.host)
        self._of_thread[source] = self._of_device[_device(source)] = known
        pending = self._pending.pop(source, None)
        if pending is not None:
            _merge(known, pending)
        return known

    def _communicator(
        self, source: LogSource, match: re.Match[str], nranks: int, rank: int
    ) -> Communicator:
        """The one of that name; without a name the first of its size where the rank is free."""
        name, parent, color = match["id"] or "", "", None
        if match["parent"]:
            of = self.of_pointer(source, match["parent"])
            parent = of.name if of else match["parent"]
            color = int(match["color"])
            name = name or f"{parent}/{match['split'] or ''}/{color}"
        if not name:
            return self._unnamed("#", nranks, rank)
        known = self._named.get(name)
        # an id that comes again for the same rank is a new one: a second job in the log
        if known is None or (rank in known.complete and rank in known.ranks):
            known = Communicator(name=name, nranks=nranks, parent=parent, color=color)
            self._named[name] = known
            self._found.append(known)
        return known

    def _unnamed(self, mark: str, nranks: int, who: int | LogSource) -> Communicator:
        """The first one without a name, of that size, that has room and lacks the rank (#), or the
        process whose beginning the log does not have (?).
        """
        same, after = self._nameless[mark, nranks], self._after
        start = max(after[mark, nranks, None], after[mark, nranks, who])
        for at in range(start, len(same)):
            members = same[at].ranks if mark == "#" else same[at].calls
            if len(members) < nranks and who not in members:
                break
            if at == after[mark, nranks, None] and len(members) >= nranks:
                after[mark, nranks, None] += 1  # full for everybody
        else:
            at = len(same)
            same.append(Communicator(name=f"{mark}{len(self._found)}", nranks=nranks))
            self._found.append(same[at])
        after[mark, nranks, who] = at + 1
        return same[at]


def _device(source: LogSource) -> tuple[str, int, int]:
    return source.host, source.pid, source.device


def _merge(known: Communicator, pending: Communicator) -> None:
    """Add what was said of a communicator before it was named."""
    known.channels = pending.channels or known.channels
    known.p2p_channels = pending.p2p_channels or known.p2p_channels
    known.rings.update(pending.rings)
    for channel, tree in pending.trees.items():
        known.trees.setdefault(channel, {}).update(tree)
    for key, mask in pending.links.items():
        known.links[key] = known.links.get(key, 0) | mask
    for via, seen in pending.link_places.items():
        known.link_places[via] = merged([known.link_places.get(via, Seen()), seen])
