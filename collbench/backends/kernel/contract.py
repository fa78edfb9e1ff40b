"""What somebody's kernel is: a Python file that the user names, by what it has.

    OPS             collectives of equal blocks that it serves, for example ("allreduce",)
    DTYPES, REDOPS  element types and reductions; without them all types, and sum
    IN_PLACE        True: it works over its input, too
    ON_GPUS         True: its ranks have GPUs, and run queues a launch in their stream
    SHARED_BYTES    of each rank, in memory of the host that all ranks share
    make(rank)      a rank's part, by a KernelRank, with a method run(call), one launch by a
                    KernelCall, and perhaps close(); NotImplementedError waives a point

All ranks call all of it in the same order.
"""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any

from collbench.backends.library import COLLECTIVES
from collbench.core.case import Case
from collbench.core.dtypes import DTYPES, REDOPS
from collbench.core.errors import CollbenchError, RefusedError, UsageError

if TYPE_CHECKING:
    from collbench.core.dtypes import Array

MEND = "mend the kernel, or leave it out"


@dataclass(frozen=True, kw_only=True)
class KernelRank:
    """What a rank's part is made from. rank: its number of `ranks`. shared: [ranks, SHARED_BYTES]
    bytes, zeroed. allgather: what every rank gives it, a few bytes. device, stream: on GPUs the
    number of the rank's GPU, and the address of the stream that is timed.
    """

    rank: int
    ranks: int
    shared: "Array"
    allgather: Callable[[bytes], list[bytes]]
    device: int = -1
    stream: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelCall:
    """One launch, always the same object for the same buffers. source, target: the elements of
    input and output, as arrays of NumPy, on GPUs as what has __cuda_array_interface__; types that
    are not NumPy's own are whole numbers there. count: elements of a block.
    """

    op: str
    source: Any
    target: Any
    count: int
    dtype: str
    redop: str
    root: int


class KernelFile:
    """A file with a kernel, which is run when something of it is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def module(self) -> ModuleType:
        """What the file defines. Raises UsageError."""
        module = ModuleType(f"kernel {self.path.stem}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # where dataclasses look for it
        try:
            exec(compile(self.path.read_bytes(), self.path, "exec"), vars(module))
        except (Exception, SystemExit) as error:
            named = self.named(error)
            raise UsageError(named.message if named else f"{self.path}: {error}", MEND) from None
        if not callable(getattr(module, "make", None)):
            raise UsageError(f"{self.path.name} has no function make", MEND)
        return module

    def names(self, name: str, known: Sequence[str], default: Sequence[str]) -> Sequence[str]:
        """The names in one of its tuples. Raises UsageError for those that nobody knows."""
        found = getattr(self.module, name, default)
        is_some = isinstance(found, tuple | list) and found
        if not is_some or (wrong := [one for one in found if one not in known]):
            what = f"unknown {wrong[0]!r}" if is_some else "no names"
            raise UsageError(
                f"{self.path.name} has {what} in {name}", f"some of: {', '.join(known)}"
            )
        return list(found)

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        """Why it does not serve a case, or an empty text."""
        name, ops = self.path.name, self.names("OPS", COLLECTIVES, ())
        if case.op not in ops:
            return f"{name} serves {', '.join(ops)}, not {case.op}"
        if case.dtype not in self.names("DTYPES", DTYPES, DTYPES):
            return f"{name} has no {case.dtype}"
        if is_reduction and case.redop not in self.names("REDOPS", REDOPS, ("sum",)):
            return f"{name} has no reduction {case.redop}"
        is_over = case.in_place and not getattr(self.module, "IN_PLACE", False)
        return f"{name} does not work in place" if is_over else ""

    @property
    def on_gpus(self) -> bool:
        return bool(getattr(self.module, "ON_GPUS", False))

    @property
    def shared_bytes(self) -> int:
        """Bytes of each rank in shared memory, whole cache lines."""
        return -(-int(getattr(self.module, "SHARED_BYTES", 0)) // 64) * 64

    @property
    def version(self) -> str:
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return f"{self.path.name} sha256:{digest[:12]}"

    def named(self, error: BaseException) -> CollbenchError | None:
        """An error with the line of the file that raised it; None where none did. A point that the
        file does not implement is refused.
        """
        raised: BaseException | None = error
        while raised is not None:
            lines = [
                line
                for frame, line in walk_tb(raised.__traceback__)
                if frame.f_code.co_filename == str(self.path)
            ]
            if isinstance(raised, SyntaxError) and raised.filename == str(self.path):
                lines.append(raised.lineno or 0)
            if lines:
                said = f"{self.path.name}, line {lines[-1]}: {type(raised).__name__}"
                text = str(getattr(raised, "msg", raised)).partition("\n")[0]
                said += f": {text}" if text else ""
                if isinstance(raised, NotImplementedError):
                    return RefusedError(said)
                return CollbenchError(said, MEND)
            raised = raised.__context__
        return None
