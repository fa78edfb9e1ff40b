"""`collbench replay` from the command line, on the model, whose times are invented."""

import gzip
import pickle
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from collbench.bench.points import SweepPoint
from collbench.bench.replay import Bench, Part, ReplayProof
from collbench.bench.rows import unmeasured_row
from collbench.bench.runner import Measurement
from collbench.core.case import Case
from collbench.core.peers import forced_by
from collbench.core.record import Record, read
from tests.support.commands import Says, result_of

TRACE = str(Path(__file__).parent.parent.parent / "docs/examples/trace.json")


@pytest.mark.exhaustive
def test_a_trace_on_a_described_machine(says: Says, tmp_path: Path) -> None:
    json_file, csv = tmp_path / "job.json", tmp_path / "job.csv"
    args = ("replay", TRACE, "--machine", "hgx-h100", "--algo", "star", "--tune", "1")
    out = says(0, *args, "--json", json_file, "--csv", csv).out
    document = result_of(json_file.read_text())
    assert document["steps"] == {"number": 3, "first_call": 0, "calls": 7.0, "found": True}
    assert [(one["op"], one["calls"]) for one in document["operations"]] == [
        ("allgather", 4.0),
        ("reducescatter", 2.0),
        ("allreduce", 1.0),
    ]
    total = sum(
        one["calls"] * one["measured"]["model"]["time_us"] for one in document["operations"]
    )
    assert document["step"] == [{"form": "model", "time_us": total, "operations_missing": 0}]
    saved_us = sum(one["saved_us"] for one in document["advice"])
    assert document["proof"]["saved_s"][0] * 1e6 == pytest.approx(saved_us)
    assert document["proof"]["proven"] and document["proof"]["modelled"]
    assert {row.backend for row in read(csv)} == {"model"}
    assert "By the model a step with these settings saves" in out


def test_what_was_measured_until_the_users_end_is_shown(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeat, done = Measurement._repeat, count()

    def interrupted(measurement: Measurement, point: SweepPoint) -> None:
        if next(done) > 1:
            raise KeyboardInterrupt
        repeat(measurement, point)

    monkeypatch.setattr(Measurement, "_repeat", interrupted)
    csv = tmp_path / "job.csv"
    args = ("replay", TRACE, "--machine", "hgx-h100", "--csv", str(csv))
    out, err = says(130, *args)
    assert err.strip() == "Interrupted."
    assert [row.op for row in read(csv)] == ["allgather", "reducescatter"]
    (missing,) = (line for line in out.splitlines() if line.startswith("allreduce "))
    assert "back to back with model" in out and missing.split()[-2:] == ["-", "-"]
    assert out.endswith("\nInterrupted: this is what was measured until then.\n")


def test_a_log_on_two_backends(says: Says, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    line = (
        "n1:7:7 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7 recvbuff 0x8 count 64 datatype 7"
        " op 0 root 0 comm 0x1 [nranks=2] stream 0x5\n"
    )
    log.write_text(line * 4)
    out = says(0, "replay", log, "--backend", "reference,model", "--tune", "1").out
    assert "4 steps of 1 call were" in out
    assert "back to back with reference." in out
    assert "back to back with model." in out


def test_nccl_gets_its_tuner_file_from_the_rows_of_the_job(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything but the GPUs: rows of a script, in which NCCL's tree by LL is the best."""

    def rows(
        cases: list[Case], bench: Bench, budget_s: float, partly: object
    ) -> dict[Case, Record]:
        return {case: row_of(case, bench) for case in cases}

    def row_of(case: Case, bench: Bench) -> Record:
        is_best = (case.algo, case.proto, case.channels) == ("chain", "ll", 16)
        times = [(20.0 if is_best else 40.0) * (1 + place / 1000) for place in range(4)]
        row = unmeasured_row(case, group=bench.group, session=None, run="run")
        row = replace(row, repeat_times_us=tuple(times), repeats=4, wrong=0, time_us=times[1])
        return replace(row, algbw_gbs=1.0, busbw_gbs=1.0, versions="nccl 2.28.9")

    def proof(before: list[Part], after: list[Part], bench: Bench, budget_s: float) -> ReplayProof:
        assert [case.algo for case, _ in before] == ["library"] * 3
        assert {forced_by(case)[:2] for case, _ in after} == {
            (("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "LL"))
        }
        return ReplayProof(rounds=((40e-6, 20e-6),) * 6)

    monkeypatch.setattr("collbench.jobs.run_replay.measure", rows)
    monkeypatch.setattr("collbench.jobs.run_replay.by_estimate", lambda cases, *_: cases)
    monkeypatch.setattr("collbench.jobs.run_replay.prove", proof)
    tuner = tmp_path / "nccl_tuner.conf"
    out = says(0, "replay", TRACE, "--backend", "nccl", "--tuner", tuner).out
    assert "nccl plain us\n" in out
    assert "nccl registered us  nccl window us" in out
    assert "NCCL_ALGO=Tree NCCL_PROTO=LL" in out
    assert "2.000x as long, 95% interval 2.000 to 2.000, 6 rounds" in out
    lines = [line for line in tuner.read_text().splitlines() if not line.startswith("#")]
    assert {line.split(",")[0] for line in lines} == {"allgather", "reducescatter", "allreduce"}
    assert all(",tree,ll,16," in line for line in lines)


def test_what_cannot_be_read_is_named(tmp_path: Path, says: Says) -> None:
    """A gzip of a log that ends early, and a pickle."""
    line = "n1:7:7 [0] NCCL INFO AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count 9 datatype 7"
    cut, dumped = tmp_path / "cut.gz", tmp_path / "dump.pkl"
    cut.write_bytes(gzip.compress((line * 9000 + str(list(range(9000)))).encode())[:-400])
    dumped.write_bytes(pickle.dumps({"entries": [1] * 99}))
    for file, why in ((cut, "it cannot be unpacked"), (dumped, "this is a pickle")):
        assert f"Error: {file}: {why}" in says(2, "replay", file, "--dry-run").err
