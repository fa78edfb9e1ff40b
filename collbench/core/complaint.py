"""What ends a command: an error of ours, of click or of the system, as two lines and a code."""

import errno
import os
import signal
import sys
import traceback
from pathlib import Path

import click

from collbench.core.errors import CollbenchError, UnavailableError, UsageError, did_you_mean
from collbench.core.interrupt import exit_code_of, interruption_in, text_of
from collbench.core.launcher import is_first_rank
from collbench.core.options import flag
from collbench.core.screen import on_screen, say
from collbench.core.text import one_line

DEBUG_VARIABLE = "COLLBENCH_DEBUG"  # set to anything: errors show their traceback too
_SHOWN = 700  # characters of the start and of the end of a long message


def complain(error: BaseException) -> int:
    """Print what ended a command, in two lines and on one rank; return the exit code."""
    interruption = interruption_in(error)
    if interruption is not None or isinstance(error, click.Abort | KeyboardInterrupt):
        number = interruption.number if interruption is not None else signal.SIGINT
        text, code = text_of(number), exit_code_of(number)
    else:
        ours = _as_ours(error)
        message, hint = map(one_line, (ours.message, ours.hint))
        lines = f"Error: {_cut(message)}", f"Hint: {_cut(hint or ours.general_hint)}"
        text = "\n".join(on_screen(line, sys.stderr) for line in lines)
        code = ours.exit_code
        if os.environ.get(DEBUG_VARIABLE):
            text = "".join(traceback.format_exception(error)) + text
    if is_first_rank():
        say(text, err=True)
    return code


def why_ended(error: BaseException) -> tuple[int, str]:
    """The exit code of a command that an error ends, and why it ended."""
    interruption = interruption_in(error)
    if interruption is not None or isinstance(error, KeyboardInterrupt):
        number = interruption.number if interruption is not None else signal.SIGINT
        return exit_code_of(number), f"by {signal.Signals(number).name}"
    if isinstance(error, BrokenPipeError):
        return exit_code_of(signal.SIGPIPE), "whoever read the output has gone"
    ours = _as_ours(error)
    return ours.exit_code, ours.message


def _cut(text: str) -> str:
    """A line without the middle of a value that is far too long."""
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} [...] {text[-_SHOWN:]}"


def _as_ours(error: BaseException) -> CollbenchError:
    """What ended a command as an error of ours; one that nobody foresaw is a mistake of ours."""
    if isinstance(error, CollbenchError):
        return error
    if isinstance(error, click.ClickException):
        return _of_click(error)
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        error = BlockingIOError(errno.EAGAIN, "cannot start a thread")
    if isinstance(error, OSError):
        from collbench.core.host import shortage

        if error.filename is None and error.errno in (errno.EMFILE, errno.EAGAIN, errno.ENOMEM):
            return UnavailableError(shortage(error), "raise the limit, or use fewer --ranks")
        return UnavailableError(
            f"{error.filename or 'output'}: {error.strerror or error}", "give another file"
        )
    if isinstance(error, MemoryError):
        return UnavailableError(str(error) or "out of memory", "use smaller sizes or fewer ranks")
    if isinstance(error, ImportError) and not (error.name or "").startswith("collbench"):
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        return UnavailableError(
            f"a library cannot be loaded: {first}",
            "install it again, or give more memory (ulimit -v)",
        )
    *_, last = traceback.extract_tb(error.__traceback__)
    return CollbenchError(
        f"a mistake of collbench: {type(error).__name__}: {error} (in {last.name},"
        f" {Path(last.filename).name}:{last.lineno})",
        f"report it, with the command line and what it prints with {DEBUG_VARIABLE}=1",
    )


def _of_click(error: click.ClickException) -> CollbenchError:
    """An error of click as one of ours."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption):
        return no_such_option(error.option_name, context)
    param = error.param if isinstance(error, click.BadParameter) else None
    if isinstance(error, click.MissingParameter) and param is not None:
        message = f"{param.human_readable_name} is missing"
    elif param is not None:
        message = f"{flag(param)}: {error.message}"
    else:
        message = error.format_message()
        message = message[:1].lower() + message[1:]
    return UsageError(message.rstrip("."), _help_hint(context))


def _help_hint(context: click.Context | None) -> str:
    path = context.command_path if context is not None else "collbench"
    return f"'{path} --help' explains the options"


def no_such_option(name: str, context: click.Context | None) -> UsageError:
    """The error for an option that a command lacks, with the nearest that it has."""
    options = [
        option
        for param in (context.command.params if context is not None else ())
        if isinstance(param, click.Option) and not param.hidden
        for option in param.opts
    ]
    return UsageError(
        f"there is no option '{name}'", did_you_mean(name, options) or _help_hint(context)
    )
