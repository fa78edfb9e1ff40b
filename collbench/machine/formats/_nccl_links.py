"""The links of a GPU in NCCL's and RCCL's XML: the elements nvlink and xgmi as they are listed, and
what they come to.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from collbench.machine.formats._nccl_attributes import NO_BUS

SWITCH = "nvs0"  # NVSwitches are one, as for NCCL
_SWITCH_CLASS, _BRIDGE_CLASS = "0x0680", "0x068001"  # the latter: of a POWER CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One element: how many links to which address, of which PCI class."""

    target: str
    count: int
    class_: str
    is_xgmi: bool = False

    @property
    def is_to_switch(self) -> bool:
        """Whether NCCL takes the far end for an NVSwitch; a virtual machine may hide its class."""
        if not self.class_:
            return self.target.lower().startswith(NO_BUS)
        return self.class_.startswith(_SWITCH_CLASS) and not self.is_to_cpu

    @property
    def is_to_cpu(self) -> bool:
        """Whether the far end is the CPU of a POWER machine."""
        return self.class_.startswith(_BRIDGE_CLASS)


def totals(
    links: Iterable[Listed], far: Callable[[Listed], str | None], is_gpu: Callable[[str], bool]
) -> dict[str, int]:
    """Links to each far end that is known, by `far`; is_gpu: whether an address is a GPU's.

    Where the addresses behind a switch are those of GPUs, as some virtual machines give them, the
    same links are listed again for every peer: they count once.
    """
    counts: dict[str, int] = {}
    again = 0
    for link in links:
        end = far(link)
        if end == SWITCH and is_gpu(link.target):
            again = max(again, link.count)
        elif end is not None:
            counts[end] = counts.get(end, 0) + link.count
    if again:
        counts[SWITCH] = max(counts.get(SWITCH, 0), again)
    return counts
