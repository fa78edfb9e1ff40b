"""What readers of several formats need to build a topology: numbered ids, CPU masks, links
between sockets.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations

from collbench.machine.topology import rates
from collbench.machine.topology.model import Link, Node, spans
from collbench.util.errors import UsageError

# Of one file. The largest machine that is one NVLink domain has 72 GPUs, 36 CPUs and 72 NICs.
MAX_NODES = 4096
MAX_CPUS = 256
_MAX_MASK_DIGITS = 4096
# Parts of names that nvidia-smi and hwloc give GPUs: their compute capability (NVIDIA's table of
# CUDA GPUs).
_ARCHS = (
    ("P100", 60),
    ("V100", 70),
    ("A100", 80),
    ("A800", 80),
    ("A30", 80),
    ("H100", 90),
    ("H200", 90),
    ("H800", 90),
    ("H20", 90),
    ("GH200", 90),
)
_ARCHS_BLACKWELL = (("B100", 100), ("B200", 100), ("GB200", 100), ("B300", 103), ("GB300", 103))


def printable(text: str) -> str:
    r"""The text without what could steer a terminal.

    >>> printable("a\x1b[2Jb"), printable("fine")
    ('a\ufffd[2Jb', 'fine')
    """
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() else "\ufffd" for one in text)
    )


class Ids:
    """Ids of one topology: the kind and a number, the wanted one if it is free."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, kind: str, wanted: int = -1) -> str:
        """An id that is still free. Raises UsageError if there are too many."""
        name = f"{kind}{wanted}"
        if wanted < 0 or name in self._taken:
            number = self._next.get(kind, 0)
            while f"{kind}{number}" in self._taken:
                number += 1
            self._next[kind] = number + 1
            name = f"{kind}{number}"
        self._taken.add(name)
        if len(self._taken) > MAX_NODES:
            raise UsageError(f"more than {MAX_NODES} devices: no such machine is known")
        return name


def number_of(id_: str) -> int:
    """The number in an id.

    >>> number_of("gpu12")
    12
    """
    return int(id_.lstrip("abcdefghijklmnopqrstuvwxyz"))


def mask_cpus(mask: str) -> str | None:
    """CPUs of a mask in hexadecimal words of 32 bits, the highest first, as the kernel
    (00ff,ffffffff) and hwloc (0x3,,0x1) write it.

    None if it is no such mask.

    >>> (mask_cpus("000000ff,ffff0000"), mask_cpus("0x00000003,,0x1"), mask_cpus("0-3"))
    ('16-39', '0,64-65', None)
    """
    bits = mask_bits(mask)
    return (
        None
        if bits is None
        else spans(place for place in range(bits.bit_length()) if bits >> place & 1)
    )


def mask_bits(mask: str) -> int | None:
    """A mask as one number; None if it is none."""
    words = [word.strip().lower().removeprefix("0x") for word in mask.split(",")]
    if (
        len(mask) > _MAX_MASK_DIGITS
        or not all(re.fullmatch("[0-9a-f]{0,8}", word) for word in words[1:])
        or not re.fullmatch("[0-9a-f]*", words[0])
    ):
        return None
    return int("".join([words[0], *(word.rjust(8, "0") for word in words[1:])]) or "0", 16)


def cpus_mask(cpus: str) -> str:
    """The opposite of mask_cpus, in the kernel's way; nothing for what is no list of
    CPUs.

    >>> cpus_mask("16-39"), cpus_mask("")
    ('000000ff,ffff0000', '')
    """
    bits = 0
    for run in filter(None, cpus.split(",")):
        first, _, last = run.partition("-")
        if (
            not re.fullmatch(r"\d{1,5}", first)
            or not re.fullmatch(r"\d{1,5}", last or first)
            or int(first) > int(last or first)
        ):
            return ""
        bits |= (1 << int(last or first) + 1) - (1 << int(first))
    text = f"{bits:x}"
    text = text.rjust(-(-len(text) // 8) * 8, "0")
    return ",".join(text[place : place + 8] for place in range(0, len(text), 8)) if bits else ""


def socket_links(cpus: Sequence[Node]) -> tuple[Link, ...]:
    """Links between all CPUs of each host, with rates where their facts (arch, vendor, familyid,
    modelid) identify them.
    """
    return tuple(
        Link(
            a=a.id,
            b=b.id,
            kind="socket",
            usable_gbs=rate[0] if rate else None,
            source=rate[1] if rate else "",
        )
        for a, b in combinations(cpus, 2)
        if a.host == b.host
        for rate in (_socket_rate(a),)
    )


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
    words = set(re.split(r"[^A-Z0-9]+", name.upper()))
    return next((arch for part, arch in (*_ARCHS, *_ARCHS_BLACKWELL) if part in words), 0)


def limit_cpus(cpus: Iterable[Node], name: str) -> None:
    """Raises UsageError for more CPUs than links between all of them are sensible for."""
    if len(tuple(cpus)) > MAX_CPUS:
        raise UsageError(f"{name}: more than {MAX_CPUS} CPUs: no such machine is known")
