"""What readers of formats need for a topology: numbered ids, CPU masks, links of sockets."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from collbench.core.errors import UsageError
from collbench.core.grouping import grouped
from collbench.machine.topology import rates
from collbench.machine.topology.model import Link, Node, spans

ASSUMED = (
    "the file does not number its GPUs: numbers are assumed, by PCI address, as nvidia-smi and"
    " rocm-smi count them"
)
# Of one file: 512 hosts of 8 GPUs and 8 NICs have 20,000.
MAX_NODES = 1 << 15
MAX_CPUS = 256
_MAX_MASK_DIGITS = 4096
# Parts of names that nvidia-smi and hwloc give GPUs: their compute capability (NVIDIA's table of
# CUDA GPUs).
_ARCH_OF_PART = (
    {"P100": 60, "V100": 70, "GV100": 70}
    | dict.fromkeys(("A100", "A800", "A30"), 80)
    | dict.fromkeys(("A40", "A6000", "A5000", "3090"), 86)
    | dict.fromkeys(("2080", "8000"), 75)
    | dict.fromkeys(("H100", "H200", "H800", "H20", "GH200"), 90)
    | dict.fromkeys(("B100", "B200", "GB200"), 100)
    | dict.fromkeys(("B300", "GB300"), 103)
)


class Ids:
    """Ids of one topology: the kind and a number, the wanted one if it is free."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, kind: str, wanted: int = -1) -> str:
        """An id that is still free. Raises UsageError if there are too many."""
        name = f"{kind}{wanted}"
        if wanted < 0 or name in self._used:
            number = self._next.get(kind, 0)
            while f"{kind}{number}" in self._used:
                number += 1
            self._next[kind] = number + 1
            name = f"{kind}{number}"
        self._used.add(name)
        if len(self._used) > MAX_NODES:
            raise UsageError(f"more than {MAX_NODES} devices: no such machine is known")
        return name


def number_of(id_: str) -> int:
    """The number in an id.

    >>> number_of("gpu12")
    12
    """
    return int(id_.lstrip("abcdefghijklmnopqrstuvwxyz"))


def renamed(
    nodes: Iterable[Node], links: Iterable[Link], ids: Mapping[str, str]
) -> tuple[list[Node], list[Link]]:
    """Nodes and links with other ids for some nodes."""
    return [replace(node, id=ids.get(node.id, node.id)) for node in nodes], [
        replace(link, a=ids.get(link.a, link.a), b=ids.get(link.b, link.b)) for link in links
    ]


def mask_cpus(mask: str) -> str | None:
    """CPUs of a mask in hexadecimal words of 32 bits, the highest first, as the kernel
    (00ff,ffffffff) and hwloc (0x3,,0x1) write it.

    None if it is no such mask.

    >>> (mask_cpus("000000ff,ffff0000"), mask_cpus("0x00000003,,0x1"), mask_cpus("0-3"))
    ('16-39', '0,64-65', None)
    """
    bits = mask_bits(mask)
    if bits is None:
        return None
    return spans(place for place in range(bits.bit_length()) if bits >> place & 1)


def mask_bits(mask: str) -> int | None:
    """A mask as one number; None if it is none."""
    highest, *rest = (part.strip().lower().removeprefix("0x") for part in mask.split(","))
    if (
        len(mask) > _MAX_MASK_DIGITS
        or not all(re.fullmatch("[0-9a-f]{0,8}", part) for part in rest)
        or not re.fullmatch("[0-9a-f]*", highest)
    ):
        return None
    return int("".join([highest, *(part.rjust(8, "0") for part in rest)]) or "0", 16)


def cpus_mask(cpus: str) -> str:
    """The opposite of mask_cpus, in the kernel's way; nothing for what is no list of
    CPUs.

    >>> cpus_mask("16-39"), cpus_mask("")
    ('000000ff,ffff0000', '')
    """
    bits = 0
    for run in filter(None, cpus.split(",")):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", run)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            return ""
        bits |= (1 << last + 1) - (1 << first)
    text = f"{bits:x}"
    text = text.rjust(-(-len(text) // 8) * 8, "0")
    return ",".join(text[place : place + 8] for place in range(0, len(text), 8)) if bits else ""


def socket_links(cpus: Sequence[Node]) -> tuple[Link, ...]:
    """Links between all CPUs of each host, with rates where their facts (arch, vendor, familyid,
    modelid) identify them.
    """
    links = []
    for here in grouped((cpu.host, cpu) for cpu in cpus).values():
        for a, b in combinations(here, 2):
            gbs, source = _socket_rate(a) or (None, "")
            links.append(Link(a=a.id, b=b.id, kind="socket", usable_gbs=gbs, source=source))
    return tuple(links)


def _socket_rate(cpu: Node) -> tuple[float, str] | None:
    # NCCL identifies Arm's and IBM's CPUs by their architecture alone (topo.cc).
    vendor = {"arm64": "ARM", "aarch64": "ARM", "ppc64": "IBM", "ppc64le": "IBM"}.get(
        cpu.fact("arch"), cpu.fact("vendor")
    )
    if vendor != "GenuineIntel":
        return rates.socket(vendor, 0, 0)
    family, model = (
        int(text) if text.isdecimal() and len(text) < 10 else -1
        for text in (cpu.fact("familyid"), cpu.fact("modelid"))
    )
    return rates.socket(vendor, family, model) if model >= 0 else None


def arch_of_name(name: str) -> int:
    """The compute capability of a GPU of that name; 0 if the name identifies none that has NVLink.

    >>> (
    ...     arch_of_name("Tesla V100-SXM3-32GB-H"),
    ...     arch_of_name("NVIDIA H200"),
    ...     arch_of_name("NVIDIA L40S"),
    ... )
    (70, 90, 0)
    """
    parts = set(re.split(r"[^A-Z0-9]+", name.upper()))
    return next((arch for part, arch in _ARCH_OF_PART.items() if part in parts), 0)


def limit_cpus(cpus: Iterable[Node], name: str) -> None:
    """Raises UsageError where a host has more CPUs than links between all of them allow for."""
    hosts = Counter(cpu.host for cpu in cpus if cpu.kind == "cpu")
    if max(hosts.values(), default=0) > MAX_CPUS:
        raise UsageError(f"{name}: more than {MAX_CPUS} CPUs: no such machine is known")
