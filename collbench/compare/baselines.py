"""Whether rates are normal: curves of a file against those of a reference, shipped or given, and
the sizes at which they fall behind or are faster.

A curve is one backend's best rate at each size of one workload, in which everything that decides
the rate is alike: its key (CurveKey). What the rate may depend on and the key has not, such as
NCCL's version, is named beside it (differences). Between two sizes of the reference only the lower
of their rates must be reached, because a library changes its protocol somewhere between them, or
the time of the larger, where that asks for more: no size takes longer than a larger one. Beyond the
largest its plateau counts, where its last two rates are alike; else nothing does outside its sizes.

Each share of the reference's rate has an interval, of the repeats of both sides and of what rows
differ by from run to run. Behind and faster are judged for all sizes together, so that chance finds
either in one file of twenty where nothing is wrong.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from collbench.compare.best import Errors
from collbench.compare.join import is_reduction
from collbench.compare.load import ResultFile, load
from collbench.compare.rows import (
    conditions_of,
    fastest,
    is_own_choice,
    is_timed,
    median_of,
    own_form,
    times_of,
)
from collbench.core import catalog
from collbench.core.collectives import collective
from collbench.core.errors import CollbenchError, UsageError, unknown
from collbench.core.limits import (
    BEHIND_SHARE,
    BETWEEN_RUNS,
    BETWEEN_SINGLE_RUNS,
    SURE_SCALES,
    SURE_Z,
)
from collbench.core.peers import is_peer
from collbench.core.record import Record
from collbench.core.verdict import beyond_chance, deviate, luck, scale_of
from collbench.machine.gpu_kinds import GpuKind, kind_of, kinds_of

if TYPE_CHECKING:
    pass

RateVerdict = Literal["behind", "faster", "cannot tell", "normal"]
RATE_VERDICTS: tuple[RateVerdict, ...] = get_args(RateVerdict)
_ANY_DEVICE = GpuKind("", "")
_PEER_MEMORY = ("p2p", "ce")  # transports that move the data over the same links
_WITH_NVLS = ("H", "B", "GB", "GH")  # models of GPUs, from Hopper on
_UNKNOWN = "not known"
_PLATEAU = 0.97  # of the last rate but one and the last, either way: the curve has ended rising
_NCCL_VERSION = re.compile(r"\bnccl ([\d.]+)")
_NCCL_VARIABLE = re.compile(r"\b(NCCL_\w+)=(\S+)")
# what is installed, which is the version; and what has a line of its own
_NAMED_ELSEWHERE = ("NCCL_VERSION", "NCCL_NVLS_ENABLE")
_OWN_LIBRARIES = re.compile(r"\b(collbench|cuda|driver|torch) ([\w.]+)")


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
    """Rates, and what stands beside them in their rows."""

    rates: RateCurve = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    hosts: set[int] = field(default_factory=set)
    transports: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSpan:
    """Neighbouring sizes with one verdict, the range of their shares of the reference's rate, and
    that of the intervals of these.
    """

    first: int
    last: int
    sizes: int
    verdict: RateVerdict
    least: float
    most: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveVerdict:
    """One curve against the reference's. outside: sizes that the reference's curve does not
    reach.
    """

    key: CurveKey
    spans: tuple[RateSpan, ...]
    outside: tuple[int, ...]

    def has(self, *verdicts: RateVerdict) -> bool:
        """Whether any size has one of the verdicts."""
        return any(span.verdict in verdicts for span in self.spans)

    def sizes(self, *verdicts: RateVerdict) -> int:
        """How many sizes have one of the verdicts."""
        return sum(span.sizes for span in self.spans if span.verdict in verdicts)


class Apart(NamedTuple):
    """Curves that the reference has not: in which fields the nearest of its curves differs, with
    both values; none where it has nothing of the operation by the backend, or no such size.
    """

    keys: tuple[CurveKey, ...]
    fields: tuple[tuple[str, str, str], ...]

    @property
    def remedy(self) -> str:
        """The options that compare them still, or nothing."""
        names = [name for name, *_ in self.fields]
        if not names or set(names) - {*ACROSS_CURVES, "device"}:
            return ""
        across = [name for name in ACROSS_CURVES if name in names]
        options = [f"--across {','.join(across)}"] if across else []
        return " ".join([*options, *(["--force"] if "device" in names else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A file against a reference. apart: what was not compared, and why. differences: of what was
    compared, beside the rates: a name, the file's value and the reference's.
    """

    verdicts: tuple[CurveVerdict, ...]
    apart: tuple[Apart, ...]
    differences: tuple[tuple[str, str, str], ...]

    def sizes_in_doubt(self, behind: float) -> int:
        """How many sizes were measured below that share of the reference, perhaps by chance."""
        spans = [span for verdict in self.verdicts for span in verdict.spans]
        in_doubt = [one for one in spans if one.verdict == "cannot tell" and one.least < behind]
        return sum(one.sizes for one in in_doubt)


def reference(
    name: str, rows: Sequence[Record], *, across: Collection[str] = (), is_forced: bool = False
) -> ResultFile:
    """A shipped reference by name, any file by its path; without a name the shipped one of the
    nearest machine.

    Nearest: the same GPU model and form (is_forced: or another form), then the most curves that it
    has too, then the nearest number of ranks, then a file of ours before a published one. across:
    see judged(). Raises UsageError if there is none.
    """
    shipped = catalog.results()
    known = f"shipped: {', '.join(shipped)}"
    if name:
        if name not in shipped and not Path(name).exists() and name != "-":
            raise unknown("file or reference", name, shipped)
        return _named(name, shipped[name]) if name in shipped else load(Path(name))
    wanted, ranks = kinds_of({row.device for row in rows}), {row.ranks for row in rows}
    left_out = _left_out(across, is_forced=is_forced)
    ours = rate_curves(rows, left_out)
    near: list[tuple[tuple[bool, int, bool, int, bool, str], ResultFile]] = []
    others: list[str] = []
    for label, file in shipped.items():
        loaded = _named(label, file)
        here = kinds_of({row.device for row in loaded.records})
        is_alike = any(one.agrees(two) for one in here for two in wanted)
        if not {one.model for one in here} & {one.model for one in wanted}:
            continue
        if not is_alike and not is_forced:
            others.append(label)
            continue
        apart = min(
            abs(theirs - ours) for theirs in {row.ranks for row in loaded.records} for ours in ranks
        )
        common = len(_common(ours, rate_curves(loaded.records, left_out)))
        order = (not is_alike, -common, not here & wanted, apart, "published" in label, label)
        near.append((order, loaded))
    if not near:
        kinds = ", ".join(sorted(map(str, wanted))) or "a known GPU"
        raise UsageError(
            f"no shipped reference is of {kinds}",
            f"another form of it, with --force: {', '.join(others)}"
            if others
            else f"give one by name, or a file of your own; {known}",
        )
    return min(near, key=lambda entry: entry[0])[1]


def _named(label: str, file: Path) -> ResultFile:
    return replace(load(file), name=label)


def judged(
    rows: Sequence[Record],
    against: Sequence[Record],
    behind: float = BEHIND_SHARE,
    *,
    across: Collection[str] = (),
    is_forced: bool = False,
) -> Judgement:
    """Compare every curve that the reference has too; below that share of its rate is behind.

    across: of ACROSS_CURVES, what may differ. is_forced: devices may differ. Raises UsageError for
    another name in across.
    """
    if wrong := [name for name in across if name not in ACROSS_CURVES]:
        raise UsageError(
            f"--across {wrong[0]}: a curve is the best over all of its values",
            f"with --against these may differ: {', '.join(ACROSS_CURVES)}",
        )
    left_out = _left_out(across, is_forced=is_forced)
    ours, theirs = rate_curves(rows, left_out), rate_curves(against, left_out)
    common = _common(ours, theirs)
    pairs = [(key, same) for key, (same, _) in common.items()]
    shares = [here for _, here in common.values()]
    alone = [key for key in ours if key not in common]
    verdicts = [
        CurveVerdict(
            key=key,
            spans=tuple(_spans(here, verdicts_here, behind)),
            outside=tuple(sorted(ours[key].rates.keys() - here)),
        )
        for (key, _), here, verdicts_here in zip(
            pairs, shares, _verdicts(shares, behind), strict=True
        )
    ]
    return Judgement(
        verdicts=tuple(verdicts),
        apart=tuple(_apart(alone, theirs)),
        differences=tuple(_differences([(ours[one], theirs[two]) for one, two in pairs], pairs)),
    )


def _left_out(across: Collection[str], *, is_forced: bool) -> set[str]:
    """The fields that keys of curves leave open."""
    return {*across, *(("device",) if is_forced else ())}


class _Share(NamedTuple):
    """Shares of the least and of the most that the reference's rate may be, which differ between
    its sizes, and the scale of their chance (see chance.py).
    """

    of_least: float
    of_most: float
    scale: float

    @property
    def low(self) -> float:
        """The lower bound of its 95% interval, of the least."""
        return self.of_least / math.exp(SURE_SCALES * self.scale)

    @property
    def high(self) -> float:
        """The upper bound of its 95% interval, of the most."""
        return self.of_most * math.exp(SURE_SCALES * self.scale)


def _common(
    ours: Mapping[CurveKey, MeasuredCurve], theirs: Mapping[CurveKey, MeasuredCurve]
) -> dict[CurveKey, tuple[CurveKey, dict[int, _Share]]]:
    """Of each curve that the reference has too, at some size: the reference's key, and the
    shares.
    """
    common = {}
    for key, curve in ours.items():
        same = min(
            (one for one in theirs if not key.apart(one)),
            key=lambda one: sum(a != b for a, b in zip(key, one, strict=True)),
            default=None,
        )
        if same is not None and (here := _shares(curve.rates, theirs[same].rates)):
            common[key] = same, here
    return common


def _shares(ours: RateCurve, theirs: RateCurve) -> dict[int, _Share]:
    """The shares of the reference's rate by size, where it has one."""
    shares = {}
    for size, rate in sorted(ours.items()):
        if (known := rates_at(theirs, size)) is not None:
            least, most = known
            is_single = min(len(one.times_us) for one in (rate, least, most)) < 2
            between = BETWEEN_SINGLE_RUNS if is_single else BETWEEN_RUNS
            scale = max(scale_of(between, rate.times_us, one.times_us) for one in known)
            shares[size] = _Share(
                rate.busbw_gbs / least.busbw_gbs, rate.busbw_gbs / most.busbw_gbs, scale
            )
    return shares


def _verdicts(shares: Iterable[Mapping[int, _Share]], behind: float) -> Iterator[list[RateVerdict]]:
    """The verdicts of each curve's sizes, all sizes of all curves judged together."""
    curves_of_shares = [list(here.values()) for here in shares]
    below = [
        [deviate(math.log(behind / one.of_least), one.scale) for one in here]
        for here in curves_of_shares
    ]
    above = [
        [deviate(math.log(one.of_most * BEHIND_SHARE), one.scale) for one in here]
        for here in curves_of_shares
    ]
    for here, late, early in zip(
        curves_of_shares, beyond_chance(below), beyond_chance(above), strict=True
    ):
        verdicts: list[RateVerdict] = []
        for share, is_late, is_early in zip(here, late, early, strict=True):
            if is_late or is_early:
                verdicts.append("behind" if is_late else "faster")
            else:
                is_normal = behind <= share.low and share.high <= 1 / BEHIND_SHARE
                verdicts.append("normal" if is_normal else "cannot tell")
        yield verdicts


def _spans(
    shares: Mapping[int, _Share], verdicts: Iterable[RateVerdict], behind: float
) -> Iterator[RateSpan]:
    """Neighbouring sizes with the same verdict as one span."""
    rows = zip(shares.items(), verdicts, strict=True)
    # what may be too fast is no sequel of what may be too slow
    for (verdict, is_below), group in groupby(
        rows, key=lambda row: (row[1], row[1] == "normal" or row[0][1].low < behind)
    ):
        sizes, values = zip(*(pair for pair, _ in group), strict=True)
        of = [one.of_least if is_below else one.of_most for one in values]
        half = max(math.exp(SURE_SCALES * one.scale) for one in values)
        yield RateSpan(
            first=sizes[0],
            last=sizes[-1],
            sizes=len(sizes),
            verdict=verdict,
            least=min(of),
            most=max(of),
            low=min(of) / half,
            high=max(of) * half,
        )


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
    >>> rates_at(curve, 8192) is None, rates_at(curve, 1024) == (curve[1024],) * 2
    (True, True)
    """
    sizes = sorted(curve)
    place = bisect_left(sizes, size)
    if place < len(sizes) and sizes[place] == size:
        return curve[size], curve[size]
    if place == len(sizes) > 1:
        ends = sorted(curve[size_] for size_ in sizes[-2:])
        is_plateau = ends[0].busbw_gbs >= _PLATEAU * ends[1].busbw_gbs
        return (ends[0], ends[1]) if is_plateau else None
    if not 0 < place < len(sizes):
        return None
    smaller, larger = curve[sizes[place - 1]], curve[sizes[place]]
    in_its_time = larger._replace(busbw_gbs=larger.busbw_gbs * size / sizes[place])
    return max(min(smaller, larger), in_its_time), max(smaller, larger)


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
        here = list(chain.from_iterable(sizes.values()))
        found[key] = MeasuredCurve(
            rates={size: _rate(here, errors) for size, here in sizes.items()},
            versions={row.versions for row in here},
            devices={row.device for row in here if row.device},
            groups={row.group for row in here if row.group},
            hosts={row.hosts for row in here if row.hosts},
            transports={row.transport for row in here},
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
        redop=row.redop if is_reduction(row.op) else "",
        root=row.root if _is_rooted(row.op) else 0,
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
    parts = [part for part in transport.split("+") if part not in (*_PEER_MEMORY, "auto")]
    return "+".join(parts)


def _is_rooted(op: str) -> bool:
    """Whether an operation has a root; what is not known may."""
    try:
        return collective(op).is_rooted
    except CollbenchError:
        return True


def _rate(rows: list[Record], errors: Errors) -> MeasuredRate:
    """The best rate of several rows, without what luck gives it."""
    best = fastest(rows)
    error, least = errors.of(best), math.log(median_of(best))
    rivals = sum(math.log(median_of(row)) - least <= SURE_Z * error for row in rows)
    gain = math.exp(luck(error, rivals))
    return MeasuredRate(busbw_gbs=(best.busbw_gbs or 0.0) / gain, times_us=times_of(best))


def _apart(alone: Iterable[CurveKey], theirs: Mapping[CurveKey, MeasuredCurve]) -> Iterator[Apart]:
    """What is not in the reference, by what sets it apart from the nearest of its curves."""
    groups: dict[tuple[str, ...], list[tuple[CurveKey, CurveKey]]] = {}
    for key in alone:
        near = [one for one in theirs if (one.op, one.backend) == (key.op, key.backend)]
        best = min(near, key=lambda one: len(key.apart(one)), default=key)
        groups.setdefault(key.apart(best), []).append((key, best))
    for names, pairs in groups.items():
        fields = [
            (
                name,
                _texts(getattr(ours, name) for ours, _ in pairs),
                _texts(getattr(nearest, name) for _, nearest in pairs),
            )
            for name in names
        ]
        yield Apart(tuple(ours for ours, _ in pairs), tuple(fields))


def _texts(values: Iterable[object]) -> str:
    """Different values of a field in words, in their order."""
    texts = [
        " ".join(map(str, value))
        if isinstance(value, tuple) and not isinstance(value, GpuKind)
        else str(value)
        for value in values
    ]
    return ", ".join(dict.fromkeys(text or "-" for text in texts))


def _differences(
    compared: Iterable[tuple[MeasuredCurve, MeasuredCurve]],
    keys: Iterable[tuple[CurveKey, CurveKey]],
) -> Iterator[tuple[str, str, str]]:
    """What differs between the rows that were compared, beside their rates."""
    sides: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
    for pair, keys_of_pair in zip(compared, keys, strict=True):
        for side, curve, key in zip(sides, pair, keys_of_pair, strict=True):
            for name, value in _surroundings(curve, key):
                side.setdefault(name, set()).add(value)
    for name in dict.fromkeys(name for side in sides for name in side):
        here = [side.get(name, {"-"}) for side in sides]
        # both of the two transports may serve one curve
        if here[0] != here[1] and not (name == "transport" and here[0] & here[1]):
            yield name, ", ".join(sorted(here[0])), ", ".join(sorted(here[1]))


def _surroundings(curve: MeasuredCurve, key: CurveKey) -> Iterator[tuple[str, str]]:
    """What the rates of a curve may depend on, by name."""
    for name, values in (
        ("device", curve.devices),
        ("group", curve.groups),
        ("hosts", set(map(str, curve.hosts))),
    ):
        yield from ((name, value) for value in values or {_UNKNOWN})
    yield from (("transport", name) for name in curve.transports if name in _PEER_MEMORY)
    for text in curve.versions:
        if key.backend == "nccl":
            version = _NCCL_VERSION.search(text)
            yield "NCCL", version[1] if version is not None else _UNKNOWN
            if key.device.model.startswith(_WITH_NVLS) or not key.device.model:
                yield "NVLS", _nvls(text)
            yield "measured by", "collbench" if _is_ours(text) else "another tool"
            for variable, value in _NCCL_VARIABLE.findall(text):
                if variable not in _NAMED_ELSEWHERE:
                    yield variable, value.rstrip(";")
        else:
            yield from _OWN_LIBRARIES.findall(text)


def _nvls(versions: str) -> str:
    """Whether NCCL might reduce in the switches of NVLink."""
    variables = dict(_NCCL_VARIABLE.findall(versions))
    enabled = variables.get("NCCL_NVLS_ENABLE", "").rstrip(";")
    if enabled:
        return "off" if enabled == "0" else "allowed"
    if "NVLS allowed" in versions:
        return "allowed"
    return "NCCL's choice" if _is_ours(versions) else _UNKNOWN


def _is_ours(versions: str) -> bool:
    """Whether a sweep of ours wrote a row: it lists all NCCL_* variables that were set."""
    return versions.startswith("collbench ")
