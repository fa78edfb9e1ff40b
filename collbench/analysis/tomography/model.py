"""What is inferred: groups of GPUs with confidence and evidence, and what cannot be decided."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from collbench.results.flows import FlowSet

Kind = Literal["socket", "uplink", "link"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Rates in GB/s of flows before and after what is compared: alone and all together, without
    others and beside them, or to the memory that is next nearest and to the nearest.
    """

    compares: Literal["together", "others", "memories"]
    flows: FlowSet
    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """GPUs that belong together.

    kind: they have the same memory nearest (socket), share an uplink to the host (uplink), or are
    joined by links of their own, perhaps through others of them (link). confidence: that chance
    does not explain the weakest pair that holds them together, whose rates are the evidence.
    place: of the memory that was tried. open: other GPUs that may belong to them too.
    """

    kind: Kind
    gpus: tuple[int, ...]
    confidence: float
    evidence: Evidence
    place: int = 0
    open: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """What cannot be told, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What the measurements say.

    memories: the blocks of each memory that can be told from others; places: the blocks that were
    tried, one of each memory, or two of a single one. near: the place near each GPU, None where
    that is not decided. host_gbs: what each GPU reaches to each memory alone. wanted: measurements
    that are missing, with the number of repeats. noise: the standard deviation of the logarithm of
    a rate.
    """

    gpus: int
    groupings: tuple[Grouping, ...]
    undecided: tuple[Undecided, ...]
    memories: tuple[tuple[int, ...], ...]
    places: tuple[int, ...]
    near: tuple[int | None, ...]
    host_gbs: tuple[tuple[float, ...], ...]
    wanted: Mapping[FlowSet, int]
    noise: float
