"""Files that people give to `log` and that another command or tool reads: each is named with it."""

import re

from collbench.core import catalog
from collbench.core.errors import UsageError
from collbench.core.screen import remark
from collbench.jobs.formats import kineto


def refuse_trace(file: str, head: str) -> None:
    """Raise UsageError for a trace of PyTorch's profiler."""
    if head.lstrip()[:1] in ("{", "[") and kineto.is_mine(head):
        raise UsageError(
            f"{file}: this is a Kineto trace, of PyTorch's profiler",
            f"collbench replay {file} reads it",
        )


def refuse_others(file: str, head: str, *, is_log: bool = False) -> None:
    """Raise UsageError for a file that another command or tool reads; of a log say only that."""
    for one in catalog.load("causes", "files")["files"]:
        if re.search(one["pattern"], head, re.MULTILINE):
            reads = f"collbench {one['command']} {file} reads it"
            if not is_log:
                raise UsageError(f"{file}: this is {one['what']}, not a log", reads)
            remark(f"{file}: {one['what']} is in it; {reads}.")
            break
