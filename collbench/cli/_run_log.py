"""Carry out `log`: read the files, say what they say, and what was found."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from collbench.analysis.nccl_log.model import LogReport
from collbench.analysis.nccl_log.reader import LogReader
from collbench.cli._files import check_writable, write_document
from collbench.cli._options import width
from collbench.cli._rules import Options
from collbench.cli._screen import say
from collbench.doctor.finding import Finding
from collbench.doctor.log_findings import log_findings
from collbench.report.tables.log import finding_block, last_line, log_json, log_lines, unread_lines
from collbench.report.tables.text import wrapped
from collbench.util.errors import UsageError

_GZIP = b"\x1f\x8b"
_LONGEST_READ = 1 << 20  # characters of a line; what is longer is read in pieces


def run_log(options: Options) -> int:
    """The whole command; returns the exit code."""
    if options.get("json") == options.get("html") == "-":
        raise UsageError("--json and --html cannot both be stdout", "write one to a file")
    for name in ("json", "html"):
        if options.get(name) not in (None, "-"):
            check_writable(options[name], f"--{name}")
    report = _report(options["files"])
    findings = log_findings(report)
    out = sys.stderr if "-" in (options.get("json"), options.get("html")) else sys.stdout
    columns = width(out)
    say("\n".join(log_lines(report, columns)), file=out)
    for finding in findings:
        say("\n" + "\n".join(finding_block(finding, columns)), file=out)
    if unread := unread_lines(report, columns):
        say("\n" + "\n".join(unread), file=out)
    last = last_line(findings)
    say("\n" + "\n".join(wrapped(last, columns)), file=out)
    if options.get("json"):
        write_document(log_json(report, findings), options["json"], "--json")
    if options.get("html"):
        from collbench.report.page.log import page

        write_document(page(report, findings, last), options["html"], "--html")
    return int(_fails(findings, options.get("fail_on", "cost")))


def _report(files: Sequence[str]) -> LogReport:
    """What the files say. Raises UsageError for a file that is none, or none of NCCL."""
    reader = LogReader()
    for file in files:
        before = reader.report.counters.nccl, len(reader.report.warnings)
        with _opened(file) as lines:
            try:
                reader.feed(Path(file).name if file != "-" else "stdin", _lines(lines))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                if before == (reader.report.counters.nccl, len(reader.report.warnings)):
                    raise UsageError(
                        f"{file}: its gzip cannot be read: {error}", "give the whole file"
                    ) from None
        if before == (reader.report.counters.nccl, len(reader.report.warnings)):
            raise UsageError(
                f"{file}: there is no line of NCCL in it",
                "run the job with NCCL_DEBUG=INFO and"
                " NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,ENV,NET,COLL",
            )
    return reader.report


@contextmanager
def _opened(file: str) -> Iterator[IO[str]]:
    """The text of a file, whatever its bytes; gzip is unpacked as it is read."""
    try:
        raw = io.FileIO(0 if file == "-" else file, closefd=file != "-")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {file}: {why}", "give the log of a job") from None
    with io.BufferedReader(raw) as buffered:
        is_gzip = buffered.peek(2)[:2] == _GZIP
        unpacked = gzip.GzipFile(fileobj=buffered) if is_gzip else buffered
        yield io.TextIOWrapper(unpacked, encoding="utf-8", errors="replace", newline="\n")


def _lines(text: IO[str]) -> Iterator[str]:
    """Lines, those without an end in pieces, so that memory stays small."""
    while line := text.readline(_LONGEST_READ):
        yield line


def _fails(findings: Sequence[Finding], fail_on: str) -> bool:
    if fail_on == "never":
        return False
    return any(one.is_cost or (fail_on == "risk" and one.severity == "risk") for one in findings)
