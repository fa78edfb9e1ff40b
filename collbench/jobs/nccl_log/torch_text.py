"""What PyTorch prints of a hang: its watchdog, by rank, and the report of the flight recorder's
analyser (torchfrtrace).

Source: messages of ProcessGroupNCCL.cpp of PyTorch 2.1 to 2.9, and of
torch/distributed/flight_recorder.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from collbench.jobs.nccl_log.places import LogPlace

_GROUP = (
    r"PG(?: ID)? (?P<group>\w{1,40})(?: PG GUID (?P<guid>\w{1,40}))?"
    r"(?: ?\((?P<name>[^)]{0,99})\))?"
)
_RANK = re.compile(rf"\[(?:{_GROUP}[^\]]{{0,99}}? )?Rank (?P<rank>\d{{1,9}})\]")
_GLOBAL = re.compile(r"\[rank(?P<rank>\d{1,9})\]:")
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(?P<number>\d{1,18}), OpType=(?P<op>\w+)(?=[,)])"  # else it is cut off
    r"(?:, NumelIn=(?P<numel>\d{1,18})(?=[,)]))?"
)
_AT = re.compile(
    r"(?:Timeout at NCCL work|work sequence id|watchdog at work): (?P<number>\d{1,18})"
)
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (?P<number>\d{1,18})", re.I)
TORCH_WORDS = ("work: ", "work sequence", "WorkNCCL", "[rank", "[Rank ", "ollective", "FR dumps")
UNNAMED = "that the lines do not name"  # a group, or several
_MOST_APART = 16  # operations that a rank takes more or less, as in a branch
_MOST_RANKS = 1 << 20
_MOST_KEPT = 1000
_HEADS = (
    (
        "absent",
        re.compile(r"Not all ranks joining collective\W{1,3}(?:(?:sequence number: ?)?(\d+))?"),
    ),
    (
        "sizes",
        re.compile(r"[Ii]nput/output mismatch in the collective (?:sequence number: ?)?(\d+)?"),
    ),
    ("wrong", re.compile(r"Collective (?:sequence number: ?)?(\d+) (?:has|at entry \d+) errors")),
    ("dumps", re.compile(r"missed FR dumps from ranks? \(?\{(?P<ranks>[\d, ]+)\}")),
    ("well", re.compile(r"No errors found for this collective entry")),
)
_FIELD = re.compile(
    r"(?P<name>group info|collective|missing ranks|expected ranks|collective state|error msg"
    r"|input sizes|world size): (?P<value>.{1,4000})"
)


@dataclass(slots=True)
class Timeout:
    """What the watchdog says of a rank. number: of the operation that did not end; enqueued: of the
    last that the program asked for. local: its rank in the group.
    """

    local: int = 0
    number: int | None = None
    text: str = ""
    enqueued: int | None = None
    place: LogPlace | None = None


@dataclass(slots=True)
class RecorderReport:
    """One collective of the analyser's report. kind: absent (ranks did not join), sizes and wrong
    (they do not fit), dumps (missing ones), well.
    """

    kind: str
    number: str
    place: LogPlace
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        """Ranks that did not join, or of which there is no dump."""
        return [int(rank[:9]) for rank in re.findall(r"\d+", self.fields.get("missing ranks", ""))]


@dataclass(slots=True)
class TorchReader:
    """timeouts: by group and rank of the job; ranks: of the job, all that any line is of; names: of
    groups. A line has the rank of the job in front, and in its group's brackets the rank there.
    """

    timeouts: dict[tuple[str, int], Timeout] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    reports: list[RecorderReport] = field(default_factory=list)
    is_mixed: bool = False  # a rank waits in two operations, of groups without names
    _left: int = 0
    _before: tuple[str, LogPlace] | None = None  # a line that may go on in the next

    @property
    def is_reading(self) -> bool:
        """Whether a report of the analyser may go on."""
        return self._left > 0

    def is_awake(self, line: str) -> bool:
        """Whether a line may be of either; keep it fast."""
        return self._left > 0 or any(word in line for word in TORCH_WORDS)

    def take(self, line: str, place: LogPlace) -> bool:
        """Read a line; whether it says something of a hang."""
        before, self._before = self._before, None
        if before and before[1].line == place.line - 1 and not _RANK.search(line):
            line = f"{before[0]} {line}"
        if of_job := _GLOBAL.search(line):
            self._see(int(of_job["rank"]))
        if self._report(line, place):
            return True
        who = _RANK.search(line)
        if who is None:
            return False
        local = int(who["rank"])
        rank = int(of_job["rank"]) if of_job else local
        self._see(rank)
        work, at = _WORK.search(line), _AT.search(line)
        enqueued = _ENQUEUED.search(line)
        if not any((work, at, enqueued)) or rank >= _MOST_RANKS:
            self._before = line[:_MOST_KEPT], place
            return False
        key = (who["guid"] or who["group"] or "", rank)
        if who["name"]:
            self.names[key[0]] = who["name"]
        timeout = self.timeouts.setdefault(key, Timeout(local=local, place=place))
        if work is not None:
            self.is_mixed |= not key[0] and timeout.number not in (None, int(work["number"]))
            timeout.number = int(work["number"])
            timeout.text = work["op"] + (f" of {work['numel']} elements" if work["numel"] else "")
        elif at is not None:
            timeout.number = timeout.number or int(at["number"])
        if enqueued is not None:
            timeout.enqueued = int(enqueued["number"])
        return True

    def _see(self, rank: int) -> None:
        if rank < _MOST_RANKS:
            self.ranks.add(rank)

    def _report(self, line: str, place: LogPlace) -> bool:
        """A line of the analyser's report."""
        for kind, head in _HEADS:
            if found := head.search(line):
                number = "" if kind in ("dumps", "well") else found[1] or ""
                if len(self.reports) < _MOST_KEPT:
                    self.reports.append(RecorderReport(kind, number, place))
                self._left = 60
                if kind == "dumps":
                    self.reports[-1].fields["missing ranks"] = found["ranks"]
                return True
        if self._left <= 0:
            return False
        self._left -= 1
        if known := _FIELD.search(line):
            self.reports[-1].fields.setdefault(known["name"], known["value"].strip())
            return True
        return False

    def by_group(self) -> Iterator[tuple[str, dict[int, Timeout]]]:
        """Ranks of each group. Lines that name no group belong to the only one, or to that where
        the rank has the same operation.
        """
        groups: dict[str, dict[int, Timeout]] = {}
        for (group, rank), timeout in self.timeouts.items():
            if group:
                groups.setdefault(group, {})[rank] = timeout
        for (group, rank), timeout in self.timeouts.items():
            if not group:
                self._place(groups, rank, timeout)
        for group, ranks in sorted(groups.items()):
            name = f"{group} ({self.names[group]})" if group in self.names else group or UNNAMED
            yield name, ranks

    def is_of_several(self, ranks: Mapping[int, Timeout]) -> bool:
        """Whether lines without a group are of several: other operations wait at other numbers, or
        so far apart that those between would have ended without a partner.
        """
        waiting = [one for one in ranks.values() if one.text]
        numbers = sorted(one.number or 0 for one in waiting)
        is_one_kind = len({one.text.partition(" ")[0] for one in waiting}) < 2
        return self.is_mixed or any(n > numbers[0] + _MOST_APART * is_one_kind for n in numbers)

    def _place(self, groups: dict[str, dict[int, Timeout]], rank: int, timeout: Timeout) -> None:
        fitting = [
            ranks
            for ranks in groups.values()
            if rank in ranks and ranks[rank].number in (None, timeout.number)
        ]
        named = [ranks for group, ranks in groups.items() if group]
        ranks = (fitting or (named if len(named) == 1 else []) or [groups.setdefault("", {})])[0]
        known = ranks.setdefault(rank, timeout)
        if known is not timeout:
            known.number = timeout.number if known.number is None else known.number
            known.text = known.text or timeout.text
