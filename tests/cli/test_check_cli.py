"""`collbench check` on CPUs: lines, documents and exit codes, what numbers are held against, wrong
data.
"""

import io
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from collbench.backends import repeat
from collbench.backends.cpu import interpreter
from collbench.bench.pairs import OUT_OF_TIME, RankPair
from collbench.bench.ranks import Asked
from collbench.core.errors import UNJUDGED_CODE
from collbench.core.host import host_name, usable_cores
from collbench.core.options import Settings
from collbench.core.record import Record, read
from collbench.doctor import run_check as _run_check
from collbench.doctor.check_verdict import CheckLine, CheckUnit, Expectation, Measured, Verdict
from collbench.doctor.saved_checks import SavedCheck, keep, read_nodes
from collbench.machine.formats import described
from tests.support.commands import Invoke, Says
from tests.support.corrupt import skip
from tests.support.frames import H200, typed
from tests.support.runs import Run, needs_mpi, under_mpirun
from tests.support.short_check import shorten
from tests.support.tables import cells_of

CHECK = ("check", "--backend", "cpu", "--ranks", "2")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What that leaves as it was when the test ends."""
    for name in ("CHECK_SIZES", "_REPEATS", "_MINUTE_S"):
        monkeypatch.setattr(_run_check, name, getattr(_run_check, name))
    monkeypatch.setattr(repeat, "MAX_ROTATIONS", repeat.MAX_ROTATIONS)
    shorten()


@pytest.fixture
def two_collectives(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the collectives two, where what is kept of a check does not depend on which they are."""
    few = partial(_run_check.judge_collectives, ops=("allreduce", "scatter"))
    monkeypatch.setattr(_run_check, "judge_collectives", few)


def test_a_check_and_its_documents(
    says: Says,
    two_collectives: None,
    invoke: Invoke,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    junit = tmp_path / "check.xml"
    gauges = tmp_path / "check.prom"
    files = ("--junit", str(junit), "--prometheus", str(gauges))
    told = says(UNJUDGED_CODE, *CHECK, "--json", "-", *files)
    document, err = told.result, told.err
    assert document["verdict"] == "UNKNOWN"
    assert (document["judged"], document["lines"]) == (1, len(document["checks"]))
    assert document["hosts"] == [host_name()]
    assert "collbench check --save" in err
    names = [one["name"] for one in document["checks"]]
    assert names == [
        "topology",
        "rank0 -> rank1",
        "rank1 -> rank0",
        "rank0 <-> rank1",
        "rank0 <-> rank1, 8 bytes",
        "allreduce 4K",
        "scatter 4K",
    ]
    assert "every element of 6 results compared" in " ".join(err.split())
    assert max(len(line) for line in err.splitlines() if not line.startswith("# ")) <= 80
    cases = ET.parse(junit).getroot().findall("testcase")
    assert [case.get("name") for case in cases] == [*names, "the whole"]
    assert cases[-1].find("error") is not None
    assert all(case.find("skipped") is not None for case in cases[1:-1])
    assert f'grade="unknown"}} {len(names) - 1}\n' in gauges.read_text()

    known = {  # far faster
        f"{one['name']}, {one['unit']}": [
            Expectation(value=1e-6 if one["unit"] == "us" else 1e9, source="check 2026-11-23")
        ]
        for one in document["checks"]
        if one["value"] is not None
    }
    monkeypatch.setattr(_run_check, "reference_values", lambda *_: known)
    code, out, _ = invoke(*CHECK)
    lines = [line for line in out.splitlines() if re.match("[A-Z]{4,7}  ", line)]
    assert lines[0].split()[:2] == ["PASS", "topology"]
    assert len(lines) == len(names)
    assert all(" check 2026-11-23, " in line for line in lines[1:])
    is_failed = any(line.startswith("FAIL") for line in lines)
    assert code == (1 if is_failed else UNJUDGED_CODE)


@pytest.mark.exhaustive
def test_a_check_is_a_reference_only_if_it_is_saved(
    says: Says, two_collectives: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_run_check, "_measured", steady)
    says(UNJUDGED_CODE, *CHECK)
    out, err = says(UNJUDGED_CODE, *CHECK, "--save")
    assert "UNKNOWN: 1 of" in out
    assert "Saved as a reference" in err
    document = says(0, *CHECK, "--json", "-").result
    assert document["verdict"] == "PASS"
    assert document["judged"] == document["lines"]


def steady(name: str, value: float, unit: CheckUnit, record: Record | None) -> Measured:
    """A number that is the same in each check, and no noise."""
    return Measured(name=name, value=5.0, unit=unit)


def test_what_cannot_be_kept_is_refused_before_the_work_as_by_tune(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nobody")
    tune = "tune", "--backend", "cpu", "--op", "allreduce", "--sizes", "8", "--budget", "1s"
    for command in ((*CHECK, "--save"), tune):
        assert "Error: what is found cannot be kept: " in says(3, *command).err


@pytest.mark.exhaustive
def test_a_check_with_failures_or_of_noise_alone_is_no_reference(
    says: Says, two_collectives: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_run_check, "_measured", lambda *of: replace(steady(*of), is_noisy=True))
    says(UNJUDGED_CODE, *CHECK, "--save")
    assert read_nodes(None) == {}
    monkeypatch.setattr(_run_check, "_measured", steady)
    far = [Expectation(value=1e9, source="check 2026-11-23")]
    known = {f"rank0 -> rank1, {unit}": far for unit in ("us", "GB/s")}
    monkeypatch.setattr(_run_check, "reference_values", lambda *_: known)
    bad = home / "bad.txt"
    says(1, *CHECK, "--save", "--bad", bad)
    ((host, (kept,)),) = read_nodes(None).items()
    assert (kept.verdict, kept.is_reference) == ("FAIL", False)
    assert bad.read_text() == f"bad: {host}\n"


def test_what_is_not_reached_in_time_is_unknown(
    says: Says, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_run_check, "_MINUTE_S", 0.0)
    told = says(UNJUDGED_CODE, *CHECK, "--json", "-")
    document, err = told.result, told.err
    assert (document["verdict"], document["judged"]) == ("UNKNOWN", 1)
    assert {one["detail"] for one in document["checks"][1:]} == {OUT_OF_TIME}
    assert "not reached" in err


def test_earlier_checks_are_forgotten(says: Says, invoke: Invoke, home: Path) -> None:
    started = "2026-11-23T10:00:00+00:00"
    keep(SavedCheck(host="h", kind="m", started=started, verdict="PASS", values={"a": 1.0}), None)
    assert invoke("check", "--forget") == (0, "Forgot 1 check.\n", "")
    assert invoke("check", "--forget") == (0, "No check is saved.\n", "")
    assert "--forget checks nothing" in says(2, "check", "--forget", "--ranks", "2").err


def test_wrong_data_fails(
    two_collectives: None, says: Says, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "arithmetic", skip)
    noise = partial(replace, is_noisy=True)
    monkeypatch.setattr(_run_check, "_measured", lambda *of: noise(steady(*of)))
    out = says(1, *CHECK, "--save").out
    ((kept,),) = read_nodes(None).values()  # also where no number can be kept
    assert (kept.verdict, kept.values) == ("FAIL", {})
    assert re.search(r"^FAIL +allreduce 4K +wrong: rank \d element \d+: got", out, re.MULTILINE)


@needs_mpi
@pytest.mark.exhaustive
def test_ranks_of_a_launcher(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.short_check", *CHECK[:3]]
    with Run(tmp_path, under_mpirun(2, command)) as run:
        assert run.finish(120) == UNJUDGED_CODE
        assert "every element of 9 results compared" in run.stdout


@pytest.mark.parametrize(("row", "verdict", "source"), cells_of(__file__, "held.tsv"))
def test_rows_of_gpus_are_held_against_what_is_known(row: str, verdict: str, source: str) -> None:
    """row: what differs from the shipped row of 4 x H200 at 1G of that backend."""
    more = typed(row)
    of = ("allreduce", more.get("backend", "cuda"), 1 << 30, "ok", "out")
    largest = next(
        row
        for row in read(H200)
        if (row.op, row.backend, row.size_bytes, row.status, row.placement) == of
    )
    record = replace(largest, **{"notes": "", "ceiling_gbs": None, **more})
    name, known = _run_check._reference(record)
    check = _run_check.Check(out=io.StringIO(), known={})
    _run_check._judge_record(check, record, known, name, record.size_bytes)
    (finding,) = check.findings
    assert (finding.verdict, finding.source) == (verdict, source)


def test_pairs_that_are_wrong_fail_and_those_that_are_refused_do_not_count() -> None:
    check = _run_check.Check(out=io.StringIO(), known={})
    row = replace(next(iter(read(H200))), time_us=None, status="wrong")
    wrong = RankPair(a=0, b=1, way="stores", reason="rank 1 element 0: got 0", record=row)
    refused = RankPair(a=1, b=0, way="stores", reason="no peer access")
    for pair in (wrong, refused):
        _run_check._judge_pair(check, pair, (0, 1), None, "cuda")
    assert [one.verdict for one in check.findings] == ["FAIL", "SKIP"]
    assert check.compared == 1


def test_a_check_of_several_hosts_is_kept_under_the_names_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_run_check, "usable_cores", lambda: 2)
    hosts = ("h1", "h2", "h3", "h4")
    assert _run_check.node_name(hosts) == "h[1-4]"
    one, several = (
        _run_check.machine_kind("cores", Asked("cpu", 4, Settings(), group, ()))
        for group in (SimpleNamespace(hosts=of, kind="mpi") for of in (hosts[:1] * 4, hosts))
    )
    assert one != several
    line = _run_check.machine_line(None, "cpu", 4, hosts)
    assert (line.verdict, line.detail) == ("PASS", "1 rank on each of h[1-4]")
    line = _run_check.machine_line(None, "cpu", 4, ("h1", "h2", "h2", "h2"))
    assert (line.verdict, line.detail.count("3 ranks wait")) == ("WARN", 1)
    assert "ranks share memory" in _run_check.machine_line(None, "cpu", 2, ("h1",)).detail


H200S = "NVIDIA H200"


@pytest.mark.parametrize(
    ("now", "is_chosen", "verdict"),
    [
        ({H200S: 8}, False, "PASS"),
        ({H200S: 7}, False, "FAIL"),
        ({H200S: 7}, True, "PASS"),
        ({"NVIDIA B200": 4}, False, "PASS"),
        ({"CPU core": 32}, False, "FAIL"),
        ({"CPU core": 32}, True, "PASS"),
        ({"CPU core": 31}, True, "WARN"),
        ({}, False, "PASS"),
    ],
)
def test_a_node_that_lost_devices_does_not_pass(
    now: dict[str, int], is_chosen: bool, verdict: str
) -> None:
    def before(verdict: Verdict, **devices: int) -> SavedCheck:
        started = "2026-11-23T10:00:00+00:00"
        names = {"gpus": H200S, "cores": "CPU core"}
        found = {names[name]: count for name, count in devices.items()}
        return SavedCheck("h", "k", started, verdict, {}, found)

    past = [before("UNKNOWN", gpus=8), before("PASS", cores=32), before("PASS")]
    past.append(before("FAIL", gpus=7))
    joined = CheckLine(name="topology", verdict="PASS", detail="as it is")
    found = _run_check.beside_past(joined, now, past, is_chosen=is_chosen)
    assert found.verdict == verdict
    if verdict == "FAIL":
        assert found.detail == "as it is; on 2026-11-23 there were 8 x NVIDIA H200"


@pytest.mark.exhaustive
def test_without_its_gpus_a_node_fails_until_somebody_chooses_the_cpus(
    says: Says,
    two_collectives: None,
    invoke: Invoke,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collbench.bench.ranks.has_nvidia_gpus", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    had = SavedCheck(host_name(), "8 x GPU", "2026-11-23", "PASS", {"link": 1.0}, {H200S: 8})
    keep(had, tmp_path)
    nodes = ("--nodes", str(tmp_path))
    for _ in range(2):
        assert "there were 8 x NVIDIA H200" in says(1, "check", "--save", *nodes).out
    assert invoke(*CHECK, *nodes)[0] != 1
    *_, last = read_nodes(tmp_path)[host_name()]
    assert (last.verdict, last.devices) == ("FAIL", {"CPU core": usable_cores()})


def test_links_are_held_against_what_the_topology_rates_them() -> None:
    topology = described("h200x4-vm")
    assert topology is not None
    check = _run_check.Check(out=io.StringIO(), known={})
    check.add(_run_check.machine_line(topology, "cuda", 4))
    assert "4 x NVIDIA H200" in _run_check.device_of(topology, "cuda")
    for gbs in (360.0, 200.0):
        pair = RankPair(a=0, b=1, way="stores", value=gbs)
        _run_check._judge_pair(check, pair, (2, 3), topology, "cuda")
    assert [(one.name, one.verdict) for one in check.findings] == [
        ("topology", "PASS"),
        ("GPU2 -> GPU3", "PASS"),
        ("GPU2 -> GPU3", "FAIL"),
    ]
    assert check.findings[0].detail == "4 GPUs, joined by NV18"
    assert check.findings[1].source == "the links"
