"""Litmus tests of this machine that were run, in files of the user's state: what `auto` refuses is
read from there.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from collbench.results.runs import folder_of_runs
from collbench.spec.litmus import LitmusResult
from collbench.util.errors import UsageError
from collbench.util.files import write_whole
from collbench.util.reading import parse_json, read_bytes

_MOST_BYTES = 1 << 20


def saved(kind: str, model: str) -> tuple[LitmusResult, ...]:
    """What was seen on a machine. Raises UsageError where its file is broken."""
    with suppress(OSError, RuntimeError):
        file = _file(kind, model)
        return _read(file, file.stat().st_mtime_ns, kind, model)
    return ()


def keep(kind: str, model: str, results: Sequence[LitmusResult]) -> Path:
    """Keep results of a machine; each replaces an older one of its test and link, but for one in
    which an assumption failed: that stays until it is forgotten. Raises OSError, RuntimeError, and
    UsageError where what is known is broken.
    """
    file = _file(kind, model)
    known = {(one.test, one.link): one for one in saved(kind, model)}
    for result in results:
        old = known.get((result.test, result.link))
        if old is None or result.broken or not old.broken:
            known[result.test, result.link] = result
    data = {"kind": kind, "model": model, "results": [asdict(one) for one in known.values()]}
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(file, (json.dumps(data, indent=1) + "\n").encode())
    return file


def forget(kind: str, model: str) -> bool:
    """Remove what is known of a machine; whether there was anything. Raises OSError or
    RuntimeError.
    """
    file = _file(kind, model)
    is_there = file.exists()
    file.unlink(missing_ok=True)
    return is_there


def broken_protocols(kind: str, model: str) -> tuple[tuple[str, str, str], ...]:
    """The protocols (and `ce`) whose assumption failed on a machine: the name, the transport of the
    links that showed it, and what did. Each is named once for a transport. Raises UsageError where
    what is known is broken.
    """
    found: dict[tuple[str, str], str] = {}
    for result in saved(kind, model) if model else ():
        why = f"litmus test {result.test} failed on {result.link}"
        for name in result.broken:
            found.setdefault((name, result.transport), why)
    return tuple((*about, why) for about, why in found.items())


def _file(kind: str, model: str) -> Path:
    words = re.sub(r"[^a-z0-9]+", "-", f"{kind} {model}".lower()).strip("-")[:80]
    return folder_of_runs().parent / "litmus" / f"{words}.json"


@lru_cache(maxsize=16)
def _read(file: Path, changed_ns: int, kind: str, model: str) -> tuple[LitmusResult, ...]:
    """The results in a file; changed_ns: of the file, so that it is read again when it changes."""
    text = read_bytes(file, _MOST_BYTES)
    try:
        data = parse_json(text.decode(), str(file), _MOST_BYTES)
        if not isinstance(data, dict):
            raise TypeError("it is no table")
        results = tuple(
            LitmusResult(**{**one, "counts": tuple(map(int, one["counts"]))})
            for one in data["results"]
        )
        is_of_it = (data["kind"], data["model"]) == (kind, model)
        if not is_of_it or any(one.kind != kind for one in results):
            raise ValueError(f"it is of another machine than {model}")
    except (ValueError, TypeError, KeyError, AttributeError, UsageError) as error:
        why = error.message if isinstance(error, UsageError) else error
        raise UsageError(
            f"what litmus tests found is broken, in {file}: {why}",
            "`collbench litmus --forget` removes it",
        ) from None
    return results
