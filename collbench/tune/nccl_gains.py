"""What NCCL's rows that were forced to a setting gain over its own choice in the same file. Pure.

Our kernels' best shows nothing about NCCL's. What is not shown to be better is left to NCCL where
it can be.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import log, nan
from typing import NamedTuple

from collbench.core.errors import UsageError
from collbench.core.grouping import grouped
from collbench.core.limits import LEAST_GAIN, SETTING_SPREAD
from collbench.core.record import Record
from collbench.core.rows import (
    Workload,
    by_workload,
    is_own_choice,
    median_of,
    names_disturbance,
    times_of,
)
from collbench.core.verdict import (
    Interval,
    beyond_chance,
    deviate,
    is_separated,
    ratio_of,
    scale_of,
    scale_of_two,
)

TUNED_OPS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
# inside a host NCCL's Tree is a chain, and so is called ours
TUNER_ALGORITHMS = {"ring": "ring", "chain": "tree", "tree": "tree"}
_TUNER_PROTOCOLS = ("ll", "ll128", "simple")
HINT = (
    "measure some, best under mpirun: collbench sweep --backend nccl --op allreduce --algo"
    " ring,chain --proto ll,ll128,simple --channels 8,16"
)


class TunerSetting(NamedTuple):
    """What NCCL was forced to; empty and 0: left to it."""

    algo: str
    proto: str
    channels: int
    buffsize: int

    @property
    def is_for_tuner(self) -> bool:
        """Whether a line of the plugin can express it: it has no column for a buffer."""
        return (
            self.algo in TUNER_ALGORITHMS
            and self.proto in _TUNER_PROTOCOLS
            and self.channels > 0
            and self.buffsize == 0
        )


class TunerMatch(NamedTuple):
    """What a line of the plugin matches, sizes apart."""

    op: str
    hosts: int
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """NCCL's own choice's time over a setting's at one size; the worst of the workloads (types,
    placements) that were measured.

    is_faster, is_worse: shown by the repeats of every workload, or of some workload, and by
    LEAST_GAIN or more. deviate: how unlikely a gain
    beyond LEAST_GAIN is by chance, as a normal deviate. is_better: is_faster, and chance does not
    explain it, however many settings and sizes were tried.
    """

    setting: TunerSetting
    ratio: Interval
    deviate: float
    is_faster: bool
    is_worse: bool
    is_better: bool = False


Gains = Mapping[TunerMatch, Mapping[int, Sequence[Gain]]]


def setting_of(row: Record) -> TunerSetting:
    """What a row of NCCL was forced to."""
    return TunerSetting(
        algo="" if row.algo == "library" else row.algo,
        proto=row.proto,
        channels=row.channels,
        buffsize=row.buffsize,
    )


def gains(rows: Iterable[Record]) -> Gains:
    """Every forced setting against NCCL's own choice, with the gains that chance does not explain.
    Disturbed rows take no part. Raises UsageError if nothing was forced, or nothing can be
    compared.
    """
    theirs = [row for row in rows if row.backend == "nccl" and not names_disturbance(row.notes)]
    # forced and not, on the same user buffers
    forced_on = [row.buffers for row in theirs if not is_own_choice(row)]
    theirs = [row for row in theirs if row.buffers in forced_on[:1]]
    # a line is for both one process and several
    workloads_of = by_workload(replace(row, group="") for row in theirs)
    rows_of = [here for sizes in workloads_of.values() for here in sizes.values()]
    if all(map(is_own_choice, chain.from_iterable(rows_of))):
        raise UsageError(
            "no row of NCCL was forced to an algorithm, protocol or number of channels: there is"
            " nothing to tune",
            HINT,
        )
    gains_of: dict[TunerMatch, dict[int, list[Gain]]] = {}
    for match, workloads in by_match(workloads_of).items():
        known = [workloads_of[workload] for workload in workloads]
        for size in sorted({*chain.from_iterable(known)}):
            options = _gains_at([sizes[size] for sizes in known if size in sizes])
            if options is not None:
                gains_of.setdefault(match, {})[size] = options
    if not any(options for sizes in gains_of.values() for options in sizes.values()):
        raise UsageError(
            "no size has both a forced row of NCCL and NCCL's own choice: no gain is known",
            "measure both in one sweep; " + HINT,
        )
    return _beyond_chance(gains_of)


def by_match(known: Mapping[Workload, object]) -> dict[TunerMatch, list[Workload]]:
    """The workloads of each line of the plugin that may match them."""
    return grouped((TunerMatch(one.op, one.hosts, one.ranks), one) for one in known)


def _gains_at(cells: Sequence[Sequence[Record]]) -> list[Gain] | None:
    """The gains of settings measured in every workload beside NCCL's own choice, or None."""
    options: list[dict[TunerSetting, tuple[Record, Record]]] = []
    for rows in cells:
        own = next((row for row in rows if is_own_choice(row)), None)
        if own is not None:
            options.append({setting_of(row): (own, row) for row in rows if not is_own_choice(row)})
    if not options:
        return None
    return [
        _gain(setting, [pairs[setting] for pairs in options])
        for setting in options[0]
        if all(setting in pairs for pairs in options)
    ]


def _gain(setting: TunerSetting, pairs: Sequence[tuple[Record, Record]]) -> Gain:
    least = min(
        (
            ratio_of(median_of(own) / median_of(row), scale_of_two(times_of(own), times_of(row)))
            for own, row in pairs
        ),
        key=lambda one: one.median,
    )
    return Gain(
        setting=setting,
        ratio=least,
        deviate=min(_deviate(row, own) for own, row in pairs),
        is_faster=all(_is_faster(row, own) for own, row in pairs),
        is_worse=any(_is_faster(own, row) or _may_lose(own, row) for own, row in pairs),
    )


def _may_lose(own: Record, row: Record) -> bool:
    """Whether a loss has no second repeat to show that it is none."""
    is_single = min(len(times_of(own)), len(times_of(row))) < 2
    return is_single and median_of(row) >= LEAST_GAIN * median_of(own)


def _deviate(row: Record, own: Record) -> float:
    """How unlikely it is that a row that gains LEAST_GAIN is so much faster than NCCL's own choice,
    as a normal deviate: each of them differs from run to run.
    """
    change = log(median_of(own) / median_of(row) / LEAST_GAIN)
    return deviate(change, scale_of(SETTING_SPREAD, times_of(own), times_of(row)))


def _beyond_chance(measured: Gains) -> Gains:
    """The gains, marked where chance does not explain them; all that the file has was tried."""
    curves = {
        (match, one.setting): dict.fromkeys(sizes, nan)
        for match, sizes in measured.items()
        for here in sizes.values()
        for one in here
    }
    for match, sizes in measured.items():
        for size, here in sizes.items():
            for one in here:
                curves[match, one.setting][size] = one.deviate
    marks = beyond_chance([list(curve.values()) for curve in curves.values()])
    is_sure = {
        about: dict(zip(curve, own, strict=True))
        for (about, curve), own in zip(curves.items(), marks, strict=True)
    }
    return {
        match: {
            size: [
                replace(one, is_better=one.is_faster and is_sure[match, one.setting][size])
                for one in here
            ]
            for size, here in sizes.items()
        }
        for match, sizes in measured.items()
    }


def _is_faster(row: Record, other: Record) -> bool:
    return is_separated(times_of(row), times_of(other)) and median_of(
        other
    ) >= LEAST_GAIN * median_of(row)


@dataclass(frozen=True, slots=True)
class Range:
    """Neighbouring sizes with the same setting, or with none, and the gain at each."""

    setting: TunerSetting | None
    sizes: list[int] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)

    @property
    def is_gain(self) -> bool:
        """Whether it gains at any of its sizes."""
        return any(gain.is_better for gain in self.gains)


def ranges(sizes: Mapping[int, Sequence[Gain]], *, is_for_tuner: bool) -> list[Range]:
    """Measured sizes in a row with the same best setting: that of the largest proven gain, of equal
    ones the one that forces least. They do not overlap and leave gaps between them.

    is_for_tuner: only settings that a line can express, and where nothing gains, the one nearest to
    NCCL's own choice.
    """
    found: list[Range] = []
    for size, options in sizes.items():
        able = [one for one in options if one.setting.is_for_tuner or not is_for_tuner]
        best = max(
            (one for one in able if one.is_better),
            key=lambda one: (one.ratio.median, -sum(map(bool, one.setting))),
            default=None,
        )
        if best is None and is_for_tuner:
            best = _closest(able, found[-1].setting if found else None)
        setting = best.setting if best is not None else None
        if not found or found[-1].setting != setting:
            found.append(Range(setting))
        found[-1].sizes.append(size)
        found[-1].gains.extend([best] if best is not None else [])
    return found


def _closest(able: Sequence[Gain], before: TunerSetting | None) -> Gain | None:
    """The setting that loses least, or that of the size before if it loses as little."""
    least = max(able, key=lambda one: one.ratio.median, default=None)
    kept = next((one for one in able if one.setting == before), None)
    if kept is None or least is None:
        return least
    return kept if kept.ratio.median * LEAST_GAIN >= least.ratio.median else least
