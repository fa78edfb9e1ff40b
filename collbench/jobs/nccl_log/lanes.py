"""How far each rank of a communicator has come."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from collbench.jobs.nccl_log.places import LogPlace


@dataclass(slots=True, kw_only=True)
class Lane:
    """The operations of one rank in a group, in its order. who: the process and device, the same
    in all groups; first: the number of the first that is known; kinds: numbers of their
    descriptions; opcounts: NCCL's counter of them; lines: of them, where they are known.
    is_waiting: it says itself that it waits in the last one; is_named: who is its name.
    """

    rank: int | None
    who: str
    first: int = 0
    kinds: "array[int]" = field(default_factory=lambda: array("I"))
    opcounts: "array[int]" = field(default_factory=lambda: array("I"))
    file: str = ""
    files: list[tuple[int, str]] = field(default_factory=list)  # of lines, where there are several
    lines: "array[int]" = field(default_factory=lambda: array("I"))
    is_waiting: bool = False
    is_named: bool = False

    @property
    def end(self) -> int:
        """How many operations it has begun."""
        return self.first + len(self.kinds)

    @property
    def name(self) -> str:
        """The rank as people call it."""
        return self.who if self.rank is None or self.is_named else f"rank {self.rank}"

    def keep_last(self, count: int) -> None:
        """Forget all operations but so many."""
        lost = len(self.kinds) - count
        if lost:
            self.kinds, self.opcounts = self.kinds[lost:], self.opcounts[lost:]
            self.lines = self.lines[lost:]
            self.files = [(max(0, start - lost), name) for start, name in self.files]

    def place(self, number: int) -> str:
        """Where an operation stands; empty if that is not known."""
        at = number - self.first
        file = next((name for start, name in reversed(self.files) if start <= at), self.file)
        return str(LogPlace(file, self.lines[at])) if 0 <= at < len(self.lines) else ""


@dataclass(slots=True, kw_only=True)
class LoggedGroup:
    """The ranks of a communicator. texts: descriptions of operations, by their numbers.
    is_aligned: whether operations of one number are the same on all ranks. is_running: the numbers
    are of a moment while the job may have run on. is_cut: its last operation may be cut off.
    """

    name: str
    nranks: int
    lanes: list[Lane]
    texts: Sequence[str]
    p2p_texts: tuple[str, ...] = ()  # sends that were not received, or the other way round
    is_aligned: bool = True
    is_running: bool = False
    is_cut: bool = False
