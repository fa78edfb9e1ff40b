"""Carry out `log`: read the files, say what they say, and what was found."""

import io
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO

from collbench.core import catalog
from collbench.core.errors import UsageError
from collbench.core.files import check_files, write_document
from collbench.core.options import Options
from collbench.core.reading import encoding_of, unpacked
from collbench.core.screen import remark, say, width
from collbench.core.text import wrapped
from collbench.doctor.check import Finding, ranked
from collbench.jobs.formats import kineto
from collbench.jobs.hang_findings import hang_findings
from collbench.jobs.log_findings import log_findings
from collbench.jobs.nccl_log.progress import groups_of, watchdog_groups
from collbench.jobs.nccl_log.reader import LogReader
from collbench.jobs.nccl_log.recorder import Recorders, is_pickle, is_recorder
from collbench.jobs.tables.log import finding_block, last_line, log_json, log_lines, unread_lines

_HEAD = 4096  # bytes by which a file's kind is told
_PART = re.compile(r"(?P<file>.+)\.(?P<age>\d{1,4})(?:\.(?:gz|xz|bz2|zst))?")
_LARGEST_DUMP = 512 << 20  # characters
_LONGEST_READ = 1 << 20  # characters of a line; what is longer is read in pieces


def run_log(options: Options) -> int:
    """The whole command; returns the exit code."""
    check_files(options, "json", "html")
    reader, recorders = _read(options["files"])
    report = reader.finish()
    findings = log_findings(report)
    groups = [*watchdog_groups(report), *report.ras.groups(), *recorders.groups()]
    own = groups_of(report)
    if options.get("is_hang"):
        groups = [*own, *groups]
        if not groups and not findings and not report.ras.is_any:
            raise _nothing_to_compare()
    elif not report.counters.lines and all(max(one.nranks, len(one.lanes)) < 2 for one in groups):
        raise UsageError(
            "no two ranks of a group are in these files, so that nothing can be compared",
            "give the dumps of all ranks",
        )
    called = [] if options.get("is_hang") else hang_findings(own)
    # where ranks are is of that moment, unless the job hangs; what differs is wrong in any job
    wrong = [one for one in called if one.check == "mismatched-collective"]
    findings = ranked([*wrong, *hang_findings(groups), *findings])
    out = sys.stderr if "-" in (options.get("json"), options.get("html")) else sys.stdout
    last = last_line(findings)
    if options.get("json"):
        write_document(log_json(report, findings), options["json"], "--json")
    if options.get("html"):
        from collbench.jobs.page import page

        write_document(
            page(report, findings, last, f"{datetime.now():%Y-%m-%d}"), options["html"], "--html"
        )
    columns = width(out)
    blocks = [log_lines(report, columns)] if report.counters.lines else []
    blocks += [finding_block(finding, columns) for finding in findings]
    say("\n\n".join("\n".join(block) for block in blocks), file=out)
    if unread := unread_lines(report, columns):
        say("\n" + "\n".join(unread), file=out)
    say("\n" + "\n".join(wrapped(last, columns)), file=out)
    if any(one.check == "rank-behind" for one in called):
        remark("Ranks have not come equally far. If the job hangs, --hang names who did not come.")
    if options.get("is_hang") and not groups:
        if not report.ras.is_any and all(one.severity == "remark" for one in findings):
            raise _nothing_to_compare()
        remark("No operation is in these files, so that no rank can be compared.")
    return int(_fails(findings, options.get("fail_on", "cost")))


def _nothing_to_compare() -> UsageError:
    return UsageError(
        "no operation is in these files, so that no rank can be compared",
        "run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL",
    )


def _read(files: Sequence[str]) -> tuple[LogReader, Recorders]:
    """What the files say: logs, and dumps of the flight recorder. Raises UsageError for a file that
    is none, or says nothing.
    """
    reader, recorders = LogReader(), Recorders()
    short = Counter(Path(file).name for file in files)
    for file in oldest_first(files):
        name = "stdin" if file == "-" else Path(file).name
        name = name if short[Path(file).name] == 1 else file
        with opened(file) as (head, lines):
            text = head.decode("utf-8", "replace")
            refuse_trace(file, text)
            if is_pickle(head):
                reader.report.files.append(name)
                recorders.add_pickle(name, bytes(lines.buffer.read(_LARGEST_DUMP)))
            elif is_recorder(text):
                reader.report.files.append(name)
                recorders.add(name, lines.read(_LARGEST_DUMP))
            else:
                _feed(reader, file, name, lines, text)
    return reader, recorders


def oldest_first(files: Sequence[str]) -> list[str]:
    """Files in their order, but the parts of one that was rotated from the oldest on.

    >>> oldest_first(["b.log", "a.log", "a.log.1", "a.log.2.gz", "c.1"])
    ['b.log', 'a.log.2.gz', 'a.log.1', 'a.log', 'c.1']
    """

    def age(file: str) -> tuple[int, int]:
        part = _PART.fullmatch(file)
        if part and part["file"] in files:
            return files.index(part["file"]), -int(part["age"])
        return files.index(file), 0

    return sorted(files, key=age)


def _feed(reader: LogReader, file: str, name: str, lines: IO[str], head: str) -> None:
    before = reader.report.size
    try:
        reader.feed(name, _lines(lines))
    except UsageError as error:  # of a gzip
        if before == reader.report.size:
            raise
        remark(f"{error.message}. What comes before was read.")
    refuse_others(file, head, is_log=before != reader.report.size)
    if before == reader.report.size and not reader.report.unread_errors:
        raise UsageError(
            f"{file}: there is no line of NCCL in it, and none that names an error",
            "run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,ENV,NET,COLL",
        )


def refuse_pickle(file: str, head: bytes) -> None:
    """Raise UsageError for a file that begins as a pickle does."""
    name = "stdin" if file == "-" else Path(file).name
    if is_pickle(head):
        raise UsageError(
            f"{file}: this is a pickle, which can run any program that is in it",
            "if it is your own: python -c 'import json, pickle, sys;"
            ' json.dump(pickle.load(open(sys.argv[1], "rb")), sys.stdout)\' '
            f"{name} > {name}.json",
        )


@contextmanager
def opened(file: str) -> Iterator[tuple[bytes, io.TextIOWrapper]]:
    """The beginning of a file, which may be packed, and its text, whatever its bytes."""
    try:
        raw = unpacked(file)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {file}: {why}", "give the log of a job") from None
    with raw:
        head = raw.peek(_HEAD)[:_HEAD]
        encoding = encoding_of(head)
        text = io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="\n")
        yield head.decode(encoding, "replace").encode() if encoding != "utf-8" else head, text


def _lines(text: IO[str]) -> Iterator[str]:
    """Lines, those without an end in pieces, so that memory stays small."""
    return iter(partial(text.readline, _LONGEST_READ), "")


def _fails(findings: Sequence[Finding], fail_on: str) -> bool:
    if fail_on == "never":
        return False
    return any(one.is_cost or (fail_on == "risk" and one.severity == "risk") for one in findings)


def refuse_trace(file: str, head: str) -> None:
    """Raise UsageError for a trace of PyTorch's profiler."""
    if head.lstrip()[:1] in ("{", "[") and kineto.is_mine(head):
        raise UsageError(
            f"{file}: this is a Kineto trace, of PyTorch's profiler",
            f"collbench replay {file} reads it",
        )


def refuse_others(file: str, head: str, *, is_log: bool = False) -> None:
    """Raise UsageError for a file that another command or tool reads; of a log say only that."""
    if known := catalog.read_by(head, file, "log"):
        if not is_log:
            raise UsageError(f"{file}: this is {known[0]}, not a log", known[1])
        remark(f"{file}: {known[0]} is in it; {known[1]}.")
