"""How fast links are: PCIe from transfer rate, line code and width; NVLink, xGMI and sockets from
tables.
GB/s are decimal and per direction.

raw is what the link carries after its line code. usable is what kernels usually move that store to
a peer's memory, in packets of 128 bytes, which prices are made of: one efficiency for each
generation of a link, none for a machine. What `best_gbs` gives is the highest rate that was ever
measured of the link, which ceilings are made of.
"""

from dataclasses import dataclass, replace
from typing import Literal

from collbench.machine.topology.model import Link

Engine = Literal["stores", "copy engines"]  # what moves bytes over a link; stores: of kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """GB/s per direction, and where they come from."""

    raw_gbs: float
    usable_gbs: float
    source: str


# generation: (GT/s of a lane, payload bits, line bits). PCI-SIG base specifications: 8b/10b up to 5
# GT/s, 128b/130b up to 32 GT/s, from 64 GT/s on PAM4 with FLITs of 256 bytes, of which 236 are
# transactions (6.0, 4.2.3.4).
_PCIE_RATES = {
    1: (2.5, 8, 10),
    2: (5.0, 8, 10),
    3: (8.0, 128, 130),
    4: (16.0, 128, 130),
    5: (32.0, 128, 130),
    6: (64.0, 236, 256),
}
# The share of what the link carries. A write of 128 bytes takes 24 to 28 more for its headers: 0.83
# at most; NCCL's graph counts 12 of 15.75 GB/s for 16 lanes of generation 3, and as much of the
# others (topo.h, PCI_BW): credits and both directions at once cost the rest.
_PCIE_EFFICIENCY = 0.76
# generation: the link whose rate x16 has; and the shares of what is usable that copies reach,
# through sockets and in packets of 256 bytes
_PCIE_NAMES = {
    5: "PCIe 5.0 x16",
    4: "PCIe 4.0 x16 or 5.0 x8",
    3: "PCIe 3.0 x16 or 4.0 x8",
    2: "PCIe 3.0 x8, 4.0 x4 or 2.0 x16",
    1: "PCIe 3.0 x4, 4.0 x2 or 1.0 x16",
}
_LOW, _HIGH = 0.84, 1.2
# generation: GB/s of one link. NVIDIA's whitepapers of P100, V100, A100, H100, Blackwell.
_NVLINK = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}
# Of the line rate: stores go as packets of 128 bytes with 32 of headers and of their own answers:
# 0.8. NVLink 4 was measured: 364 of 450 GB/s (4 x H200, ring of 132 CTAs that store).
_NVLINK_EFFICIENCY = {1: 0.80, 2: 0.80, 3: 0.80, 4: 0.81, 5: 0.80}
# The best rates that were measured, of the line rate: nothing that was ever measured is above.
_NVLINK_BEST: dict[tuple[int, Engine], float] = {
    # 375.7 of 450 GB/s: gather of 1 GiB, 4 x H200, 2026-11-21 (profiles/results/h200x4.csv). Both
    # ways at once stores reach 367.9: allreduce there.
    (4, "stores"): 375.7 / 450,
    # 133.3 of 150 GB/s between two, 399.7 of 450 to one: 4 x GH200, nvbandwidth 0.9, published.
    # Through NVSwitches 395.0 of 450: one pair, 4 x H200, 2026-11-20. Packets of 256 bytes.
    (4, "copy engines"): 133.3 / 150,
}
_NVLINK_SOURCE = "NVIDIA whitepapers; stores in packets of 128 bytes with 32 beside them"
# Compute capability: generation of its NVLink, and the links that a GPU has at most.
_NVLINK_OF_ARCH = {60: 1, 70: 2, 72: 2, 75: 2, 80: 3, 86: 3, 90: 4, 100: 5, 103: 5}
_MOST_LINKS = {60: 4, 70: 6, 72: 1, 75: 2, 80: 12, 86: 4, 90: 18, 100: 18, 103: 18}
# GB/s at most that nvidia-smi nvlink -s prints of a link, and the generation: 25.781 is of NVLink 2
# and 3, which carry the same.
_LINE_RATES = ((20.0, 1), (25.8, 3), (26.6, 4), (53.2, 5))
# Compute capability: GB/s of one link where it is not that of its generation, raw and usable.
# NVIDIA's Ampere GA102 whitepaper: 4 links, 56.25 GB/s together in each direction; NCCL's graph
# counts 12 of a link (topo.h, SM86_NVLINK_BW).
_NVLINK_EXCEPTIONS = {86: (14.0625, 12.0)}
# gfx name: GB/s of one xGMI link, raw and usable. Raw: data sheets of the AMD Instinct MI100 (276
# GB/s both ways over 3 links), MI250X (800 over 8), MI300X (896 over 7) and MI350X (1075 over 7).
# Usable: what RCCL's graph counts (topo.h, XGMI_WIDTH), which of gfx950 is that of gfx942: here as
# much of its higher line rate.
_XGMI = {
    "gfx906": (46.0, 24.0),
    "gfx908": (46.0, 24.0),
    "gfx90a": (50.0, 36.0),
    "gfx942": (64.0, 48.0),
    "gfx950": (76.8, 57.6),
}
ONE_XGMI = ("gfx942", "gfx950")  # architectures with one link between every two of eight
_XGMI_SOURCE = "AMD Instinct data sheet; RCCL's share of it"
# (vendor, family, least model, cores' name, GB/s): what GPUs get through between two sockets, by
# NCCL's graph (topo.h). Not the line rate.
_SOCKETS = (
    ("GenuineIntel", 6, 0xCF, "Emerald Rapids", 40.0),
    ("GenuineIntel", 6, 0x8F, "Sapphire Rapids", 22.0),
    ("GenuineIntel", 6, 0x55, "Skylake", 10.0),
    ("GenuineIntel", 6, 0, "Broadwell or older", 6.0),
    ("AuthenticAMD", 0, 0, "AMD", 16.0),
    ("IBM", 0, 0, "POWER9", 32.0),
    ("ARM", 0, 0, "Arm", 6.0),
)


def pcie(generation: int, lanes: int) -> Rate:
    """A PCIe link of generation 1 to 6. Raises KeyError for another.

    >>> round(pcie(3, 16).raw_gbs, 2), round(pcie(5, 16).raw_gbs, 1), round(pcie(1, 4).raw_gbs, 1)
    (15.75, 63.0, 1.0)
    """
    transfers, payload, line = _PCIE_RATES[generation]
    raw = transfers / 8 * payload / line * lanes
    code = "8b/10b" if line == 10 else "128b/130b" if line == 130 else "PAM4, FLITs"
    return Rate(
        raw_gbs=raw,
        usable_gbs=raw * _PCIE_EFFICIENCY,
        source=f"{transfers:g} GT/s x {lanes}, {code}; NCCL's share of it, {_PCIE_EFFICIENCY:.0%}",
    )


def pcie_of_rate(gbs: float) -> str:
    """The links of PCIe over which copies reach a rate one way, in words; empty if none.

    >>> pcie_of_rate(26.3), pcie_of_rate(6.1), pcie_of_rate(90.0)
    ('PCIe 4.0 x16 or 5.0 x8', 'PCIe 3.0 x8, 4.0 x4 or 2.0 x16', '')
    """
    shares = {name: gbs / pcie(number, 16).usable_gbs for number, name in _PCIE_NAMES.items()}
    return next((name for name, share in shares.items() if _LOW < share <= _HIGH), "")


def pcie_generation(speed: str) -> int:
    """The generation of a speed as sysfs and NCCL write it; 0 for one that is none.

    >>> [pcie_generation(text) for text in ("32.0 GT/s PCIe", "16 GT/s", "8", "Unknown")]
    [5, 4, 3, 0]
    """
    try:
        transfers = float(speed.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return 0
    return next(
        (generation for generation, (rate, _, _) in _PCIE_RATES.items() if rate == transfers), 0
    )


def pcie_speed(generation: int) -> str:
    """The speed of a generation as sysfs and NCCL write it; empty for one that is none.

    >>> pcie_speed(5), pcie_speed(0)
    ('32.0 GT/s PCIe', '')
    """
    return f"{_PCIE_RATES[generation][0]} GT/s PCIe" if generation in _PCIE_RATES else ""


def nvlink(generation: int, links: int) -> Rate:
    """A bundle of NVLinks of generation 1 to 5. Raises KeyError for another.

    >>> nvlink(4, 18).raw_gbs, round(nvlink(4, 18).usable_gbs)
    (450.0, 364)
    """
    raw = _NVLINK[generation] * links
    source = f"NVLink {generation}, {_NVLINK[generation]:g} GB/s a link; {_NVLINK_SOURCE}"
    return Rate(raw_gbs=raw, usable_gbs=raw * _NVLINK_EFFICIENCY[generation], source=source)


def best_gbs(link: Link, engine: Engine) -> float | None:
    """GB/s that a link carries at most by an engine: the best that was measured of its generation.
    Where none was, what stores usually reach, and of copy engines what the line carries. None if no
    rate is known.

    >>> link = nvlink_link("a", "b", 4, 18)
    >>> [round(best_gbs(link, engine) or 0.0) for engine in ("stores", "copy engines")]
    [376, 400]
    """
    if link.usable_gbs is None:
        return None
    if link.kind == "nvlink" and (link.generation, engine) in _NVLINK_BEST:
        usual = _NVLINK_EFFICIENCY[link.generation]
        return link.usable_gbs * _NVLINK_BEST[link.generation, engine] / usual
    if engine == "copy engines":
        return max(link.usable_gbs, link.raw_gbs or 0.0)
    return link.usable_gbs


def most_links(arch: int) -> int:
    """How many NVLinks a GPU of a compute capability has at most; 0 if unknown or none.

    >>> most_links(90), most_links(89)
    (18, 0)
    """
    return _MOST_LINKS.get(arch, 0)


def nvlink_generation(arch: int) -> int:
    """The generation of the NVLinks of a compute capability (90 for 9.0); 0 if unknown or none."""
    return _NVLINK_OF_ARCH.get(arch, 0)


def nvlink_generation_of_speed(speed: str) -> int:
    """The generation of NVLinks of which nvidia-smi prints that speed in GB/s: the line rate, which
    is up to 7 % above what the links carry. 0 if it is that of none.

    >>> [nvlink_generation_of_speed(text) for text in ("25.781", "26.562", "53.125", "")]
    [3, 4, 5, 0]
    """
    try:
        gbs = float(speed)
    except ValueError:
        return 0
    return next((generation for most, generation in _LINE_RATES if 0.9 * most < gbs <= most), 0)


def socket(vendor: str, family: int, model: int) -> tuple[float, str] | None:
    """The rate that GPUs reach between two sockets of such CPUs, and its source, if known."""
    for name, of_family, least, cores, gbs in _SOCKETS:
        if vendor == name and (not of_family or (family == of_family and model >= least)):
            return gbs, f"NCCL's figure for {cores}"
    return None


def pcie_link(a: str, b: str, generation: int, lanes: int, note: str = "") -> Link:
    """A PCIe link between two nodes; without rates if its generation or width is unknown."""
    link = Link(a=a, b=b, kind="pcie", count=lanes, generation=generation, note=note)
    if not lanes or generation not in _PCIE_RATES:
        return link
    return _with_rate(link, pcie(generation, lanes))


def nvlink_link(a: str, b: str, generation: int, links: int, note: str = "", arch: int = 0) -> Link:
    """A bundle of NVLinks between two nodes; without rates if the generation is unknown. arch: the
    compute capability, whose links may be slower than others of the generation.

    >>> nvlink_link("a", "b", 3, 4, arch=86).raw_gbs, nvlink_link("a", "b", 3, 4).raw_gbs
    (56.25, 100.0)
    """
    link = Link(a=a, b=b, kind="nvlink", count=links, note=note)
    if generation not in _NVLINK:
        return link
    link = replace(link, generation=generation)
    if arch in _NVLINK_EXCEPTIONS:
        raw, usable = _NVLINK_EXCEPTIONS[arch]
        source = f"NVLink {generation} of compute capability {arch / 10}, {raw:g} GB/s a link"
        return replace(link, raw_gbs=raw * links, usable_gbs=usable * links, source=source)
    return _with_rate(link, nvlink(generation, links))


def xgmi_link(a: str, b: str, gfx: str, links: int) -> Link:
    """A bundle of AMD's links between two GPUs; without rates if their architecture is unknown.

    >>> xgmi_link("a", "b", "gfx942", 1).usable_gbs, xgmi_link("a", "b", "", 1).usable_gbs
    (48.0, None)
    """
    link = Link(a=a, b=b, kind="xgmi", count=links)
    if gfx not in _XGMI:
        return link
    raw, usable = _XGMI[gfx]
    source = f"{gfx}, {raw:g} GB/s a link; {_XGMI_SOURCE}"
    return replace(link, raw_gbs=raw * links, usable_gbs=usable * links, source=source)


def gfx_name(text: str) -> str:
    """AMD's architecture as RCCL writes it, whose older releases wrote numbers (910 is gfx90a).

    >>> gfx_name("910"), gfx_name("gfx942:sramecc+:xnack-"), gfx_name("908"), gfx_name("940")
    ('gfx90a', 'gfx942', 'gfx908', 'gfx942')
    """
    name = text.strip().lower().partition(":")[0].removeprefix("gfx")
    name = {"910": "90a", "940": "942", "941": "942"}.get(name, name)
    return f"gfx{name}" if name else ""


def _with_rate(link: Link, rate: Rate) -> Link:
    return replace(link, raw_gbs=rate.raw_gbs, usable_gbs=rate.usable_gbs, source=rate.source)


def link_label(link: Link) -> str:
    """A link in words.

    >>> link_label(pcie_link("a", "b", 4, 16)), link_label(nvlink_link("a", "b", 4, 18))
    ('PCIe 4.0 x16', 'NVLink 4 x18')
    """
    if link.kind == "pcie":
        generation = f"{link.generation}.0" if link.generation else "?"
        return f"PCIe {generation} x{link.count or '?'}"
    if link.kind == "nvlink":
        return f"NVLink {link.generation or '?'} x{link.count or '?'}"
    if link.kind == "xgmi":
        return f"XGMI x{link.count or '?'}"
    return {"c2c": "NVLink-C2C", "socket": "socket link", "network": "network"}[link.kind]
