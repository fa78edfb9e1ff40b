"""Tuning of NCCL from measured rows: lines for its CSV tuner plugin, variables of its environment,
and rows for its optimizer script. Pure.

Only from NCCL's own rows that were forced to an algorithm, a protocol or a number of channels,
against its own choice in the same file: our kernels' best shows nothing about NCCL's. What is not
shown to be better is left to NCCL where it can be. Formats: NCCL's plugins/tuner/example, once
ext-tuner/example (plugin.c, scripts/optimize_config.py). The plugin takes the first line that
matches and reads unknown words as ring and simple. Where no line matches, or a line leaves channels
open (-1), it asks for one channel (*nChannels = 1, up to NCCL 2.30 at least): so lines name
channels and cover all sizes. While a CUDA graph is captured NCCL reports buffers as registered,
whether they are or not, so lines match any.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt, log, nan
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from collbench.compare.rows import (
    Workload,
    by_workload,
    has_note,
    is_own_choice,
    median_of,
    names_disturbance,
    times_of,
)
from collbench.core.case import Case
from collbench.core.errors import UsageError
from collbench.core.limits import LEAST_GAIN, SETTING_SPREAD
from collbench.core.peers import Variables, forced_by
from collbench.core.record import Record
from collbench.core.statistics import Interval
from collbench.core.units import format_size
from collbench.core.verdict import (
    beyond_chance,
    deviate,
    is_separated,
    ratio_of,
    scale_of,
    scale_of_two,
)

if TYPE_CHECKING:
    pass

TUNER_COLUMNS = (
    "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,"
    "nNodes,nRanks,numPipeOps,regBuff"
)
NCCL_ROWS_COLUMNS = (
    "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff,"
    "cost_metric,bandwidth_gbps,latency_us"
)
TUNED_OPS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
LARGEST_SIZE = 4294967295
# inside a host NCCL's Tree is a chain, and so is called ours
_TUNER_ALGORITHMS = {"ring": "ring", "chain": "tree", "tree": "tree"}
_TUNER_PROTOCOLS = ("ll", "ll128", "simple")
_ANY_VALUE = -1
# the plugin reads 255 characters at a time, and would take the rest of a longer comment for a line
# of its own
_COMMENT_WIDTH = 200
# in `versions`, as backends.nccl writes it
_NCCL_VERSION = re.compile(r"\bnccl ([\d.]+)(?: with ([^;]*))?")
_NO_GAIN = "nothing gains more than chance explains"
_HINT = (
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
            self.algo in _TUNER_ALGORITHMS
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

    is_faster, is_worse: shown by the repeats of
    every workload, or of some workload, and by LEAST_GAIN or more. deviate: how unlikely a gain
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
    if not any(
        not is_own_choice(row)
        for sizes in workloads_of.values()
        for here in sizes.values()
        for row in here
    ):
        raise UsageError(
            "no row of NCCL was forced to an algorithm, protocol or number of channels: there is"
            " nothing to tune",
            _HINT,
        )
    gains_of: dict[TunerMatch, dict[int, list[Gain]]] = {}
    for match, workloads in _by_match(workloads_of).items():
        sizes = sorted({size for workload in workloads for size in workloads_of[workload]})
        for size in sizes:
            options = _gains_at(
                [
                    workloads_of[workload][size]
                    for workload in workloads
                    if size in workloads_of[workload]
                ]
            )
            if options is not None:
                gains_of.setdefault(match, {})[size] = options
    if not any(options for sizes in gains_of.values() for options in sizes.values()):
        raise UsageError(
            "no size has both a forced row of NCCL and NCCL's own choice: no gain is known",
            "measure both in one sweep; " + _HINT,
        )
    return _beyond_chance(gains_of)


def _by_match(known: Mapping[Workload, object]) -> dict[TunerMatch, list[Workload]]:
    workloads_of: dict[TunerMatch, list[Workload]] = {}
    for workload in known:
        match = TunerMatch(workload.op, workload.hosts, workload.ranks)
        workloads_of.setdefault(match, []).append(workload)
    return workloads_of


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
    curves = [
        (match, setting)
        for match, sizes in measured.items()
        for setting in dict.fromkeys(one.setting for here in sizes.values() for one in here)
    ]
    gain_at = {
        (match, one.setting, size): one
        for match, sizes in measured.items()
        for size, here in sizes.items()
        for one in here
    }
    sure = beyond_chance(
        [
            [
                one.deviate if (one := gain_at.get((match, setting, size))) is not None else nan
                for size in measured[match]
            ]
            for match, setting in curves
        ]
    )
    is_sure = {
        (match, setting, size): mark
        for (match, setting), marks in zip(curves, sure, strict=True)
        for size, mark in zip(measured[match], marks, strict=True)
    }
    return {
        match: {
            size: [
                replace(one, is_better=one.is_faster and is_sure[match, one.setting, size])
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


def best_gain(options: Iterable[Gain], *, is_for_tuner: bool) -> Gain | None:
    """The setting with the largest proven gain; of equal ones the one that forces least."""
    better = [
        one for one in options if one.is_better and (one.setting.is_for_tuner or not is_for_tuner)
    ]
    return max(
        better, key=lambda one: (one.ratio.median, -sum(map(bool, one.setting))), default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Sizes with the same setting, and the gains at those that were measured."""

    first_bytes: int
    last_bytes: int
    setting: TunerSetting | None
    gains: tuple[tuple[int, Gain], ...]

    @property
    def is_gain(self) -> bool:
        """Whether it gains at any of its sizes."""
        return any(gain.is_better for _, gain in self.gains)


def _doubts(measured: Gains) -> list[str]:
    """What was faster in its repeats and may be so by chance."""
    cells = [here for sizes in measured.values() for here in sizes.values()]
    lucky = [
        max(one.ratio.median for one in here if one.is_faster)
        for here in cells
        if any(one.is_faster for one in here) and not any(one.is_better for one in here)
    ]
    if not lucky:
        return []
    tried = sum(map(len, cells))
    return [
        f"At {len(lucky)} of {len(cells)} sizes a setting was faster by up to {max(lucky):.2f}x,"
        f" which proves nothing where {tried} were tried and rows differ by"
        f" {100 * SETTING_SPREAD:g}% from run to run: more neighbouring sizes (-f 2) can show more"
    ]


def ranges(sizes: Mapping[int, Sequence[Gain]], *, is_for_tuner: bool) -> list[Range]:
    """Measured sizes in a row with the same best setting (None: no change). They do not overlap and
    leave gaps between them.

    is_for_tuner: where nothing gains, the setting nearest to NCCL's own choice; None
    where nothing that a line can express was measured.
    """
    ranges_of: list[Range] = []
    for size, options in sizes.items():
        best = best_gain(options, is_for_tuner=is_for_tuner)
        if best is None and is_for_tuner:
            best = _closest(options, ranges_of[-1].setting if ranges_of else None)
        setting = best.setting if best is not None else None
        more = ((size, best),) if best is not None else ()
        if ranges_of and ranges_of[-1].setting == setting:
            ranges_of[-1] = Range(
                first_bytes=ranges_of[-1].first_bytes,
                last_bytes=size,
                setting=setting,
                gains=ranges_of[-1].gains + more,
            )
        else:
            ranges_of.append(Range(first_bytes=size, last_bytes=size, setting=setting, gains=more))
    return ranges_of


def _closest(options: Iterable[Gain], before: TunerSetting | None) -> Gain | None:
    """The setting that loses least, or that of the size before if it loses as little."""
    able = [one for one in options if one.setting.is_for_tuner]
    least = max(able, key=lambda one: one.ratio.median, default=None)
    kept = next((one for one in able if one.setting == before), None)
    if (
        kept is not None
        and least is not None
        and kept.ratio.median * LEAST_GAIN >= least.ratio.median
    ):
        return kept
    return least


def tuner_lines(rows: Sequence[Record]) -> list[str]:
    """The configuration of NCCL's CSV tuner plugin, comments with the gains among its lines. Raises
    UsageError if there is nothing to go by.

    All sizes have a line; two ranges meet at the geometric middle of the sizes that were measured.
    Sizes of NCCL are total bytes, as ours. Without any gain, or where the best line of a size
    loses, there is no line.
    """
    gains_of = gains(rows)
    return tuner_lines_of(gains_of, [*_measured(rows), *_doubts(_of_tuner(gains_of))])


def _of_tuner(measured: Gains) -> Gains:
    """The gains of the collectives that the plugin decides about."""
    return {match: sizes for match, sizes in sorted(measured.items()) if match.op in TUNED_OPS}


def tuner_lines_of(measured: Gains, remarks: Sequence[str]) -> list[str]:
    """The same of gains that are known, below remarks on them."""
    gains_of = _of_tuner(measured)
    ranges_of = {match: ranges(sizes, is_for_tuner=True) for match, sizes in gains_of.items()}
    chosen = [
        one
        for ranges_of_match in ranges_of.values()
        for one in ranges_of_match
        if one.setting is not None
    ]
    if not chosen:
        raise UsageError(
            "no row of NCCL was forced to an algorithm, a protocol and channels, beside its own"
            " choice: a line of the plugin needs all",
            _HINT,
        )
    why_not = "" if any(one.is_gain for one in chosen) else _NO_GAIN
    why_not = why_not or _losses(ranges_of)
    if not why_not:
        most = max(one.setting.channels for one in chosen if one.setting is not None)
        remarks = [*remarks, *_plugin(ranges_of, most)]
    lines = [
        *(f"# {part}" for text in remarks for part in wrap(text, _COMMENT_WIDTH)),
        f"# {TUNER_COLUMNS}",
    ]
    if why_not:
        text = f"no change: {why_not}; do not load the plugin"
        return [*lines, *(f"# {part}" for part in wrap(text, _COMMENT_WIDTH))]
    for match, ranges_of_match in ranges_of.items():
        for one, first, last in _limits(
            [one for one in ranges_of_match if one.setting is not None]
        ):
            setting = one.setting
            assert setting is not None
            closest = ", no gain beyond chance: what comes closest to its own choice"
            remark = "" if one.is_gain else closest
            lines.append(f"# {match.op} {_between(one)}: {_gain_text(one)}{remark}")
            algo = _TUNER_ALGORITHMS[setting.algo]
            where = match.hosts or _ANY_VALUE, match.ranks or _ANY_VALUE, _ANY_VALUE, _ANY_VALUE
            cells = match.op, first, last, algo, setting.proto, setting.channels, *where
            lines.append(",".join(map(str, cells)))
    return lines


def _losses(ranges_of: Mapping[TunerMatch, Sequence[Range]]) -> str:
    """Where every setting that a line can say is slower than NCCL's own choice, in words."""
    losses = [
        f"{gain.ratio.median:.2f}x for {match.op} at {format_size(size)}"
        for match, ones in ranges_of.items()
        for one in ones
        for size, gain in one.gains
        if gain.is_worse
    ]
    if not losses:
        return ""
    return (
        f"all lines that were measured are slower than NCCL's own choice at some sizes"
        f" ({', '.join(losses)}), and the plugin has none for that choice"
    )


def _plugin(matches: Mapping[TunerMatch, object], channels: int) -> list[str]:
    """What the plugin does that its user must know; channels: the most of a line."""
    open_ops = [op for op in TUNED_OPS if op not in {match.op for match in matches}]
    rest = f"{', '.join(open_ops)}, other" if open_ops else "Other"
    return [
        (
            "NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=<this file>"
            f" NCCL_MIN_NCHANNELS={channels}, because a line takes no more channels than the"
            " communicator has; the plugin of NCCL 2.27 to 2.29 crashes at its first match"
            " (NVIDIA/nccl issue 1974): take that of a later NCCL"
        ),
        (
            f"The plugin takes one channel where no line matches. {rest} numbers of ranks or nodes,"
            " and sizes above 4 GiB have none."
        ),
    ]


def _limits(ranges_of: Sequence[Range]) -> list[tuple[Range, int, int]]:
    """Ranges with the bounds that the plugin takes: from 0 to the largest size, without gaps."""
    last = [
        min(isqrt(one.last_bytes * after.first_bytes), after.first_bytes - 1)
        for one, after in pairwise(ranges_of)
    ]
    bounds = zip(ranges_of, [0, *(end + 1 for end in last)], [*last, LARGEST_SIZE], strict=True)
    return [(one, low, min(high, LARGEST_SIZE)) for one, low, high in bounds if low <= LARGEST_SIZE]


def _between(one: Range) -> str:
    """The measured sizes of a range."""
    first, last = format_size(one.first_bytes), format_size(one.last_bytes)
    return first if first == last else f"{first} to {last}"


def _gain_text(one: Range) -> str:
    """The gains at the measured sizes of a range: NCCL's own choice takes so many times as long."""
    low = min(one.gains, key=lambda pair: pair[1].ratio.median)
    high = max(one.gains, key=lambda pair: pair[1].ratio.median)
    if f"{low[1].ratio.median:.2f}" == f"{high[1].ratio.median:.2f}":
        return f"{low[1].ratio.median:.2f}x"
    return (
        f"{low[1].ratio.median:.2f}x at {format_size(low[0])}, {high[1].ratio.median:.2f}x at"
        f" {format_size(high[0])}"
    )


def _measured(rows: Iterable[Record]) -> list[str]:
    """What was measured, and what must hold for it to be true."""
    theirs = [row for row in rows if row.backend == "nccl" and row.status == "ok"]
    matches = {match for row in theirs if (match := _NCCL_VERSION.search(row.versions)) is not None}
    numbers = sorted({match[1] for match in matches})
    devices = sorted({row.device for row in theirs if row.device})
    parts = ["measured with NCCL", ", ".join(numbers)]
    parts += [f"on {', '.join(devices)}"] if devices else []
    lines = [" ".join(filter(None, parts))]
    settings = [
        {word for word in (match[2] or "").split() if not word.startswith("NCCL_VERSION=")}
        for match in matches
    ]
    # what only some rows have is what they were forced by
    variables = sorted(set.intersection(*settings)) if settings else []
    if variables:
        lines.append(
            f"{' '.join(variables)} was set for all of it, NCCL's own choice included: without it"
            " the gains may be others"
        )
    if any(row.group == "local" and has_note(row, "processes") for row in theirs):
        lines.append(
            "what was forced ran in a process for each rank, NCCL's own choice in one process:"
            " measure under mpirun to compare like with like"
        )
    return lines


def env_lines(rows: Sequence[Record]) -> list[str]:
    """The NCCL_* settings that come closest to the best of each size, with their gains; no change
    where chance explains what was measured.

    Raises UsageError if there is nothing to go by.
    """
    gains_of = gains(rows)
    return env_lines_of(gains_of, [*_measured(rows), *_doubts(gains_of)])


def env_lines_of(gains_of: Gains, remarks: Sequence[str]) -> list[str]:
    """The same of gains that are known, below remarks on them."""
    lines = [*remarks, "", *_everywhere(gains_of)]
    for match, sizes in sorted(gains_of.items()):
        hosts = f" on {match.hosts} hosts" if match.hosts > 1 else ""
        lines += ["", f"{match.op}, {match.ranks} ranks{hosts}, by size"]
        for one in ranges(sizes, is_for_tuner=False):
            if one.setting is None:
                lines.append(f"  {_between(one)}: no change")
            else:
                lines.append(f"  {_between(one)}: {_gain_text(one)}")
                lines.append(f"    {_variables(match, one.setting)}")
    return lines


def _everywhere(measured: Gains) -> list[str]:
    """The setting for a whole process: it gains at some size and loses at none."""
    cells = [
        (match, size, {one.setting: one for one in here})
        for match, sizes in measured.items()
        for size, here in sizes.items()
    ]
    lines = ["These variables hold for a whole process, at all sizes and for all collectives."]
    settings = dict.fromkeys(setting for _, _, here in cells for setting in here)
    kept: list[tuple[float, TunerSetting]] = []
    for setting in settings:
        gains_of_setting = [here[setting] for _, _, here in cells if setting in here]
        better_ones = [one for one in gains_of_setting if one.is_better]
        is_everywhere = len(gains_of_setting) == len(cells)
        if better_ones and is_everywhere and not any(one.is_worse for one in gains_of_setting):
            kept.append((sum(log(one.ratio.median) for one in better_ones), setting))
    if not kept:
        somewhere = any(one.is_better for _, _, here in cells for one in here.values())
        why = (
            "what gains at some sizes loses, or was not measured, at others"
            if somewhere
            else _NO_GAIN
        )
        return [*lines, f"For all that was measured: no change ({why})."]
    setting = max(kept, key=lambda pair: (pair[0], -sum(map(bool, pair[1]))))[1]
    better = [
        (match, size, here[setting]) for match, size, here in cells if here[setting].is_better
    ]
    top_match, top_size, top = max(better, key=lambda cell: cell[2].ratio.median)
    return [
        *lines,
        (
            f"For all that was measured: gains at {len(better)} of {len(cells)} sizes, most"
            f" {top.ratio.median:.2f}x for {top_match.op} at {format_size(top_size)}, and loses"
            " nowhere"
        ),
        f"    {_variables(top_match, setting)}",
    ]


def variables_of(match: TunerMatch, setting: TunerSetting) -> Variables:
    """The variables of the environment that force NCCL to a setting."""
    algo = "chain" if setting.algo == "tree" else setting.algo or "library"
    case = Case(
        op=match.op,  # type: ignore[arg-type]
        backend="nccl",
        algo=algo,
        proto=setting.proto,
        channels=setting.channels,
        buffsize=setting.buffsize,
        ranks=max(2, match.ranks),
        size_bytes=8,
    )
    return forced_by(case)


def _variables(match: TunerMatch, setting: TunerSetting) -> str:
    return " ".join(f"{name}={value}" for name, value in variables_of(match, setting))


def nccl_rows_lines(rows: Sequence[Record]) -> list[str]:
    """NCCL's forced rows in the columns of its optimizer script. Raises UsageError if there are
    none that it can use.

    The script takes the fastest row of a size and knows no types or placements: of several
    workloads of one operation only the one with most rows is written. It has no row for NCCL's own
    choice, so it cannot show whether anything is gained: tuner_lines can. Rows that left channels
    to NCCL are left out, because the plugin reads what the script would make of them as one
    channel.
    """
    known = by_workload(
        row
        for row in rows
        if row.backend == "nccl"
        and row.op in TUNED_OPS
        and setting_of(row).is_for_tuner
        and not names_disturbance(row.notes)
    )
    if not known:
        raise UsageError(
            "no row of NCCL was forced to an algorithm, a protocol and channels: its optimizer"
            " script needs all",
            _HINT,
        )
    lines = [NCCL_ROWS_COLUMNS]
    for match, workloads in sorted(_by_match(known).items()):
        workload = max(workloads, key=lambda one: sum(map(len, known[one].values())))
        for size, rows in known[workload].items():
            for row in rows:
                setting, time = setting_of(row), f"{median_of(row):.6g}"
                algo = _TUNER_ALGORITHMS[setting.algo]
                where = match.hosts or _ANY_VALUE, match.ranks, _ANY_VALUE, _ANY_VALUE
                measured = time, f"{row.busbw_gbs or nan:.6g}", time
                cells = match.op, size, algo, setting.proto, setting.channels, *where, *measured
                lines.append(",".join(map(str, cells)))
    return lines
