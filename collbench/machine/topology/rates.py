"""How fast links are: PCIe from transfer rate, line code and width; NVLink and sockets from tables.
GB/s are decimal and per direction.

raw is what the link carries after its line code. usable is what kernels can move that store to a
peer's memory, in packets of 128 bytes: one efficiency for each generation of a link, none for a
machine.
"""

from dataclasses import dataclass, replace

from collbench.machine.topology.model import Link


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
# generation: GB/s of one link. NVIDIA's whitepapers of P100, V100, A100, H100, Blackwell.
_NVLINK = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}
# Of the line rate: stores go as packets of 128 bytes with 32 of headers and of their own answers:
# 0.8. NVLink 4 was measured: 364 of 450 GB/s (4 x H200, ring of 132 CTAs that store); copy engines
# send 256 bytes a packet and reach 0.87.
_NVLINK_EFFICIENCY = {1: 0.80, 2: 0.80, 3: 0.80, 4: 0.81, 5: 0.80}
_NVLINK_SOURCE = "NVIDIA whitepapers; stores in packets of 128 bytes with 32 beside them"
# Compute capability: generation of its NVLink.
_NVLINK_OF_ARCH = {60: 1, 70: 2, 72: 2, 80: 3, 86: 3, 87: 3, 90: 4, 100: 5, 103: 5}
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


def nvlink_generation(arch: int) -> int:
    """The generation of the NVLinks of a compute capability (90 for 9.0); 0 if unknown or none."""
    return _NVLINK_OF_ARCH.get(arch, 0)


def socket(vendor: str, family: int, model: int) -> tuple[float, str] | None:
    """The rate that GPUs reach between two sockets of such CPUs, and its source, if known."""
    for name, of_family, least, cores, gbs in _SOCKETS:
        if vendor == name and (not of_family or family == of_family) and model >= least:
            return gbs, f"NCCL's figure for {cores}"
    return None


def pcie_link(a: str, b: str, generation: int, lanes: int, note: str = "") -> Link:
    """A PCIe link between two nodes; without rates if its generation or width is unknown."""
    link = Link(a=a, b=b, kind="pcie", count=lanes, generation=generation, note=note)
    if not lanes or generation not in _PCIE_RATES:
        return link
    return _with_rate(link, pcie(generation, lanes))


def nvlink_link(a: str, b: str, generation: int, links: int, note: str = "") -> Link:
    """A bundle of NVLinks between two nodes; without rates if the generation is unknown."""
    link = Link(a=a, b=b, kind="nvlink", count=links, note=note)
    if generation not in _NVLINK:
        return link
    return _with_rate(replace(link, generation=generation), nvlink(generation, links))


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
        return f"NVLink {link.generation or '?'} x{link.count}"
    return {"c2c": "NVLink-C2C", "socket": "socket link", "network": "network"}[link.kind]
