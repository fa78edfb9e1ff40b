"""What a GPU is by its PCI ids: its name, its architecture, and whether it has links to its peers.

Sources: the PCI ID repository (pci.ids of 2026-08-22); AMD's list (libdrm's amdgpu.ids) for 74a8,
74b6, 75b0 and 75b3, which it lacks; NVIDIA's list of product names (open-gpu-kernel-modules,
README.md). Whether a product has NVLinks or xGMI: its data sheet. A board of the SXM form always
has them; a card may have a bridge or not; others have none.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

from collbench.core import catalog

NVIDIA, AMD = "0x10de", "0x1002"  # PCI vendors of GPUs
NVSWITCH_CLASS = "0x0680"
# always: without them the product does not exist; maybe: a bridge joins some; never: no connector
HasLinks = Literal["always", "maybe", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """arch: the compute capability of NVIDIA's (90 for 9.0), or AMD's gfx name."""

    name: str
    arch: str
    links: HasLinks


# All products of these architectures, where the device is unknown.
_ALWAYS, _NEVER = (
    {"100", "103", "gfx942"},
    {"35", "37", "50", "52", "53", "61", "62", "87", "89", "110", "120", "121"},
)
_OF_NAME = re.compile(
    r"SXM|\bHBM3\b|\b(H200|B[12]00|B300|GB[23]00|MI2[05]0X?|MI3\d\d[XA])\b(?! NVL)", re.IGNORECASE
)


# Of the largest product of an architecture that data centres use; NVIDIA's and AMD's white papers.
_MULTIPROCESSORS = {
    **{"35": 15, "37": 13, "60": 56, "61": 30, "70": 80, "75": 72, "80": 108, "86": 84, "89": 128},
    **{"90": 132, "100": 148, "103": 148, "120": 170},
    **{"gfx906": 60, "gfx908": 120, "gfx90a": 104, "gfx942": 304, "gfx950": 256},
}
_FEW_MULTIPROCESSORS = 56


@cache
def _models() -> Mapping[tuple[str, str], GpuModel]:
    """The products of profiles/gpus/models.csv by their PCI ids."""
    return {
        (one["vendor"], one["device"]): GpuModel(
            name=one["name"], arch=one["arch"], links=cast("HasLinks", one["links"])
        )
        for one in catalog.rows("gpus", "models")
    }


def multiprocessors(arch: str) -> int:
    """How many CTAs, one a multiprocessor, a GPU of an architecture can run at once.

    >>> multiprocessors("90"), multiprocessors("")
    (132, 56)
    """
    return _MULTIPROCESSORS.get(arch, _FEW_MULTIPROCESSORS)


def gpu_model(vendor: str, device: str) -> GpuModel | None:
    """The product of PCI ids as NCCL writes them, if it is one that we know.

    >>> gpu_model("0x10de", "0x20b0").name, gpu_model("0x10de", "0xffff")
    ('NVIDIA A100-SXM4-40GB', None)
    """
    return _models().get((vendor.lower(), device.lower()))


def has_links(name: str, arch: str, model: GpuModel | None) -> HasLinks:
    """Whether a GPU has NVLinks or xGMI to its peers, by its product, else by its name and
    architecture.

    >>> has_links("NVIDIA H200", "90", None), has_links("", "103", None), has_links("", "89", None)
    ('always', 'always', 'never')
    >>> has_links("NVIDIA H200 NVL", "90", None)
    'maybe'
    """
    if model is not None:
        return model.links
    if arch in _ALWAYS or _OF_NAME.search(name):
        return "always"
    return "never" if arch in _NEVER else "maybe"


def named_model(text: str) -> GpuModel | None:
    """AMD's product that a text names, by its name or its architecture; None where it names none or
    products of several architectures.

    >>> named_model("Card Series: AMD Instinct MI300X OAM").arch, named_model("gfx90a").arch
    ('gfx942', 'gfx90a')
    """
    words = {word.upper() for word in re.findall(r"\b(?:MI\d{2,3}[XA]?|gfx\w{3,4})\b", text)}
    models = [
        model
        for (vendor, _), model in _models().items()
        if vendor == AMD and (model.name.split()[2] in words or model.arch.upper() in words)
    ]
    archs = {model.arch for model in models}
    if len(archs) != 1:
        return None
    named = [model for model in models if model.name.split()[2] in words]
    arch = models[0].arch
    return named[0] if named else GpuModel(name=f"AMD {arch}", arch=arch, links="maybe")
