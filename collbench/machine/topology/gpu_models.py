"""What a GPU is by its PCI ids: its name, its architecture, and whether it has links to its peers.

Sources: the PCI ID repository (pci.ids of 2026-08-22); AMD's list (libdrm's amdgpu.ids) for 74a8,
74b6, 75b0 and 75b3, which it lacks; NVIDIA's list of product names (open-gpu-kernel-modules,
README.md). Whether a product has NVLinks or xGMI: its data sheet. A board of the SXM form always
has them; a card may have a bridge or not; others have none.
"""

import re
from dataclasses import dataclass
from typing import Literal

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


_NVIDIA = """
1023 35 never Tesla K40m            | 102d 37 never Tesla K80
15f7 60 never Tesla P100-PCIE-12GB  | 15f8 60 never Tesla P100-PCIE-16GB
15f9 60 always Tesla P100-SXM2-16GB | 1b38 61 never Tesla P40
1bb3 61 never Tesla P4              | 1d81 70 never NVIDIA TITAN V
1db1 70 always Tesla V100-SXM2-16GB | 1db2 70 always Tesla V100-DGXS-16GB
1db3 70 never Tesla V100-FHHL-16GB  | 1db4 70 never Tesla V100-PCIE-16GB
1db5 70 always Tesla V100-SXM2-32GB | 1db6 70 never Tesla V100-PCIE-32GB
1db7 70 always Tesla V100-DGXS-32GB | 1db8 70 always Tesla V100-SXM3-32GB
1dba 70 maybe Quadro GV100          | 1df5 70 always Tesla V100-SXM2-16GB
1df6 70 never Tesla V100S-PCIE-32GB | 1e02 75 maybe NVIDIA TITAN RTX
1e04 75 maybe NVIDIA GeForce RTX 2080 Ti | 1e07 75 maybe NVIDIA GeForce RTX 2080 Ti
1e30 75 maybe Quadro RTX 6000       | 1eb8 75 never Tesla T4
20b0 80 always NVIDIA A100-SXM4-40GB | 20b1 80 maybe NVIDIA A100-PCIE-40GB
20b2 80 always NVIDIA A100-SXM4-80GB | 20b3 80 always NVIDIA A100-SXM-64GB
20b5 80 maybe NVIDIA A100 80GB PCIe | 20b7 80 maybe NVIDIA A30
20bd 80 always NVIDIA A800-SXM4-40GB | 20f1 80 maybe NVIDIA A100-PCIE-40GB
20f3 80 always NVIDIA A800-SXM4-80GB | 20f5 80 maybe NVIDIA A800 80GB PCIe
2203 86 maybe NVIDIA GeForce RTX 3090 Ti | 2204 86 maybe NVIDIA GeForce RTX 3090
2206 86 never NVIDIA GeForce RTX 3080 | 2230 86 maybe NVIDIA RTX A6000
2231 86 maybe NVIDIA RTX A5000      | 2235 86 maybe NVIDIA A40
2236 86 never NVIDIA A10            | 2237 86 never NVIDIA A10G
2321 90 maybe NVIDIA H100 NVL       | 2322 90 maybe NVIDIA H800 PCIe
2324 90 always NVIDIA H800          | 2329 90 always NVIDIA H20
2330 90 always NVIDIA H100 80GB HBM3 | 2331 90 maybe NVIDIA H100 PCIe
2335 90 always NVIDIA H200          | 233a 90 maybe NVIDIA H800 NVL
233b 90 maybe NVIDIA H200 NVL       | 2342 90 maybe NVIDIA GH200 120GB or 480GB
2348 90 maybe NVIDIA GH200 144G HBM3e | 20f6 80 maybe NVIDIA A800 40GB PCIe
232c 90 always NVIDIA H20-3e        | 2337 90 always NVIDIA H100 SXM5 64GB
2338 90 always NVIDIA H100 SXM5 96GB | 2339 90 always NVIDIA H100 SXM5 94GB
2684 89 never NVIDIA GeForce RTX 4090 | 26b1 89 never NVIDIA RTX 6000 Ada Generation
26b5 89 never NVIDIA L40            | 26b9 89 never NVIDIA L40S
27b8 89 never NVIDIA L4             | 2901 100 always NVIDIA B200
2941 100 always NVIDIA GB200        | 3182 103 always NVIDIA B300
31c2 103 always NVIDIA GB300        | 31c3 103 always NVIDIA GB300
2909 100 always NVIDIA B200 168GB   | 29bc 100 always NVIDIA B100
2b85 120 never NVIDIA GeForce RTX 5090
2bb1 120 never NVIDIA RTX PRO 6000 Blackwell Workstation Edition
2bb5 120 never NVIDIA RTX PRO 6000 Blackwell Server Edition
"""
_AMD = """
66a1 gfx906 maybe AMD Instinct MI50  | 738c gfx908 maybe AMD Instinct MI100
738e gfx908 maybe AMD Instinct MI100 | 74b6 gfx942 always AMD Instinct MI308X
7408 gfx90a always AMD Instinct MI250X | 740c gfx90a always AMD Instinct MI250X
740f gfx90a maybe AMD Instinct MI210 | 74a0 gfx942 always AMD Instinct MI300A
74a1 gfx942 always AMD Instinct MI300X | 74a9 gfx942 always AMD Instinct MI300X
74b5 gfx942 always AMD Instinct MI300X VF | 74bd gfx942 always AMD Instinct MI300X HF
74a2 gfx942 always AMD Instinct MI308X | 74a8 gfx942 always AMD Instinct MI308X HF
74a5 gfx942 always AMD Instinct MI325X | 74b9 gfx942 always AMD Instinct MI325X VF
75a0 gfx950 always AMD Instinct MI350X | 75b0 gfx950 always AMD Instinct MI350X VF
75a3 gfx950 always AMD Instinct MI355X | 75b3 gfx950 always AMD Instinct MI355X VF
"""
_ENTRY = re.compile(r"([0-9a-f]{4}) (\w+) (always|maybe|never) ([^|\n]+?) *(?:\||$)", re.MULTILINE)
_MODELS = {
    (vendor, f"0x{device}"): GpuModel(name=name, arch=arch, links=links)
    for vendor, table in ((NVIDIA, _NVIDIA), (AMD, _AMD))
    for device, arch, links, name in _ENTRY.findall(table)
}
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
    return _MODELS.get((vendor.lower(), device.lower()))


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
        for (vendor, _), model in _MODELS.items()
        if vendor == AMD and (model.name.split()[2] in words or model.arch.upper() in words)
    ]
    archs = {model.arch for model in models}
    if len(archs) != 1:
        return None
    named = [model for model in models if model.name.split()[2] in words]
    arch = models[0].arch
    return named[0] if named else GpuModel(name=f"AMD {arch}", arch=arch, links="maybe")
