"""Tuning of NCCL from measured rows: lines for its CSV tuner plugin, and variables of its
environment. Pure.

Only from NCCL's own rows that were forced to an algorithm, a protocol or a number of channels,
against its own choice in the same file: our kernels' best shows nothing about NCCL's. What is not
shown to be better is left to NCCL where it can be. Formats: NCCL's plugins/tuner/example, once
ext-tuner/example (plugin.c). The plugin takes the first line that
matches and reads unknown words as ring and simple. Where no line matches, or a line leaves channels
open (-1), it asks for one channel (*nChannels = 1, up to NCCL 2.30 at least): so lines name
channels and cover all sizes. While a CUDA graph is captured NCCL reports buffers as registered,
whether they are or not, so lines match any.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from math import isqrt, log
from textwrap import wrap

from collbench.core.case import Case
from collbench.core.errors import UsageError
from collbench.core.limits import SETTING_SPREAD
from collbench.core.peers import Variables, forced_by
from collbench.core.record import Record
from collbench.core.rows import has_note
from collbench.core.units import format_size
from collbench.tune.nccl_gains import (
    HINT,
    TUNED_OPS,
    TUNER_ALGORITHMS,
    Gains,
    Range,
    TunerMatch,
    TunerSetting,
    gains,
    ranges,
)

TUNER_COLUMNS = (
    "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,"
    "nNodes,nRanks,numPipeOps,regBuff"
)
LARGEST_SIZE = 4294967295
_ANY_VALUE = -1
# the plugin reads 255 characters at a time, and would take the rest of a longer comment for a line
# of its own
_COMMENT_WIDTH = 200
# in `versions`, as backends.nccl writes it
_NCCL_VERSION = re.compile(r"\bnccl ([\d.]+)(?: with ([^;]*))?")
_NO_GAIN = "nothing gains more than chance explains"


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
    chosen = list(chain.from_iterable(ranges_of.values()))
    most = max((one.setting.channels for one in chosen if one.setting is not None), default=0)
    if not most:
        raise UsageError(
            "no row of NCCL was forced to an algorithm, a protocol and channels, beside its own"
            " choice: a line of the plugin needs all",
            HINT,
        )
    why_not = "" if any(one.is_gain for one in chosen) else _NO_GAIN
    why_not = why_not or _losses(ranges_of)
    if not why_not:
        remarks = [*remarks, *_plugin(ranges_of, most)]
    lines = [
        *(f"# {part}" for text in remarks for part in wrap(text, _COMMENT_WIDTH)),
        f"# {TUNER_COLUMNS}",
    ]
    if why_not:
        text = f"no change: {why_not}; do not load the plugin"
        return [*lines, *(f"# {part}" for part in wrap(text, _COMMENT_WIDTH))]
    for match, ranges_of_match in ranges_of.items():
        served = [one for one in ranges_of_match if one.setting is not None]
        for one, first, last in _limits(served):
            setting = one.setting
            assert setting is not None
            closest = ", no gain beyond chance: what comes closest to its own choice"
            remark = "" if one.is_gain else closest
            lines.append(f"# {match.op} {_between(one)}: {_gain_text(one)}{remark}")
            algo = TUNER_ALGORITHMS[setting.algo]
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
        for size, gain in zip(one.sizes, one.gains, strict=False)
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
        min(isqrt(one.sizes[-1] * after.sizes[0]), after.sizes[0] - 1)
        for one, after in pairwise(ranges_of)
    ]
    bounds = zip(ranges_of, [0, *(end + 1 for end in last)], [*last, LARGEST_SIZE], strict=True)
    return [(one, low, min(high, LARGEST_SIZE)) for one, low, high in bounds if low <= LARGEST_SIZE]


def _between(one: Range) -> str:
    """The measured sizes of a range."""
    return " to ".join(dict.fromkeys(map(format_size, (one.sizes[0], one.sizes[-1]))))


def _gain_text(one: Range) -> str:
    """The gains at the measured sizes of a range: NCCL's own choice takes so many times as long."""
    pairs = list(zip(one.gains, one.sizes, strict=True))
    ends = [end(pairs, key=lambda pair: pair[0].ratio.median) for end in (min, max)]
    low, high = (f"{gain.ratio.median:.2f}x" for gain, _ in ends)
    if low == high:
        return low
    return f"{low} at {format_size(ends[0][1])}, {high} at {format_size(ends[1][1])}"


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
                lines.append(f"    {variables_text(match, one.setting)}")
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
        f"    {variables_text(top_match, setting)}",
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


def variables_text(match: TunerMatch, setting: TunerSetting) -> str:
    """The same as a shell takes them."""
    return " ".join(f"{name}={value}" for name, value in variables_of(match, setting))
