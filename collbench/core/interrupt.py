"""Ctrl-C, SIGTERM and SIGHUP: the first ends a command in order, a later one at once."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

from collbench.core.launcher import INTERRUPTIONS

_IN_ORDER_S = 5.0  # in which further signals change nothing
_AGAIN_S = 0.05


class Interrupted(KeyboardInterrupt):
    """A signal asks the command to end. number: of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Handler:
    """What signals call while a command runs. first_s: when the first came."""

    def __init__(self) -> None:
        self.first_s: float | None = None

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise Interrupted for the first signal, end this process at a late one."""
        now = time.monotonic()
        if self.first_s is None and not _is_importing(frame):
            self.first_s = now
            raise Interrupted(number)
        # out of an import a library may turn it into an error of its own
        if self.first_s is None or now - self.first_s > _IN_ORDER_S:
            with suppress(OSError):  # the terminal has closed
                os.write(2, f"{text_of(number)}\n".encode())
            os._exit(exit_code_of(number))

    def again(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Send a signal again that came where Python drops exceptions, as in a destructor."""
        if isinstance(unraisable.exc_value, Interrupted):
            self.first_s = None
            arguments = os.getpid(), unraisable.exc_value.number
            threading.Timer(_AGAIN_S, os.kill, arguments).start()
        else:
            sys.__unraisablehook__(unraisable)


def handle_signals() -> None:
    """Raise Interrupted in this thread when a signal comes that was not ignored before, as nohup
    and shells do.
    """
    handler = _Handler()
    for number in INTERRUPTIONS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler.interrupt)
    sys.unraisablehook = handler.again


def stop_handling_signals(exit_code: int) -> None:
    """Let signals end this process at once and without a word: there is nothing left to do in
    order. What a signal has ended before keeps its exit code.
    """

    def leave(number: int, _: FrameType | None) -> None:
        os._exit(exit_code if exit_code > 128 else exit_code_of(number))

    for number in INTERRUPTIONS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)


def interruption_in(error: BaseException) -> Interrupted | None:
    """The signal on whose way out another error came, as where a terminal has closed."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, Interrupted):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def exit_code_of(number: int) -> int:
    """What shells take for the end by a signal."""
    return 128 + number


def text_of(number: int) -> str:
    """What is said of the end by a signal."""
    by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    return f"Interrupted{by}."


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
