"""What a sweep says of itself, before the rows and after them: what is measured, how, on what, and
what came of it. A saved screen then needs no explanation.
"""

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from collbench import __version__
from collbench.compare.best import summarise
from collbench.compare.tables.distribution import jitter_text, unknown_text
from collbench.compare.tables.summary import rival_name, speedup_text
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.options import Settings
from collbench.core.peers import is_peer
from collbench.core.record import Record
from collbench.core.rows import as_written
from collbench.core.text import counted, paragraphs, share_text
from collbench.core.units import (
    format_duration,
    format_rate,
    format_size,
    format_time_us,
    span_of_sizes,
)
from collbench.planning.tuning import Origin

_CARRIERS = {
    "shm": "shared memory",
    "net": "messages of MPI",
    "p2p": "loads and stores between GPUs",
    "ce": "copy engines",
}
_MOST_NAMED = 4  # of things that a line names before it counts them
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOf:
    """What a sweep runs: cases that are not waived, and the sessions that carry them.

    devices, versions: of the sessions by their backends. hosts: of the ranks, by name or number,
    the local one alone without a launcher. links: the slowest that carry the largest size, where
    they are known. origins: of what the tool chooses, with the numbers of ranks. is_timed: whether
    anything measures; the model predicts.
    """

    command: str
    cases: Sequence[Case]
    settings: Settings
    hosts: Sequence[object]
    devices: dict[str, str]
    versions: dict[str, str]
    links: Sequence[str]
    origins: Mapping[Origin, Sequence[int]]
    is_timed: bool


def head_lines(run: RunOf, columns: int) -> list[str]:
    """The lines above the rows."""
    texts = [run.command, *_choices(run), *_what(run), *_how(run), _versions(run)]
    return paragraphs((f"# {text}" for text in texts if text), columns, "#   ")


def planned_lines(run: RunOf, columns: int) -> list[str]:
    """The lines above the points of a dry run."""
    return paragraphs((f"# {text}" for text in _what(run)), columns, "#   ")


def _choices(run: RunOf) -> list[str]:
    """Whether a tuning file decides on this machine, and which."""
    texts = []
    origins = _by_files(run.origins)
    for origin, ranks in origins.items():
        of = f" of {_listed(ranks, 'numbers of')} ranks" if len(origins) > 1 else ""
        files = " and ".join(f"{name} ({title})" for name, title in origin.files)
        texts.append(
            f"auto{of}: by tuning file {files}, which fits this machine{_priced(origin)}"
            if origin.is_fitting
            else f"auto{of}: no tuning file fits this machine; {_priced(origin)}{files}"
        )
    return texts


def _by_files(origins: Mapping[Origin, Sequence[int]]) -> dict[Origin, Sequence[int]]:
    """One for all choices by the same files, whether the model decides a part of them or not."""
    merged: dict[Origin, Origin] = {}
    ranks: dict[Origin, set[int]] = {}
    for origin, numbers in origins.items():
        files = origin._replace(priced_by="")
        if files not in merged or origin.priced_by:
            merged[files] = origin
        ranks.setdefault(files, set()).update(numbers)
    return {merged[files]: sorted(numbers) for files, numbers in ranks.items()}


def _priced(origin: Origin) -> str:
    """What the model decides where no file that fits does."""
    model = f"by the model (constants of {origin.priced_by})"
    if origin.is_fitting:
        rest = f"; where it says nothing, algorithm and protocol {model}"
        return rest if origin.priced_by else ""
    return f"algorithm and protocol {model}, the rest by " if origin.priced_by else "by "


def _what(run: RunOf) -> list[str]:
    ops = _distinct(run.cases, lambda case: case.op)
    ranks = sorted(set(_distinct(run.cases, lambda case: case.ranks)))
    if not run.cases:
        return []
    hosts = len(set(run.hosts)) or 1
    devices = list(dict.fromkeys(run.devices.values()))
    sizes = sorted({case.size_bytes for case in run.cases})
    of_sizes = "size" if len(sizes) == 1 else f"{len(sizes)} sizes from"
    reductions = _distinct(
        [case for case in run.cases if collective(case.op).is_reduction], lambda case: case.redop
    )
    of = [
        _listed(reductions, "reductions"),
        "of",
        _listed(_distinct(run.cases, lambda case: case.dtype), "types"),
    ]
    mixes = _distinct([case for case in run.cases if case.mix], lambda case: f"mix {case.mix}")
    groups = _distinct(
        [case for case in run.cases if case.groups], lambda case: case.groups.replace("/", " and ")
    )
    placements = _distinct(run.cases, lambda case: "in place" if case.in_place else "")
    roots = _distinct(
        [case for case in run.cases if collective(case.op).is_rooted], lambda case: case.root
    )
    largest = {(case.op, case.skew, case.ranks): case for case in run.cases if case.skew}
    uneven = {
        f"{case.op} {case.skew}: {text}": None
        for case in largest.values()
        if (text := case.bottleneck())
    }
    return [
        f"{_listed(mixes or ops, 'collectives')}: {' '.join(of if reductions else of[2:])}"
        + (", in place" if placements == ["in place"] else "")
        + (f", root {_listed(roots, 'roots')}" if roots else "")
        + (f", at once on ranks {_listed(groups, 'splits')}" if groups else "")
        + f"; {', '.join(map(str, ranks))} ranks on {counted(hosts, 'host')}"
        + (f": {_listed(devices, 'devices')}" if devices else ""),
        f"{of_sizes} {span_of_sizes(sizes[0], sizes[-1])}, carried by {_carriers(run)}",
        *([_listed(list(uneven), "kinds of unequal blocks")] if uneven else []),
    ]


def _carriers(run: RunOf) -> str:
    names = _distinct(run.cases, _carrier) if run.is_timed or not run.links else []
    links = _listed(list(dict.fromkeys(run.links)), "links")
    return ": ".join(filter(None, (_listed(names, "transports"), links)))


def _carrier(case: Case) -> str:
    if is_peer(case.backend):
        return f"{case.backend} itself"
    return _CARRIERS.get(case.transport, case.transport)


def _how(run: RunOf) -> list[str]:
    settings = run.settings
    if not run.cases:
        return []
    if not run.is_timed:
        return ["predicted, not measured: times in us, rates in GB/s"]
    launches = f"{settings.iterations} launches" if settings.iterations else "automatic launches"
    together = f" of {settings.aggregate}" if settings.aggregate > 1 else ""
    repeats = f"{counted(settings.repeats, 'repeat')} of {launches}{together}"
    repeats = f"{settings.runs} runs of {repeats}" if settings.runs > 1 else repeats
    buffers = "the same buffers again (hot)" if settings.hot else "sets of buffers in turn"
    checked = "every element compared" if settings.is_checked else "no result compared"
    asked = settings.distribution
    number = f"{asked} launches of each point" if asked else "automatic launches"
    singly = "" if asked is None else f"; then {number} one by one (p50 to max)"
    return [
        f"{repeats}, the median, of the slowest rank{singly}; {buffers}; {checked};"
        " times in us, rates in GB/s"
    ]


def _versions(run: RunOf) -> str:
    texts = [f"{name}: {text}" for name, text in run.versions.items() if text]
    own = f"collbench {__version__}, Python {platform.python_version()}"
    return f"versions: {'; '.join([own, *texts])}" if run.is_timed else ""


def tail_lines(
    records: Sequence[Record], runs: int, seconds: float, saved_as: str, columns: int
) -> list[str]:
    """The lines below the rows and the tables: how many rows, each of how many runs, what was
    wrong, the highest rate and the lowest time of ours among those that are no noise, the speedup
    over the best library, the jitter of launches that were timed one by one, and where the rows
    are.
    """
    measured = [row for row in records if row.status != "waived"]
    if not measured:
        return []
    compared = [row for row in measured if row.wrong is not None]
    wrong = sum(int(row.wrong or 0) for row in compared)
    failed = sum(row.status == "error" for row in measured)
    is_predicted = all("modelled" in row.notes for row in measured)
    of_runs = f" of {runs} runs" if runs > 1 else ""
    parts = [f"{counted(len(measured), 'row')}{of_runs}"]
    if waived := len(records) - len(measured):
        parts.append(f"{waived} waived")
    if failed:
        parts.append(f"{failed} failed")
    if len(compared) == len(measured):
        parts += ["every element compared", f"{wrong} wrong"]
    elif compared:
        parts += [f"every element of {len(compared)} compared", f"{wrong} wrong"]
    else:
        parts.append("all predicted" if is_predicted else "no element compared")
    lines = [f"{', '.join(parts)}, {format_duration(seconds)}."]
    right = [row for row in measured if row.status == "ok"]
    ours = [
        row
        for row in right
        if not is_peer(row.backend)
        # a prediction is no result beside what was measured
        and ("modelled" not in row.notes or is_predicted)
    ]
    calm = [row for row in ours if "noisy" not in row.notes]
    of = " of our own" * any(is_peer(row.backend) for row in right)
    if len(calm) < len(ours):
        of = f"{of or ' of'} rows that are not noisy"
    lines += _extremes(_best(calm), of)
    lines += _speedup(records) if any(is_peer(row.backend) for row in right) else []
    timed = [row for row in right if row.max_us is not None]
    if timed and (jitter := jitter_text(timed)):
        lines.append(f"Jitter: {jitter}.")
    if timed and (unknown := unknown_text(timed)):
        lines.append(f"{unknown}.")
    if saved_as:
        lines.append(f"Saved as {saved_as}: collbench compare {saved_as}")
    return paragraphs(lines, columns)


def _best(rows: Sequence[Record]) -> Sequence[Record]:
    """The best row of each size of a workload."""
    if len(rows) < 2:
        return rows
    summary = summarise(list(map(as_written, rows)))
    return [one.row for sizes in summary.best.values() for one in sizes.values()]


def _extremes(rows: Sequence[Record], of: str) -> list[str]:
    """The highest bus bandwidth and the lowest time, of one workload alone: others are not told
    apart by a number. of: which rows they are, if not all.
    """
    timed = [row for row in rows if row.time_us is not None and row.busbw_gbs is not None]
    if not timed or len({(row.op, row.ranks) for row in timed}) > 1:
        return []
    top = max(timed, key=lambda row: row.busbw_gbs or 0.0)
    quick = min(timed, key=lambda row: row.time_us or 0.0)
    share = ""
    if top.percent is not None:
        time_us = top.time_us or 0.0
        ends = top.time_low_us or time_us, top.time_high_us or time_us
        share = f", {share_text(top.percent, time_us, *ends)} of the ceiling of {top.algo}"
        share += f" {top.proto} ({top.limit})"
    return [
        f"Highest bus bandwidth{of}: {format_rate(top.busbw_gbs or 0.0)} GB/s, {top.algo} at"
        f" {format_size(top.size_bytes)}{share}.",
        f"Lowest time{of}: {format_time_us(quick.time_us or 0.0)} us, {quick.algo} at"
        f" {format_size(quick.size_bytes)}.",
    ]


def _speedup(records: Sequence[Record]) -> list[str]:
    """The least and the largest speedup over the fastest library, of sizes that are decided."""
    summary = summarise(list(map(as_written, records)))
    is_one = len(summary.best) == 1
    ratios: list[tuple[float, str]] = []
    for workload, sizes in summary.best.items():
        for size, best in sizes.items():
            if best.is_certain and best.peers and not is_peer(best.row.backend):
                peer = min(best.peers, key=lambda name: best.peers[name].median)
                where = [rival_name(summary, best, peer), *([] if is_one else [workload.op])]
                text = f"{' '.join(where)} at {format_size(size)}"
                ratios.append((best.peers[peer].median, f"{speedup_text(best, peer)} ({text})"))
    if not ratios:
        return []
    ends = dict.fromkeys(text for _, text in (min(ratios), max(ratios)))
    return [f"Speedup over the fastest library: {' to '.join(ends)}."]


def _distinct(cases: Iterable[Case], of: Callable[[Case], Item]) -> list[Item]:
    return list(dict.fromkeys(of(case) for case in cases))


def _listed(items: Sequence[object], what: str) -> str:
    """A few things by name, many by their number."""
    if len(items) > _MOST_NAMED:
        return f"{len(items)} {what}"
    return ", ".join(map(str, items))
