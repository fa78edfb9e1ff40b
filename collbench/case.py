"""A point of a sweep: only names and numbers, all independent variables of a row. It knows nothing of schedules or memory."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from collbench.collectives import OpName, collective
from collbench.dtypes import DtypeName, RedopName, dtype

DirectMode = Literal["auto", "on", "off"]
Placement = Literal["out", "in"]
DIRECT_MODES: tuple[DirectMode, ...] = get_args(DirectMode)
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
AUTO = 0  # of a whole-number knob: the default table decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One collective, one way to do it, one size.

    Whole-number knobs that are AUTO, algo "auto" and direct "auto" are decided by collbench.tuning. size_bytes is S as the row shows it:
    requested sizes are rounded down to whole elements and equal blocks (see rounded()).
    """

    op: OpName
    backend: str
    algo: str = "auto"
    proto: str = "simple"
    transport: str = "auto"
    direct: DirectMode = "auto"
    channels: int = AUTO
    threads: int = AUTO
    buffsize: int = AUTO
    slots: int = AUTO
    chunk: int = AUTO
    dtype: DtypeName = "float32"
    redop: RedopName = "sum"
    root: int = 0
    placement: Placement = "out"
    ranks: int
    size_bytes: int

    def rounded(self) -> "Case":
        """The same case with the size that it really has, the root 0 where the collective has none, and sum where it reduces nothing."""
        what = collective(self.op)
        return replace(
            self,
            size_bytes=what.size_bytes(self.block_count, dtype(self.dtype).item_bytes, self.ranks),
            root=self.root if what.is_rooted else 0,
            redop=self.redop if what.is_reduction else "sum",
        )

    @property
    def block_count(self) -> int:
        """Elements of one block."""
        return collective(self.op).block_count(self.size_bytes, dtype(self.dtype).item_bytes, self.ranks)

    @property
    def in_place(self) -> bool:
        return self.placement == "in"

    def why_senseless(self) -> str:
        """Why this case means nothing whatever runs it, or an empty text."""
        what = collective(self.op)
        if self.ranks < 2:
            return f"{self.ranks} rank: nothing travels"
        if self.root >= self.ranks:
            return f"root {self.root} is not one of {self.ranks} ranks"
        if self.in_place and not what.has_in_place:
            return f"{self.op} in place has no meaning: every rank sends what it would overwrite"
        if self.block_count == 0:
            blocks = self.ranks if what.size_in_blocks else 1
            return f"less than one {self.dtype} element in each of {blocks} block{'s' * (blocks > 1)}"
        return ""


