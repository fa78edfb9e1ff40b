"""What PyTorch's flight recorder and NCCL's RAS say of a hang.

Of the flight recorder the JSON form is read. Its usual form is a pickle, which runs any program
that somebody put into it, so it is refused.
"""

import json
import re
from array import array
from typing import Any

from collbench.core.errors import UsageError
from collbench.jobs.nccl_log.progress import Lane, LoggedGroup

_RANK = re.compile(r"(\d{1,9})(?:\.json)?(?:\.gz)?\Z")
_RAS_HEAD = re.compile(r"#\d+-\d+ \((?P<name>[0-9a-fA-F]+)\) (?P<kind>MISMATCH|INCOMPLETE|ERROR)")
_RAS_OPERATION = re.compile(r"Communicator ranks have different (?P<op>\w+) operation counts")
_RAS_LAUNCHED = re.compile(
    r"Rank (?P<rank>\d{1,9}) has (?:launched up to operation (?P<number>\d{1,9})|not launched any)"
    r"(?P<where>.*)"
)
_RAS_MANY = re.compile(
    r"(?P<ranks>\d+) ranks have (?:launched up to operation (?P<number>\d{1,9})|not)"
)


def is_recorder(head: str) -> bool:
    """Whether a file's beginning is a dump of the flight recorder in JSON."""
    return head.lstrip()[:1] == "{" and ('"entries"' in head or '"pg_config"' in head)


def is_pickle(head: bytes) -> bool:
    """Whether a file is a pickle of protocol 2 or later."""
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def is_ras(head: str) -> bool:
    """Whether a file's beginning is what ncclras prints."""
    return "Job summary" in head and "NCCL version" in head


class Recorders:
    """Dumps of several ranks, one file each; `groups` is what they say together."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._lanes: dict[str, dict[int, Lane]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, name: str, text: str) -> None:
        """Read the dump of a rank. Raises UsageError for what is none."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise UsageError(
                f"{name}: it begins like a dump of PyTorch's flight recorder, and is not JSON",
                "is the file cut off?",
            ) from None
        try:
            entries = data["entries"]
            match = _RANK.search(name)
            rank = int(data.get("rank", match[1] if match else len(self._sizes)))
            for key, group in (data.get("pg_config") or {}).items():
                members = group.get("ranks", "[]")
                members = json.loads(members) if isinstance(members, str) else members
                self._sizes[str(key)] = len(members)
            for entry in sorted(
                (one for one in entries if not one.get("is_p2p")),
                key=lambda one: int(one.get("collective_seq_id", one.get("seq_id", 0))),
            ):
                self._entry(name, rank, entry)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise UsageError(
                f"{name}: it is no dump of PyTorch's flight recorder in JSON",
                "take it with TORCH_NCCL_DUMP_ON_TIMEOUT=1, and convert it to JSON yourself",
            ) from None

    def _entry(self, name: str, rank: int, entry: dict[str, Any]) -> None:  # Any: JSON
        group = entry.get("process_group", ["0"])
        key = str(group[0] if isinstance(group, list) else group)
        lane = self._lanes.setdefault(key, {}).setdefault(
            rank, Lane(rank=rank, who=f"rank {rank}", file=name)
        )
        number = (
            int(entry.get("collective_seq_id", entry.get("seq_id", 0))) - 1
        )  # PyTorch's: from 1
        if not lane.kinds:
            lane.first = number
        if number != lane.end:
            return  # a collective of several calls has one number
        sizes = "x".join(str(size) for one in entry.get("input_sizes", []) for size in one)
        dtypes = ",".join(map(str, entry.get("input_dtypes", [])))
        text = f"{entry.get('profiling_name', 'an operation')} of {sizes} {dtypes}".strip()
        lane.kinds.append(self._texts.setdefault(text, len(self._texts)))

    def groups(self) -> list[LoggedGroup]:
        """The process groups."""
        texts = list(self._texts)
        return [
            LoggedGroup(
                name=f"process group {key}",
                nranks=self._sizes.get(key, len(lanes)),
                lanes=[lanes[rank] for rank in sorted(lanes)],
                texts=texts,
            )
            for key, lanes in self._lanes.items()
        ]


def ras_groups(text: str) -> list[LoggedGroup]:
    """What NCCL's RAS says of ranks that have come less far than others."""
    groups: dict[str, LoggedGroup] = {}
    name, op, most = "", "", 0
    for line in text.splitlines():
        if head := _RAS_HEAD.search(line):
            name, op = head["name"], ""
        elif operation := _RAS_OPERATION.search(line):
            op, most = operation["op"], 0
            groups[f"{name} {op}"] = LoggedGroup(
                name=f"{name}, {op}", nranks=0, lanes=[], texts=(op,)
            )
        elif not op:
            continue
        elif many := _RAS_MANY.search(line):
            number = min(int(many["number"] or 0), 10_000_000)
            if number >= most:
                most = number
                groups[f"{name} {op}"].lanes.append(_lane(None, f"{many['ranks']} ranks", number))
        elif one := _RAS_LAUNCHED.search(line):
            number = min(int(one["number"] or 0), 10_000_000)
            groups[f"{name} {op}"].lanes.append(
                _lane(int(one["rank"][:9]), f"rank {one['rank'][:9]}", number)
            )
    return [group for group in groups.values() if group.lanes]


def _lane(rank: int | None, who: str, number: int) -> Lane:
    """A lane of which only the number is known: its last operation stands for all."""
    first = max(0, number - 1)
    return Lane(rank=rank, who=who, first=first, kinds=array("I", [0] * (number - first)))
