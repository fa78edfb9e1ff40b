"""Litmus tests of CPUs: what is counted, what is planted and caught, and what auto makes of it."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from collbench.backends.cpu.backend import BACKEND
from collbench.backends.cpu.litmus import FLAG_FIRST
from collbench.bench.litmus import core_pairs, measure_on_cpus
from collbench.bench.points import plan_points
from collbench.cli import run
from collbench.launch.local import LocalGroup
from collbench.machine.host import cpu_name, usable_cores
from collbench.planning.limits import BrokenProtocol, Limits
from collbench.planning.planner import resolve
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.report.tables.litmus import conclusion, outcome_lines
from collbench.results.litmus import broken_protocols, forget, keep, saved
from collbench.spec.case import Case
from collbench.spec.litmus import OUTCOMES, TESTS, LitmusResult, catalogue, litmus
from collbench.util.errors import ScheduleError, UsageError
from tests.support.tiers import tiered

MOST_TRIES = 30
needs_two_cores = pytest.mark.skipif(usable_cores() < 2, reason="two cores race")


def a_result(**given: object) -> LitmusResult:
    values: dict[str, object] = {
        "test": "mp-ll",
        "kind": "cpu",
        "link": "two cores of a socket (0, 1)",
        "model": "x86-TSO",
        "trials": 10,
        "counts": (4, 0, 1, 5),
        "seconds": 0.1,
        "transport": "shm",
    }
    return LitmusResult(**{**values, **given})  # type: ignore[arg-type]


def test_catalogue_names_what_there_is() -> None:
    for test in TESTS:
        assert test.weak in test.outcomes == OUTCOMES[test.counted_as]
        assert set(test.needed_by) <= {*PROTOCOLS.names(), "ce"}
        assert litmus(test.name, test.kind) is test
    for kind in ("cpu", "gpu"):
        needed = {name for test in catalogue(kind) for name in test.needed_by}
        assert needed >= set(PROTOCOLS.names())
    with pytest.raises(UsageError, match="mp-8"):
        litmus("mp-9", "cpu")


@needs_two_cores
def test_every_outcome_is_counted_and_none_is_forbidden() -> None:
    """On the machine that runs the tests, the assumptions of the protocols hold."""
    results = list(measure_on_cpus(catalogue("cpu"), 20_000, 60.0))
    assert {result.test for result in results} == {test.name for test in catalogue("cpu")}
    assert all(result.trials >= 20_000 for result in results)
    assert not [result for result in results if result.broken or result.breaks_model]


@needs_two_cores
@pytest.mark.parametrize(
    ("name",),
    tiered([("mp-8",), ("mp-128",), ("mp-simple",), ("mp-ll",), ("mp-ll128",)], [("mp-ll128",)]),
)
def test_a_writer_without_its_store_order_is_caught(name: str) -> None:
    """Where others use the cores the sides seldom race, so there are several tries."""
    tests = [litmus(name, "cpu")]
    for _ in range(MOST_TRIES):
        (result,) = measure_on_cpus(tests, 200_000, 10.0, plant=FLAG_FIRST)
        if result.weak_count:
            break
    assert result.weak_count > 0
    assert result.broken == result.litmus.needed_by
    assert result.breaks_model == (result.model == "x86-TSO")


def test_pairs_of_cores_are_of_each_kind(tmp_path: Path) -> None:
    for core, (socket, number) in enumerate([(0, 0), (0, 1), (1, 0), (0, 0)]):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(str(socket))
        (folder / "core_id").write_text(str(number))
    pairs = {pair.kind: (pair.first, pair.second) for pair in core_pairs([0, 1, 2, 3], tmp_path)}
    assert pairs == {
        "two threads of a core": (0, 3),
        "two cores of a socket": (0, 1),
        "two sockets": (0, 2),
    }
    assert core_pairs([2], tmp_path) == []


def test_a_test_whose_sides_did_not_race_is_named() -> None:
    assert "did not race" not in "".join(conclusion([a_result()], 80))
    text = " ".join(conclusion([a_result(), a_result(test="sb", counts=(0, 0, 10, 0))], 200))
    assert "Every trial of sb ended the same, so the sides did not race" in text


def test_a_test_that_had_no_chance_is_named() -> None:
    text = " ".join(conclusion([a_result(test="mp-8", counts=(5, 5, 0, 0))], 200))
    assert "No trial of mp-8 could show the outcome in question" in text
    counts = (0, 0, 0, 10)
    waited = a_result(test="copy-engine", kind="gpu", counts=counts)
    assert waited.chance_count == 10
    assert len(conclusion([waited], 200)) == 2


def test_outcomes_keep_to_the_columns() -> None:
    counts = (1209307, 1867, 0, 1810650)
    lines = outcome_lines([a_result(test="mp-simple", trials=sum(counts), counts=counts)], 80)
    assert max(map(len, lines)) <= 80
    assert "flag new, data old 0; flag new, data new 1810650" in " ".join(" ".join(lines).split())


def test_results_are_whole() -> None:
    with pytest.raises(ValueError, match="of 11 trials"):
        a_result(trials=11)


def test_a_failure_stays_until_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    why = "litmus test mp-ll failed on two cores of a socket (0, 1)"
    good = a_result(counts=(4, 0, 0, 6))
    file = keep("cpu", "M", [a_result(), a_result(test="mp-8", counts=(10, 0, 0, 0))])
    keep("cpu", "M", [good])
    assert broken_protocols("cpu", "M") == (("ll", "shm", why),)
    assert broken_protocols("cpu", "another") == broken_protocols("cpu", "") == ()
    data = json.loads(file.read_text())
    data["results"][0]["counts"] = [1]
    for broken in (json.dumps(data), "{", "[]", json.dumps({**data, "model": "another"})):
        file.write_text(broken)
        os.utime(file, ns=(0, len(broken)))  # read anew, however fast this is
        with pytest.raises(UsageError, match=f"is broken, in {file}"):
            saved("cpu", "M")
    with pytest.raises(UsageError, match="is broken"):
        broken_protocols("cpu", "M")
    assert forget("cpu", "M")
    assert not forget("cpu", "M")
    keep("cpu", "M", [good])
    assert broken_protocols("cpu", "M") == ()


def test_auto_takes_no_protocol_whose_assumption_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=8)
    limits = Limits(model="NVIDIA H200", joined="NVLink")
    assert resolve(case, limits).case.proto == "ll"
    broken = replace(limits, broken=(BrokenProtocol("ll", "p2p", "why"),))
    assert resolve(case, broken).case.proto == "simple"
    assert resolve(replace(case, proto="ll"), broken).case.proto == "ll"
    assert resolve(replace(case, transport="shm"), broken).case.proto == "ll"
    none = tuple(BrokenProtocol(name, "", "why") for name in PROTOCOLS.names())
    with pytest.raises(ScheduleError, match="refuse ll and simple"):
        resolve(case, replace(limits, broken=none))
    keep("cpu", cpu_name(), [a_result()])
    assert BACKEND.limits(0).refused("shm") == {"ll"}
    (point,) = plan_points([replace(case, backend="cpu")], LocalGroup())
    assert point.origin is not None
    assert "ll (litmus test mp-ll failed" in point.origin.refused[0]
    (given,) = plan_points([replace(case, backend="cpu", proto="ll")], LocalGroup())
    assert given.origin is not None
    assert given.origin.refused == ()


@needs_two_cores
def test_command_shows_keeps_and_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "out.json"
    args = ["litmus", "--backend", "cpu", "--trials", "5e3", "--json", str(file)]
    assert run([*args, "--test", "mp-8,whole-128"]) == 0
    shown = capsys.readouterr().out
    assert "forbids it simple, ll, ll128\n" in shown
    assert "allows it  nothing\n" in shown
    names = [one["test"] for one in json.loads(file.read_text())["results"]]
    assert set(names) == {"mp-8", "whole-128"}
    assert run(["litmus", "--backend", "cpu", "--forget"]) == 0
    assert "Forgot" in capsys.readouterr().out
    keep("cpu", cpu_name(), [a_result()])
    assert run(["litmus", "--list"]) == 0
    assert "line-128" in capsys.readouterr().out
    assert run(["litmus", "--backend", "cpu", "--test", "line-128"]) == 2
    assert run(["litmus", "--trials", "0"]) == 2
    assert run(["litmus", "--list", "--seconds", "3"]) == 2


@needs_two_cores
def test_an_interrupt_leaves_no_process() -> None:
    command = [sys.executable, "-m", "collbench", "litmus", "--backend", "cpu", "--seconds", "3"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        while "mp-4" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    *kept, last = filter(None, error.splitlines())
    assert last == "Interrupted."
    assert [line[:9] for line in kept] == ["# kept in"]  # what was found until then
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@needs_two_cores
def test_command_and_sweep_tell_of_a_planted_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    planted = partial(measure_on_cpus, plant=FLAG_FIRST)
    monkeypatch.setattr("collbench.cli._run_litmus.measure_on_cpus", planted)
    words = ["litmus", "--backend", "cpu", "--test", "mp-ll128", "--trials", "1e6"]
    assert any(run(words) == 1 for _ in range(MOST_TRIES))
    shown = capsys.readouterr().out
    assert "ll128 <- BROKEN" in shown
    assert "ll128 is not safe here: mp-ll128 on two cores" in shown
    sweep = ["sweep", "--op", "allreduce", "--ranks", "2", "--sizes", "64", "--algo", "oneshot"]
    given = [*sweep, "--backend", "cpu", "--repeats", "1", "--iters", "1"]
    assert run(given) == 0
    head = " ".join(capsys.readouterr().out.replace("\n#  ", "").split())
    assert "auto takes no ll128 (litmus test mp-ll128 failed on" in head
