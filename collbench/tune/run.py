"""Carry out `tune`: the points of the options, a search for each, the files of what is known."""

import socket
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from collbench import __version__
from collbench.backends import FAMILY
from collbench.backends.base import Backend
from collbench.bench.ranks import Asked, asked, drive_on_rank0
from collbench.bench.runner import Measurement
from collbench.bench.sweep import sizes_between
from collbench.core.case import Case
from collbench.core.codec import encode
from collbench.core.errors import ScheduleError, UnavailableError, UsageError
from collbench.core.files import check_files, command_line, result_json, write_document
from collbench.core.group import Group
from collbench.core.launcher import is_first_rank
from collbench.core.limits import LEAST_PAIRS
from collbench.core.options import Options, refuse_sharing, settings_of
from collbench.core.screen import remark, say, width
from collbench.core.text import counted, wrapped
from collbench.core.units import format_duration, format_size
from collbench.core.world import host_numbers
from collbench.planning.chooser import row_of
from collbench.planning.limits import Limits
from collbench.planning.planner import machine_of, resolve
from collbench.planning.tuning import Machine, Values, read, tuning_of
from collbench.tune.candidates import Field, priced, text_of
from collbench.tune.search import ConfigurationSearch, Outcome, Pace
from collbench.tune.show import Show, tune_screen
from collbench.tune.store import Store, TunedPoint, all_stored, forget, set_aside, stored
from collbench.tune.table import gain_line, point_line, tuned_lines

_BUDGET_S = 120.0
_SIZES = {"cpu": (1 << 10, 16 << 20), "cuda": (1 << 10, 256 << 20)}
_FACTOR = 4.0
_LATEST = 1.05  # times the budget that a proof under way may take


def _points_json(stores: Sequence[Store]) -> str:
    """The points of machines as a JSON document."""
    data = [{"machine": encode(one.machine), "points": encode(one.points)} for one in stores]
    return result_json(data, machine=", ".join(one.machine.model for one in stores))


def show_all(file: str | None) -> int:
    """Show what is known of every machine, and write it as JSON if there is a file; returns the
    exit code.
    """
    if not is_first_rank():
        return 0
    known, broken = all_stored()
    for what in broken:
        remark(f"{what}.")
    stores = [one for one in known if one.points]
    if file is not None:
        write_document(_points_json(stores), file, "--json")
    if file == "-":
        return 0
    if not stores:
        say("Nothing is tuned. collbench tune finds the best configuration of this machine.")
        return 0
    for number, store in enumerate(stores):
        model = store.machine.model or store.machine.kind
        say(
            ("\n" if number else "") + f"{model}, joined by {store.machine.joined or 'what it has'}"
        )
        say("\n".join(tuned_lines(store.points, width(sys.stdout))))
        say("\n".join(wrapped(gain_line(store.points), width(sys.stdout))))
        used = store.tuning_file
        if store.has_rows:
            remark(f"{used} is {'used' if used.exists() else 'not there: nothing is used'}.")
    return 0


def forget_all() -> int:
    """Remove what is known, and say what; returns the exit code."""
    if not is_first_rank():
        return 0
    removed = []
    known, broken = all_stored()
    for what in broken:
        remark(f"{what}.")
    for store in known:
        try:
            removed += [(file, len(store.points)) for file in forget(store)]
        except OSError as error:
            raise UnavailableError(
                f"cannot remove {error.filename}: {error.strerror}", "is it another user's?"
            ) from None
    for file, points in removed:
        say(f"Removed {file} ({counted(points, 'point')}).")
    if not removed:
        say("Nothing is tuned, and nothing was removed.")
    return 0


def asked_of(options: Options) -> Asked:
    """Who is tuned. Every rank of a launcher calls this."""
    if options.get("out") == "-":
        raise UsageError("--out: stdout is no file", "give the name of a file")
    check_files(options, "out", "json")
    refuse_sharing(options)
    return asked(options, "tuned", settings_of(options))


def backend_of(who: Asked) -> Backend:
    """The backend of the ranks. Raises UnavailableError or UsageError if it cannot run them."""
    backend = cast("Backend", FAMILY.load(who.backend))  # no peer is tuned
    if why := backend.why_not(who.group):
        raise UnavailableError(f"--backend {who.backend}: {why}")
    if who.group.ranks and who.group.ranks != who.ranks:
        raise UsageError(
            f"the launcher started {who.group.ranks} ranks, not {who.ranks}",
            "start as many, or leave --ranks out",
        )
    return backend


def run_tune(options: Options) -> int:
    """Search, keep and show; returns the exit code."""
    start_s = time.monotonic()
    who = asked_of(options)
    return drive_on_rank0(who.group, lambda: _drive(who, options, start_s))


def _drive(who: Asked, options: Options, start_s: float) -> int:
    """Search on rank 0; a document for stdout is all that comes there."""
    with redirect_stdout(sys.stderr) if options.get("json") == "-" else nullcontext():
        code, store = _search(who, options, start_s)
    if "json" in options:
        write_document(_points_json([store]), options["json"], "--json")
    return code


@dataclass(slots=True)
class _Tuning:
    """A tuning on its way. problem: why what is known cannot be saved. found: points of this
    command; wrong: candidates with wrong data; missed: points that the time did not suffice for;
    failed: those whose choice of today does not run, and why.
    """

    store: Store
    out: Path | None
    problem: str = ""
    found: list[TunedPoint] = field(default_factory=list)
    wrong: int = 0
    missed: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def keep(self, point: TunedPoint) -> None:
        """Keep a point, in the files too if they can be written."""
        self.found.append(point)
        self.store = self.store.with_point(point)
        self.save()

    def save(self) -> None:
        """Write the files. What is there stays if that fails."""
        try:
            self.store.save(self.out)
            self.problem = ""
        except OSError as error:
            place = self.out or self.store.tuning_file
            self.problem = f"{error.filename or place}: {error.strerror or error}"


def _search(who: Asked, options: Options, start_s: float) -> tuple[int, Store]:
    """Search and show; returns the exit code, and what is known of the points."""
    backend, group, name = backend_of(who), who.group, who.backend
    settings = replace(who.settings, repeats=LEAST_PAIRS)
    ranks = who.where()
    cases = _cases(options, name, who.ranks)
    hosts = host_numbers(group.hosts)
    base = replace(backend.limits(settings.max_memory), hosts=hosts)
    joined = (
        ranks.limits(cases[0], base).joined if backend.is_gpu else "network" if hosts else "memory"
    )
    machine = machine_of(name, base)._replace(joined=joined)
    out = Path(options["out"]) if "out" in options else None
    tuning = _Tuning(_stored(machine), out)
    known_points = tuning.store.known()
    count = len(set(hosts)) or 1
    todo, unclear = [], []
    for case in cases:
        point = known_points.get(_key(case, count))
        if options.get("again") or point is None:
            todo.append(case)
        elif point.is_open:
            unclear.append(case)
    todo += unclear
    budget_s = options.get("budget", _BUDGET_S)
    _say_head(cases, todo, len(unclear), budget_s, group, machine.model)
    if todo:
        tuning.save()
        if tuning.problem:
            raise UnavailableError(f"what is found cannot be kept: {tuning.problem}", "give --out")
    paces = Pace(), Pace()
    costs = priced(Measurement([], group, settings).machine, ranks.of(cases[0]))
    best: dict[str, Values] = {}
    deadline_s, latest_s = start_s + budget_s, start_s + _LATEST * budget_s
    try:
        with tune_screen() as (keep, tell):
            for number, case in enumerate(todo):
                where = f"{case.op} {format_size(case.size_bytes)}"
                limits = ranks.limits(case, base)
                own = str(tuning.store.tuning_file)
                way = row_of(case, ranks.base(case, base), ranks.of(case), own)
                candidates = Field(case, backend, group, limits, own, way)
                if candidates.today is None:
                    tuning.failed[where] = next(iter(candidates.waived), "nothing can run")
                    continue
                search = ConfigurationSearch(
                    candidates, group, settings, costs, paces,
                    is_gpu=backend.is_gpu,
                    tell=_told(tell, where, deadline_s),
                )  # fmt: skip
                left_s = deadline_s - time.monotonic()
                if search.least_s > left_s:
                    if not number:
                        raise UsageError(
                            f"--budget {format_duration(budget_s)}: {where} takes about"
                            f" {format_duration(search.least_s)} by itself",
                            "give more, or smaller --sizes",
                        )
                    tuning.missed += 1
                    continue
                share_s = max(search.least_s, left_s / (len(todo) - number))
                known = [values] if (values := best.get(case.op)) else []
                outcome = search.run(known, time.monotonic() + share_s, latest_s)
                for wrong in search.wrong:
                    keep(f"wrong: {where}: {wrong}")
                    tuning.wrong += 1
                if outcome is None:
                    if reason := search.former.reason:
                        tuning.failed[where] = reason
                    else:
                        tuning.missed += 1
                    continue
                point = _point(case, outcome, count)
                tuning.keep(point)
                best[case.op] = outcome.best.values
                keep("\n".join(wrapped(point_line(point), width(sys.stdout))))
                if tuning.problem:
                    keep(f"not saved: {tuning.problem}")
    except KeyboardInterrupt:
        _remark_on_what_is_kept(tuning)
        raise
    return _ended(tuning, cases, todo, replace(base, joined=joined if backend.is_gpu else ""))


def _stored(machine: Machine) -> Store:
    """What is known; where its file is broken, that is said, and it gets another name."""
    try:
        return stored(machine)
    except UsageError as error:
        try:
            kept = set_aside(machine)
        except OSError as why:
            raise UnavailableError(
                f"{error.message}, and it cannot be renamed: {why.strerror or why}",
                "is it another user's?",
            ) from None
        remark(f"{error.message}. It is {kept.name} now, and tuning starts anew.")
        return Store(machine=machine, points=())


def _told(tell: Show, where: str, deadline_s: float) -> Show:
    def tell_of(text: str) -> None:
        left_s = max(0.0, deadline_s - time.monotonic())
        tell(f"{where}: {text}; {format_duration(left_s)} left")

    return tell_of


def _key(case: Case, hosts: int) -> tuple[str, int, int, str, int]:
    return case.op, case.ranks, hosts, case.transport, case.size_bytes


def _cases(options: Options, backend: str, ranks: int) -> list[Case]:
    """The points: what is asked for, with every knob open but the transport."""
    first, last = _SIZES[backend]
    sizes = options.get("sizes") or sizes_between(first, last, factor=_FACTOR)
    if min(sizes) <= 0:
        raise UsageError("a size of 0 bytes", "give at least one byte")
    cases = [
        Case(
            op=op,
            backend=backend,
            ranks=ranks,
            size_bytes=size,
            transport=options.get("transport", "auto"),
        ).rounded()
        for op in options.get("op", ("allreduce",))
        for size in sorted(sizes)
    ]
    able = [case for case in dict.fromkeys(cases) if not case.why_senseless()]
    if not able:
        raise UsageError(f"--sizes: {cases[0].why_senseless()}", "give larger --sizes")
    return able


def _say_head(
    cases: Sequence[Case],
    todo: Sequence[Case],
    unclear: int,
    budget_s: float,
    group: Group,
    model: str,
) -> None:
    """What is about to be done, and how long it takes. unclear: points that were not told apart."""
    ops = dict.fromkeys(case.op for case in cases)
    sizes = sorted({case.size_bytes for case in cases})
    spread = format_size(sizes[0])
    spread += f" to {format_size(sizes[-1])}" if len(sizes) > 1 else ""
    hosts = len(set(group.hosts))
    known = len(cases) - len(todo)
    texts = [
        command_line(),
        f"{', '.join(ops)}: {spread}; {cases[0].ranks} ranks on {counted(hosts, 'host')}: {model}",
        f"{counted(len(todo), 'point')} to measure"
        + (f", {unclear} of them not told apart so far" if unclear else "")
        + (f", {known} known already (--again measures them, too)" if known else "")
        + (
            f"; at most {format_duration(budget_s)}, about"
            f" {format_duration(budget_s / len(todo))} each"
            if todo
            else ""
        ),
    ]
    for text in texts:
        say("\n".join(wrapped(f"# {text}", width(sys.stdout), "#   ")))


def _point(case: Case, outcome: Outcome, hosts: int) -> TunedPoint:
    gain = outcome.gain
    best = outcome.best.point.case
    return TunedPoint(
        op=case.op,
        size=case.size_bytes,
        ranks=case.ranks,
        hosts=hosts,
        asked=case.transport,
        values=dict(outcome.best.values) if outcome.is_better else {},
        carrier=best.transport,
        choice=outcome.challenger.text,
        former=outcome.former.text,
        gain=round(gain.median, 4) if gain else 0.0,
        gain_low=round(gain.low, 4) if gain else 0.0,
        gain_high=round(gain.high, 4) if gain else 0.0,
        pairs=outcome.pairs,
        tried=outcome.tried,
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        source=f"`{command_line()}`, {socket.gethostname()}, collbench {__version__}",
    )


def _remark_on_what_is_kept(tuning: _Tuning) -> None:
    if tuning.found and not tuning.problem:
        remark(
            f"{len(tuning.found)} point{'s are' if len(tuning.found) > 1 else ' is'} kept: the same"
            " command goes on from there."
        )


def _ended(
    tuning: _Tuning, cases: Sequence[Case], todo: Sequence[Case], limits: Limits
) -> tuple[int, Store]:
    """Show what is known of the points; returns the exit code, and the store with them alone."""
    store = tuning.store
    if not todo:  # the tuning file may be gone, though its points are known
        tuning.save()
    asked = {(case.op, case.ranks, case.transport, case.size_bytes) for case in cases}
    points = [one for one in store.points if (one.op, one.ranks, one.asked, one.size) in asked]
    if points:
        say("\n" + "\n".join(tuned_lines(points, width(sys.stdout))))
        say("\n".join(wrapped(gain_line(points), width(sys.stdout))))
    for what, why in tuning.failed.items():
        remark(f"{what} cannot be tuned: {why}.")
    if tuning.missed:
        remark(
            f"The time did not suffice for {tuning.missed} of {len(todo)} points: the same command"
            " goes on with them."
        )
    if tuning.problem:
        raise UnavailableError(f"what was found is not saved: {tuning.problem}", "make room")
    if tuning.failed and len(tuning.failed) == len(cases) and not tuning.wrong:
        raise UnavailableError(f"no point can run: {next(iter(tuning.failed.values()))}")
    if points:
        _say_where(tuning, cases, limits)
    if tuning.missed and not tuning.found and not tuning.wrong:
        raise UnavailableError(
            "nothing was tuned: the time did not suffice for a single point", "give more --budget"
        )
    return int(tuning.wrong > 0), replace(store, points=tuple(points))


def _say_where(tuning: _Tuning, cases: Sequence[Case], limits: Limits) -> None:
    """Say where the file is, and if sweeps take something else for a point nevertheless."""
    if tuning.out is not None:
        folder = tuning.store.tuning_file.parent
        say(f"Written to {tuning.out}; sweeps use it once it is in {folder}.")
        return
    if not tuning.store.has_rows:
        say("Nothing is written: sweeps take the same as before.")
        return
    say(f"Written to {tuning.store.tuning_file}; sweeps use it from now on.")
    read.cache_clear()
    tuning_of.cache_clear()
    known = tuning.store.known()
    others = []
    for case in cases:
        point = known.get(_key(case, len(set(limits.hosts)) or 1))
        if point is not None and point.values:
            with suppress(ScheduleError):
                if text_of(resolve(case, limits).case, point.values) != point.choice:
                    others.append(f"{case.op} {format_size(case.size_bytes)}")
    if others:
        remark(
            f"Another file of {tuning.store.tuning_file.parent} comes first by its name, and"
            f" decides {', '.join(others)}."
        )
