"""Carry out `hunt`: measure pairs within the budget or read them, judge them, show them."""

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from collbench.analysis.hunt.read import read
from collbench.analysis.hunt.rounds import Pair, Round, packed, planned, squares
from collbench.analysis.hunt.verdicts import Analysis, analyse
from collbench.backends.gpu.session import why_no_gpus
from collbench.bench.pairwise import SIZES, Pairs, PairSettings
from collbench.cli._files import check_writable, named_in_errors, write_document
from collbench.cli._options import is_coloured, remark, width
from collbench.cli._rank0 import drive_on_rank0, group_here
from collbench.cli._rules import Options
from collbench.cli._screen import document_on_stdout, say
from collbench.device.card import device_count
from collbench.launch.group import Group
from collbench.launch.launcher import launcher
from collbench.machine.host import has_nvidia_gpus, usable_cores
from collbench.report.colors import painted
from collbench.report.tables.hunt import as_json, lines
from collbench.results.pairwise import (
    COLUMNS,
    MODES,
    Mode,
    PairSample,
    PairWorld,
    csv_line,
    sample_line,
)
from collbench.util.errors import UnavailableError
from collbench.util.units import format_duration

_SMALL = 16  # ranks, up to which all pairs are measured, in both modes
_LEAST_CORES, _MOST_CORES = 3, 8  # ranks on CPUs without a launcher, by default
_REPEATS = 3
_REPEATS_OF_FEW = ((3, 12), (8, 5))  # up to so many ranks, whose few pairs need more to tell
_FIRST_SHARE = 0.75  # of the budget: the rest is for what the verdicts miss
_TURNS_OF_MISSING = 3


@dataclass(slots=True)
class _Hunt:
    """A hunt on its way. write: of every sample; until: when the budget is spent."""

    pairs: Pairs
    modes: Sequence[Mode]
    write: Callable[[PairSample], None]
    until: float
    samples: list[PairSample] = field(default_factory=list)
    missed: int = 0

    @property
    def world(self) -> PairWorld:
        return self.pairs.world

    def measure(self, turns: Sequence[Round], modes: Sequence[Mode], until: float) -> None:
        """Measure rounds until a time; counts the pairs that came too late."""
        for turn in turns:
            for mode in modes:
                left = {(min(pair), max(pair)) for pair in turn}
                with closing(self._samples(turn, mode, until)) as samples:
                    for sample in samples:
                        self.write(sample)
                        self.samples.append(sample)
                        left.discard((min(sample.a, sample.b), max(sample.a, sample.b)))
                self.missed += len(left)

    def _samples(self, turn: Round, mode: Mode, until: float) -> Generator[PairSample, None, None]:
        for part in [turn] if mode == "together" else [(pair,) for pair in turn]:
            if time.monotonic() >= until and self.samples:
                return
            yield from self.pairs.measure(part, mode)


def run_hunt(options: Options) -> int:
    """The whole command; returns the exit code."""
    if options["files"]:
        return _read_and_judge(options)
    for name in ("csv", "json"):
        if options[name] not in (None, "-"):
            check_writable(options[name], f"--{name}")
    backend, ranks = _ranks(options)
    group = group_here(options["timeout"] or 10.0)
    return drive_on_rank0(group, lambda: _drive(options, group, backend, ranks))


def _ranks(options: Options) -> tuple[str, int]:
    """The backend, and the number of ranks. Raises UnavailableError."""
    wanted, ranks, under = options["backend"], options["ranks"], launcher()
    gpus = device_count() if wanted != "cpu" and has_nvidia_gpus() else 0
    if wanted == "cuda" and (why := why_no_gpus()):
        raise UnavailableError(f"--backend cuda: {why}", "leave it out to measure CPUs")
    if under is not None:
        backend = wanted or ("cuda" if gpus >= max(under.local_size, 1) else "cpu")
        return backend, ranks or under.size
    backend = wanted or ("cuda" if gpus > 1 else "cpu")
    if backend == "cpu":
        return backend, ranks or min(max(usable_cores(), _LEAST_CORES), _MOST_CORES)
    if (ranks or gpus) > gpus or gpus < 2:
        raise UnavailableError(
            f"{ranks or 2} ranks need as many GPUs, and CUDA shows {gpus}",
            "give fewer --ranks, or --backend cpu",
        )
    return backend, ranks or gpus


def _read_and_judge(options: Options) -> int:
    under = launcher()
    if under is not None and under.rank > 0:
        return 0
    start = time.monotonic()
    world, samples = read([Path(file) for file in options["files"]])
    return _show(options, analyse(samples, world), world, samples, "", start)


def _drive(options: Options, group: Group, backend: str, ranks: int) -> int:
    start = time.monotonic()
    settings = PairSettings(
        size_bytes=options["size"] or SIZES[backend], timeout_s=options["timeout"] or 10.0
    )
    with ExitStack() as stack:
        pairs = stack.enter_context(Pairs(group, ranks, backend, settings))
        world = pairs.world
        write = stack.enter_context(_SampleWriter(options["csv"], world))
        is_small = world.n <= _SMALL
        modes = MODES if is_small else ("together",)
        if options["is_alone"] is not None:
            modes = ("alone",) if options["is_alone"] else ("together",)
        choice = options["pairs"] or ("all" if is_small else "square")
        hunt = _Hunt(pairs, modes, write, start + options["budget"])
        turns = planned(world, choice, rails=options["rails"])
        if not any(turns):
            raise UnavailableError(
                "no pair of ranks to measure",
                "--rails needs ranks on several hosts" if options["rails"] else "start more ranks",
            )
        repeats = next((of for most, of in _REPEATS_OF_FEW if world.n <= most), _REPEATS)
        for _ in range(repeats):
            hunt.measure(turns, modes, start + _FIRST_SHARE * options["budget"])
        analysis = analyse(hunt.samples, world)
        if choice != "quick":
            analysis = _with_missing(hunt, analysis)
    unmeasured = (
        f"{hunt.missed} measurements of pairs did not fit into the budget of"
        f" {format_duration(options['budget'])}: raise --budget"
        if hunt.missed
        else ""
    )
    return _show(options, analysis, world, hunt.samples, unmeasured, start)


def _with_missing(hunt: _Hunt, analysis: Analysis) -> Analysis:
    """The analysis with the pairs measured that it misses, and squares around suspects, while the
    budget lasts.
    """
    for _ in range(_TURNS_OF_MISSING):
        wanted = _wanted(analysis, hunt.world)
        if not wanted or time.monotonic() >= hunt.until:
            break
        for _ in range(_REPEATS):
            hunt.measure(packed(wanted), hunt.modes, hunt.until)
        analysis = analyse(hunt.samples, hunt.world)
    return analysis


def _wanted(analysis: Analysis, world: PairWorld) -> list[Pair]:
    """Pairs that the verdicts miss, and squares around those that may be slow."""
    bad = {
        rank
        for verdict in analysis.verdicts
        for rank in range(world.n)
        if (verdict.place.kind == "host" and world.host_numbers[rank] in verdict.place.key)
        or (verdict.place.kind == "rank" and rank in verdict.place.key)
    }
    missing = [pair for verdict in analysis.verdicts for pair in verdict.missing]
    return list(dict.fromkeys([*missing, *squares(analysis.suspects, world, bad)]))


class _SampleWriter:
    """Writes samples to a file or to stdout, a line each, as they are made."""

    def __init__(self, file: str | None, world: PairWorld) -> None:
        self._file, self._world = file, world
        self._out: IO[str] | None = None

    def __enter__(self) -> Callable[[PairSample], None]:
        if self._file is not None and self._file != "-":
            with named_in_errors(self._file, "--csv"):
                self._out = Path(self._file).open("w", encoding="utf-8", buffering=1)
        if self._file is not None:
            self._write(csv_line(COLUMNS))
        return lambda sample: self._write(sample_line(sample, self._world))

    def __exit__(self, *_: object) -> None:
        if self._out is not None:
            self._out.close()

    def _write(self, line: str) -> None:
        if self._out is not None:
            with named_in_errors(str(self._file), "--csv"):
                self._out.write(line)
        elif self._file == "-":
            document_on_stdout().write(line)


def _show(
    options: Options,
    analysis: Analysis,
    world: PairWorld,
    samples: Sequence[PairSample],
    unmeasured: str,
    start: float,
) -> int:
    """Show and write all; returns the exit code."""
    seconds = time.monotonic() - start
    if options["json"] is not None:
        text = as_json(analysis, world, samples, unmeasured, seconds)
        write_document(text, options["json"], "--json")
    out = sys.stderr if "-" in (options["csv"], options["json"]) else sys.stdout
    has_colours = is_coloured(options["color"], out)
    paint = painted if has_colours else lambda text, judgement: text
    say("\n".join(lines(analysis, world, samples, width(out), paint)), file=out, color=has_colours)
    wrong = [one for one in samples if one.gbs is None]
    if unmeasured:
        remark(unmeasured)
    if wrong:
        one = wrong[0]
        remark(
            f"{len(wrong)} measurement{'s' * (len(wrong) != 1)} failed, the first of ranks"
            f" {one.a} and {one.b}: {one.reason}"
        )
    if not options["files"]:
        hosts = len(world.host_names)
        remark(
            f"{len(samples)} measurements of {world.n} ranks on {hosts} host{'s' * (hosts != 1)} in"
            f" {format_duration(seconds)}, every result compared"
        )
    if len(wrong) == len(samples):
        raise UnavailableError("no pair has a rate", "look at the reasons in the CSV")
    return 0 if analysis.is_clean and not wrong else 1
