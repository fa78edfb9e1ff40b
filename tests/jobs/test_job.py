"""What a job communicates: formats, steps, formulas, shares and advice."""

import io
import random
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.bench.rows import unmeasured_row
from collbench.core.errors import UsageError
from collbench.core.peers import forced_by
from collbench.core.record import Record
from collbench.jobs import formats
from collbench.jobs.advice import best_of, shares, step_costs
from collbench.jobs.cases import Stand, candidates, cases_of, form_name
from collbench.jobs.mixes import mix
from collbench.jobs.model import Call, Job, JobOperation, OperationKind, operations_of
from collbench.jobs.steps import step_times, steps_of
from collbench.launch.local import LocalGroup
from tests.support.runs import ROOT, SHARED

FSDP = SHARED / "nccl-logs/fsdp.txt"
FORMATS = tomllib.loads(Path(__file__).with_name("formats.toml").read_text())
TRACE = ROOT / "docs/examples/trace.json"


def read(*texts: str) -> Job:
    """The job of files with these texts."""
    files = [(f"rank{number}", io.StringIO(text)) for number, text in enumerate(texts)]
    return formats.read(files, [text[:4096] for text in texts])


def log_of(rank: int, *lines: str) -> list[str]:
    """Lines of COLL of a rank of four."""
    return [
        f"n1:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {line} comm 0x{rank + 1} [nranks=4]"
        " stream 0x5"
        for line in lines
    ]


def coll(op: str, count: int, root: int = 0, dtype: int = 9, redop: int = 0) -> str:
    return (
        f"{op}: opCount 0 sendbuff 0x7 recvbuff 0x8 count {count} datatype {dtype} op {redop}"
        f" root {root}"
    )


def told(call: Call) -> str:
    """What was called: collective, bytes, type, ranks, and what is not as usual."""
    more = (
        *(("at", call.start_us, None), ("for", call.duration_us, None)),
        *(("skew", call.skew, 1.0), ("load", call.load, 1.0)),
    )
    text = f"{call.op} {call.size_bytes} {call.dtype} {call.ranks}"
    return text + "".join(f" {name} {value:g}" for name, value, usual in more if value != usual)


@pytest.mark.parametrize("what", FORMATS)
def test_what_files_say(what: str) -> None:
    case = FORMATS[what]
    if "refused" in case:
        with pytest.raises(UsageError) as caught:
            read(*case["texts"])
        assert case["refused"] in caught.value.message
        return
    job = read(*case["texts"])
    assert list(map(told, job.calls)) == case["calls"]
    assert job.source == case.get("source", job.source)
    said = zip(case["remarks"], job.remarks, strict=True)
    assert [one for wanted, one in said if wanted not in one] == []


def test_a_trace_of_the_profiler_with_steps_and_computation() -> None:
    job = read(TRACE.read_text())
    steps = steps_of(job)
    assert (steps.number, steps.length) == (3, 7)
    times = step_times(job, steps)
    assert times is not None and times.communicating is not None
    assert times.step == 2890
    # four gathers, two scatters, and the small allreduce, none of which overlap:
    assert times.communicating == pytest.approx(4 * 150.5 + 2 * 180.25 + 12)
    # the second gather runs beside the first multiplication, from 410 to 550
    assert times.exposed == pytest.approx(times.communicating - 140)
    assert times.hideable == pytest.approx(times.exposed)


def test_communicators_of_a_rank_are_groups_in_the_order_of_its_lines() -> None:
    both = [
        *log_of(0, coll("AllReduce", 8)),
        log_of(0, coll("AllReduce", 8))[0].replace("comm 0x1 ", "comm 0x9 "),
        log_of(0, coll("AllGather", 8))[0].replace("0x1 [nranks=4]", "0x7 [nranks=2]"),
    ]
    job = read("\n".join(both * 2))
    assert [(call.op, call.ranks) for call in job.calls[:3]] == [
        ("allreduce", 4),
        ("allreduce", 4),
        ("allgather", 2),
    ]
    assert {one.kind.op: len(one.groups) for one in operations_of(job.calls, 2)} == {
        "allreduce": 2,
        "allgather": 1,
    }


@pytest.mark.skipif(not FSDP.is_file(), reason="needs shared/data/nccl-logs")
def test_the_fsdp_log_has_four_steps() -> None:
    job = read(FSDP.read_text())
    steps = steps_of(job)
    assert (steps.first, steps.length, steps.number) == (0, 19, 4)
    found = {(one.kind.op, one.kind.size_bytes): one for one in operations_of(
        steps.calls(job), steps.number)}  # fmt: skip
    assert {key: one.calls for key, one in found.items()} == {
        ("allgather", 3149056 * 2 * 4): 12.0,
        ("reducescatter", 3149056 * 2 * 4): 6.0,
        ("alltoall", 1040384): 1.0,
    }


# Steps


@pytest.mark.parametrize("text", ["ddp:1B/4", "fsdp:7B/8", "tp:7B/8", "moe:7B/8"])
def test_steps_of_repeated_mixes_are_found(text: str) -> None:
    calls = list(mix(text).calls)
    odd = [replace(calls[0], op="broadcast", size_bytes=size) for size in range(64, 70)]
    job = Job(name="", source="", calls=[*odd, *calls * 5, odd[0]])
    steps = steps_of(job)
    if text.startswith("tp"):  # all of its calls are the same
        assert steps.length == 1
    else:
        assert (steps.length, steps.number) == (len(calls), 5)
        counts = {one.kind: one.calls for one in operations_of(steps.calls(job), steps.number)}
        assert counts == {one.kind: one.calls for one in operations_of(calls, 1)}


def test_steps_are_found_though_threads_race() -> None:
    chance = random.Random(4)
    calls = list(mix("fsdp:1B/4").calls)
    raced = []
    for _ in range(6):
        step = list(calls)
        for place in chance.sample(range(len(step) - 1), len(step) // 4):
            step[place : place + 2] = reversed(step[place : place + 2])
        raced += step
    steps = steps_of(Job(name="", source="", calls=raced))
    assert (steps.length, steps.number) == (len(calls), 6)


def test_one_step_is_not_taken_for_its_layers() -> None:
    calls = mix("fsdp:7B/8").calls
    steps = steps_of(Job(name="", source="", calls=calls))
    assert (steps.number, steps.is_found) == (1, False)


# Mixes


@pytest.mark.parametrize("text", ["7B", "ddp:7", "fsdp:70B/1", "dp:7B", "moe:999T", "ddp:7B/x"])
def test_mixes_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        mix(text)


@pytest.mark.parametrize("n", [2, 3, 7, 8])
def test_bytes_of_mixes_follow_their_formulas(n: int) -> None:
    parameters = 3 * 10**9
    of = {
        op: sum(call.size_bytes for call in mix(f"fsdp:3B/{n}").calls if call.op == op)
        for op in ("allgather", "reducescatter")
    }
    # all parameters once for gradients; the layers twice, of the embeddings at most a quarter once
    assert of["reducescatter"] == pytest.approx(2 * parameters, rel=1e-5)
    assert 1.75 * of["reducescatter"] <= of["allgather"] <= 2 * of["reducescatter"]
    assert sum(call.size_bytes for call in mix(f"ddp:3B/{n}").calls) == pytest.approx(
        4 * parameters, rel=1e-6
    )


# Cases and advice

OPERATION = JobOperation(
    kind=OperationKind("allreduce", 4096, "float32", "sum", 4), calls=2.0, skew=1.0, load=1.0,
    recorded_us=None,
)  # fmt: skip


def row(*times_us: float) -> Record:
    """A row with these repeats, waived without any."""
    (case,) = cases_of(OPERATION, "cpu", Stand(knobs={}))
    empty = unmeasured_row(case, group=LocalGroup(), session=None, run="")
    if not times_us:
        return replace(empty, status="waived")
    return replace(empty, time_us=times_us[0], repeat_times_us=times_us)


def test_nccl_is_measured_in_three_forms_and_forced_for_tuning() -> None:
    forms = [form_name(case) for case in cases_of(OPERATION, "nccl", Stand(knobs={}))]
    assert forms == ["nccl plain", "nccl registered", "nccl window"]
    tried = candidates(OPERATION, "nccl", Stand(knobs={}), has_hosts=False)
    assert len({forced_by(case) for case in tried}) == len(tried) == 12
    assert not candidates(OPERATION, "mpi", Stand(knobs={}), has_hosts=False)


def test_an_algorithm_counts_where_it_serves_the_collective() -> None:
    stand = Stand(knobs={"algo": "ring"})
    exchanged = replace(OPERATION, kind=OPERATION.kind._replace(op="alltoall"))
    assert cases_of(OPERATION, "cpu", stand)[0].algo == "ring"
    assert cases_of(exchanged, "cpu", stand)[0].algo == "auto"


def test_the_best_has_the_least_median_whatever_one_repeat_is() -> None:
    (now,) = cases_of(OPERATION, "cpu", Stand(knobs={}))
    lucky, good = replace(now, algo="ring"), replace(now, algo="star")
    others = {lucky: row(1, 30, 31, 32, 30), good: row(20, 25, 300, 25, 20)}
    base = row(50, 50, 500, 50, 50)
    found = best_of(OPERATION, now, base, others, tried=5, known=9)
    assert (found.best, found.gain, found.tried) == (good, 2.0, 5)
    assert found.saved_us == 2.0 * 50 / 2
    found = best_of(OPERATION, now, row(25, 25, 2, 25, 25), others, tried=5, known=9)
    assert (found.best, found.gain) == (None, 1.0)


def test_costs_and_shares_of_a_step() -> None:
    rows = {OPERATION: {"cpu": row(30.0), "mpi": row()}}
    cost, other = step_costs([OPERATION], rows)
    assert (cost.time_us, cost.missing, other.missing) == (60.0, 0, 1)
    (share,) = shares(None, 100.0, cost)
    assert (share.percent, share.hideable_us) == (60.0, 40.0)
    assert shares(None, 100.0, other) == []
    assert shares(None, None, cost) == []


def test_a_call_of_one_rank_without_times_has_no_step_time() -> None:
    call = Call(op="allreduce", size_bytes=8, dtype="float32", ranks=2)
    job = Job(name="", source="", calls=[call] * 4)
    assert step_times(job, steps_of(job)) is None
