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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from collbench.compare.load import ResultFile, load
from collbench.compare.rate_curves import (
    ACROSS_CURVES,
    PEER_MEMORY,
    CurveKey,
    MeasuredCurve,
    RateCurve,
    rate_curves,
    rates_at,
)
from collbench.core import catalog
from collbench.core.errors import UsageError, unknown
from collbench.core.limits import BEHIND_SHARE, BETWEEN_RUNS, BETWEEN_SINGLE_RUNS, SURE_SCALES
from collbench.core.record import Record
from collbench.core.verdict import beyond_chance, deviate, scale_of
from collbench.machine.gpu_kinds import GpuKind, kinds_of

RateVerdict = Literal["behind", "faster", "cannot tell", "normal"]
RATE_VERDICTS: tuple[RateVerdict, ...] = get_args(RateVerdict)
_WITH_NVLS = ("H", "B", "GB", "GH")  # models of GPUs, from Hopper on
_UNKNOWN = "not known"
_PUBLISHED = "-published"
_NCCL_VERSION = re.compile(r"\bnccl ([\d.]+)")
_NCCL_VARIABLE = re.compile(r"\b(NCCL_\w+)=(\S+)")
# what is installed, which is the version; and what has a line of its own
_NAMED_ELSEWHERE = ("NCCL_VERSION", "NCCL_NVLS_ENABLE")
_OWN_LIBRARIES = re.compile(r"\b(collbench|cuda|driver|torch) ([\w.]+)")


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


class PublishedFloor(NamedTuple):
    """The least bus bandwidth of NCCL that a shipped file of published results has of a machine."""

    gbs: float
    name: str


def published_floor(row: Record) -> PublishedFloor | None:
    """The floor of a row: of all published machines with the same GPUs, hosts and ranks, the
    slowest, since a row does not say over which network it went. None if nothing was published.
    """
    alike = {*ACROSS_CURVES} - {"hosts"}
    floors = [
        PublishedFloor(rates[0].busbw_gbs, name)
        for key in rate_curves([row], alike)
        for name, published in _published()
        for other, curve in rate_curves(published, alike).items()
        if not key.apart(other) and (rates := rates_at(curve.rates, row.size_bytes)) is not None
    ]
    return min(floors, default=None)


@cache
def _published() -> tuple[tuple[str, list[Record]], ...]:
    """The rows of each published machine, which their versions name, and the name of its file."""
    sources: dict[tuple[str, str], list[Record]] = {}
    for name, file in catalog.results().items():
        for row in _named(name, file).records if name.endswith(_PUBLISHED) else ():
            sources.setdefault((name, row.versions), []).append(row)
    return tuple((name, rows) for (name, _), rows in sources.items())


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
    yield from (("transport", name) for name in curve.transports if name in PEER_MEMORY)
    for text in curve.versions:
        if key.backend == "nccl":
            version = _NCCL_VERSION.search(text)
            yield "NCCL", version[1] if version is not None else _UNKNOWN
            if key.device.model.startswith(_WITH_NVLS) or not key.device.model:
                yield "NVLS", nvls_of(text)
            yield "measured by", "collbench" if _is_ours(text) else "another tool"
            for variable, value in _NCCL_VARIABLE.findall(text):
                if variable not in _NAMED_ELSEWHERE:
                    yield variable, value.rstrip(";")
        else:
            yield from _OWN_LIBRARIES.findall(text)


def nvls_of(versions: str) -> str:
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
