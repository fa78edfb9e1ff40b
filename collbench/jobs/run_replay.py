"""Carry out `replay`: a job from files or formulas, its operations measured, the settings that are
best for it, and the proof of what they save.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

from collbench.bench.busy import BusyRemark
from collbench.bench.ranks import (
    MODEL,
    Ranks,
    drive_on_rank0,
    group_here,
    ranks_of,
    recordings_of,
    refuse_few_gpus,
    remark_unnamed,
    topology_of_all,
)
from collbench.bench.replay import Bench, Part, by_estimate, least_repeats, measure, prove
from collbench.bench.show_sweep import remark_on_cores
from collbench.core.case import Case
from collbench.core.errors import CollbenchError, UnavailableError, UsageError
from collbench.core.files import check_files, write_document
from collbench.core.group import Group
from collbench.core.host import has_nvidia_gpus
from collbench.core.knobs import Value
from collbench.core.options import Options, Rule, Settings, refuse, settings_of
from collbench.core.peers import is_peer
from collbench.core.record import Record, Writer
from collbench.core.screen import remark, say, width
from collbench.jobs import formats
from collbench.jobs.advice import Advice, best_of, fastest, ordered, setting_text
from collbench.jobs.cases import Stand, candidates, cases_of, form_name
from collbench.jobs.mixes import mix
from collbench.jobs.model import Job, JobOperation, operations_of
from collbench.jobs.run_log import opened, refuse_pickle
from collbench.jobs.steps import step_times, steps_of
from collbench.jobs.tables.replay import Replay, replay_json, replay_lines

_ON_GPUS = ("cuda", "nccl")
# Of the budget: for the operations as they are, for a glance at other settings, and for those that
# look best. The proof has the rest; where it needs more, the two before it have down to a half.
_MEASURING, _SCREENING, _JUDGING = 0.2, 0.2, 0.2
_LEAST_SEARCH = 0.5
_PLANNING = 0.3  # of the time for a glance, the part in which settings may be planned
_FINALISTS = 2  # settings of an operation that are judged
_REPEATS = 4  # so that the best of many is chosen by two of them and judged by two
_RULES = (
    Rule(
        options=("mix",),
        when=lambda options: options["files"],
        message="files and a mix are two jobs",
    ),
    Rule(
        options=("tuner",),
        when=lambda options: options.get("dry_run") or "nccl" not in options["backend"],
        message="NCCL's tuner file is made of NCCL's own rows",
        hint="give --backend nccl, on a machine with GPUs, without --dry-run",
    ),
    Rule(
        options=("csv",),
        when=lambda options: options.get("dry_run"),
        message="--dry-run measures no row",
        hint="leave one out",
    ),
    Rule(
        options=("machine",),
        when=lambda options: not {MODEL, *_ON_GPUS} & set(options["backend"]),
        message="only the model and the ceilings of GPUs heed it",
        hint="give --backend model, or leave it out",
    ),
    Rule(
        options=("algo", "proto"),
        when=lambda options: all(map(is_peer, options["backend"])),
        message="a library chooses by itself before it is tuned",
        hint="leave it out, or give a backend of ours",
    ),
)


def run_replay(options: Options) -> int:
    """The whole command; returns the exit code."""
    if "backend" not in options:
        options = {**options, "backend": _default_backends(options)}
    refuse(_RULES, options, options)
    if not options["files"] and "mix" not in options:
        raise UsageError("there is no job", "give a file, or for example --mix fsdp:70B/8")
    check_files(options, "json", "tuner", "csv")
    settings = replace(settings_of(options), repeats=_REPEATS)
    group = group_here(settings.timeout_s)
    recordings = recordings_of(group, options)

    def drive() -> int:
        machine, links = options.get("machine"), topology_of_all(recordings)
        remark_unnamed(machine)
        where = ranks_of(options["backend"], machine, group, settings.gpus, links)
        return _drive(options, group, settings, where)

    return drive_on_rank0(group, drive)


def _default_backends(options: Options) -> tuple[str, ...]:
    if has_nvidia_gpus() or "gpus" in options:
        return _ON_GPUS
    return (MODEL,) if "machine" in options else ("cpu",)


def _drive(options: Options, group: Group, settings: Settings, where: Ranks) -> int:
    job = mix(options["mix"]) if "mix" in options else _read(options["files"])
    steps = steps_of(job)
    known: dict[str, Value] = {name: options.get(name, "auto") for name in ("algo", "proto")}
    stand = Stand(
        ranks=options.get("ranks"),
        dtype=options.get("dtype"),
        redop=options.get("redop"),
        knobs=known,
    )
    operations = operations_of(steps.calls(job), steps.number)
    step_ms = options.get("step_ms")
    replay = Replay(
        job=job,
        steps=steps,
        times=step_times(job, steps),
        operations=operations,
        stands=_stands(operations, stand),
        step_us=step_ms * 1e3 if step_ms is not None else None,
    )
    if not options.get("dry_run"):
        if "machine" in options and MODEL in options["backend"]:
            most = max(stand.of(one.kind).ranks for one in operations)
            refuse_few_gpus(options["machine"], most)
        bench = Bench(group=group, settings=settings, where=where)
        try:
            _Run(options, bench, where, stand, replay).measure()
        except KeyboardInterrupt:
            if replay.rows:
                replay.failed = "Interrupted: this is what was measured until then."
                _show(options, replay)
            raise
    _show(options, replay)
    return _exit_code(replay)


def _show(options: Options, replay: Replay) -> None:
    if options.get("json"):
        write_document(replay_json(replay), options["json"], "--json")
    out = sys.stderr if options.get("json") == "-" else sys.stdout
    say("\n".join(replay_lines(replay, width(out))), file=out)


def _read(files: Sequence[str]) -> Job:
    with ExitStack() as stack:
        inputs = [(file, *stack.enter_context(opened(file))) for file in files]
        for file, head, _ in inputs:
            refuse_pickle(file, head)
        names = ["stdin" if file == "-" else Path(file).name for file, _, _ in inputs]
        heads = [head.decode("utf-8", "replace") for _, head, _ in inputs]
        texts = [text for _, _, text in inputs]
        return formats.read(list(zip(names, texts, strict=True)), heads)


def _stands(operations: Sequence[JobOperation], stand: Stand) -> list[str]:
    """What is measured in another way than the job has it."""
    kinds = [one.kind for one in operations]
    most = max(kind.ranks for kind in kinds)
    texts = {
        "ranks": f"{stand.ranks} ranks are measured in the place of up to {most}",
        "dtype": f"{stand.dtype} is measured in the place of the job's types",
        "redop": f"{stand.redop} is measured in the place of the job's reductions",
    }
    return [
        text
        for name, text in texts.items()
        if any(getattr(kind, name) != getattr(stand.of(kind), name) for kind in kinds)
    ]


@dataclass(slots=True)
class _Run:
    """The measurements of one replay. end_s: of the budget, on the monotonic clock; repeat_s: what
    a repeat of an operation has taken.
    """

    options: Options
    bench: Bench
    where: Ranks
    stand: Stand
    replay: Replay
    end_s: float = 0.0
    repeat_s: float = 0.0

    def measure(self) -> None:
        """The operations, other settings for the longest, and the proof, up to the user's end."""
        budget_s, replay = self.options["budget"], self.replay
        self.end_s = time.monotonic() + budget_s
        asked = {
            operation: {
                form_name(case): case
                for backend in self.options["backend"]
                for case in cases_of(operation, backend, self.stand)
            }
            for operation in replay.operations
        }
        rows: dict[Case, Record] = {}
        wanted = [case for forms in asked.values() for case in forms.values()]
        remark_on_cores(wanted, self.bench.group)
        busy = BusyRemark()
        try:
            rows |= self._measured(wanted, _MEASURING * budget_s, self.bench, rows)
        finally:
            replay.is_measured = True
            replay.rows = {
                operation: found
                for operation, forms in asked.items()
                if (found := {form: rows[case] for form, case in forms.items() if case in rows})
            }
        busy.of_rows(list(rows.values()))
        self._refuse_nothing(list(rows.values()))
        taken_s = time.monotonic() - (self.end_s - budget_s)
        self.repeat_s = taken_s / max(1, sum(row.repeats or 0 for row in rows.values()))
        backend = self.options["backend"][0]
        replay.tuned = next(iter(asked[replay.operations[0]]))
        if self.options["tune"]:
            cases = {operation: forms[replay.tuned] for operation, forms in asked.items()}
            self._tune(backend, cases, rows)

    def _refuse_nothing(self, rows: Sequence[Record]) -> None:
        """Raise UnavailableError if every operation was waived."""
        if rows and all(row.status == "waived" for row in rows):
            why, _, hint = rows[0].reason.partition("; ")
            raise UnavailableError(
                f"no operation can be measured: {why}",
                hint or "give another --backend, or other --ranks, --dtype or --redop",
            )

    def _measured(
        self, cases: Sequence[Case], budget_s: float, bench: Bench, partly: dict[Case, Record]
    ) -> dict[Case, Record]:
        """The rows of the cases, which are in the file, too; partly: as measure() has it."""
        try:
            rows = measure(cases, bench, budget_s, partly)
        except KeyboardInterrupt:
            self._write(partly)
            raise
        self._write(rows)
        return rows

    def _write(self, rows: dict[Case, Record]) -> None:
        if self.options.get("csv"):
            writer = Writer(Path(self.options["csv"]))
            try:
                writer.write(list(rows.values()))
            finally:
                writer.close()

    def _tune(
        self, backend: str, cases: dict[JobOperation, Case], rows: dict[Case, Record]
    ) -> None:
        """Try other settings for the operations that take most of a step, and prove the best."""
        replay, options = self.replay, self.options
        timed = [one for one, case in cases.items() if case in rows and rows[case].status == "ok"]
        timed.sort(key=lambda one: -one.calls * (rows[cases[one]].time_us or 0.0))
        top = timed[: options["tune"]]
        search_s = (_SCREENING + _JUDGING) * options["budget"]
        repeats = least_repeats([(cases[one], one.calls) for one in timed])
        left_s = self.end_s - time.monotonic() - repeats * len(timed) * self.repeat_s
        share = min(1.0, max(_LEAST_SEARCH, left_s / search_s))
        budget_s = share * _SCREENING * options["budget"]
        tried = {
            one: by_estimate(
                candidates(one, backend, self.stand, has_hosts=self.where.has_hosts),
                self.bench,
                _PLANNING * budget_s / len(top),
            )
            for one in top
        }
        if not any(tried.values()):
            if top:
                replay.failed = f"{backend} can be forced to nothing, so there is nothing to tune."
            return
        # in turns, so that a budget that is too small leaves no operation out
        others = [case for case in chain.from_iterable(zip_longest(*tried.values())) if case]
        plural = "s" * (len(top) != 1)
        self._remark(f"Trying {len(others)} other settings of {len(top)} operation{plural}")
        once = replace(self.bench, settings=replace(self.bench.settings, repeats=1))
        glances = self._measured(others, budget_s, once, {})
        finalists = {one: fastest(glances, tried[one], _FINALISTS) for one in top}
        again = chain((cases[one] for one in top), *finalists.values())
        budget_s = share * _JUDGING * options["budget"]
        found = self._measured(list(dict.fromkeys(again)), budget_s, self.bench, {})
        replay.advised = ordered(
            best_of(
                one,
                cases[one],
                found[cases[one]],
                {case: found[case] for case in finalists[one] if case in found},
                tried=sum(case in glances for case in tried[one]),
                known=len(tried[one]),
            )
            for one in top
            if cases[one] in found and found[cases[one]].status == "ok"
        )
        self._write_tuner(backend, list(found.values()))
        self._prove(cases, timed)

    def _prove(self, cases: dict[JobOperation, Case], timed: Sequence[JobOperation]) -> None:
        """A step without and with the best settings."""
        replay = self.replay
        best: dict[JobOperation, Advice] = {
            one.operation: one for one in replay.advised if one.best is not None
        }
        if not best:
            left = sum(one.known - one.tried for one in replay.advised)
            replay.failed = (
                f"{left} other settings were not reached: give a larger --budget. Of the others"
                " none is faster, so there is nothing to prove."
                if left
                else "No other setting is faster, so there is nothing to prove."
            )
            return
        before: list[Part] = [(cases[one], one.calls) for one in timed]
        after: list[Part] = [
            (best[one].best or cases[one] if one in best else cases[one], one.calls)
            for one in timed
        ]
        self._remark("Running the step with and without the best settings")
        try:
            replay.proof = prove(before, after, self.bench, self.end_s - time.monotonic())
        except CollbenchError as error:
            replay.failed = f"The settings could not be proven: {error.text}."
            return
        replay.settings = [
            f"{one.operation.kind.op} of {one.operation.kind.size_bytes} bytes:"
            f" {setting_text(one.best)}"
            for one in best.values()
            if one.best is not None
        ]

    def _write_tuner(self, backend: str, rows: Sequence[Record]) -> None:
        """NCCL's tuner file, and what its variables would be, of what was measured for the job."""
        if backend != "nccl":
            return
        from collbench.tune.nccl_file import env_lines, tuner_lines

        try:
            self.replay.environment = env_lines(rows)
            if self.options.get("tuner"):
                text = "\n".join(tuner_lines(rows)) + "\n"
                write_document(text, self.options["tuner"], "--tuner")
        except UsageError as error:
            remark(f"{error.text}.")

    def _remark(self, what: str) -> None:
        """Say what takes long, unless nothing runs."""
        if set(self.options["backend"]) != {MODEL}:
            remark(f"{what}.")


def _exit_code(replay: Replay) -> int:
    """1 for wrong data, else 0."""
    rows = [row for forms in replay.rows.values() for row in forms.values()]
    return int(any(row.status == "wrong" for row in rows))
