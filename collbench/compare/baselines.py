"""References: what is known of machines, shipped or in a file, and the rows of one beside a file's.

A curve is one backend's best rate at each size of one workload, in which everything that decides
the rate is alike: its key (CurveKey). Each point of a file's curve has a row of the reference
beside it, and both are compared as two files are. Between two sizes of the reference any rate
between theirs will do, because a library changes its protocol somewhere there, and any in the time
of the larger; beyond the largest its plateau counts, where its last two rates are alike.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from collbench.compare.load import ResultFile, load
from collbench.compare.merge import together
from collbench.compare.rate_curves import (
    ACROSS_CURVES,
    CurveKey,
    MeasuredCurve,
    MeasuredRate,
    floor_at,
    rate_curves,
    rates_at,
)
from collbench.compare.tables.summary import nvls_of
from collbench.core import catalog
from collbench.core.errors import UsageError, unknown
from collbench.core.knobs import KNOB, UNASKED
from collbench.core.record import KEY, NOT_TRUE, Record
from collbench.core.rows import times_of
from collbench.core.text import some_of, texts_of
from collbench.core.units import format_size
from collbench.core.verdict import middle_time
from collbench.machine.gpu_kinds import GpuKind, kinds_of

_PUBLISHED = "-published"


class Beside(NamedTuple):
    """A file and its base: of each point that the reference has too a row of both. remarks: what
    the reference is, and what it does not have.
    """

    new: ResultFile
    base: ResultFile
    remarks: tuple[str, ...]


def reference(
    name: str, rows: Sequence[Record], *, across: Collection[str] = (), is_forced: bool = False
) -> ResultFile:
    """A shipped reference by name, any file by its path; without a name the shipped one of the
    nearest machine.

    Nearest: the same GPU model and form (is_forced: or another form), then the most curves that it
    has too, then the nearest number of ranks, then a file of ours before a published one. across:
    see beside(). Raises UsageError if there is none.
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
        theirs = rate_curves(loaded.records, left_out)
        common = sum(_has_point(curve, _same(key, theirs), theirs) for key, curve in ours.items())
        order = (not is_alike, -common, not here & wanted, apart, is_published(label), label)
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


def is_published(name: str) -> bool:
    """Whether a shipped reference is what others published, by its name."""
    return name.endswith(_PUBLISHED)


class PublishedFloor(NamedTuple):
    """The least bus bandwidth of NCCL that a shipped file of published results has of a machine,
    and the file with the sizes that show it.
    """

    gbs: float
    name: str


def published_floor(row: Record) -> PublishedFloor | None:
    """The floor of a row: of all published machines with the same GPUs, hosts and ranks, the
    slowest, since a row does not say over which network it went; those without its size only if
    none has it. None if nothing was published.
    """
    alike = {*ACROSS_CURVES} - {"hosts"}
    floors = [
        (floor, name)
        for key in rate_curves([row], alike)
        for name, published in _published()
        for other, curve in rate_curves(published, alike).items()
        if not key.apart(other) and (floor := floor_at(curve.rates, row.size_bytes)) is not None
    ]
    if not floors:
        return None
    floor, name = min(floors)
    sizes = " and ".join(map(format_size, floor.sizes))
    by = "" if floor.sizes == (row.size_bytes,) else f" at {sizes}"
    return PublishedFloor(floor.busbw_gbs, name + by)


@cache
def _published() -> tuple[tuple[str, list[Record]], ...]:
    """The rows of each published machine, which their versions name, and the name of its file."""
    sources: dict[tuple[str, str], list[Record]] = {}
    for name, file in catalog.results().items():
        for row in _named(name, file).records if is_published(name) else ():
            sources.setdefault((name, row.versions), []).append(row)
    return tuple((name, rows) for (name, _), rows in sources.items())


@cache
def _named(label: str, file: Path) -> ResultFile:
    return replace(load(file), name=label)


def beside(
    mine: ResultFile, against: ResultFile, *, across: Collection[str] = (), is_forced: bool = False
) -> Beside:
    """The points of a file that the reference has too, with its own beside them, and rows that are
    wrong. across: of ACROSS_CURVES, what may differ. is_forced: devices may differ. Raises
    UsageError for another name in across.
    """
    if wrong := [name for name in across if name not in ACROSS_CURVES]:
        raise UsageError(
            f"--across {wrong[0]}: a curve is the best over all of its values",
            f"with --against these may differ: {', '.join(ACROSS_CURVES)}",
        )
    left_out = _left_out(across, is_forced=is_forced)
    ours, theirs = (rate_curves(together(one.records)[0], left_out) for one in (mine, against))
    pairs: list[tuple[Record, Record]] = []
    alone: list[CurveKey] = []
    outside: set[int] = set()
    for key, curve in ours.items():
        same = _same(key, theirs)
        points = [] if same is None else list(_points(curve, theirs[same], across))
        outside |= {*curve.rates} - {row.size_bytes for row, _ in points} if points else set()
        alone += [] if points else [key]
        pairs += points
    wrong_rows = [row for row in mine.records if row.status in (*NOT_TRUE, "error")]
    pairs += [(row, replace(row, status="ok", wrong=None, reason="")) for row in wrong_rows]
    remarks = [f"the base is of {_origin(against)}", *_nvls(mine, against), *_apart(alone, theirs)]
    if outside:
        sizes = some_of(map(format_size, sorted(outside)), 3)
        remarks.append(f"sizes that the reference does not reach: {sizes}")
    return Beside(
        replace(mine, records=[row for row, _ in pairs]),
        replace(against, records=[row for _, row in pairs]),
        tuple(remarks),
    )


def _left_out(across: Collection[str], *, is_forced: bool) -> set[str]:
    """The fields that keys of curves leave open."""
    return {*across, *(("device",) if is_forced else ())}


def _same(key: CurveKey, theirs: Iterable[CurveKey]) -> CurveKey | None:
    """The key of the reference that is most like one; None if none agrees."""
    return min(
        (one for one in theirs if not key.apart(one)),
        key=lambda one: sum(a != b for a, b in zip(key, one, strict=True)),
        default=None,
    )


def _has_point(
    curve: MeasuredCurve, same: CurveKey | None, theirs: Mapping[CurveKey, MeasuredCurve]
) -> bool:
    """Whether the reference has some size of a curve."""
    return same is not None and any(
        rates_at(theirs[same].rates, size) is not None for size in curve.rates
    )


def _points(
    ours: MeasuredCurve, theirs: MeasuredCurve, across: Collection[str]
) -> Iterator[tuple[Record, Record]]:
    """Our row of each size that the reference reaches, and its own as a row of the same point."""
    kept = [name for name in (*KEY, "limit", "ceiling_gbs") if name not in across]
    for size, rate in sorted(ours.rates.items()):
        if (known := rates_at(theirs.rates, size)) is not None:
            row, other = ours.rows[size], theirs.rows.get(size, next(iter(theirs.rows.values())))
            nearest = max(known[0], min(known[1], rate))
            time_us = middle_time(times_of(row)) * rate.busbw_gbs / nearest.busbw_gbs
            same = replace(other, **{name: getattr(row, name) for name in kept}, notes=row.notes)
            yield row, _timed(same, time_us, nearest)


def _timed(row: Record, time_us: float, rate: MeasuredRate) -> Record:
    """The row with another time, and repeats that spread as those of a rate do."""
    repeats = tuple(time_us * time / middle_time(rate.times_us) for time in rate.times_us)
    return replace(row, time_us=time_us, repeat_times_us=repeats)


def _apart(alone: Iterable[CurveKey], theirs: Mapping[CurveKey, MeasuredCurve]) -> Iterator[str]:
    """What is not in the reference, by what sets it apart from the nearest of its curves, and how
    it still can be compared.
    """
    groups: dict[tuple[tuple[str, str, str], ...], list[CurveKey]] = {}
    for key in alone:
        near = [one for one in theirs if (one.op, one.backend) == (key.op, key.backend)]
        best = min(near, key=lambda one: len(key.apart(one)), default=key)
        fields = tuple(
            (name, _text(getattr(key, name)), _text(getattr(best, name)))
            for name in key.apart(best)
        )
        groups.setdefault(fields, []).append(key)
    for fields, keys in groups.items():
        ops, backends, ranks = (
            ", ".join(dict.fromkeys(str(getattr(key, name)) for key in keys))
            for name in ("op", "backend", "ranks")
        )
        listed = f"{ops} by {backends or 'any backend'} on {ranks} ranks"
        if not fields:
            yield f"not in the reference, or only at other sizes: {listed}"
            continue
        differing = ", ".join(
            f"{KNOB[name].label if name in KNOB else name} {one} | {other}"
            for name, one, other in fields
        )
        yield f"not compared: {listed}; differs in {differing}"
        names = {name for name, *_ in fields}
        if not names - {*ACROSS_CURVES, "device"}:
            across = [name for name in ACROSS_CURVES if name in names]
            options = [f"--across {','.join(across)}"] if across else []
            options += ["--force"] if "device" in names else []
            yield f"to compare them still: {' '.join(options)}"


def _text(value: object) -> str:
    """A field of a key in words."""
    if isinstance(value, tuple) and not isinstance(value, GpuKind):
        value = " ".join(map(str, value))
    return str(value) or "-"


def _origin(against: ResultFile) -> str:
    """Machine, date and versions of a reference, from its rows."""
    frame = against.frame
    devices = ", ".join(texts_of(frame["device"])) or "an unknown machine"
    dates = [time[:10] for time in texts_of(frame["timestamp"])]
    when = " to ".join(dict.fromkeys((*dates[:1], *dates[-1:]))) or "no date"
    of_libraries = frame[frame["algo"] == UNASKED["algo"]]
    known = of_libraries if len(of_libraries) else frame
    versions = known["versions"].mode().iloc[0]
    return f"{devices}; {when}" + (f"; {versions}" if versions else "")


def _nvls(mine: ResultFile, against: ResultFile) -> Iterator[str]:
    """How NCCL's use of NVLS differs from the reference's, where both have NCCL."""
    ours, theirs = (
        {nvls_of(row.versions) for row in one.records if row.backend == "nccl"}
        for one in (mine, against)
    )
    if ours and theirs and ours != theirs:
        yield f"NVLS: {', '.join(sorted(ours))}; of the reference {', '.join(sorted(theirs))}"
