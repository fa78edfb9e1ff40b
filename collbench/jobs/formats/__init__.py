"""Inputs that say what a job communicates: one format a file, found by the content.

A format has NAME (what people call it), HINT (how a job writes it), `is_mine` of a file's beginning
and `read` of files with their names. Its calls are those of one rank, which stands for all. What a
file holds comes from anyone: reading it gives a job or one UsageError.
"""

from collections.abc import Sequence
from typing import IO, Protocol, cast

from collbench.core.errors import UsageError
from collbench.core.registry import Family
from collbench.jobs.model import Job

FAMILY = Family(__name__, __path__, "format")
LOG = "nccl_log"  # which has no beginning of its own: what nothing else takes is one

# what a document with other values than its format has leads to
_NO_SUCH_DOCUMENT = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_OF_EXECUTION_TRACES = ('"ctrl_deps"', '"ctrlDeps"', '"workload_graph"', '"COMM_COLL_NODE"')

Opened = Sequence[tuple[str, IO[str]]]  # files by their names


class Format(Protocol):
    """A module of this family."""

    NAME: str
    HINT: str

    def is_mine(self, head: str) -> bool:
        """Whether a file begins like one of this format."""

    def read(self, files: Opened) -> Job:
        """The job of these files. Raises UsageError."""


def format_of(head: str) -> Format:
    """The format of a file by its beginning. Raises UsageError for an execution trace.

    >>> format_of('{"traceEvents": []}').NAME
    "a trace of PyTorch's profiler"
    """
    if any(key in head for key in _OF_EXECUTION_TRACES):
        raise UsageError(
            "an execution trace (PyTorch's or Chakra's) is not read",
            "give a trace of torch.profiler.profile, by export_chrome_trace",
        )
    others = (name for name in FAMILY if name != LOG)
    name = next((one for one in others if cast(Format, FAMILY.load(one)).is_mine(head)), LOG)
    return cast(Format, FAMILY.load(name))


def read(files: Opened, heads: Sequence[str]) -> Job:
    """The job of files that begin so, which are of one format. Raises UsageError."""
    formats = {one.NAME: one for one in map(format_of, heads)}
    if len(formats) > 1:
        raise UsageError(
            f"the files are of different kinds: {', '.join(sorted(formats))}",
            "give the files of one kind",
        )
    (chosen,) = formats.values()
    try:
        job = chosen.read(files)
    except _NO_SUCH_DOCUMENT as error:
        raise UsageError(
            f"{files[0][0]}: {chosen.NAME} has what none has: {error}", chosen.HINT
        ) from None
    if not job.calls:
        raise UsageError(
            f"{job.name}: {chosen.NAME} without any collective of two ranks", chosen.HINT
        )
    return job
