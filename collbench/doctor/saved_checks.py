"""Checks that `check --save` has kept: of each node a file of its own with a line a check, in a
folder of the user's state beside the saved runs, or in one that nodes share. A later check is held
against the node's own past, and against its peers: nodes of the same kind in that folder.
"""

import fcntl
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import quote

from collbench.core.collector import cyclic_gc_disabled
from collbench.core.errors import UnavailableError
from collbench.core.files import check_whole, state_folder, write_whole
from collbench.core.limits import FAIL_SHARE, LEAST_PEERS, OWN_CHECKS
from collbench.core.text import counted
from collbench.doctor.check_verdict import SEVERITY, Expectation, Verdict

TIME = ", us"  # how the key of a time ends; else a number is a rate
MOST_BYTES = 1 << 20  # of a node's file that are read, the newest: some 1,200 checks


class SavedCheck(NamedTuple):
    """A check of a node. kind: what nodes that can be compared have in common. started: ISO 8601,
    by a clock that may be wrong. values: by the name of a line and its unit. devices: how many were
    found of each name; none where somebody chose them.
    """

    host: str
    kind: str
    started: str
    verdict: Verdict
    values: Mapping[str, float]
    devices: Mapping[str, int] = {}

    @property
    def day(self) -> str:
        return datetime.fromisoformat(self.started).date().isoformat()

    @property
    def is_reference(self) -> bool:
        """Whether others are held against it: nothing failed."""
        return self.verdict != "FAIL"


_FIELDS = itemgetter(*SavedCheck._fields[:-1])


def reference_values(host: str, kind: str, folder: Path | None) -> dict[str, list[Expectation]]:
    """What each number is held against: the node's own past (see own_level), and the median of its
    peers' newest, where there are LEAST_PEERS of them.
    """
    known: dict[str, list[Expectation]] = {}
    peers: dict[str, list[float]] = {}
    for name, checks in read_nodes(folder).items():
        good = [one for one in checks if one.kind == kind and one.is_reference]
        newest = {key: value for one in good for key, value in one.values.items()}
        for key, value in newest.items():
            if name == host:
                past = [one for one in good if key in one.values]
                count = min(len(past), OWN_CHECKS)
                source = f"check {past[0].day}" if count == 1 else f"{count} own checks"
                level = own_level([one.values[key] for one in past], key)
                # one check does not show how far latencies of a network differ between checks
                warns_from = 0.0 if count == 1 and key.endswith(TIME) else FAIL_SHARE
                known[key] = [Expectation(value=level, source=source, warns_from=warns_from)]
            else:
                peers.setdefault(key, []).append(value)
    for key, values in peers.items():
        if len(values) >= LEAST_PEERS:
            source = counted(len(values), "peer")
            known.setdefault(key, []).append(Expectation(value=median(values), source=source))
    return known


def own_level(values: Sequence[float], key: str) -> float:
    """Of a node's good values of a number, the oldest first, the better of the medians of the first
    OWN_CHECKS and of the last: held against the last alone, a node that becomes slower in steps
    would pass after each.
    """
    better = min if key.endswith(TIME) else max
    return better(median(values[:OWN_CHECKS]), median(values[-OWN_CHECKS:]))


def read_nodes(folder: Path | None) -> dict[str, list[SavedCheck]]:
    """The checks of every node in the order of their lines; None: those in the user's state. What
    counts for nothing: lines and files that are broken, and lines of another node than the file's.
    """
    nodes: dict[str, list[SavedCheck]] = {}
    with cyclic_gc_disabled():
        for file in sorted(_files(folder)):
            checks = _checks_in(file)
            for host in {one.host for one in checks}:
                if _file_name(host) == file.name:
                    nodes[host] = [one for one in checks if one.host == host]
    return nodes


def checks_of(host: str, folder: Path | None) -> list[SavedCheck]:
    """The checks of a node in the order of their lines."""
    with suppress(RuntimeError):  # no home
        file = _folder(folder) / _file_name(host)
        return [one for one in _checks_in(file) if one.host == host]
    return []


def without_checks(folder: Path | None, nodes: Iterable[str]) -> list[str]:
    """The names of files of nodes that have no check, broken lines being none."""
    known = set(map(_file_name, nodes))
    return sorted(file.name for file in _files(folder) if file.name not in known)


def keep(check: SavedCheck, folder: Path | None) -> None:
    """Add a check to the file of its node, with six digits of each number; as many nodes at once
    as like. Raises UnavailableError.
    """
    short = {name: float(f"{value:.6g}") for name, value in check.values.items()}
    line = json.dumps(check._replace(values=short)._asdict()).encode()
    with _explained(folder):
        place = _made(folder)
        with _locked(place):
            file = place / _file_name(check.host)
            lines = _newest(file).splitlines() if file.exists() else []
            write_whole(file, b"\n".join([*lines, line, b""]))


def refuse_missing(folder: Path | None) -> None:
    """Raise UnavailableError if there is no such folder to read."""
    if folder is not None and not folder.is_dir():
        raise UnavailableError(f"--nodes: {folder} is no folder", "collbench check --save makes it")


def refuse_unkept(folder: Path | None) -> None:
    """Raise UnavailableError before the work if a check cannot be kept."""
    with _explained(folder):
        is_new = folder is None and not _folder(None).exists()
        place = _made(folder)
        check_whole(place / "new")
        if is_new:
            with suppress(OSError):  # another job has just kept a check there
                place.rmdir()


@contextmanager
def _explained(folder: Path | None) -> Iterator[None]:
    """Raise UnavailableError where a check cannot be kept, in the words of `tune`."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        of_file = [error.filename, error.strerror] if isinstance(error, OSError) else [str(error)]
        why = ": ".join(filter(None, of_file))
        hint = "leave out --save" if folder is None else "give another folder with --nodes"
        raise UnavailableError(f"what is found cannot be kept: {why}", hint) from None


def forget() -> int:
    """Remove the checks in the user's state; returns how many there were. Raises OSError."""
    count = sum(map(len, read_nodes(None).values()))
    for file in _files(None):
        file.unlink(missing_ok=True)
    return count


def _folder(folder: Path | None) -> Path:
    # what is in "checks" and "references" there was kept by earlier versions, in other forms
    return folder or state_folder() / "nodes"


def _file_name(host: str) -> str:
    return f"{quote(host, safe='')[:200]}.jsonl"


def _made(folder: Path | None) -> Path:
    place = _folder(folder)
    if folder is None:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    else:
        place.mkdir(exist_ok=True)
    return place


def _files(folder: Path | None) -> list[Path]:
    with suppress(OSError, RuntimeError):
        entries = _folder(folder).iterdir()
        return [file for file in entries if file.suffix == ".jsonl" and file.is_file()]
    return []


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Nobody else writes there, as far as the file system has locks; without them a node's own
    file has one writer.
    """
    lock = os.open(place, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _newest(file: Path) -> bytes:
    """The last lines of a file, MOST_BYTES at most."""
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - MOST_BYTES))
        data = opened.read(MOST_BYTES)
    return data if size <= MOST_BYTES else data[data.find(b"\n") + 1 :]


def _checks_in(file: Path) -> list[SavedCheck]:
    with suppress(OSError):
        return list(filter(None, map(_check_of, _parsed(_newest(file).splitlines()))))
    return []


def _parsed(lines: Sequence[bytes]) -> Iterable[object]:
    """The values of lines of JSON, None of a broken one. One call shares the names of all, which
    takes half the time and memory.
    """
    with suppress(ValueError, RecursionError):
        values: list[object] = json.loads(b"[%s]" % b",".join(lines))
        if len(values) == len(lines):
            return values
    return map(_value_of, lines)


def _value_of(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _check_of(value: Any) -> SavedCheck | None:  # Any: of JSON
    """The check of a line, None if it is broken; fields of other versions are left out. By hand:
    the codec takes four times as long.
    """
    try:
        check = SavedCheck._make((*_FIELDS(value), value.get("devices", {})))
        datetime.fromisoformat(check.started)
        numbers = check.values.values()
        types = {*map(type, numbers)}
        is_whole = f"{check.host}{check.kind}{check.started}".isprintable()
        is_whole &= {*map(type, check[:3])} == {str} and check.verdict in SEVERITY
        is_whole &= types <= {float, int} and min(numbers, default=1.0) > 0
        is_whole &= math.isfinite(sum(numbers))
        is_whole &= {*map(type, check.devices.values())} <= {int}
        if int in types:
            check = check._replace(values={name: float(one) for name, one in check.values.items()})
    except (TypeError, LookupError, AttributeError, ValueError, OverflowError):
        return None
    return check if is_whole else None
