"""Two sweeps row by row: which rows measured the same thing, which are in one file only, and what
differs around them.

Rows of our own files match by every knob and the conditions in the notes. Another tool's file does
not name its knobs: then rows match by the workload, and of several rows of one workload the fastest
of each backend represents them.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
import pandas as pd

from collbench.compare.losses import Loss, losses
from collbench.compare.merge import LAUNCHES, MERGED, Timed, is_ours, of_all_runs, of_one_file
from collbench.compare.noise import Side
from collbench.core.collectives import collective
from collbench.core.errors import UsageError
from collbench.core.grouping import grouped
from collbench.core.limits import NOISY_SCALE
from collbench.core.record import ACROSS, CONDITIONS, KEY, NOT_TRUE, TRAFFIC
from collbench.core.rows import DISTURBED, NOISE_NOTES, Workload
from collbench.core.text import counted, some_of, texts_of
from collbench.core.units import format_size
from collbench.core.verdict import Array, by_square, closest_half, median_variance

MatchMode = Literal["knobs", "workload", "knobs but ranks"]
# of a workload and its size, what every tool tells
_WORKLOAD = [name for name in KEY if name in {*Workload._fields, "size_bytes"} - {"hosts", "group"}]
_OF_RANKS = {"ranks", "hosts", "count", "group"}
_EMPTY_VALUES = {"", "0", "auto", "none"}
_TIME_TOLERANCE = 0.02  # of a time that was rounded, or is a mean of two middle repeats
_GRAVER = ("waived", "error", *reversed(NOT_TRUE))  # statuses, the gravest last
_RANKS = {name: rank for rank, name in enumerate(("ok", *reversed(_GRAVER)))}
_COUNTED_NOTES = (*DISTURBED, "noisy", "in-cache", "far-below-ceiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Rows of both sides: `compared` with columns of the new side by name and of the base as
    name_base; `counts` of the others by why they are not compared.
    """

    compared: pd.DataFrame
    new: Side
    base: Side
    counts: dict[str, int]
    losses: tuple[Loss, ...]
    remarks: tuple[str, ...]


def is_foreign(frame: pd.DataFrame) -> bool:
    """Whether another tool wrote it."""
    columns = (frame[name] for name in ("run", "versions", "channels"))
    return len(frame) > 0 and not any(map(is_ours, *columns))


def match_mode(new: pd.DataFrame, base: pd.DataFrame) -> MatchMode:
    """By what rows of two files are known to measure the same thing."""
    foreign = [is_foreign(frame) for frame in (new, base)]
    if foreign[0] != foreign[1] or (foreign[0] and _unknown_columns(new) != _unknown_columns(base)):
        return "workload"
    ranks = [set(frame["ranks"]) - {0} for frame in (new, base)]
    return "knobs but ranks" if ranks[0] and ranks[1] and not ranks[0] & ranks[1] else "knobs"


def _unknown_columns(frame: pd.DataFrame) -> set[str]:
    """The columns of a workload that are empty in every row of a file."""
    return {
        name
        for name in _WORKLOAD
        if name != "root" and set(frame[name].astype(str).unique()) <= _EMPTY_VALUES
    }


def join(
    new: pd.DataFrame,
    bases: Sequence[pd.DataFrame],
    across: Collection[str] = (),
    way: MatchMode | None = None,
) -> Joined:
    """Match the rows of a file with those of its base, which may be several files; everything that
    is not compared is counted. across: columns of ACROSS that may differ between the sides.
    way: if it is known.

    Raises UsageError if a side has several values there for the same point.
    """
    base = pd.concat(bases, ignore_index=True) if len(bases) > 1 else bases[0]
    way = way or match_mode(new, base)
    names = names_to_match(new, base, way, across)
    remarks: list[str] = []
    sides = []
    for frames, title in (((new,), "new"), (bases, "base")):
        rows, remarks_of_side = _side(frames, names, way, across, title)
        sides.append(rows)
        remarks += remarks_of_side
    if way == "workload":
        remarks.insert(
            0,
            "one file is another tool's, which does not name its knobs: rows match by the workload",
        )
    if way == "knobs but ranks":
        remarks.insert(0, "the numbers of ranks differ: rows match by everything else")
    for title, (own, other) in (("new", sides), ("base", sides[::-1])):
        if alone := sorted({*own["size_bytes"]} - {*other["size_bytes"]}):
            remarks.append(
                f"sizes of the {title} file alone: {some_of(map(format_size, alone), 3)}"
            )
    sides[0] = sides[0].assign(_place=np.arange(len(sides[0])))
    both = sides[0].merge(sides[1], how="outer", on=names, suffixes=("", "_base"), indicator="side")
    # as in the new file: a merge sorts by the keys
    both = both.sort_values("_place", kind="stable", ignore_index=True).drop(columns="_place")
    outcome = _outcomes(both)
    others = Counter(outcome[outcome != "compared"])
    compared = both[(outcome == "compared").to_numpy()].reset_index(drop=True)
    numbers = {name: _numbers(compared[f"_times{name}"]) for name in ("", "_base")}
    for name, side in numbers.items():
        if side.runs.shape[1] == 1 and (odd := _off_median(compared[f"time_us{name}"], side)):
            title = "base" if name else "new"
            remarks.append(
                f"{title}: time_us of {counted(odd, 'row')} is not the median of the repeats,"
                " which are what is compared"
            )
    return Joined(
        compared=compared,
        new=numbers[""],
        base=numbers["_base"],
        counts=dict(sorted(others.items())),
        losses=losses(both, names),
        remarks=tuple(remarks),
    )


def _side(
    frames: Sequence[pd.DataFrame],
    names: Sequence[str],
    way: MatchMode,
    across: Collection[str],
    title: str,
) -> tuple[pd.DataFrame, list[str]]:
    """One row for every key of all files of a side, with the times of all runs in `_times`."""
    parts, remarks = [], []
    for frame in frames:
        keyed = _keyed(frame, way)
        if way != "workload":
            _refuse_several(keyed, names, across, title)
        rows, more = _one_a_key(keyed, names, way, title)
        parts.append(rows)
        remarks += [remark for remark in more if remark not in remarks]
    if len(parts) == 1:
        return parts[0], remarks
    return _merged(pd.concat(parts, ignore_index=True), names, of_all_runs), remarks


def _refuse_several(
    frame: pd.DataFrame, names: Sequence[str], across: Collection[str], title: str
) -> None:
    """Raise UsageError where rows of one file differ only in what may differ between the files."""
    for name in across:
        values = frame.drop_duplicates([*names, name])
        again = values[values.duplicated(list(names), keep=False)]
        if len(again):
            raise UsageError(
                f"the {title} file has several values of {name} for one point:"
                f" {_few(sorted(again[name].unique()))}",
                f"give files with one value of {name} each, or leave it out of --across",
            )


def names_to_match(
    new: pd.DataFrame, base: pd.DataFrame, way: MatchMode, across: Collection[str] = ()
) -> list[str]:
    """The columns to match by."""
    if way != "workload":
        without = {*across, *(_OF_RANKS if way == "knobs but ranks" else ())}
        return [*(name for name in KEY if name not in without), "conditions"]
    unknown = _unknown_columns(new) | _unknown_columns(base)
    return [*(name for name in _WORKLOAD if name not in unknown), "conditions"]


def _conditions(notes: pd.Series, way: MatchMode) -> pd.Series:
    """The notes of rows that measured something else than rows without them, in one text. By
    workload only the traffic counts: another tool does not name the other conditions.
    """
    kinds = TRAFFIC if way == "workload" else CONDITIONS
    texts = {
        text: " ".join(sorted(note for note in text.split() if note.startswith(kinds)))
        for text in notes.unique()
    }
    return notes.map(texts)


def _keyed(frame: pd.DataFrame, way: MatchMode) -> pd.DataFrame:
    keyed = frame.reset_index(drop=True).assign(
        conditions=_conditions(frame["notes"].reset_index(drop=True), way)
    )
    if way == "workload":  # what is not reduced has no operation, whatever a tool writes there
        reduces = {op: collective(op).is_reduction for op in keyed["op"].unique()}
        keyed["redop"] = keyed["redop"].where(keyed["op"].map(reduces).astype(bool), "")
    is_timed = (keyed["status"] == "ok") & (keyed["time_us"] > 0)
    columns = (is_timed, keyed["repeat_times_us"], keyed["time_us"])
    times = [
        (repeats or (float(f"{time:.6g}"),),) if timed else ()
        for timed, repeats, time in zip(*columns, strict=True)
    ]
    named = {
        text: any(word.startswith(NOISE_NOTES) for word in text.split())
        for text in keyed["notes"].unique()
    }
    *_, square, freedom = _moments([one[0] if one else (1.0,) for one in times])
    return keyed.assign(
        _times=pd.Series(times, keyed.index, dtype=object),
        _noise=keyed["notes"].map(named).to_numpy(np.bool_) | (square > freedom * NOISY_SCALE**2),
    )


def _one_a_key(
    frame: pd.DataFrame, names: Sequence[str], way: MatchMode, title: str
) -> tuple[pd.DataFrame, list[str]]:
    """One row for every key: repeats of rows that were measured twice are taken together; by
    workload, the fastest of each backend represents all.
    """
    if way == "workload":
        rank = frame["status"].map(_RANKS).fillna(len(_RANKS))
        ordered = frame.assign(_rank=rank).sort_values(["_rank", "time_us"], kind="stable")
        kept = ordered.drop_duplicates([*names, "backend"]).sort_index().drop(columns="_rank")
        left = len(frame) - len(kept)
        remark = (
            f"{title}: of rows of one workload the fastest of each backend is taken, {left} slower"
            " ones are not compared"
        )
        return kept, [remark] if left else []
    kept = _merged(frame, names, of_one_file)
    if len(kept) == len(frame):
        return frame, []
    left = len(frame) - len(kept)
    return kept, [
        f"{title}: {counted(left, 'row')} of what other rows of the file measure, taken as more"
        " runs or repeats of it; a point is right if all its rows of the last sweep are"
    ]


def _merged(
    frame: pd.DataFrame, names: Sequence[str], merge: Callable[[Sequence[Timed]], Timed]
) -> pd.DataFrame:
    """A table in which rows that agree in some columns are one."""
    again = frame.duplicated(names, keep=False)
    if not again.any():
        return frame
    several = frame[again]
    launches = _tuples(several, LAUNCHES)
    columns = [several[name] for name in ("run", *MERGED)]
    rows = map(Timed, several.index, *columns, launches)
    groups = grouped(zip(_tuples(several, names), rows, strict=True))
    merged = list(map(merge, groups.values()))
    places = [one.place for one in merged]
    kept = frame[~again | frame.index.isin(places)].copy()
    values = zip(*((*one[2:-1], *one.launches) for one in merged), strict=True)
    for name, column in zip((*MERGED, *LAUNCHES), values, strict=True):
        kept.loc[places, name] = pd.Series(list(column), index=places, dtype=frame[name].dtype)
    return kept


def _tuples(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """The rows of some columns; pandas takes each text out of its own arrays one by one."""
    return zip(*(frame[name].to_numpy(dtype=object) for name in names), strict=True)


def _outcomes(both: pd.DataFrame) -> pd.Series:
    """Of every row "compared", or why it is not."""
    outcome = pd.Series("compared", index=both.index)
    new, base = both["status"].fillna(""), both["status_base"].fillna("")
    only_new, only_base = both["side"] == "left_only", both["side"] == "right_only"
    outcome[only_new.to_numpy()] = "only in new"
    outcome[only_base.to_numpy()] = "only in base"
    here = ~(only_new | only_base)
    for status in _GRAVER:
        is_new, is_base = new == status, base == status
        for where, text in (
            (here & is_new & is_base, f"{status} in both"),
            (here & is_new & ~is_base, f"{status} in new"),
            (here & ~is_new & is_base, f"{status} in base"),
            (only_new & is_new, f"only in new, {status}"),
            (only_base & is_base, f"only in base, {status}"),
        ):
            outcome[where.to_numpy()] = text
    has_times = both["_times"].astype(bool) & both["_times_base"].astype(bool)
    outcome[(outcome == "compared") & ~has_times] = "without a time"
    return outcome


def _numbers(times: "pd.Series[Any]") -> Side:
    """The times of the runs of rows as numbers."""
    runs = np.array([len(one) for one in times], dtype=np.int64)
    count, median, square, freedom = _moments(list(chain.from_iterable(times)))
    row = np.repeat(np.arange(len(times)), runs)
    place = np.arange(len(row)) - np.repeat(np.cumsum(runs) - runs, runs)
    table = np.full((len(times), int(runs.max(initial=1))), math.nan)
    table[row, place] = median
    return Side(
        runs=table,
        squares=np.bincount(row, square, len(times)).astype(np.float64),
        freedom=np.bincount(row, freedom, len(times)).astype(np.float64),
        share=np.bincount(row, median_variance(count), len(times)) / runs,
    )


def _off_median(times_us: "pd.Series[float]", side: Side) -> int:
    """How many rows show another time than the median of their repeats."""
    shown = np.log(times_us.to_numpy(dtype=np.float64))
    return int((np.abs(shown - side.runs[:, 0]) > _TIME_TOLERANCE).sum())


def _moments(runs: Sequence[Sequence[float]]) -> tuple[Array, Array, Array, Array]:
    """Of each run the number of repeats, the median of their logarithms, their squared deviations
    as the closest half shows them, and how many degrees of freedom that has.
    """
    count = np.array([len(run) for run in runs], dtype=np.intp)
    times = np.log(np.fromiter(chain.from_iterable(runs), dtype=np.float64))
    begin = np.cumsum(count) - count
    median, square, freedom = np.zeros((3, len(count)))
    for size in np.unique(count):
        places = np.flatnonzero(count == size)
        table = np.sort(times[begin[places][:, None] + np.arange(size)], axis=1)
        median[places] = (table[:, (size - 1) // 2] + table[:, size // 2]) / 2
        if size > 1:
            freedom[places] = (size + 1) / 4
            square[places] = freedom[places] * (closest_half(table) * by_square(int(size))) ** 2
    return count.astype(np.float64), median, square, freedom


def apart(new: pd.DataFrame, base: pd.DataFrame, across: Collection[str] = ()) -> tuple[str, ...]:
    """The columns to match by in which two files have no value in common: why nothing could be
    compared, and the option that compares them still, where one does.
    """
    reasons = []
    differing = []
    way = match_mode(new, base)
    names = names_to_match(new, base, way, across)
    new, base = (frame.assign(conditions=_conditions(frame["notes"], way)) for frame in (new, base))
    for name in names:
        if name != "count":  # which follows from the others
            ours, theirs = (sorted(frame[name].unique()) for frame in (new, base))
            if not set(ours) & set(theirs):
                reasons.append(f"nothing has the same {name}: {_few(ours)} | {_few(theirs)}")
                differing.append(name)
    if set(differing) <= set(ACROSS):
        more = next(
            (
                extra
                for extra in ((), *((name,) for name in ACROSS if name in names))
                if _share_a_point(
                    new, base, [name for name in names if name not in {*differing, *extra}]
                )
            ),
            None,
        )
        reasons += [f"nothing that else is the same has the same {name}" for name in more or ()]
        if more is not None:
            columns = [name for name in ACROSS if name in {*across, *differing, *more}]
            reasons.append(f"to compare them still: --across {','.join(columns)}")
    return tuple(reasons)


def _share_a_point(new: pd.DataFrame, base: pd.DataFrame, names: Sequence[str]) -> bool:
    """Whether some row of both has the same values in all of these columns."""
    points = [set(frame[list(names)].itertuples(index=False, name=None)) for frame in (new, base)]
    return bool(points[0] & points[1])


def _few(values: Sequence[object]) -> str:
    """The first of some values.

    >>> _few([1, 2]), _few(["", "a", "b", "c", "d"])
    ('1, 2', '-, a, b and 2 more')
    """
    return some_of((str(value) or "-" for value in values), 3)


def differences(
    new: pd.DataFrame, base: pd.DataFrame, compared: pd.DataFrame, across: Collection[str] = ()
) -> tuple[tuple[str, str, str], ...]:
    """What differs beside the numbers: its name, the value in the new file and in the base."""
    rows = []
    for name in (*across, "host", "device"):
        ours, theirs = (", ".join(texts_of(frame[name])) or "-" for frame in (new, base))
        if ours != theirs:
            rows.append((name, ours, theirs))
    versions = [versions_of(frame) for frame in (new, base)]
    # what another tool does not record is no difference
    is_comparable = is_foreign(new) == is_foreign(base)
    for name in sorted({*versions[0], *versions[1]}):
        ours, theirs = (", ".join(sorted(side.get(name, set()))) or "-" for side in versions)
        if ours != theirs and (is_comparable or "-" not in (ours, theirs)):
            rows.append((name, ours, theirs))
    for name in ("limit", "ceiling_gbs") if is_comparable else ():
        mine, other = compared[name], compared[f"{name}_base"]
        places = np.flatnonzero(((mine != other) & ~(mine.isna() & other.isna())).to_numpy())
        if len(places):
            values = [str(side.iloc[places[0]]) or "-" for side in (mine, other)]
            rows.append((f"{name} ({len(places)} rows)", values[0], values[1]))
    if not is_comparable:
        return tuple(rows)
    tallies = [compared[name].value_counts() for name in ("notes", "notes_base")]
    for note in _COUNTED_NOTES:
        counts = [
            sum(int(count) for text, count in tally.items() if note in str(text))
            for tally in tallies
        ]
        if counts[0] != counts[1]:
            rows.append((f"rows with {note}", str(counts[0]), str(counts[1])))
    return tuple(rows)


def versions_of(frame: pd.DataFrame) -> dict[str, set[str]]:
    """Versions and environment by name: `nccl 2.28.9 with NCCL_ALGO=Ring` is nccl and NCCL_ALGO;
    what follows a source describes it.
    """
    versions: dict[str, set[str]] = {}
    for text in frame["versions"].unique():
        libraries, _, source = text.partition("; source ")
        if source:
            versions.setdefault("source", set()).add(source.partition(";")[0])
        for item in filter(None, (part.strip() for part in libraries.split(";"))):
            library, _, environment = item.partition(" with ")
            name, _, version = library.partition(" ")
            versions.setdefault(name, set()).add(version or "yes")
            for setting in environment.split():
                variable, _, value = setting.partition("=")
                versions.setdefault(variable, set()).add(value)
    return versions
