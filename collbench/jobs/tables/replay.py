"""What a job communicates and what its operations take, as text and as a document."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from collbench.bench.replay import ReplayProof
from collbench.core.files import result_json
from collbench.core.record import Record
from collbench.core.rows import devices_of
from collbench.core.text import counted, paragraphs, table
from collbench.core.units import format_rate, format_size, format_time_us
from collbench.jobs.advice import (
    Advice,
    Share,
    StepCost,
    setting_text,
    shares,
    skew_costs,
    step_costs,
    time_of,
)
from collbench.jobs.model import Job, JobOperation
from collbench.jobs.steps import Steps, StepTimes

_MOST_ROWS = 20  # of operations on the screen; --json has all
_WHOLE = 100.5  # percent of a step, rounded
_FORMS_A_TABLE = 3  # columns of times that 80 characters hold


@dataclass(slots=True, kw_only=True)
class Replay:
    """All that is known of a job. rows: by operation and form. tuned: the form that was tuned;
    advised: what was tried for the operations that matter most. proof, failed: of the settings
    that were best, or why there is none. settings: these in words; environment: what NCCL's
    variables would be.
    """

    job: Job
    steps: Steps
    times: StepTimes | None
    operations: Sequence[JobOperation]
    stands: Sequence[str] = ()
    step_us: float | None = None
    rows: Mapping[JobOperation, Mapping[str, Record]] = field(default_factory=dict)
    is_measured: bool = False
    tuned: str = ""
    advised: Sequence[Advice] = ()
    proof: ReplayProof | None = None
    failed: str = ""
    settings: Sequence[str] = ()
    environment: Sequence[str] = ()

    @property
    def costs(self) -> list[StepCost]:
        """What a step takes in every form."""
        return step_costs(self.operations, self.rows)

    @property
    def shares(self) -> list[Share]:
        """The share of communication in a step."""
        return shares(self.times, self.step_us, next(iter(self.costs), None))


def replay_lines(replay: Replay, columns: int) -> list[str]:
    """The whole text."""
    blocks = [
        paragraphs(_head(replay), columns),
        *_tables(replay, columns),
        paragraphs(_reasons(replay), columns),
        paragraphs(_costs(replay), columns),
        paragraphs(_skew(replay), columns),
        _advice(replay, columns),
        paragraphs(_proof(replay), columns),
        list(replay.environment),
    ]
    return [line for block in blocks if block for line in ("", *block)][1:]


def _head(replay: Replay) -> list[str]:
    job, steps = replay.job, replay.steps
    text = f"{job.name}: {job.source}, {counted(len(job.calls), 'call')} of a rank."
    if steps.number > 1:
        plural = "s" * (steps.length != 1)
        text += f" {steps.number} steps of {steps.length:.4g} call{plural} were found"
        text += f", from call {steps.first + 1} on." if steps.first else "."
    elif not steps.is_found:
        text += " No step repeats: all calls are taken as one step."
    remarks = (*job.remarks, *replay.stands)
    return [text, *(f"{remark[0].upper()}{remark[1:]}." for remark in remarks)]


def _tables(replay: Replay, columns: int) -> list[list[str]]:
    """The operations, with the times of three forms at a time."""
    forms = [cost.form for cost in replay.costs]
    groups = [forms[at : at + _FORMS_A_TABLE] for at in range(0, len(forms), _FORMS_A_TABLE)]
    return [_table(replay, group, columns) for group in groups or [[]]]


def _table(replay: Replay, forms: Sequence[str], columns: int) -> list[str]:
    has_recorded = any(one.recorded_us is not None for one in replay.operations)
    has_groups = len({group for one in replay.operations for group in one.groups}) > 1
    heads = ["collective", "size", "type", "ranks", "calls", "MB a step"]
    heads += ["groups"] if has_groups else []
    heads += ["job us"] if has_recorded else []
    heads += [f"{form} us" for form in forms]
    costs = {cost.form: cost for cost in replay.costs}
    heads += ["share"] if forms else []
    body = []
    for one in replay.operations[:_MOST_ROWS]:
        row = [
            one.kind.op,
            format_size(one.kind.size_bytes),
            one.kind.dtype,
            str(one.kind.ranks),
            f"{one.calls:.4g}",
            _megabytes(one.bytes),
        ]
        row += [str(len(one.groups))] if has_groups else []
        row += [_time(one.recorded_us)] if has_recorded else []
        row += [_cell(replay, one, form) for form in forms]
        if forms:
            time = time_of(replay.rows, one, forms[0])
            total = costs[forms[0]].time_us
            row.append(f"{100 * one.calls * time / total:.0f}%" if time and total else "-")
        body.append(row)
    left_out = replay.operations[_MOST_ROWS:]
    lines = table(heads, body, {1, *range(3, len(heads))}, columns)
    if left_out:
        lines.append(
            f"and {len(left_out)} more, {_megabytes(sum(one.bytes for one in left_out))} MB a step"
        )
    return lines


def _megabytes(size_bytes: float) -> str:
    """Decimal megabytes with four digits, without an exponent."""
    megabytes = size_bytes / 1e6
    if 0 < megabytes < 0.0001:
        return format_rate(megabytes)
    return f"{megabytes:.0f}" if megabytes >= 1000 else f"{megabytes:.4g}"


def _milliseconds(time_us: float) -> str:
    """With three digits, without an exponent where it is large."""
    return f"{time_us / 1e3:.0f}" if time_us >= 1e6 else f"{time_us / 1e3:.3g}"


def _time(time_us: float | None) -> str:
    return "-" if time_us is None else format_time_us(time_us)


def _cell(replay: Replay, operation: JobOperation, form: str) -> str:
    row = replay.rows.get(operation, {}).get(form)
    if row is None:
        return "-"
    return _time(row.time_us) if row.status == "ok" else row.status


def _reasons(replay: Replay) -> Iterator[str]:
    """Why operations have no time."""
    reasons = Counter(
        f"{form}, {row.status}: {row.reason}"
        for operation in replay.operations
        for form, row in replay.rows.get(operation, {}).items()
        if row.status != "ok"
    )
    for text, count in reasons.items():
        yield text + (f" ({count} operations)" if count > 1 else "")
    left = sum(operation not in replay.rows for operation in replay.operations)
    if replay.is_measured and left:
        yield (
            f"{left} of {len(replay.operations)} operations were not measured: a larger"
            " --budget reaches them"
        )


def _costs(replay: Replay) -> Iterator[str]:
    for cost in replay.costs:
        if cost.missing < len(replay.operations):
            time = _duration(cost.time_us)
            text = f"The calls of a step take {time} back to back with {cost.form}"
            missing = f", without {cost.missing} of {len(replay.operations)} operations"
            yield f"{text}{missing if cost.missing else ''}."
    times = replay.times
    for share in replay.shares:
        whose = "the job's own times" if share.is_recorded else f"{replay.costs[0].form}'s times"
        text = f"A step of the job takes {_duration(share.step_us)}: "
        if share.percent > _WHOLE:
            text += f"less than its communication, which by {whose} is {_percent(share.percent)}."
        else:
            text += (
                f"communication is {_percent(share.percent)} of it by {whose}, and computation can"
                f" hide {_duration(share.hideable_us)} of that at best."
            )
        if not share.is_recorded and times is not None and times.communicating:
            gaps = max(0.0, share.step_us - times.communicating)
            with_gaps = _duration(gaps + share.communicating_us)
            text += f" With the gaps of the job it would take {with_gaps}."
        yield text
    if times is not None and times.exposed is not None:
        yield (
            f"For {_duration(times.exposed)} of a step the job communicates while nothing computes."
        )


def _percent(percent: float) -> str:
    return f"{percent:.0f}%" if percent >= 10 else f"{percent:.2g}%"


def _duration(time_us: float) -> str:
    if abs(time_us) < 1e3:
        return f"{time_us:.3g} us"
    return f"{time_us / 1e3:.3g} ms" if abs(time_us) < 1e6 else f"{time_us / 1e6:.3g} s"


def _skew(replay: Replay) -> Iterator[str]:
    form = replay.costs[0].form if replay.costs else ""
    for operation, more_us in skew_costs(replay.operations, replay.rows, form):
        yield (
            f"{operation.kind.op} of {format_size(operation.kind.size_bytes)} is uneven: its"
            f" largest block is {operation.skew:.3g}x the mean, its busiest rank moves"
            f" {operation.load:.3g}x the mean. It is measured with equal blocks; where that"
            f" rank's link is the limit, the skew costs {_duration(more_us)} a step more."
        )


def _advice(replay: Replay, columns: int) -> list[str]:
    if not replay.advised:
        return []
    heads = ("tune first", "size", "ms a step", "gain", "saves ms", "setting")
    body = [
        (
            one.operation.kind.op,
            format_size(one.operation.kind.size_bytes),
            _milliseconds(one.operation.calls * (one.now.time_us or 0.0)),
            f"{one.gain:.2f}x" if one.best is not None else "-",
            _milliseconds(one.saved_us),
            setting_text(one.best) if one.best is not None else _none_faster(one),
        )
        for one in replay.advised
    ]
    return table(heads, body, (1, 2, 3, 4), columns)


def _none_faster(one: Advice) -> str:
    """What is known of other settings, where none is faster."""
    if not one.tried:
        return f"none of {one.known} was reached"
    of_known = f" tried, of {one.known}," if one.tried < one.known else ""
    return f"none of {one.tried}{of_known} is faster"


def _proof(replay: Replay) -> list[str]:
    proof = replay.proof
    if replay.failed or proof is None:
        return [replay.failed] if replay.failed else []
    ratio, saved = proof.ratio, proof.saved_s
    if proof.is_modelled:
        return [
            f"By the model a step with these settings saves {_duration(saved.median * 1e6)}:"
            f" it takes {ratio.median:.3g}x as long without them. Nothing ran."
        ]
    known = "saves" if proof.is_proven else "is not shown to save anything:"
    text = (
        f"A step with these settings {known} {_duration(saved.median * 1e6)}"
        f" [{_duration(saved.low * 1e6)}, {_duration(saved.high * 1e6)}]: without them it takes"
        f" {ratio.median:.3f}x as long, 95% interval {ratio.low:.3f} to {ratio.high:.3f},"
        f" {len(proof.rounds)} rounds with and without in turns."
    )
    if missing := replay.costs[0].missing:
        text += f" {missing} of {len(replay.operations)} operations are not in it."
    return [text + " Other processes were busy meanwhile." * proof.is_noisy]


def replay_json(replay: Replay) -> str:
    """All as a JSON object."""
    proof = replay.proof
    document = {
        "job": replay.job.name,
        "source": replay.job.source,
        "calls": len(replay.job.calls),
        "remarks": [*replay.job.remarks, *replay.stands],
        "steps": {
            "number": replay.steps.number,
            "first_call": replay.steps.first,
            "calls": replay.steps.length,
            "found": replay.steps.is_found,
        },
        "operations": [_document(replay, one) for one in replay.operations],
        "step": [
            {"form": cost.form, "time_us": cost.time_us, "operations_missing": cost.missing}
            for cost in replay.costs
        ],
        "shares": [
            {
                "step_us": share.step_us,
                "communicating_us": share.communicating_us,
                "percent": share.percent,
                "hideable_us": share.hideable_us,
                "recorded": share.is_recorded,
            }
            for share in replay.shares
        ],
        "tuned": replay.tuned,
        "advice": [
            {
                "op": one.operation.kind.op,
                "size_bytes": one.operation.kind.size_bytes,
                "setting": setting_text(one.best) if one.best is not None else None,
                "gain": one.gain,
                "saved_us": one.saved_us,
                "tried": one.tried,
            }
            for one in replay.advised
        ],
        "proof": proof
        and {
            "rounds": proof.rounds,
            "ratio": proof.ratio,
            "saved_s": proof.saved_s,
            "proven": proof.is_proven,
            "modelled": proof.is_modelled,
            "noisy": proof.is_noisy,
        },
        "why_no_proof": replay.failed,
        "settings": replay.settings,
        "environment": replay.environment,
    }
    rows = (row for of_forms in replay.rows.values() for row in of_forms.values())
    return result_json(document, machine=devices_of(rows))


def _document(replay: Replay, one: JobOperation) -> dict[str, object]:
    return {
        "op": one.kind.op,
        "size_bytes": one.kind.size_bytes,
        "dtype": one.kind.dtype,
        "redop": one.kind.redop,
        "ranks": one.kind.ranks,
        "calls": one.calls,
        "skew": one.skew,
        "load": one.load,
        "recorded_us": one.recorded_us,
        "groups": one.groups,
        "measured": {
            form: {"status": row.status, "time_us": row.time_us, "reason": row.reason,
                   "repeats_us": row.repeat_times_us, "algo": row.algo, "proto": row.proto}
            for form, row in replay.rows.get(one, {}).items()
        },
    }  # fmt: skip
