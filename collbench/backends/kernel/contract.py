"""What somebody's kernel is: a Python file that the user names, by what it has.

    OPS             collectives of equal blocks that it serves, for example ("allreduce",)
    DTYPES, REDOPS  element types and reductions; without them all types, and sum
    IN_PLACE        True: it works over its input, too
    ON_GPUS         True: its ranks have GPUs, and run queues a launch in their stream
    SHARED_BYTES    of each rank, in memory of the host that all ranks share, whole cache lines
    make(rank)      a rank's part, by a KernelRank, with a method run(call), one launch by a
                    KernelCall; NotImplementedError waives a point

All ranks call all of it in the same order.
"""

import ctypes
import faulthandler
import hashlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from collbench.backends.cpu.flags import LINE_WORDS, FlagBarrier
from collbench.backends.library import COLLECTIVES
from collbench.core.case import Case, Problem
from collbench.core.dtypes import DTYPES, REDOPS
from collbench.core.errors import CollbenchError, HangError, RefusedError, UsageError, unknown

if TYPE_CHECKING:
    from collbench.core.dtypes import Array

START_S = 120.0  # for all ranks to load what the file imports, and to make their parts
_LINE_BYTES, _MESSAGE_BYTES = 8 * LINE_WORDS, 4096  # of a rank: its flag; a message, with its size
_LOOK_S = 0.2  # between two looks at the clock, which interrupt what is timed for microseconds
GRACE_S = 5.0  # beyond its deadline, until a process ends that sits in C code
_NAMES = {"OPS": COLLECTIVES, "DTYPES": DTYPES, "REDOPS": REDOPS}
_DEFAULTS: dict[str, object] = {"OPS": (), "DTYPES": DTYPES, "REDOPS": ("sum",)}
_DEFAULTS |= {"make": None, "IN_PLACE": False, "ON_GPUS": False, "SHARED_BYTES": 0}
_MEND = "mend the kernel, or leave it out"


@dataclass(frozen=True, eq=False)
class KernelCall:
    """One launch, always the same object for the same buffers. source, target: the elements of
    input and output, as arrays of NumPy; on GPUs as what has __cuda_array_interface__, where types
    that NumPy has not are whole numbers. count: elements of a block.
    """

    op: str
    source: Any
    target: Any
    count: int
    dtype: str
    redop: str
    root: int


@contextmanager
def stdout_as_stderr() -> Iterator[None]:
    """Have what the body prints, be it by C code, go to stderr: stdout is for rows."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)
        os.dup2(stdout, 1)
        os.close(stdout)


class KernelFile:
    """A file with a kernel, which is run when something of it is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def module(self) -> ModuleType:
        """What the file defines. Raises UsageError."""
        module, name = ModuleType(f"kernel {self.path.stem}"), self.path.name
        vars(module).update(_DEFAULTS, __file__=str(self.path))
        sys.modules[module.__name__] = module  # where dataclasses look for it
        try:
            with stdout_as_stderr():
                exec(compile(self.path.read_bytes(), self.path, "exec"), vars(module))
        except (Exception, SystemExit) as error:
            found = self.named(error)
            hint = _MEND if self.path.is_file() else "give the path of a Python file"
            raise UsageError(found.message if found else f"{name}: {error}", hint) from None
        for what, known in _NAMES.items():
            given = vars(module)[what]
            if isinstance(given, str) or not isinstance(given, Collection):
                raise UsageError(
                    f"{what} of {name} is {given!r}, no tuple", f"write ({known[0]!r},)"
                )
            for wrong in (one for one in given if one not in known):
                raise unknown(f"name in {what} of {name}", str(wrong), known)
        size = module.SHARED_BYTES
        if not isinstance(size, int) or size < 0 or size % _LINE_BYTES:
            hint = f"give a whole number of cache lines, of {_LINE_BYTES} bytes each"
            raise UsageError(f"SHARED_BYTES of {name} is {size!r}", hint)
        if not callable(module.make) or not module.OPS:
            raise UsageError(f"{name} has no {'OPS' if module.make else 'function make'}", _MEND)
        return module

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        """Why it does not serve a case, or an empty text."""
        name, module = self.path.name, self.module
        if case.op not in module.OPS:
            return f"{name} serves {', '.join(module.OPS)}, not {case.op}"
        if case.dtype not in module.DTYPES:
            return f"{name} has no {case.dtype}"
        if is_reduction and case.redop not in module.REDOPS:
            return f"{name} has no reduction {case.redop}"
        is_lacking = case.in_place and not module.IN_PLACE
        return f"{name} does not work in place" if is_lacking else ""

    def version(self) -> str:
        """Its name, and a digest that tells it from what it was."""
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return f"{self.path.name} sha256:{digest[:12]}"

    def named(self, error: BaseException) -> CollbenchError | None:
        """An error with the line of the file that raised it, or of one beside it; None where none
        did. A point that it does not implement is refused.
        """
        raised: BaseException | None = error
        while raised is not None:
            at = list[tuple[str, int | None]]()
            if isinstance(raised, SyntaxError):
                at.append((raised.filename or "", raised.lineno))
            at += [(one.f_code.co_filename, no) for one, no in walk_tb(raised.__traceback__)]
            if lines := [one for one in at if Path(one[0]).parent == self.path.parent]:
                text = str(getattr(raised, "msg", raised)).partition("\n")[0]
                place = f"{Path(lines[-1][0]).name}, line {lines[-1][1]}"
                said = f"{place}: {type(raised).__name__}: {text}"
                is_refusal = isinstance(raised, NotImplementedError)
                return RefusedError(said) if is_refusal else CollbenchError(said, _MEND)
            raised = raised.__context__
        return None

    def arena_bytes(self, n: int) -> int:
        """Memory that n ranks share."""
        return (n + 1) * _LINE_BYTES + n * (_MESSAGE_BYTES + int(self.module.SHARED_BYTES))


class KernelRank:
    """What a rank's part is made from: for the file rank, the number of its `ranks`; shared, of
    [ranks, SHARED_BYTES] bytes, zeroed; allgather; and on GPUs device, the number of the rank's
    GPU, and stream, the address of the one that is timed. arena: memory that all ranks share,
    zeroed; its first byte says that somebody gave up. Raises UsageError.
    """

    def __init__(
        self, file: KernelFile, arena: memoryview, rank: int, ranks: int, *gpu: int
    ) -> None:
        self.file, self.rank, self.ranks, self.limit_s = file, rank, ranks, START_S
        self.device, self.stream = gpu or (-1, -1)
        self.arena: Array = np.frombuffer(arena, np.uint8)[: file.arena_bytes(ranks)]
        flags = (ranks + 1) * _LINE_BYTES
        words, messages, shared = np.split(self.arena, [flags, flags + ranks * _MESSAGE_BYTES])
        self.barrier = FlagBarrier(words.data.cast("q"), rank, ranks, lambda: bool(self.arena[0]))
        self._messages = messages.reshape(ranks, _MESSAGE_BYTES)
        self.shared: Array = shared.reshape(ranks, -1)
        with self.limit("make", START_S):
            self.kernel = file.module.make(self)
        if not callable(getattr(self.kernel, "run", None)):
            raise UsageError(f"what make of {file.path.name} returns has no run", _MEND)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream  # version of the protocol, stream

    def allgather(self, data: bytes) -> list[bytes]:
        """What every rank gives, a few bytes."""
        if len(data) > _MESSAGE_BYTES - 8:
            raise ValueError(f"allgather of {len(data)} bytes, of at most {_MESSAGE_BYTES - 8}")
        message = len(data).to_bytes(8, "little") + data
        self._messages[self.rank, : len(message)] = np.frombuffer(message, np.uint8)
        self.meet()
        found = [one.tobytes() for one in self._messages]
        self.meet()
        return [one[8 : 8 + int.from_bytes(one[:8], "little")] for one in found]

    def meet(self) -> None:
        """Wait for all ranks."""
        self.barrier.meet(range(self.ranks), self.limit_s)

    def call(self, problem: Problem, source: Any, target: Any) -> KernelCall:
        """What the kernel is called with."""
        of = problem.block_count, problem.dtype, problem.redop, problem.root
        return KernelCall(problem.op, source, target, *of)

    @contextmanager
    def limit(self, what: str, limit_s: float) -> Iterator[None]:
        """Raise HangError in the body when it has not ended by then, or when another rank gave up;
        it names the line of the file that the rank is at. What the body prints goes to stderr.
        """
        end_s, self.limit_s = time.monotonic() + limit_s, limit_s

        def look(number: int, frame: FrameType | None) -> None:
            if (is_late := time.monotonic() > end_s) or self.arena[0]:
                while frame is not None and frame.f_code.co_filename != str(self.file.path):
                    frame = frame.f_back
                line = f"line {frame.f_lineno} of " if frame is not None else ""
                after = f"after {limit_s:.0f} s" if is_late else "told to stop"
                where = f"{line}{self.file.path.name}, in {what}, {after}"
                raise HangError(f"rank {self.rank} is at {where}")

        before = signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        with Path(os.devnull).open("w") as nowhere:
            faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=nowhere)
            try:
                with stdout_as_stderr():
                    yield
            except BaseException as error:  # others need not wait for this rank
                self.arena[0] |= not isinstance(error, HangError)
                raise
            finally:
                faulthandler.cancel_dump_traceback_later()
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
