"""Carry out `doctor`: gather evidence, let the checks look, measure what their findings cost."""

import re
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple, TextIO

from collbench.bench.experiment import Cost, Experiment, on_cores
from collbench.bench.lab import FailsUnchanged, measure
from collbench.bench.load import LOAD_S, observe
from collbench.bench.pairs import RankPair
from collbench.bench.pairs import measure as measure_pairs
from collbench.bench.points import plan_points
from collbench.bench.ranks import drive_on_rank0, gpus_here, group_here
from collbench.bench.runner import Measurement
from collbench.core.assessment import ASSESSMENT_FILES, write_assessment
from collbench.core.case import Case
from collbench.core.errors import UNJUDGED_CODE, UnavailableError, UsageError
from collbench.core.files import check_files, write_document
from collbench.core.group import Group
from collbench.core.launcher import is_first_rank, launcher
from collbench.core.options import Options, Settings, settings_of
from collbench.core.reading import read_text
from collbench.core.screen import remark, say, talk_beside, width
from collbench.core.text import counted, wrapped
from collbench.core.units import format_duration
from collbench.doctor.check import (
    MEASURED,
    CheckRun,
    Evidence,
    Finding,
    LeftOut,
    Need,
    description,
    experiment,
    find,
    identifiers,
    is_unknown,
    ranked,
    run_of,
    tally,
    wants_measurements,
)
from collbench.doctor.tables.findings import (
    as_json,
    assessment_of,
    finding_lines,
    found_text,
    mark,
    merged,
    runs_table,
)
from collbench.machine.discovery import gather, loads, on_demand, record
from collbench.machine.discovery.recording import Recording
from collbench.machine.formats import MAX_FILE_BYTES
from collbench.machine.topology.model import members, spans

_BUDGET_S = {False: 40.0, True: 300.0}  # of all experiments; True: deep
_EXPERIMENT_S = {False: 6.0, True: 20.0}
_LEAST_S = 4.0  # that an experiment must have left
_ALL_PAIRS = 4  # GPUs up to which all pairs are measured by default
_LEAST_GPUS = 3  # of which one can be left out
_LOAD_BYTES = 64 << 20
_ROUNDS = 7  # without each GPU in turn
_INTERRUPTED = "interrupted"
_FAIL_ON = re.compile(r"cost(?::(\d+(?:\.\d+)?)%?)?|risk|never")


class _Outcome(NamedTuple):
    """Of an experiment. is_fault: nothing runs without the change."""

    costs: tuple[Cost, ...] = ()
    unmeasured: str = ""
    is_fault: bool = False


def run_doctor(options: Options) -> int:
    """The whole command, of the options that are given; returns the exit code."""
    if options.get("explain") is not None:
        return _explain(options["explain"])
    fail_on = options.get("fail_on", "cost")
    if not _FAIL_ON.fullmatch(fail_on):
        raise UsageError(
            f"--fail-on is '{fail_on[:40]}'", "it knows cost, cost:10%, risk and never"
        )
    if _is_written(options):
        check_files(options, "json", *ASSESSMENT_FILES)
    if options.get("recording"):
        hosts = _recordings_in(options["recording"]) if is_first_rank() else ()
        return _drive(hosts, options, None) if hosts else 0
    if launcher() is None:
        here = record(is_full=True) if _is_measured(options) else on_demand()
        return _drive([here], options, None)
    group = group_here(settings_of(options).timeout_s)
    recordings = gather(group.comm, is_full=True)  # type: ignore[attr-defined]  # of MPI
    return drive_on_rank0(group, lambda: _drive(recordings or (), options, group))


def _is_written(options: Options) -> bool:
    """Whether a document is asked for."""
    return any(options.get(name) is not None for name in ("json", *ASSESSMENT_FILES))


def _is_static(options: Options) -> bool:
    """Whether nothing is measured."""
    return any(options.get(name) for name in ("quick", "recording", "is_list"))


def _is_measured(options: Options) -> bool:
    """Whether a check that is to run looks at what is measured: before, all is read at rest."""
    only = options.get("only") or identifiers()
    return not _is_static(options) and any(map(wants_measurements, only))


def _explain(identifier: str) -> int:
    asked = description(identifier)
    if is_first_rank():
        say(f"{identifier}: {asked.title}\n")
        for paragraph in asked.explanation.strip().split("\n\n"):
            say("\n".join(wrapped(" ".join(paragraph.split()), min(width(sys.stdout), 100), "")))
            say()
    return 0


def _recordings_in(file: str) -> tuple[Recording, ...]:
    hint, name = "give what collbench topo --record FILE wrote", "stdin" if file == "-" else file
    text = read_text(file, MAX_FILE_BYTES, hint)
    if not text.lstrip().startswith("{"):
        raise UsageError(f"{name}: not a recording", hint)
    return tuple(loads(text, name))


def _drive(hosts: Sequence[Recording], options: Options, group: Group | None) -> int:
    """Look, measure, show and write; returns the exit code. group: None without a launcher."""
    started = time.monotonic()
    only = options.get("only") or identifiers()
    evidence = Evidence(
        hosts=tuple(hosts),
        missing=_missing(options),
        will_measure=bool(options.get("is_list") and not options.get("quick")),
    )
    interruption: KeyboardInterrupt | None = None
    if _is_measured(options):
        settings = settings_of(options)
        try:
            own = group or group_here(settings.timeout_s)
            evidence = _under_load(evidence, own, settings, options)
        except KeyboardInterrupt as error:
            interruption = error
            evidence = replace(evidence, missing=dict.fromkeys(MEASURED, _INTERRUPTED))
    runs = [run_of(one, evidence) for one in only]
    if options.get("is_list"):
        say("\n".join(runs_table(runs, width(sys.stdout))))
        return 0
    if interruption is None and all(run.reason for run in runs):
        raise UnavailableError(f"no check can look: {runs[0].reason}", _list_command(options))
    findings = find(evidence, only)
    if _is_static(options):
        findings = [_unmeasured(one, evidence, options) for one in findings]
    elif findings:
        is_deep = bool(options.get("deep"))
        findings, interruption = _with_costs(findings, evidence, interruption, is_deep=is_deep)
    fail_on = options.get("fail_on", "cost")
    failing = [one for one in findings if _fails(one, fail_on)]
    seconds = time.monotonic() - started
    out = talk_beside(options, "json", *ASSESSMENT_FILES)
    _show(findings, runs, options, seconds, out)
    if options.get("json"):
        is_failed = bool(failing)
        names = _names_of(evidence)
        document = as_json(ranked(findings), runs, names, seconds, is_failed=is_failed)
        write_document(document, options["json"], "--json")
    if interruption is not None:
        raise interruption
    if failing or _is_written(options):
        names = _names_of(evidence)
        write_assessment(assessment_of(findings, failing, runs, names, seconds), options, out)
    return UNJUDGED_CODE if is_unknown(runs) and not failing else int(bool(failing))


def _show(
    findings: Sequence[Finding],
    runs: Sequence[CheckRun],
    options: Options,
    seconds: float,
    out: TextIO,
) -> None:
    """Show the findings."""
    columns = width(out)
    if findings:
        for finding in merged(ranked(findings)):
            say("\n".join(finding_lines(finding, columns)) + "\n", file=out)
    last = _summary(findings, runs, format_duration(seconds), _list_command(options))
    say("\n".join(wrapped(last, columns)), file=out)


def _names_of(evidence: Evidence) -> list[str]:
    return [str(host.hostname or evidence.name(host)) for host in evidence.hosts]


def _summary(
    findings: Sequence[Finding], runs: Sequence[CheckRun], duration: str, list_command: str
) -> str:
    """The last line. list_command: what says why checks could not look."""
    looked, absent, could_not = tally(runs)
    marks = [mark(one) for one in findings]
    costs = marks.count("COST")
    numbers = {
        "that costs" if costs == 1 else "that cost": costs,
        "that may cost": marks.count("RISK"),
        "to know": marks.count("NOTE"),
    }
    more = f", {absent} are of what is not here" if absent else ""
    more += f", {could_not} could not" if could_not else ""
    more += f" ({list_command} says why)" if more else ""
    most = " UNKNOWN: most of what is here was not looked at." if is_unknown(runs) else ""
    found = found_text(numbers) if findings else "Nothing was found"
    return f"{found}. {counted(looked, 'check')} looked{more}, {duration}.{most}"


def _list_command(options: Options) -> str:
    """The command that lists the checks of the same run."""
    words = ["collbench", "doctor", "--list"]
    words += ["--quick"] if options.get("quick") else []
    words += ["--from", options["recording"]] if options.get("recording") else []
    return shlex.join(words)


def _under_load(evidence: Evidence, group: Group, settings: Settings, options: Options) -> Evidence:
    """The evidence with recordings under the load of our own traffic, where there are GPUs."""
    count = gpus_here()
    if not count:
        return replace(evidence, missing=dict.fromkeys(MEASURED, "there is no GPU to load"))
    ranks = group.ranks or options.get("ranks") or count
    remark(f"loading {counted(count, 'GPU')} for {LOAD_S:.0f} s")
    is_local = group.kind == "local"
    try:
        seen = observe(
            group,
            1 if is_local else ranks,
            range(count),
            lambda seconds: _allreduce(group, ranks, settings, seconds),
        )
    except UnavailableError as error:
        return replace(evidence, missing=dict.fromkeys(MEASURED, error.message))
    return replace(
        evidence,
        pairs=_pairs(group, settings, count, is_deep=bool(options.get("deep"))),
        left_out=_left_out(group, settings, count),
        loaded=seen.loaded,
        after=seen.after,
        alone=seen.alone,
        together=seen.together,
    )


def _pairs(group: Group, settings: Settings, count: int, *, is_deep: bool) -> tuple[RankPair, ...]:
    """Rates of pairs of GPUs, by peer access and through the host: of all pairs where they are few,
    else of neighbours in a circle.
    """
    if group.kind != "local" or count < 2:
        return ()
    remark(f"measuring pairs of {count} GPUs")
    circle = [(gpu, (gpu + 1) % count) for gpu in range(count)]
    some = circle if count > _ALL_PAIRS and not is_deep else ()
    try:
        return tuple(measure_pairs(group, "cuda", range(count), settings, ("stores", "host"), some))
    except UnavailableError as error:
        remark(f"No pair was measured: {error.message}")
        return ()


def _leave_out(group: Group, gpus: Sequence[int], settings: Settings) -> tuple[LeftOut, ...]:
    """Bus bandwidths of an allreduce of all GPUs and without each of them, in turns."""
    subsets: list[tuple[int | None, tuple[int, ...]]] = [(None, tuple(gpus))]
    subsets += [(gpu, tuple(one for one in gpus if one != gpu)) for gpu in gpus]
    rates: dict[int | None, list[float]] = {missing: [] for missing, _ in subsets}
    with ExitStack() as stack:
        opened = []
        for missing, some in subsets:
            case = Case(op="allreduce", backend="cuda", ranks=len(some), size_bytes=_LOAD_BYTES)
            points = plan_points([case], group, settings.max_memory)
            own = replace(settings, repeats=1, gpus=some)
            measurement = Measurement(points, group, own)
            stack.callback(measurement.close)
            measurement.open()
            opened.append((missing, len(some), measurement))
        for number in range(_ROUNDS + 1):
            for missing, ranks, measurement in opened:
                (seconds,) = measurement.once()
                if number:  # the first launches are slow
                    rates[missing].append(2 * (ranks - 1) / ranks * _LOAD_BYTES / seconds / 1e9)
    return tuple(LeftOut(gpu=missing, busbw_gbs=tuple(some)) for missing, some in rates.items())


def _left_out(group: Group, settings: Settings, count: int) -> tuple[LeftOut, ...]:
    """A collective without each GPU in turn, where that can be told."""
    if group.kind != "local" or count < _LEAST_GPUS:
        return ()
    remark(f"leaving out each of {count} GPUs")
    try:
        return _leave_out(group, range(count), settings)
    except UnavailableError as error:
        remark(f"No GPU was left out: {error.message}")
        return ()


def _allreduce(group: Group, ranks: int, settings: Settings, seconds: float) -> None:
    """Keep the links between GPUs busy for so long, if there are several GPUs."""
    until = time.monotonic() + seconds
    if ranks > 1:
        case = Case(op="allreduce", backend="cuda", ranks=ranks, size_bytes=_LOAD_BYTES)
        points = plan_points([case], group, settings.max_memory)
        measurement = Measurement(points, group, replace(settings, repeats=1))
        try:
            measurement.open()
            while time.monotonic() < until:
                measurement.once()
        except UnavailableError as error:  # several ranks on one GPU, for example
            remark(f"The links between GPUs are not loaded: {error.message}")
        finally:
            measurement.close()
    time.sleep(max(0.0, until - time.monotonic()))


def _missing(options: Options) -> dict[Need, str]:
    """What is not looked at, by what the options say."""
    if options.get("recording"):
        return dict.fromkeys(MEASURED, "a recording holds no measurements")
    return dict.fromkeys(MEASURED, "--quick measures nothing") if options.get("quick") else {}


def _unmeasured(finding: Finding, evidence: Evidence, options: Options) -> Finding:
    """A finding with the reason why its cost is not known."""
    wanted = experiment(finding, evidence)
    if isinstance(wanted, str):
        return replace(finding, unmeasured=wanted)
    where = "this is a recording" if options.get("recording") else "--quick measures nothing"
    return replace(finding, unmeasured=where)


def _with_costs(
    findings: Sequence[Finding],
    evidence: Evidence,
    interruption: KeyboardInterrupt | None,
    *,
    is_deep: bool,
) -> tuple[list[Finding], KeyboardInterrupt | None]:
    """The findings with what their experiments show, as far as the time allows and until an
    interruption; and that, if there was one.
    """
    deadline = time.monotonic() + _BUDGET_S[is_deep]
    known: dict[str, _Outcome] = {}
    with_costs = []
    # each is made before the first is measured, which changes what is read
    every = [(one, _experiment(one, evidence)) for one in ranked(findings)]
    for finding, wanted in every:
        key = repr(wanted)
        if finding.costs:  # the check itself was the experiment
            with_costs.append(finding)
            continue
        if isinstance(wanted, Experiment) and key not in known:
            left_s = deadline - time.monotonic()
            known[key] = _Outcome(unmeasured=_INTERRUPTED)
            try:
                if interruption is None:
                    known[key] = _measured(wanted, min(left_s, _EXPERIMENT_S[is_deep]), finding)
            except KeyboardInterrupt as error:
                interruption = error
        outcome = known[key] if isinstance(wanted, Experiment) else _Outcome(unmeasured=wanted)
        severity = "fault" if outcome.is_fault else finding.severity
        found = replace(finding, costs=outcome.costs, severity=severity)
        with_costs.append(replace(found, unmeasured=outcome.unmeasured))
    return with_costs, interruption


def _experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    wanted = experiment(finding, evidence)
    if isinstance(wanted, str):
        return wanted
    # those of all ranks here: a launcher may have bound this one to a single core
    lists = [one.cpulist or "" for one in evidence.hosts[0].processes]
    return on_cores(wanted, spans({core for text in lists for core in members(text)}))


def _measured(experiment: Experiment, budget_s: float, finding: Finding) -> _Outcome:
    if budget_s <= _LEAST_S:
        return _Outcome(unmeasured="there was no time left: collbench doctor --deep takes more")
    remark(f"measuring what {finding.check} of {finding.subject} costs")
    try:
        return _Outcome(costs=measure(experiment, budget_s))
    except UnavailableError as error:
        return _Outcome(unmeasured=error.message)
    except FailsUnchanged as error:
        return _Outcome(unmeasured=str(error), is_fault=True)


def _fails(one: Finding, fail_on: str) -> bool:
    if fail_on == "never":
        return False
    if fail_on == "risk":
        return one.is_cost or mark(one) == "RISK"
    least = float(fail_on.partition(":")[2].rstrip("%") or 0)
    is_unmeasured = one.severity == "fault" and not one.costs
    return one.is_cost and (one.percent >= least or is_unmeasured)
