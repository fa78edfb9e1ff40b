"""What to tune first in a job, and what the best settings would save a step. Pure.

The best of many settings is the one with the least median; whether it is merely the luckiest, and
saves nothing, is for the proof to say (bench/replay.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collbench.core.case import Case
from collbench.core.knobs import KNOBS
from collbench.core.limits import LEAST_GAIN
from collbench.core.peers import forced_by, is_peer
from collbench.core.record import Record
from collbench.core.verdict import middle
from collbench.jobs.cases import form_name
from collbench.jobs.model import JobOperation
from collbench.jobs.steps import StepTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """An operation, what it takes as it is, and the best other setting, None if none is faster.
    gain: how many times as long it takes as it is; saved_us: a step; tried: other settings that
    were run, of so many that there are.
    """

    operation: JobOperation
    now: Record
    case: Case
    best: Case | None
    gain: float
    tried: int
    known: int

    @property
    def saved_us(self) -> float:
        """Microseconds that the best setting saves a step."""
        assert self.now.time_us is not None
        return self.operation.calls * self.now.time_us * (1 - 1 / self.gain)


def fastest(rows: Mapping[Case, Record], cases: Iterable[Case], most: int) -> list[Case]:
    """The cases with the least times."""
    times = {
        case: row.time_us
        for case in cases
        if (row := rows.get(case)) is not None and row.time_us is not None
    }
    return sorted(times, key=times.__getitem__)[:most]


def best_of(
    operation: JobOperation,
    case: Case,
    now: Record,
    others: Mapping[Case, Record],
    *,
    tried: int,
    known: int,
) -> Advice:
    """The best of other settings for an operation, if it is LEAST_GAIN faster than now. tried: how
    many of the known others were run, of which those here were the fastest.
    """
    timed = {
        other: row
        for other, row in others.items()
        if row.status == "ok" and row.repeat_times_us and other != case
    }
    best = min(timed, key=lambda other: middle(timed[other].repeat_times_us), default=None)
    gain = 1.0
    if best is not None:
        gain = middle(now.repeat_times_us) / middle(timed[best].repeat_times_us)
    if gain < LEAST_GAIN:
        best, gain = None, 1.0
    return Advice(
        operation=operation, now=now, case=case, best=best, gain=gain, tried=tried, known=known
    )


def ordered(found: Iterable[Advice]) -> list[Advice]:
    """What saves most first."""
    return sorted(found, key=lambda one: (-one.saved_us, one.operation.kind))


def setting_text(case: Case) -> str:
    """A setting in words: the knobs that it names, or the variables that force a library.

    >>> case = Case(op="allreduce", backend="cpu", algo="ring", proto="ll", ranks=2, size_bytes=8)
    >>> setting_text(case)
    '--algo ring --proto ll'
    """
    if is_peer(case.backend):
        forced = " ".join(f"{name}={value}" for name, value in forced_by(case))
        return forced or form_name(case)
    named = [
        f"{knob.flag} {knob.text(value)}"
        for knob in KNOBS
        if (value := getattr(case, knob.name)) not in (knob.default, "auto")
    ]
    return " ".join(named) or "as it is"


# A step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What the calls of a step take together in one form. missing: operations without a time."""

    form: str
    time_us: float
    missing: int


def time_of(
    rows: Mapping[JobOperation, Mapping[str, Record]], operation: JobOperation, form: str
) -> float | None:
    """What an operation takes in a form, if that is known."""
    row = rows.get(operation, {}).get(form)
    return row.time_us if row is not None else None


def step_costs(
    operations: Sequence[JobOperation], rows: Mapping[JobOperation, Mapping[str, Record]]
) -> list[StepCost]:
    """The cost of a step in every form that was measured."""
    forms = dict.fromkeys(form for by_form in rows.values() for form in by_form)
    costs = []
    for form in forms:
        times = [
            operation.calls * time_us
            for operation in operations
            if (time_us := time_of(rows, operation, form)) is not None
        ]
        costs.append(StepCost(form=form, time_us=sum(times), missing=len(operations) - len(times)))
    return costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Communication in a step of step_us: what its calls take, and how much of that computation
    could hide at best.
    """

    step_us: float
    communicating_us: float
    hideable_us: float
    is_recorded: bool

    @property
    def percent(self) -> float:
        return 100 * self.communicating_us / self.step_us


def shares(times: StepTimes | None, step_us: float | None, cost: StepCost | None) -> list[Share]:
    """The share by the times of the input, and by those that were measured here."""
    found = []
    if times is not None and times.communicating is not None and times.hideable is not None:
        found.append(
            Share(
                step_us=times.step,
                communicating_us=times.communicating,
                hideable_us=times.hideable,
                is_recorded=True,
            )
        )
    length = step_us or (times.step if times is not None else None)
    if length is not None and cost is not None and not cost.missing:
        left = max(0.0, length - cost.time_us)
        found.append(
            Share(
                step_us=length,
                communicating_us=cost.time_us,
                hideable_us=min(cost.time_us, left),
                is_recorded=False,
            )
        )
    return found


def skew_costs(
    operations: Iterable[JobOperation], rows: Mapping[JobOperation, Mapping[str, Record]], form: str
) -> list[tuple[JobOperation, float]]:
    """Uneven exchanges, with the microseconds a step by which they take longer than with equal
    blocks at least, where the busiest rank's link is the limit.
    """
    return [
        (operation, operation.calls * time_us * (operation.load - 1))
        for operation in operations
        if operation.skew > 1 and (time_us := time_of(rows, operation, form)) is not None
    ]
