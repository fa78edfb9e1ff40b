"""What is judged, in the forms that others read: each is read by the reader that it is for."""

import sys
from pathlib import Path

import pytest

from collbench.core.assessment import (
    AssessedLine,
    Assessment,
    as_junit,
    as_prometheus,
    hostlist,
    write_assessment,
)
from tests.support.commands import Capture
from tests.support.runs import said_by

ODD = 'a "quoted" name\\ with\nlines & <tags>'
FOUND = Assessment(
    command="check",
    subject=ODD,
    grade="bad",
    why="FAIL: 4 of 4 lines judged",
    lines=(
        AssessedLine(name="GPU0 -> GPU1", grade="bad", host="h003", unit="GB/s", value=99.0,
                     expected=360.0),
        AssessedLine(name="allreduce 1K", grade="good", host="h003", unit="us", value=2.5),
        AssessedLine(name=ODD, grade="bad", text=ODD, host="h017"),
        AssessedLine(name="twice", grade="unknown"),
        AssessedLine(name="twice", grade="skipped", kind="rows"),
    ),
    seconds=3.25,
    ended_s=1.8e9,
)  # fmt: skip


def test_prometheus_reads_the_gauges() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = {
        one.name: one for one in parser.text_string_to_metric_families(as_prometheus(FOUND))
    }
    samples = {
        (one.name, one.labels.get("line", one.labels.get("grade", ""))): one
        for family in families.values()
        for one in family.samples
    }
    assert all(family.type == "gauge" and family.documentation for family in families.values())
    assert len(samples) == sum(len(family.samples) for family in families.values())
    assert samples["collbench_verdict", "bad"].value == 1
    assert samples["collbench_verdict", "good"].value == 0
    link = samples["collbench_measured_bytes_per_second", "GPU0 -> GPU1"]
    assert link.value == 99e9
    assert (link.labels["host"], link.labels["gpu"]) == ("h003", "0,1")
    assert samples["collbench_measured_seconds", "allreduce 1K"].value == 2.5e-6
    assert samples["collbench_line_bad", ODD].value == 1
    assert samples["collbench_end_timestamp_seconds", ""].value == 1.8e9


def test_a_reader_of_junit_counts_what_the_suite_says(tmp_path: Path) -> None:
    junit = pytest.importorskip("junitparser")
    file = tmp_path / "check.xml"
    file.write_text(as_junit(FOUND))
    suites = junit.JUnitXml.fromfile(str(file))
    for suite in suites:
        said = suite.tests, suite.failures, suite.errors, suite.skipped
        suite.update_statistics()
        assert said == (suite.tests, suite.failures, suite.errors, suite.skipped) == (6, 3, 1, 1)
    assert [case.name for suite in suites for case in suite][-1] == "the whole"


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ((), ""),
        (("h003", "h017"), "h[003,017]"),
        (("n9", "n10", "n11", "n08"), "n9,n[08,10-11]"),
        (("a1", "a2", "a3", "b1", "login"), "a[1-3],b1,login"),
        (("rack1-node01", "rack1-node02", "rack2-node01"), "rack1-node[01-02],rack2-node01"),
    ],
)
def test_hosts_are_a_list_of_slurm(hosts: tuple[str, ...], text: str) -> None:
    assert hostlist(hosts) == text
    if hosts:
        lists = pytest.importorskip("hostlist")
        assert sorted(lists.expand_hostlist(text)) == sorted(hosts)


def test_a_name_that_means_other_hosts_is_not_among_the_bad(capsys: Capture) -> None:
    """In the file of a hunt anybody names hosts."""
    names = ("n[1-3]", "a,b", "a b", "-w", "", "h7")
    lines = [AssessedLine(name="x", grade="bad", host=name) for name in names]
    write_assessment(
        Assessment(command="hunt", subject="", grade="bad", lines=lines), {}, sys.stdout
    )
    told = capsys.readouterr()
    assert told.out == "bad: h7\n"
    assert "not in it: -w, a b, a,b, n[1-3]" in " ".join(told.err.split())


def test_slurm_expands_the_bad_hosts(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "bad.txt"
    write_assessment(FOUND, {"bad": str(file)}, sys.stdout)
    assert capsys.readouterr().out == "bad: h[003,017]\n"
    assert file.read_text() == "bad: h[003,017]\n"
    configuration = tmp_path / "slurm.conf"
    configuration.write_text("ClusterName=c\nSlurmctldHost=localhost\nNodeName=localhost\n")
    command = ["scontrol", "show", "hostnames", file.read_text().removeprefix("bad: ").strip()]
    try:
        env = {"SLURM_CONF": str(configuration), "PATH": "/usr/bin:/bin"}
        done = said_by(command, env=env)
    except FileNotFoundError:
        pytest.skip("there is no scontrol")
    assert done.stdout.split() == ["h003", "h017"], done.stderr
