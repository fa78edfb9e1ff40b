"""The text of p2pBandwidthLatencyTest, of NVIDIA's CUDA samples.

A matrix of bandwidths with peer access and one without, both one way and both ways at once; half of
the latter's rate is of one direction. Rates are decimal GB/s of 40 MB. What matters is the ratio:
where peer access is slower than the way through the host, it does harm. Its matrices of latency
have no counterpart. Source: cuda-samples, p2pBandwidthLatencyTest.cu, of CUDA 8 to 13.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from collbench.compare.readers.foreign import (
    NUMBER,
    ForeignRemarks,
    ForeignTable,
    devices_line,
    foreign,
    merged,
)
from collbench.compare.readers.log_lines import log_lines
from collbench.core.errors import NoRowError, UsageError
from collbench.core.record import Record
from collbench.core.text import counted, some_of
from collbench.machine.topology.rates import pcie, pcie_of_rate

TOOL = "p2pBandwidthLatencyTest"
HEADING = re.compile(
    r"\[P2P \(Peer-to-Peer\) GPU Bandwidth|(?:Uni|Bi)directional P2P=(?:En|Dis)abled Bandwidth"
    r"|P2P=(?:En|Dis)abled Latency"
)
is_mine = HEADING.search
_MATRIX = re.compile(r"(?P<ways>Uni|Bi)directional P2P=(?P<state>En|Dis)abled Bandwidth.{0,80}")
_OTHER = re.compile(r"P2P=(?:En|Dis)abled Latency|P2P Connectivity Matrix")
_DEVICE = re.compile(r"Device: (?P<number>\d{1,3}), (?P<name>.{1,80}?), pciBusID")
_ACCESS = re.compile(r"Device=(\d{1,3}) CAN(?P<no>NOT)? Access Peer Device=(\d{1,3})")
_COLUMNS = re.compile(r"D\\D((?:\s+\d{1,3})+)\s*\Z")
_ROW = re.compile(r"(\d{1,3})((?:\s+\d{1,9}\.\d{1,4})+)\s*\Z")
_SIZE_BYTES = 40_000_000  # of a copy: ten million numbers of 4 bytes
_SLOWER = 0.9  # of the rate without peer access
_SAME = 1.1
_MOST_NAMED = 4

_Pair = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class _P2pMatrix:
    is_both: bool
    is_enabled: bool
    line: int
    columns: tuple[int, ...] = ()
    rates: dict[_Pair, float] = field(default_factory=dict)


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    remarks, devices = ForeignRemarks("line"), dict[int, str]()
    found, refused = _matrices(text, devices, remarks)
    for one, other in refused[:_MOST_NAMED]:
        names = {devices.get(gpu, "") for gpu in (one, other)}
        why = f": {' and '.join(sorted(names))} are of different kinds" if len(names) > 1 else ""
        remarks.add(f"GPU {one} cannot reach the memory of GPU {other}{why}")
    of_ways = [[one for one in found if one.is_both is is_both] for is_both in (False, True)]
    is_direct = max(map(_gain, of_ways)) >= _SAME
    for matrices in of_ways:
        for said in _judged(matrices, is_direct=is_direct):
            remarks.add(said)
    rows = [
        (ForeignTable(first=one.line, last=one.line, conditions={}), one.line, row)
        for one in found
        for row in _records(one, devices)
    ]
    if not rows:
        able = sum(not access["no"] for access in _ACCESS.finditer(text))
        if able or refused:
            remarks.add(f"{counted(able, 'way')} between GPUs can be direct, {len(refused)} not")
        said = "; ".join(("no matrix of bandwidths between two GPUs is whole", *remarks.texts()))
        hint = "give all that it prints; nvidia-smi topo -p2p r says what refuses peers"
        raise (NoRowError if refused else UsageError)(f"{name}: {said}", hint)
    return merged(rows, name), remarks.texts()


def _matrices(
    text: str, devices: dict[int, str], remarks: ForeignRemarks
) -> tuple[list[_P2pMatrix], list[_Pair]]:
    found: list[_P2pMatrix] = []
    refused: list[_Pair] = []
    current: _P2pMatrix | None = None
    for line in log_lines(text, HEADING):
        said = line.text
        if heading := _MATRIX.search(said):
            current = _P2pMatrix(
                is_both=heading["ways"] == "Bi",
                is_enabled=heading["state"] == "En",
                line=line.number,
            )
            found.append(current)
        elif _OTHER.search(said):
            current = None
        elif device := _DEVICE.search(said):
            devices[int(device["number"])] = device["name"]
        elif access := _ACCESS.search(said):
            refused += [(int(access[1]), int(access[3]))] if access["no"] else []
        elif current is not None and (columns := _COLUMNS.search(said)):
            current.columns = tuple(map(int, columns[1].split()))
        elif current is not None and (row := _ROW.match(said.strip())):
            cells = row[2].split()
            if len(cells) == len(current.columns) and all(map(NUMBER.fullmatch, cells)):
                for column, cell in zip(current.columns, cells, strict=True):
                    current.rates[int(row[1]), column] = float(cell)
    for one in found:
        rows = {row for row, _ in one.rates}
        if lost := [f"GPU {gpu}" for gpu in one.columns if gpu not in rows]:
            gpus = some_of(lost, _MOST_NAMED)
            remarks.add(f"the rows of {gpus} are missing or cut ({{at}})", one.line)
    return found, refused


def _rates(found: Sequence[_P2pMatrix], *, is_enabled: bool) -> dict[_Pair, float]:
    return {
        pair: rate
        for one in found
        if one.is_enabled is is_enabled
        for pair, rate in one.rates.items()
        if pair[0] != pair[1] and rate
    }


def _gain(found: Sequence[_P2pMatrix]) -> float:
    """The most times that a pair is as fast with peer access; 0 if none has both rates."""
    without = _rates(found, is_enabled=False)
    with_it = _rates(found, is_enabled=True).items()
    return max((rate / without[pair] for pair, rate in with_it if pair in without), default=0.0)


def _judged(found: Sequence[_P2pMatrix], *, is_direct: bool) -> Iterator[str]:
    """What the rates with and without peer access say. is_direct: some way gains by it."""
    rates = {enabled: _rates(found, is_enabled=enabled) for enabled in (True, False)}
    gain = _gain(found)
    ways = "both ways" if found and found[0].is_both else "one way"
    slower = [
        f"GPU {a} to {b} {rate:g} against {rates[False][a, b]:g} GB/s"
        for (a, b), rate in rates[True].items()
        if (a, b) in rates[False] and rate < _SLOWER * rates[False][a, b]
    ]
    if slower:
        yield (
            f"P2P is slower than without it, {ways}: {some_of(slower, _MOST_NAMED)}. Look at ACS"
            " and the IOMMU (collbench doctor); until then NCCL_P2P_DISABLE=1 is faster"
        )
    elif gain >= _SAME:
        yield f"P2P is not slower than without it, {ways}: up to {gain:.3g} times as fast"
    elif gain and is_direct:
        yield (
            f"P2P gains nothing {ways}, where it does otherwise: the link of a GPU bounds both"
            f" ({max(rates[True].values()):.3g} GB/s; x16 of PCIe 4.0 gives"
            f" {pcie(4, 16).usable_gbs:.2g}, x8 half of it):"
            " nvidia-smi -q says its width and generation under load"
        )
    elif gain:
        yield (
            f"P2P makes no difference, {ways}: data goes through the host with it and without;"
            " nvidia-smi topo -p2p r says whether driver or kind of GPU refuse it"
        )
    elif rates[True]:
        each = median(rates[True].values()) / (2 if found[0].is_both else 1)
        link = pcie_of_rate(each)
        as_link = f"{each:.3g} GB/s each way, in the median, is what {link} gives; " if link else ""
        yield f"{as_link}what P2P gains, {ways}, cannot be told: no matrix without it is whole here"
    uneven = [
        f"GPU {a} to {b} {rate:g} and back {rates[True][b, a]:g} GB/s"
        for (a, b), rate in rates[True].items()
        if a < b and (b, a) in rates[True] and not 0.5 < rate / rates[True][b, a] < 2
    ]
    if uneven:
        yield f"the two directions differ by more than 2 times: {some_of(uneven, _MOST_NAMED)}"


def _records(one: _P2pMatrix, devices: Mapping[int, str]) -> Iterator[Record]:
    for (a, b), rate in one.rates.items():
        if a == b or not rate:
            continue
        rate = rate / 2 if one.is_both else rate
        way = "" if one.is_both else "one-way "
        method = "p2p" if one.is_enabled else "host"
        yield foreign(
            op="sendrecv",
            backend="p2p-test",
            ranks=2,
            size_bytes=_SIZE_BYTES,
            times_us=[_SIZE_BYTES / rate / 1e3],
            device=devices_line([devices[gpu] for gpu in (a, b) if gpu in devices]),
            versions=TOOL,
            traffic=f"{way}copy-{method} gpus-{a}-{b}",
        )
