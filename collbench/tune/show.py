"""The screen of `tune`: a line for each point found, and what is measured now."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from collbench.core.screen import Remarks, is_terminal, remark, say, width
from collbench.core.text import printable

_REFRESH_S = 0.1

Show = Callable[[str], None]


@contextmanager
def tune_screen() -> Iterator[tuple[Show, Show]]:
    """Functions that show a line for good, and what is going on. There is no thread: ranks are
    forked meanwhile.
    """
    if not is_terminal(sys.stdout):
        remarks = Remarks()

        def tell_sometimes(text: str) -> None:
            if remarks.due():
                remark(f"{text}.")

        yield say, tell_sometimes
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    last_s = 0.0
    with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:

        def keep(line: str) -> None:
            live.console.print(Text(printable(line)), soft_wrap=True)
            live.refresh()

        def tell(text: str) -> None:
            nonlocal last_s
            if time.monotonic() - last_s > _REFRESH_S:
                last_s = time.monotonic()
                live.update(Text(printable(text)[: width(sys.stdout) - 1]), refresh=True)

        yield keep, tell
