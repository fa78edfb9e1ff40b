"""Carry out `check`: measure links and collectives, hold them against what is known, say it."""

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from collbench.bench.busy import BusyRemark
from collbench.bench.pairs import LATENCIES, OUT_OF_TIME, RankPair, expected_gbs, measure
from collbench.bench.points import plan_points
from collbench.bench.ranks import Asked, asked, drive_on_rank0
from collbench.bench.runner import Measurement
from collbench.bench.sweep import Sweep, cases
from collbench.compare.baselines import is_published, published_floor, reference
from collbench.compare.rate_curves import CurveKey, RateCurve, known_rate, reference_curves
from collbench.core.assessment import ASSESSMENT_FILES, hostlist, write_assessment
from collbench.core.case import Case
from collbench.core.collectives import OPS, OpName
from collbench.core.errors import UNJUDGED_CODE, UnavailableError, UsageError
from collbench.core.files import check_files, command_line, write_document
from collbench.core.grouping import grouped
from collbench.core.host import cpu_name, host_name, usable_cores
from collbench.core.launcher import is_first_rank, launcher
from collbench.core.limits import (
    CEILING_FAIL_SHARE,
    CEILING_SHARE,
    PUBLISHED_FAIL_SHARE,
    PUBLISHED_SHARE,
)
from collbench.core.options import Options, refuse_sharing, settings_of
from collbench.core.peers import is_peer
from collbench.core.record import Record
from collbench.core.rows import as_written, is_noise, times_of
from collbench.core.screen import is_terminal, remark, say, talk_beside, width
from collbench.core.text import UNBOUNDED, counted, wrapped
from collbench.core.units import format_duration, format_size, parse_size
from collbench.doctor.check_verdict import (
    NO_REFERENCE,
    CheckLine,
    CheckUnit,
    Expectation,
    Measured,
    Verdict,
    judge,
    whole,
)
from collbench.doctor.saved_checks import (
    SavedCheck,
    checks_of,
    forget,
    keep,
    reference_values,
    refuse_missing,
    refuse_unkept,
)
from collbench.doctor.tables.check import as_json, assessment_of, heading, line, summary
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path

_MINUTE_S = 58.0  # that the command may take from its start, the interpreter's own not counted
_ENDING_S = 1.5  # of a processor: to read what is known of such GPUs, to write, and to end
_SLOWEST = 16.0  # times that a machine is taken to be slower while others are busy
_PAIRS_SHARE = 0.5  # of the time, until the collectives have their turn
_ON_GPUS = ("64", "1M", "256M")
CHECK_SIZES: dict[str, tuple[str, ...]] = {
    "cuda": _ON_GPUS,
    "nccl": _ON_GPUS,
    "cpu": ("1K", "64K", "4M"),
}
_REPEATS = 5  # the fastest of which must be too slow to fail
_CORE = "CPU core"
_TIMED_UP_TO = 64 << 10  # bytes; larger results are shown as rates


@dataclass(slots=True)
class Check:
    """A check on its way. known: what saved checks of this node and of its peers say. out: where
    each finding is shown at once, None for nowhere.
    """

    out: IO[str] | None
    known: Mapping[str, Sequence[Expectation]]
    findings: list[CheckLine] = field(default_factory=list)
    noise: set[str] = field(default_factory=set)
    compared: int = 0

    def add(self, finding: CheckLine) -> None:
        """Keep and show a finding."""
        self.findings.append(finding)
        if self.out is not None:
            say(line(finding, _columns(self.out)), file=self.out)

    def judge(self, number: Measured, expectations: Sequence[Expectation]) -> None:
        """Hold a number against what is expected, and against the saved ones."""
        self.compared += 1
        self.noise |= {number.name} if number.is_noisy else set()
        saved = self.known.get(_key(number.name, number.unit), ())
        self.add(judge(number, [*expectations, *saved]))

    def add_unmeasured(self, name: str, reason: str, *, is_wrong: bool, is_refused: bool) -> None:
        """Keep what has no number: wrong data, what failed, what was refused or not reached."""
        self.compared += is_wrong
        verdict: Verdict = "SKIP" if is_refused else "FAIL"
        verdict = "UNKNOWN" if reason == OUT_OF_TIME else verdict
        self.add(CheckLine(name=name, verdict=verdict, detail=reason))


def _key(name: str, unit: str) -> str:
    return f"{name}, {unit}"


def run_forget(options: Options) -> int:
    """Remove the saved checks, and say how many there were; returns the exit code."""
    if len(options) > 1:
        raise UsageError("--forget checks nothing", "leave out the other options")
    if is_first_rank():
        had = forget()
        say(f"Forgot {counted(had, 'check')}." if had else "No check is saved.")
    return 0


def end_of_measuring(start_s: float, computed_s: float) -> float:
    """When the command that began at start_s must stop measuring, to end within its minute. Ending
    takes as many times longer than on a quiet machine as starting did, which took the processor for
    computed_s. Times of the monotonic clock.
    """
    slower = (time.monotonic() - start_s) / max(computed_s, 1e-3)
    return start_s + _MINUTE_S - _ENDING_S * min(max(slower, 1.0), _SLOWEST)


def run_check(options: Options, end_s: float) -> int:
    """The whole command, of the options that are given; returns the exit code."""
    check_files(options, "json", *ASSESSMENT_FILES)
    if options.get("save"):
        refuse_unkept(options.get("nodes"))
    else:
        refuse_missing(options.get("nodes"))
    refuse_sharing(options)
    settings = replace(settings_of(options), repeats=_REPEATS)
    who = asked(options, "checked", settings)
    return drive_on_rank0(who.group, lambda: _drive(who, options, end_s))


def node_name(hosts: Sequence[str]) -> str:
    """Under which name a check of ranks on these hosts is kept: of several that of `bad:`."""
    return hostlist(hosts) if len(set(hosts)) > 1 else host_name()


def machine_kind(device: str, who: Asked) -> str:
    """Of which kind a machine is whose references are saved."""
    hosts = len(set(who.group.hosts))
    kind = f"{device}; {who.ranks} ranks; {who.backend}; {who.group.kind}"
    return f"{kind}; {hosts} hosts" if hosts > 1 else kind


def _drive(who: Asked, options: Options, end_s: float) -> int:
    """Measure until end_s, show and write; returns the exit code."""
    backend, ranks, settings, group, _ = who
    started, start_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    out = talk_beside(options, "json", *ASSESSMENT_FILES)
    topology = who.topology
    device = device_of(topology, backend)
    host, kind = node_name(group.hosts), machine_kind(device, who)
    busy = BusyRemark()
    check = Check(out=out, known=reference_values(host, kind, options.get("nodes")))
    title = f"# {command_line()}: {ranks} ranks, {device}"
    say("\n".join(wrapped(title, width(out), "#   ")), file=out)
    if above := heading(_columns(out)):
        say(above, file=out)
    devices = {} if launcher() else _devices(topology, backend)  # else the launcher chooses
    is_chosen = _is_chosen(options)
    past = checks_of(host, options.get("nodes"))
    joined = machine_line(topology, backend, ranks, group.hosts)
    check.add(beside_past(joined, devices, past, is_chosen=is_chosen))
    numbers = (settings.gpus or tuple(range(ranks))) if backend == "cuda" else (0, 1)
    if group.kind == "local" and not is_peer(backend):  # a rank of a launcher has one GPU alone
        pairs_s = time.monotonic() + _PAIRS_SHARE * (end_s - time.monotonic())
        for pair in measure(group, backend, numbers, settings, ("stores",), end_s=pairs_s):
            _judge_pair(check, pair, numbers, topology, backend)
    judge_collectives(check, who, end_s)
    if not check.compared and not any(one.detail == OUT_OF_TIME for one in check.findings):
        raise UnavailableError(
            "nothing could be measured" + "".join(f": {one.detail}" for one in check.findings[1:2]),
            "collbench sweep says more",
        )
    busy.of_all(ranks // len(set(group.hosts)))
    seconds = time.monotonic() - start_s
    total = summary(check.findings, check.compared, format_duration(seconds))
    say("\n".join(wrapped(total, width(out))), file=out)
    if check.noise:
        remark(
            f"Noise: {len(check.noise)} of {check.compared} numbers (~). Check again on a quiet"
            " machine."
        )
    verdict = whole([one.verdict for one in check.findings])
    if verdict == "UNKNOWN" and not options.get("save"):
        _say_what_is_missing(check)
    hosts = [host] if len(set(group.hosts)) == 1 else sorted(set(group.hosts))
    if options.get("json"):
        document = as_json(check.findings, device, hosts, started, seconds)
        write_document(document, options["json"], "--json")
    only = host if len(hosts) == 1 else ""
    write_assessment(assessment_of(check.findings, device, only, seconds), options, out)
    if options.get("save"):
        devices = {} if is_chosen and _CORE not in devices else devices
        _save(check, SavedCheck(host, kind, started, verdict, {}, devices), options.get("nodes"))
    return {"FAIL": 1, "UNKNOWN": UNJUDGED_CODE}.get(verdict, 0)


def _say_what_is_missing(check: Check) -> None:
    """The next step where most lines were not judged."""
    late = sum(one.detail == OUT_OF_TIME for one in check.findings)
    unknown = sum(one.verdict == "UNKNOWN" for one in check.findings)
    unheld = sum(one.detail.endswith(NO_REFERENCE) for one in check.findings)
    if 2 * late > unknown:
        remark(f"{late} lines were not reached in a minute. Check again on a quiet machine.")
    elif 2 * unheld > unknown and len(check.noise) < check.compared:
        remark(
            "Most lines have nothing to be held against. If this machine is as fast as it should"
            " be, save this run as the reference: collbench check --save"
        )


def device_of(topology: Topology | None, backend: str) -> str:
    """The GPUs by name and number, or the CPU."""
    if topology is None or backend == "cpu":
        return cpu_name()
    return _listed(_devices(topology, backend))


def _devices(topology: Topology | None, backend: str) -> Mapping[str, int]:
    """How many devices there are of each name."""
    if topology is None or backend == "cpu":
        return {_CORE: usable_cores()}
    return Counter(gpu.name for gpu in topology.gpus)


def _listed(devices: Mapping[str, int]) -> str:
    return ", ".join(
        counted(count, name) if name == _CORE else f"{count} x {name}"
        for name, count in devices.items()
    )


def _is_chosen(options: Options) -> bool:
    """Whether somebody chose GPUs, or CPUs, so that fewer than before are no loss."""
    is_given = any(options.get(name) for name in ("gpus", "ranks"))
    is_given |= options.get("backend") == "cpu"
    return is_given or "CUDA_VISIBLE_DEVICES" in os.environ


def beside_past(
    joined: CheckLine, devices: Mapping[str, int], past: Sequence[SavedCheck], *, is_chosen: bool
) -> CheckLine:
    """The line of what joins the ranks, held against the newest good checks of this node that found
    devices by themselves: FAIL if GPUs are gone, WARN if cores are.
    """
    good = [one for one in reversed(past) if one.is_reference and one.devices]
    of_gpus = next((one for one in good if _CORE not in one.devices), None)
    of_cores = next((one for one in good if _CORE in one.devices), None)
    verdict: Verdict
    if of_gpus and not is_chosen and (_CORE in devices or _are_fewer(devices, of_gpus.devices)):
        verdict, then = "FAIL", of_gpus
    elif of_cores and _are_fewer(devices, of_cores.devices):
        verdict, then = "WARN", of_cores
    else:
        return joined
    had = f"{joined.detail}; on {then.day} there were {_listed(then.devices)}"
    return replace(joined, verdict=verdict, detail=had)


def _are_fewer(devices: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether devices are gone. Where no name is the same they were exchanged."""
    return any(name in devices for name in before) and any(
        devices.get(name, 0) < count for name, count in before.items()
    )


def _columns(out: IO[str]) -> int:
    """Of a terminal; through a pipe a finding is a line."""
    return width(out) if is_terminal(out) else UNBOUNDED


def machine_line(
    topology: Topology | None, backend: str, ranks: int, hosts: Sequence[str] = ()
) -> CheckLine:
    """What joins the ranks, in words. hosts: of each rank, where a launcher has started them."""
    by_host = _by_host(hosts) if len(set(hosts)) > 1 else ""
    if topology is None or backend == "cpu":
        cores, most = usable_cores(), max(Counter(hosts).values()) if by_host else ranks
        text = by_host or f"{counted(cores, 'CPU core')}, ranks share memory"
        is_crowded = most > cores
        more = f"; {most} ranks wait for each other's turn" if is_crowded else ""
        return CheckLine(
            name="topology", verdict="WARN" if is_crowded else "PASS", detail=text + more
        )
    here = [gpu for gpu in topology.gpus if gpu.host == topology.gpus[0].host]
    labels = [path(topology, a.id, b.id).label for a in here for b in here if a.index < b.index]
    kinds = list(dict.fromkeys(labels))
    text = f"{len(topology.gpus)} GPUs, joined by {', '.join(kinds) or 'nothing'}"
    text += f"; {by_host}" if by_host else ""
    if len(kinds) > 1:
        return CheckLine(name="topology", verdict="WARN", detail=f"{text}: pairs differ")
    return CheckLine(name="topology", verdict="PASS", detail=text)


def _by_host(hosts: Sequence[str]) -> str:
    """How many ranks each host has.

    >>> _by_host(["h1", "h2", "h2", "h3"])
    '1 rank on each of h[1,3], 2 ranks on h2'
    """
    alike = grouped((ranks, host) for host, ranks in Counter(hosts).items())
    return ", ".join(
        f"{counted(ranks, 'rank')} on {'each of ' * (len(names) > 1)}{hostlist(names)}"
        for ranks, names in alike.items()
    )


def _judge_pair(
    check: Check, pair: RankPair, devices: Sequence[int], topology: Topology | None, backend: str
) -> None:
    """A link between two devices, by their numbers."""
    kind = "GPU" if backend == "cuda" else "rank"
    arrow = "<->" if pair.is_both else "->"
    is_latency = pair.way in LATENCIES
    a, b = devices[pair.a], devices[pair.b]
    name = f"{kind}{a} {arrow} {kind}{b}{', 8 bytes' * is_latency}"
    if pair.value is None:
        is_wrong = pair.record is not None and pair.record.status == "wrong"
        check.add_unmeasured(name, pair.reason, is_wrong=is_wrong, is_refused=not is_wrong)
        return
    expectations = []
    if topology is not None and backend == "cuda" and not is_latency:
        ids = {gpu.index: gpu.id for gpu in topology.gpus}
        rate = expected_gbs(topology, ids[a], ids[b], pair.way) if {a, b} <= ids.keys() else None
        expectations += [Expectation(value=rate, source="the links")] if rate else []
    unit: CheckUnit = "us" if is_latency else "GB/s"
    check.judge(_measured(name, pair.value, unit, pair.record), expectations)


def _measured(name: str, value: float, unit: CheckUnit, record: Record | None) -> Measured:
    """A number that a row gives. GPUs that are throttled are no noise: they are slow."""
    if record is None or not record.time_us:
        return Measured(name=name, value=value, unit=unit)
    row = as_written(record)
    share = min(times_of(row), default=record.time_us) / record.time_us
    return Measured(
        name=name,
        value=value,
        unit=unit,
        fastest=value * share if unit == "us" else value / share,
        is_noisy=is_noise(row) or "other-processes" in row.notes,
    )


def judge_collectives(
    check: Check,
    who: Asked,
    end_s: float,
    ops: Sequence[OpName] = OPS,
    of_sizes: Sequence[str] = (),
) -> list[Record]:
    """Collectives at some sizes (three, if none is given), by our own choice or a library's; their
    rows.
    """
    backend, ranks, settings, group, _ = who
    where = who.where()
    sizes = tuple(map(parse_size, of_sizes or CHECK_SIZES[backend]))
    sweep = Sweep(
        sizes=sizes, op=tuple(ops), backend=(backend,), ranks=(ranks,), knobs={"algo": ("auto",)}
    )
    points = plan_points(
        cases(sweep, {backend: {}} if is_peer(backend) else {}, has_hosts=where.has_hosts),
        group,
        settings.max_memory,
        where,
    )
    by_size = sorted(points, key=lambda point: point.case.size_bytes)  # large ones take the time
    measurement = Measurement(by_size, group, settings)
    measurement.ceilings, measurement.end_s = where.of, end_s
    known: dict[CurveKey, RateCurve] | None = None
    name_of_known, rows = "", dict[str, Record]()
    try:
        measurement.open()
        for record in measurement.records_within(end_s):
            rows[_name(record)] = record
            if backend != "cpu" and known is None and record.status == "ok":
                name_of_known, known = _reference(record)
    finally:
        measurement.close()
        names = dict.fromkeys(_name(point.case) for point in points)
        for name in filter(rows.__contains__, names):
            _judge_record(check, rows[name], known or {}, name_of_known, max(sizes))
    for name in names:
        if name not in rows:
            check.add_unmeasured(name, OUT_OF_TIME, is_wrong=False, is_refused=False)
    return list(rows.values())


def _name(of: Case | Record) -> str:
    return f"{of.op} {format_size(of.size_bytes)}"


def _reference(record: Record) -> tuple[str, dict[CurveKey, RateCurve]]:
    """What we measured on the same GPUs, where that is shipped. What others published is of another
    machine, and no more than a floor.
    """
    try:
        found = reference("", [record], across=("group",))
    except UsageError:
        return "", {}
    if is_published(found.name):
        return "", {}
    return found.name, reference_curves(found.records)


def _judge_record(
    check: Check, record: Record, known: dict[CurveKey, RateCurve], name_of_known: str, largest: int
) -> None:
    name = _name(record)
    time_us, rate = record.time_us, record.busbw_gbs
    if time_us is None or rate is None:
        check.add_unmeasured(
            name,
            f"{record.status}: {record.reason}",
            is_wrong=record.status == "wrong",
            is_refused=record.status == "waived",
        )
        return
    is_time = record.size_bytes <= _TIMED_UP_TO
    value = time_us if is_time else rate

    def shown(gbs: float) -> float:
        """A rate as the line shows it."""
        return time_us * rate / gbs if is_time else gbs

    expectations = []
    if (gbs := known_rate(known, as_written(record))) is not None:
        expectations.append(Expectation(value=shown(gbs), source=name_of_known))
    elif (floor := published_floor(record)) is not None:
        expectations.append(
            Expectation(
                value=shown(floor.gbs),
                source=f"NCCL, {floor.name}",
                passes_from=PUBLISHED_SHARE,
                warns_from=PUBLISHED_FAIL_SHARE,
            )
        )
    if record.ceiling_gbs and record.size_bytes == largest:
        expectations.append(
            Expectation(
                value=shown(record.ceiling_gbs),
                source="the links",
                passes_from=CEILING_SHARE,
                warns_from=CEILING_FAIL_SHARE,
            )
        )
    check.judge(_measured(name, value, "us" if is_time else "GB/s", record), expectations)


def _save(check: Check, saved: SavedCheck, folder: Path | None) -> None:
    """Save the numbers that are no noise, and say whether they are a reference now, as they are
    unless something failed. Raises UnavailableError.
    """
    values = {
        _key(one.name, one.unit): one.value
        for one in check.findings
        if one.value is not None and one.name not in check.noise
    }
    if not values and saved.is_reference:
        remark("Nothing is saved: all numbers are noise.")
        return
    keep(saved._replace(values=values), folder)
    if not saved.is_reference:
        remark(f"Saved as a check of {saved.host} that failed, and so no reference.")
        return
    more = f"; {len(check.noise)} more, noise, are not" if check.noise else ""
    remark(f"Saved as a reference of {saved.host}: {counted(len(values), 'number')}{more}.")
