"""The kind of GPU in a product's name: its model, and its form, which decides its links. Pure.

Forms: SXM (on a board with NVSwitches or NVLinks to all), PCIe (a card, with a bridge at most), NVL
(cards of which two or four are bridged), or a MIG slice. Sources: the names that NVML gives.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

_MODEL = re.compile(
    r"\b(GB\d{2,3}|GH200|B[123]00|H[128]00|H20|A[18]00|A10G?|A16|A2|A30|A40|L40S?|L20|L4|T4G?"
    r"|V100S?|P100|P40|P4|K80|K40|K20|(?:RTX|GTX) (?:PRO )?A?\d{4}(?: (?:Ti|SUPER|Ada|D|Laptop))*)"
    r"(?:[mcx]|\b)",
    re.IGNORECASE,
)
# whose board has no word for its form in the product's name
_SXM_WITHOUT_A_WORD = ("H200", "H800", "H20", "B100", "B200", "B300")
_FORMS = (
    (re.compile(r"\bMIG (\S+)"), r"MIG \1"),
    (re.compile(r"\bNVL\b"), "NVL"),
    (re.compile(r"\bPCI-?E\b", re.IGNORECASE), "PCIe"),
    (re.compile(r"\bSXM\d?\b|\bHBM3\b"), "SXM"),
)
_COUNT = re.compile(r"^\d+ x ")


class GpuKind(NamedTuple):
    """A model and its form, "" where the name does not tell; of what is no GPU the whole name."""

    model: str
    form: str

    def __str__(self) -> str:
        return f"{self.model} {self.form}".rstrip()

    def agrees(self, other: "GpuKind") -> bool:
        """Whether both may be of one kind.

        >>> card, unknown = kind_of("NVIDIA H100 PCIe"), kind_of("NVIDIA H100")
        >>> card.agrees(unknown), card.agrees(kind_of("NVIDIA H100 80GB HBM3"))
        (True, False)
        """
        forms = {self.form, other.form} - {""}
        return not self.model or not other.model or (self.model == other.model and len(forms) < 2)


@cache
def kind_of(name: str) -> GpuKind:
    """The kind of GPU that a product's name names, with or without a number of them before it.

    >>> str(kind_of("NVIDIA A100-SXM4-80GB")), str(kind_of("8 x NVIDIA H200 NVL"))
    ('A100 SXM', 'H200 NVL')
    >>> str(kind_of("NVIDIA H200")), str(kind_of("NVIDIA GB200")), str(kind_of("NVIDIA H100"))
    ('H200 SXM', 'GB200', 'H100')
    >>> kind_of("AMD EPYC 9V74 (2 cores)")
    GpuKind(model='AMD EPYC 9V74 (2 cores)', form='')
    >>> str(kind_of("4 x NVIDIA H200, 4 x NVIDIA H100 PCIe"))
    'H100 PCIe, H200 SXM'
    """
    several = sorted(map(str, kinds_of([name]))) if ", " in name else []
    if len(several) > 1:
        return GpuKind(", ".join(several), "")
    model = model_of(name)
    if not model:
        return GpuKind(_COUNT.sub("", name), "")
    for pattern, form in _FORMS:
        if match := pattern.search(name):
            return GpuKind(model, match.expand(form))
    return GpuKind(model, "SXM" if model in _SXM_WITHOUT_A_WORD else "")


def model_of(name: str) -> str:
    """The GPU model in a product's name, or nothing.

    >>> (
    ...     model_of("NVIDIA A100-SXM4-80GB"),
    ...     model_of("NVIDIA GeForce RTX 4090"),
    ...     model_of("Intel Xeon"),
    ... )
    ('A100', 'RTX 4090', '')
    """
    match = _MODEL.search(name)
    return match[1].upper() if match is not None else ""


def kinds_of(devices: Iterable[str]) -> set[GpuKind]:
    """The kinds of the GPUs that a file's devices name."""
    return {kind_of(part) for device in devices for part in device.split(", ") if model_of(part)}
