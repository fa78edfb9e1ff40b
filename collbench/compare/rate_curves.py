"""Curves of rates: a backend's best rate at each size of one workload."""

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collbench.compare.best import Errors
from collbench.core.collectives import collective
from collbench.core.limits import SURE_Z
from collbench.core.peers import is_peer
from collbench.core.record import Record
from collbench.core.rows import (
    conditions_of,
    fastest,
    is_own_choice,
    is_timed,
    median_of,
    own_form,
    times_of,
)
from collbench.core.verdict import luck
from collbench.machine.gpu_kinds import GpuKind, kind_of

_ANY_DEVICE = GpuKind("", "")
# of the last rate but one and the last, either way: the curve has ended rising
_ENDED_RISING = 0.97
_LATENCY = 0.9  # of the time of the next size, at least: a size that takes its latency alone
PEER_MEMORY = ("p2p", "ce")  # transports that move the data over the same links


class CurveKey(NamedTuple):
    """What a curve is of. What does not decide its rate is empty: the reduction of what reduces
    nothing, the root where there is none. hosts 0, group "" and a device without a model or a form:
    not known, or of no interest. transport: of our kernels, where it is not the memory of peers.
    buffers: the user's (see core/knobs.py).
    """

    op: str
    backend: str
    buffers: str
    dtype: str
    redop: str
    root: int
    placement: str
    skew: str
    groups: str
    mix: str
    ranks: int
    hosts: int
    group: str
    transport: str
    device: GpuKind
    conditions: tuple[str, ...]

    def apart(self, other: "CurveKey") -> tuple[str, ...]:
        """The fields in which two keys surely differ."""
        return tuple(
            name
            for name, ours, theirs in zip(self._fields, self, other, strict=True)
            if ours != theirs and not _may_agree(name, ours, theirs)
        )


# what a field of the key is where it may differ
_ANY_VALUE: dict[str, object] = {
    "group": "",
    "hosts": 0,
    "backend": "",
    "buffers": "",
    "transport": "",
    "device": _ANY_DEVICE,
}
ACROSS_CURVES = tuple(name for name in _ANY_VALUE if name != "device")


def _may_agree(name: str, ours: object, theirs: object) -> bool:
    """Whether two values of a field may be the same, because one is not known."""
    if isinstance(ours, GpuKind) and isinstance(theirs, GpuKind):
        return ours.agrees(theirs)
    return name in ("hosts", "group") and not (ours and theirs)


class MeasuredRate(NamedTuple):
    """A bus bandwidth, and the repeats that show how far its time spreads."""

    busbw_gbs: float
    times_us: tuple[float, ...]


RateCurve = dict[int, MeasuredRate]  # by size in bytes


@dataclass(slots=True)
class MeasuredCurve:
    """Rates, and the rows that reached them."""

    rates: RateCurve = field(default_factory=dict)
    rows: dict[int, Record] = field(default_factory=dict)


def rates_at(
    curve: Mapping[int, MeasuredRate], size: int
) -> tuple[MeasuredRate, MeasuredRate] | None:
    """The least and the most that the curve's rate may be at a size; None outside of its sizes.

    Between its own sizes the least is the lower of its neighbours, or that in the time of the
    larger, and the most is the higher of them. Beyond them both are those of its plateau.

    >>> curve = {1024: MeasuredRate(1.0, ()), 4096: MeasuredRate(4.0, ())}
    >>> [rate.busbw_gbs for rate in rates_at(curve, 2048) or ()]
    [2.0, 4.0]
    >>> [rate.busbw_gbs for rate in rates_at({**curve, 1024: MeasuredRate(3.0, ())}, 2048) or ()]
    [3.0, 4.0]
    >>> [rate.busbw_gbs for rate in rates_at({**curve, 8192: MeasuredRate(4.1, ())}, 1 << 20) or ()]
    [4.0, 4.1]
    >>> rates_at(curve, 8192) is None, rates_at(curve, 1024) == (curve[1024],) * 2
    (True, True)
    """
    sizes = sorted(curve)
    place = bisect_left(sizes, size)
    if place < len(sizes) and sizes[place] == size:
        return curve[size], curve[size]
    if place == len(sizes) > 1:
        ends = sorted(curve[size_] for size_ in sizes[-2:])
        is_plateau = ends[0].busbw_gbs >= _ENDED_RISING * ends[1].busbw_gbs
        return (ends[0], ends[1]) if is_plateau else None
    if not 0 < place < len(sizes):
        return None
    smaller, larger = curve[sizes[place - 1]], curve[sizes[place]]
    in_its_time = larger._replace(busbw_gbs=larger.busbw_gbs * size / sizes[place])
    return max(min(smaller, larger), in_its_time), max(smaller, larger)


class RateFloor(NamedTuple):
    """The least rate at a size, and by which of its own sizes a curve shows it."""

    busbw_gbs: float
    sizes: tuple[int, ...]


def floor_at(curve: Mapping[int, MeasuredRate], size: int) -> RateFloor | None:
    """The least that the curve's rate may be at a size, also outside of its sizes: above them its
    last rate where it has risen until then, and below them that in the time of the smallest where
    that is a latency. None where neither is so.

    >>> curve = {1024: MeasuredRate(1.0, ()), 2048: MeasuredRate(2.0, ())}
    >>> floor_at(curve, 4096)
    RateFloor(busbw_gbs=2.0, sizes=(2048,))
    >>> floor_at(curve, 512)
    RateFloor(busbw_gbs=0.5, sizes=(1024,))
    >>> falling = {1024: MeasuredRate(1.0, ()), 2048: MeasuredRate(0.9, ())}
    >>> floor_at(falling, 4096), floor_at(falling, 512)
    (None, None)
    """
    sizes = tuple(sorted(curve))
    place = bisect_left(sizes, size)
    if (rates := rates_at(curve, size)) is not None:
        beside = (size,) if size in curve else sizes[max(0, place - 1) : place + 1]
        return RateFloor(rates[0].busbw_gbs, beside)
    if len(sizes) < 2:
        return None
    ends = sizes[:2] if place == 0 else sizes[-2:]
    smaller, larger = (curve[end].busbw_gbs for end in ends)
    if place and smaller < larger:
        return RateFloor(larger, ends[1:])
    if place == 0 and larger >= _LATENCY * smaller * ends[1] / ends[0]:
        return RateFloor(smaller * size / ends[0], ends[:1])
    return None


def reference_curves(rows: Sequence[Record]) -> dict[CurveKey, RateCurve]:
    """The curves of a reference for rows measured with a launcher or without."""
    return {key: curve.rates for key, curve in rate_curves(rows, {"group"}).items()}


def known_rate(curves_of: Mapping[CurveKey, RateCurve], row: Record) -> float | None:
    """The least rate of a reference for a row, or None; in GB/s of bus bandwidth."""
    key = _key(row, {"group"})
    known = [
        rates[0].busbw_gbs
        for one, curve in curves_of.items()
        if not key.apart(one) and (rates := rates_at(curve, row.size_bytes)) is not None
    ]
    return known[0] if known else None


def rate_curves(
    rows: Sequence[Record], left_out: Collection[str] = ()
) -> dict[CurveKey, MeasuredCurve]:
    """The best rate of every backend at each size; libraries count with their own choice where that
    was measured, and else as forced. left_out: fields that the keys leave open.

    The best of several rows is the luckiest of them: its rate is less by what luck gives.
    """
    cells: dict[CurveKey, dict[int, list[Record]]] = {}
    errors = Errors(rows)
    for row in rows:
        if is_timed(row) and row.busbw_gbs:
            cells.setdefault(_key(row, left_out), {}).setdefault(row.size_bytes, []).append(row)
    found = {}
    for key, sizes in cells.items():
        if (
            key.conditions[:1] == ("forced",)
            and key._replace(conditions=key.conditions[1:]) in cells
        ):
            continue
        found[key] = MeasuredCurve(
            rates={size: _rate(here, errors) for size, here in sizes.items()},
            rows={size: fastest(here) for size, here in sizes.items()},
        )
    return found


def _key(row: Record, left_out: Collection[str] = ()) -> CurveKey:
    conditions = tuple(
        # a check of the data takes no time of the collective
        one
        for one in conditions_of(row.notes)
        if one != "unchecked"
    )
    is_own_kernel = not is_peer(row.backend)
    key = CurveKey(
        op=row.op,
        backend=row.backend,
        buffers=own_form(row),
        dtype=row.dtype,
        redop=row.redop if collective(row.op).is_reduction else "",
        root=row.root if collective(row.op).is_rooted else 0,
        placement=row.placement,
        skew=row.skew,
        groups=row.groups,
        mix=row.mix,
        ranks=row.ranks,
        hosts=row.hosts,
        group=row.group,
        transport=_path(row.transport) if is_own_kernel else "",
        device=kind_of(row.device) if row.device else _ANY_DEVICE,
        conditions=conditions if is_own_kernel or is_own_choice(row) else ("forced", *conditions),
    )
    return CurveKey._make(
        _ANY_VALUE[name] if name in left_out else value
        for name, value in zip(key._fields, key, strict=True)
    )


def _path(transport: str) -> str:
    """The transport of a row without those that serve the memory of peers alike."""
    parts = [part for part in transport.split("+") if part not in (*PEER_MEMORY, "auto")]
    return "+".join(parts)


def _rate(rows: list[Record], errors: Errors) -> MeasuredRate:
    """The best rate of several rows, without what luck gives it."""
    best = fastest(rows)
    error, least = errors.of(best), math.log(median_of(best))
    rivals = sum(math.log(median_of(row)) - least <= SURE_Z * error for row in rows)
    gain = math.exp(luck(error, rivals))
    return MeasuredRate(busbw_gbs=(best.busbw_gbs or 0.0) / gain, times_us=times_of(best))
