"""Why a run left no results: the first error in its output that `log` knows."""

from collections.abc import Sequence
from pathlib import Path

from collbench.core.errors import UsageError
from collbench.core.reading import read_content
from collbench.jobs.log_findings import log_findings
from collbench.jobs.nccl_log.reader import LogReader

_MOST_BYTES = 32 << 20


def with_cause(error: UsageError, files: Sequence[Path]) -> UsageError:
    """The error, with what the first file that names a cause says of it. Standard input is gone
    when a reader refuses it, and is not looked at.
    """
    for file in files:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            continue
        reader = LogReader()
        text = read_content(file, _MOST_BYTES, "").decode(errors="replace")
        reader.feed(file.name, text.splitlines())
        for finding in log_findings(reader.finish()):
            if finding.severity == "fault":
                said = f"{error.message}. {finding.check}: {finding.seen}"
                return UsageError(said, f"{finding.why} To do: {finding.change}")
    return error
