"""What NCCL's RAS prints: the report of `ncclras` as text and as JSON (from 2.28.7), whole or a
part of it between other lines, and the events of its monitor mode (from 2.29).

Source: src/ras/client_support.cc of NCCL 2.24 to 2.30, the strings of 2.32.3, and NCCL's user
guide, RAS.
"""

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collbench.core.text import counted
from collbench.jobs.nccl_log.lanes import Lane, LoggedGroup
from collbench.jobs.nccl_log.places import LogPlace

_MOST_LINES = 4000  # that may belong to a report after its last known line
_MOST_RANKS = 1 << 22  # of a communicator; beyond it a number is no rank
_MOST_KEPT = 10_000
_MOST_NAMES = 400  # characters of names of ranks that came to the same operation
_MOST_CHARS = 64 << 20
_MOST_OPERATIONS = 10_000_000
RAS_WORDS = (
    "Job summary", "Communicators...", "managed by process", "MISMATCH", "INCOMPLETE", "PEER_",
    "considered dead", "launched up to", "not launched any", "Monitor Mode", "RUNNING", "Comms  ",
    "communicator data", "managing GPU", '"nccl_version"', '"LIFECYCLE"', "ranks have status",
    "Errors", "Warnings", ") ERROR",
)  # fmt: skip
_ROW = re.compile(
    r"(?<!\S)(?P<group>\d{1,9})\s+(?P<comms>\d{1,9})\s+(?P<nodes>\d{1,9})\s+(?P<per_node>[\d-]{1,20})"
    r"\s+(?P<size>\d{1,12})\s+(?P<ranks>\d{1,12})\s+(?P<status>[A-Z][A-Z,]{1,60})"
    r"\s+(?P<errors>[A-Z][A-Z,]{1,60})\s*\Z"
)
_COMM = re.compile(r"#(?P<group>\d{1,9})-\d{1,9} \((?P<name>[0-9a-fA-F]{1,16})\) (?P<kind>[A-Z]+)")
# alone in its line, or behind what a logger puts before each
_SECTION = re.compile(
    r"(?:(?<!\S)|(?<=>:))(?P<name>INCOMPLETE|DEAD|TIMEOUT|Errors|Warnings)\s*\Z"
    r"|(?<!\S)\d+ job process(?:es)? (?:is|are) considered (?P<dead>dead)"
    r"|(?<!\S)(?:Communicators\.\.\.|Group +Comms|Encountered \d+ communication"
    r"|(?:Initialization|Asynchronous) errors?)(?:\s|\Z)"
)
_OF_PROCESS = r"GPUs? (?P<gpu>[\d,]+) managed by process (?P<pid>-?\d+) on node (?P<node>\S+)"
_RANK = re.compile(
    r"Rank (?P<rank>-?\d{1,12})(?: has launched up to operation (?P<number>\d{1,18})"
    r"|(?P<none> has not launched any operations)| has status (?P<status>\w+)"
    rf"| reported (?P<error>.{{1,80}}?))? -- (?:{_OF_PROCESS}|\[process information not found\])"
)
_RANKS = re.compile(
    r"(?P<count>\d{1,9}) ranks (?:have (?:launched up to operation (?P<number>\d{1,18})"
    r"|(?P<none>not launched any)|status (?P<status>\w+))|reported (?P<error>.{1,80}))"
)
_PROCESS = re.compile(
    r"Process (?P<pid>-?\d+) on node (?P<node>\S+) managing GPUs? (?P<gpu>[\d,]+)"
)
_MISSING = re.compile(r"The missing ranks?: (?P<ranks>[\d, -]{1,4000})")
_COUNTS = re.compile(r"different (?P<op>\w+) operation counts")
_EVENT = re.compile(
    r"(?:\[(?P<time>[^\]]{1,40})\] )?PEER_(?P<event>[A-Z_]{2,30}): Process (?P<pid>\d+) on node"
    r" (?P<node>\S+)(?: managing GPUs? (?P<gpu>[\d,]+))?"
)
# what a launcher or a logger may put before a line of JSON
_JSON = re.compile(r"\A.*?(?=[\"{}]|\](?:,|\s*\Z))")


@dataclass(slots=True)
class RasReader:
    """What reports say together. rows: ranks by (status, errors) of the summary; missing: members
    of a communicator that gave no data, and their places; processes: those that gave none, by why;
    errors: members that reported one; states: of communicators whose ranks differ in it; garbage:
    numbers that cannot be of ranks; events: of the monitor, the last of each process.
    """

    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    processes: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)
    states: dict[str, list[str]] = field(default_factory=dict)
    events: dict[str, str] = field(default_factory=dict)
    garbage: list[str] = field(default_factory=list)
    first: LogPlace | None = None
    size: int = 0  # lines that were of it
    _groups: dict[str, LoggedGroup] = field(default_factory=dict)
    _left: int = 0
    _comm: str = ""
    _kind: str = ""
    _op: str = ""
    _many: Lane | None = None  # ranks whose names may follow
    _json: list[str] | None = None
    _chars: int = 0
    _depth: int = 0

    @property
    def is_any(self) -> bool:
        """Whether there is a report, an event or a part of one."""
        return self.first is not None

    def groups(self) -> list[LoggedGroup]:
        """Communicators whose ranks have begun different numbers of operations."""
        return [group for group in self._groups.values() if group.lanes]

    @property
    def is_reading(self) -> bool:
        """Whether a report may go on."""
        return self._left > 0

    def is_awake(self, line: str) -> bool:
        """Whether a line may be of a report; keep it fast."""
        return self.is_reading or any(word in line for word in RAS_WORDS)

    def take(self, line: str, place: LogPlace) -> bool:
        """Read a line; whether it is RAS's."""
        self._left -= 1
        if self._json is not None or '"nccl_version":' in line or '"LIFECYCLE"' in line:
            return self._take_json(line, place)
        is_known = self._take_text(line.strip())
        if is_known:
            self._left = _MOST_LINES
            self.size += 1
            self.first = self.first or place
        return is_known

    def _take_text(self, line: str) -> bool:
        if row := _ROW.search(line):
            key = row["status"], row["errors"]
            self.rows[key] = self.rows.get(key, 0) + int(row["ranks"])
            if row["size"] == "0":
                self.garbage.append(f"a group of {row['comms']} communicators with 0 ranks")
            return True
        if comm := _COMM.search(line):
            self._comm, self._kind, self._op = comm["name"], comm["kind"], ""
            return True
        if section := _SECTION.search(line):
            name = "DEAD" if section["dead"] else section["name"]
            if name:
                self._kind, self._comm, self._op = name, "", ""
            return name not in ("Warnings", "TIMEOUT") or self._left > 0
        if event := _EVENT.search(line):
            self.events[_process(event)] = f"PEER_{event['event']}"
            return True
        if counts := _COUNTS.search(line):
            self._op, self._many = counts["op"], None
            return True
        if process := _PROCESS.search(line):
            _add(self.processes, self._kind or "INCOMPLETE", _process(process))
            return True
        if missing := _MISSING.search(line):
            ranks = re.findall(r"\d+", missing["ranks"])[:_MOST_KEPT]
            self._add_missing([f"rank {rank}" for rank in ranks])
            return True
        return self._take_ranks(line)

    def _take_ranks(self, line: str) -> bool:
        """Lines on ranks of the communicator that was named last."""
        if many := _RANKS.search(line):
            self._many = None
            if many["status"]:
                _add(self.states, self._comm, f"{many['count']} {many['status']}")
            elif many["error"]:
                _add(self.errors, self._comm, f"{many['count']} ranks: {many['error']}")
            else:
                number = int(many["number"] or 0)
                self._many = self._lane(None, f"{many['count']} ranks", number)
            return True
        one = _RANK.search(line)
        if one is None:
            return False
        rank, who = int(one["rank"]), _member(one.groupdict())
        if not 0 <= rank < _MOST_RANKS:
            self.garbage.append(f"rank {rank}")
        elif one["status"]:
            _add(self.states, self._comm, f"{who} {one['status']}")
        elif one["error"] or self._kind == "ERROR":
            _add(self.errors, self._comm, f"{who}: {one['error'] or 'as the line above'}")
        elif one["number"] or one["none"]:
            self._lane(rank, who, int(one["number"] or 0))
        elif self._kind == "INCOMPLETE" or not self._kind:
            self._add_missing([who])
        elif self._many is not None and len(self._many.who) < _MOST_NAMES:
            self._many.who += f"{',' if ': ' in self._many.who else ':'} {who}"
        return True

    def _add_missing(self, members: list[str]) -> None:
        for member in members:
            _add(self.missing, self._comm, member)

    def _lane(self, rank: int | None, who: str, number: int) -> Lane:
        """A rank or several of which only the number of operations is known."""
        number = min(number, _MOST_OPERATIONS)
        first = max(0, number - 1)
        kinds = array("I", [0] * (number - first))
        name = f"{self._comm} {self._op}".strip()
        title = f"{self._comm or 'a communicator'}, {self._op or 'operations'}"
        group = self._groups.setdefault(
            name,
            LoggedGroup(
                name=title, nranks=0, lanes=[], texts=(self._op or "an operation",), is_running=True
            ),
        )
        lane = Lane(rank=rank, who=who, first=first, kinds=kinds, is_named=True)
        if len(group.lanes) < _MOST_KEPT:
            group.lanes.append(lane)
        return lane

    def _take_json(self, line: str, place: LogPlace) -> bool:
        """Keep the lines of a document until it ends: its brace stands in the column of the first,
        or closes all that are open.
        """
        text = _JSON.sub("", line, count=1)
        if self._json is None:
            text = text if text.startswith("{") else f"{{{text}"
            self._json, self._chars, self._depth = [], 0, 0
            self.first = self.first or place
        self.size += 1
        self._left = _MOST_LINES
        self._json.append(text)
        self._chars += len(text)
        self._depth += text.count("{") - text.count("}")
        if self._depth <= 0 or self._chars >= _MOST_CHARS:
            self.finish()
        return True

    def finish(self) -> None:
        """A document whose end is missing gives what can be read of it."""
        if self._json is not None:
            text, self._json = "".join(self._json), None
            self._parse(text)

    def _parse(self, text: str) -> None:
        try:
            document, _ = json.JSONDecoder().raw_decode(text)
            self.add(document)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            _add(self.errors, "", "its JSON is cut or broken, and was not read")

    def add(self, document: Mapping[str, Any]) -> None:  # Any: JSON
        """Read a document. Raises KeyError, TypeError and their kin for what is none."""
        if "event" in document:
            peer = document["peer"]
            gpus = ",".join(map(str, peer["cuda_devs"]))
            who = f"process {int(peer['pid'])} on node {peer['host']} (GPU {gpus})"
            self.events[who] = str(document["event"])
            return
        for comm in document["communicators"]:
            self._add_comm(comm)

    def _add_comm(self, comm: Mapping[str, Any]) -> None:  # Any: JSON
        self._comm = str(comm["hash"]).removeprefix("0x")
        ranks, missing = comm.get("ranks", []), comm.get("missing_ranks", [])
        errors = "INCOMPLETE" if missing or comm.get("missing_ranks_count") else "OK"
        for one in missing:
            status = one.get("status", {})
            why = "considered dead" if status.get("considered_dead") else "unresponsive"
            why = why if status.get("unresponsive") or why != "unresponsive" else "no member"
            self._add_missing([f"{_member(one)}, {why}"])
        if len(missing) < int(comm.get("missing_ranks_count", 0)):
            self._add_missing([f"{comm['missing_ranks_count']} ranks without a name"])
        counts: dict[str, dict[int, list[str]]] = {}
        for one in ranks:
            status = one.get("status", {})
            for name in ("init_state", "async_error"):
                code = int(status.get(name, 0))
                if code not in (0, 7):  # success, in progress
                    said = f"{_member(one)}: {name} {_RESULTS.get(code, code)}"
                    _add(self.errors, self._comm, said)
            for op, count in one.get("collective_counts", {}).items():
                counts.setdefault(op, {}).setdefault(int(count), []).append(_member(one))
        for op, by_count in counts.items():
            if len(by_count) > 1:
                errors = "MISMATCH" if errors == "OK" else f"{errors},MISMATCH"
                self._op = str(op)
                for count, members in by_count.items():
                    for member in members:
                        self._lane(int(member.split()[1]), member, count)
        begun = (not int(one.get("status", {}).get("init_state", 0)) for one in ranks)
        states = Counter("RUNNING" if is_begun else "INIT" for is_begun in begun)
        state = states.most_common(1)[0][0] if states else "NOCOMM"
        self.rows[state, errors] = self.rows.get((state, errors), 0) + len(ranks)

    def summary(self) -> Iterator[str]:
        """The summary in words: ranks by status."""
        for (status, errors), ranks in self.rows.items():
            yield f"{counted(ranks, 'rank')} {status}, {errors}"
        for who, event in self.events.items():
            yield f"{event}: {who}"

    @property
    def is_ok(self) -> bool:
        """Whether all that it says is that all is well."""
        bad = (self.missing, self.processes, self.errors, self.garbage, self.groups(), self.lost)
        return bool(self.rows) and not any(bad) and {one for _, one in self.rows} == {"OK"}

    @property
    def lost(self) -> list[str]:
        """Processes whose last event is that they are dead or do not answer."""
        alive = ("NEW", "CONNECTED", "CONNECTING", "RECOVERED", "RETRY")
        return [
            f"{who}: {event}"
            for who, event in self.events.items()
            if event.removeprefix("PEER_") not in alive
        ]


_RESULTS: Mapping[int, str] = dict(
    enumerate(
        (
            "ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
            "ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress",
            "ncclTimeout",
        )
    )
)  # fmt: skip


def _process(match: re.Match[str]) -> str:
    gpu = f" (GPU {match['gpu']})" if match["gpu"] else ""
    return f"process {match['pid']} on node {match['node']}{gpu}"


def _member(one: Mapping[str, Any]) -> str:  # Any: JSON, or texts of a line
    """A rank with what is known of it."""
    gpu, node = one.get("cuda_dev", one.get("gpu", "?")), one.get("host", one.get("node", "?"))
    if one.get("pid", "") is None:
        return f"rank {one['rank']} (its process is not known)"
    return f"rank {int(one['rank'])} (GPU {gpu}, process {one.get('pid', '?')}, node {node})"


def _add(facts: dict[str, list[str]], key: str, text: str) -> None:
    kept = facts.setdefault(key, [])
    if len(kept) < _MOST_KEPT and text not in kept[-1:]:
        kept.append(text)
