"""Carry out `hunt`: measure pairs within the budget or read them, judge them, show them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from collbench.bench.pairwise import SIZES, Pairs, PairSettings
from collbench.bench.ranks import drive_on_rank0, gpus_here, group_here, refuse_no_gpus
from collbench.core.assessment import ASSESSMENT_FILES, write_assessment
from collbench.core.errors import UNJUDGED_CODE, CollbenchError, UnavailableError
from collbench.core.files import check_files, named_in_errors, write_document
from collbench.core.group import Group
from collbench.core.host import usable_cores
from collbench.core.launcher import launcher
from collbench.core.options import Options
from collbench.core.pairwise import (
    COLUMNS,
    Mode,
    PairSample,
    PairWorld,
    Where,
    csv_line,
    sample_line,
)
from collbench.core.screen import document_on_stdout, is_coloured, remark, say, talk_beside, width
from collbench.core.text import counted, some_of
from collbench.core.units import format_duration
from collbench.core.web.colors import painted
from collbench.doctor.hunt.read import read
from collbench.doctor.hunt.rounds import Round
from collbench.doctor.hunt.search import Search
from collbench.doctor.hunt.verdicts import Analysis, Answer, analyse
from collbench.doctor.tables.hunt import as_json, assessment_of, lines

_CODES: Mapping[Answer, int] = {"nothing slow": 0, "slow": 1, "cannot tell": UNJUDGED_CODE}
_NEEDS: Mapping[Where, str] = {
    "network": "--where network needs ranks on several hosts",
    "inside": "--where inside needs several ranks on a host, and no --rails",
}
_BUSY_SHOWN = 4
_LEAST_CORES, _MOST_CORES = 3, 8  # ranks on CPUs without a launcher, by default


def run_hunt(options: Options) -> int:
    """The whole command; returns the exit code."""
    if options["files"]:
        return _read_and_judge(options)
    backend, ranks = _ranks(options)
    group = group_here(options["timeout"] or 10.0)
    return drive_on_rank0(group, lambda: _drive(options, group, backend, ranks))


def _ranks(options: Options) -> tuple[str, int]:
    """The backend, and the number of ranks. Raises UnavailableError."""
    wanted, ranks, under = options["backend"], options["ranks"], launcher()
    gpus = gpus_here() if wanted != "cpu" else 0
    if wanted in ("cuda", "nccl"):
        refuse_no_gpus("leave it out to measure CPUs", wanted)
    if wanted == "nccl" and under is None:
        raise UnavailableError(
            "a hunt over NCCL needs a process for each rank",
            "start it under mpirun or srun, one rank a GPU",
        )
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
    return _show(options, analyse(samples, world, options["rate"]), world, samples, "", start)


def _drive(options: Options, group: Group, backend: str, ranks: int) -> int:
    start = time.monotonic()
    check_files(options, "csv", "json", *ASSESSMENT_FILES)
    size_bytes, timeout_s = options["size"] or SIZES[backend], options["timeout"] or 10.0
    settings = PairSettings(size_bytes=size_bytes, timeout_s=timeout_s)
    with ExitStack() as stack:
        pairs = stack.enter_context(Pairs(group, ranks, backend, settings))
        world = pairs.world
        busy = pairs.busy_hosts()
        if busy:
            hosts = some_of(dict.fromkeys(busy.values()), _BUSY_SHOWN)
            remark(f"ranks may wait for cores, and be slow for that alone, on {hosts}")
        write = stack.enter_context(_csv(options["csv"], world))

        def measure(turn: Round, mode: Mode) -> Iterator[PairSample]:
            for unasked in pairs.measure(turn, mode):
                a, b = world.hosts[unasked.a], world.hosts[unasked.b]
                waits = busy.get(a) or busy.get(b, "")
                sample = replace(unasked, where=options["where"], waits=waits)
                write(sample)
                yield sample

        modes: Sequence[Mode] | None = None
        if options["is_alone"] is not None:
            modes = ("alone",) if options["is_alone"] else ("together",)
        search = Search(
            world=world,
            measure=measure,
            clock=lambda: time.monotonic() - start,
            budget_s=options["budget"],
            choice=options["pairs"] or "",
            rails=options["rails"],
            where=options["where"],
            modes=modes,
            rate_gbs=options["rate"],
        )
        if not any(search.planned(search.choice)):
            hint = "--rails needs ranks on several hosts" if search.rails else "start more ranks"
            raise UnavailableError("no pair of ranks to measure", _NEEDS.get(search.where, hint))
        try:
            analysis = search.run()
        except (KeyboardInterrupt, CollbenchError):
            if search.samples:
                remark("ended early; this is what was measured until then:")
                early = replace(search.analysis(), is_cut_short=True)
                _show(options, early, world, search.samples, "", start)
            raise
    unmeasured = ""
    if search.missed:
        missed, budget = counted(search.missed, "measurement"), format_duration(options["budget"])
        unmeasured = f"{missed} of pairs did not fit into the budget of {budget}: raise --budget"
    return _show(options, analysis, world, search.samples, unmeasured, start)


@contextmanager
def _csv(file: str | None, world: PairWorld) -> Iterator[Callable[[PairSample], None]]:
    """What writes samples to a file or to stdout, a line each, as they are made."""
    with ExitStack() as stack:
        out = document_on_stdout() if file == "-" else None
        if file is not None and out is None:
            with named_in_errors(file, "--csv"):
                out = stack.enter_context(Path(file).open("w", encoding="utf-8", buffering=1))

        def write(line: str) -> None:
            if out is not None:
                with nullcontext() if file == "-" else named_in_errors(str(file), "--csv"):
                    out.write(line)

        write(csv_line(COLUMNS))
        yield lambda sample: write(sample_line(sample, world))


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
    out = talk_beside(options, "csv", "json", *ASSESSMENT_FILES)
    has_colours = is_coloured(options["color"], out)
    paint = painted if has_colours else lambda text, judgement: text
    say("\n".join(lines(analysis, world, samples, width(out), paint)), file=out, color=has_colours)
    wrong = [one for one in samples if one.gbs is None]
    if unmeasured:
        remark(unmeasured)
    if wrong:
        one = wrong[0]
        remark(
            f"{counted(len(wrong), 'measurement')} failed, the first of ranks"
            f" {one.a} and {one.b}: {one.reason}"
        )
    if not options["files"]:
        hosts = len(world.host_names)
        remark(
            f"{counted(len(samples), 'measurement')} of {world.n} ranks on {counted(hosts, 'host')}"
            f" in {format_duration(seconds)}, every result compared"
        )
    is_bad = bool(wrong) or analysis.answer == "slow"
    assessment = assessment_of(analysis, world, seconds, is_bad=is_bad)
    if analysis.is_cut_short and not assessment.bad_hosts:
        options = {**options, "bad": None}  # an empty list would say that no host is bad
    write_assessment(assessment, options, out)
    if len(wrong) == len(samples) and not analysis.is_cut_short:
        raise UnavailableError("no pair has a rate", "look at the reasons in the CSV")
    return 1 if wrong else _CODES[analysis.answer]
