"""Run a case inside this process, and say what is wrong with how it ended."""

import io
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from unittest.mock import patch

from collbench.cli import run
from collbench.core.launcher import launcher
from tests.fuzz.cases import Case

MOST_OUTPUT = 4_000_000  # characters; a page of results has some 50,000
# a remark of ours begins with #, one about a file of results with its name
_FAILED = re.compile(r"((# |\S[^\n]*: )[^\n]*\n)*Error: [^\n]+\nHint: [^\n]+\n")
_WRITES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.symlink")
_STARTS = ("subprocess.Popen", "os.fork", "os.exec", "os.posix_spawn", "os.system")
# what cases name as the file to write, and the draft beside one
_MAY_WRITE = re.compile(r"/|/no/such/(file|\.collbench-\w+)|/dev/(null|full)|/proc/(self|\d+)/mem")
MISTAKE = "a mistake of collbench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case left behind; escaped: the traceback of an exception that nobody caught."""

    code: int
    out: str
    err: str
    escaped: str = ""
    forbidden: tuple[str, ...] = ()
    has_rank: bool = False


class _Watch:
    """An audit hook, which Python never takes off again: on while a case runs."""

    def __init__(self) -> None:
        self.folder = ""
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if not self.folder:
            return
        if event in _STARTS:
            self.seen.append(event)
        is_open = (
            event == "open"
            and isinstance(args[2], int)
            and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if (event in _WRITES or is_open) and isinstance(args[0], str | bytes):
            name = os.path.abspath(os.fsdecode(args[0]))  # noqa: PTH100 - a Path is no cheaper
            is_ours = name.startswith(self.folder) or _MAY_WRITE.fullmatch(name) is not None
            if not is_ours and "__pycache__" not in name and "matplotlib" not in name:
                self.seen.append(f"{event} {name}")


_WATCH = _Watch()


@contextmanager
def _streams(encoding: str) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Standard streams as a process has them: strict on stdout, escapes on stderr."""
    out, err = io.BytesIO(), io.BytesIO()
    streams = {
        "stdout": io.TextIOWrapper(out, encoding, errors="strict"),
        "stderr": io.TextIOWrapper(err, encoding, errors="backslashreplace", line_buffering=True),
        "stdin": io.TextIOWrapper(io.BytesIO(), encoding),
    }
    with patch.dict(vars(sys), streams):
        yield out, err
        for stream in (streams["stdout"], streams["stderr"]):
            stream.flush()
        for stream in streams.values():
            stream.detach()


def outcome(case: Case, root: Path) -> Outcome:
    """Run a case in a folder below `root`, which is empty before and after."""
    folder = root / "case"
    (folder / "folder").mkdir(parents=True)
    for name, data in case.files.items():
        (folder / name).write_bytes(data)
    before, escaped, code = Path.cwd(), "", -1
    os.chdir(folder)
    try:
        with patch.dict(os.environ, case.variables), _streams(case.encoding) as (out, err):
            _WATCH.seen, _WATCH.folder = [], str(folder)
            try:
                code = run(list(case.args))
            except BaseException:  # whatever it is, it escaped
                escaped = traceback.format_exc()
            under = launcher()
            _WATCH.folder = ""
    finally:
        _WATCH.folder = ""
        os.chdir(before)
        rmtree(folder)
    return Outcome(
        code=code,
        out=out.getvalue().decode(case.encoding, errors="replace"),
        err=err.getvalue().decode(case.encoding, errors="replace"),
        escaped=escaped,
        forbidden=tuple(_WATCH.seen),
        has_rank=under is not None and under.rank > 0,
    )


def fault(seen: Outcome, root: Path) -> str:
    """What must not be: one line that names it, or nothing."""
    if seen.escaped:
        return f"escaped: {_place(seen.escaped)}"
    if MISTAKE in seen.err:
        return f"mistake: {' '.join(seen.err.splitlines())[-300:]}"
    if seen.forbidden:
        return f"forbidden: {seen.forbidden[0]}"
    if seen.code not in (0, 1, 2, 3, 4):
        return f"exit code {seen.code}"
    if "Traceback" in seen.err:
        return "a traceback"
    if seen.code > 1 and not seen.has_rank and not _FAILED.fullmatch(seen.err):
        return f"no two lines: {seen.err[-300:]!r}"
    if len(seen.out) + len(seen.err) > MOST_OUTPUT:
        return f"{len(seen.out) + len(seen.err)} characters of output"
    if left := os.listdir(root):  # noqa: PTH208 - a Path is no cheaper
        return f"left behind: {left}"
    return ""


def _place(text: str) -> str:
    """The exception of a traceback, and the last place in collbench."""
    places = re.findall(r'File "[^"]*/(collbench/[^"]*)", line (\d+), in (\S+)', text)
    where = ":".join(places[-1]) if places else "?"
    return f"{text.strip().splitlines()[-1][:160]} at {where}"
