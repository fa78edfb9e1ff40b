"""What PyTorch's flight recorder says of a hang.

Its usual form is a pickle, which can run any program that somebody put into it. A dump has only
numbers, texts, lists and dictionaries, so it is read by an unpickler that looks up no name: what
would run something ends as an error.
"""

import io
import json
import pickle
import re
from typing import Any, NoReturn

from collbench.core.errors import UsageError
from collbench.core.text import some_of
from collbench.jobs.nccl_log.lanes import Lane, LoggedGroup

_RANK = re.compile(r"(\d{1,9})(?:\.json)?(?:\.gz)?\Z")


def is_recorder(head: str) -> bool:
    """Whether a file's beginning is a dump of the flight recorder in JSON."""
    return head.lstrip()[:1] == "{" and ('"entries"' in head or '"pg_config"' in head)


def is_pickle(head: bytes) -> bool:
    """Whether a file is a pickle of protocol 2 or later."""
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


class _PlainUnpickler(pickle.Unpickler):
    """Reads values alone: every name of a class or function, which could be called, is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise pickle.UnpicklingError("it asks for an object from elsewhere")


class Recorders:
    """Dumps of several ranks, one file each; `groups` is what they say together."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._lanes: dict[str, dict[int, Lane]] = {}
        self._sizes: dict[str, int] = {}
        self._members: dict[str, str] = {}  # ranks of the groups of the dump that is read

    def add(self, name: str, text: str) -> None:
        """Read the dump of a rank. Raises UsageError for what is none."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise UsageError(
                f"{name}: it begins like a dump of PyTorch's flight recorder, and is not JSON",
                "is the file cut off?",
            ) from None
        self._add(name, data)

    def add_pickle(self, name: str, data: bytes) -> None:
        """Read the dump of a rank as PyTorch writes it. Raises UsageError for what is none."""
        try:
            value = _PlainUnpickler(io.BytesIO(data)).load()
        except Exception as error:
            raise UsageError(
                f"{name}: this is a pickle, and no dump of plain values: {str(error)[:100]}",
                "a pickle can run any program that is in it, so nothing of it was run; if it is"
                " your own: torchfrtrace --prefix, or json.dump of what pickle.load gives",
            ) from None
        try:
            self._add(name, value)
        except UsageError as error:
            raise UsageError(
                f"{error.message}, though a pickle of plain values", error.hint
            ) from None

    def _add(self, name: str, data: Any) -> None:  # Any: JSON or its like
        try:
            entries = data["entries"]
            match = _RANK.search(name)
            rank = int(data.get("rank", match[1] if match else len(self._sizes)))
            self._members.clear()
            for key, group in (data.get("pg_config") or {}).items():
                members = group.get("ranks", "[]")
                members = json.loads(members) if isinstance(members, str) else members
                self._members[str(key)] = some_of([str(one) for one in sorted(members)], 8)
                self._sizes[self._name(str(key))] = len(members)
            for entry in sorted(
                (one for one in entries if not one.get("is_p2p")),
                key=lambda one: int(one.get("collective_seq_id", one.get("seq_id", 0))),
            ):
                self._entry(name, rank, entry)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise UsageError(
                f"{name}: it is no dump of PyTorch's flight recorder",
                "take it with TORCH_NCCL_DUMP_ON_TIMEOUT=1",
            ) from None

    def _name(self, key: str) -> str:
        """A group by its name and its ranks, as groups that were split off have one name."""
        ranks = self._members.get(key)
        return f"{key}, ranks {ranks}" if ranks else key

    def _entry(self, name: str, rank: int, entry: dict[str, Any]) -> None:  # Any: JSON
        group = entry.get("process_group", ["0"])
        key = self._name(str(group[0] if isinstance(group, list | tuple) else group))
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
