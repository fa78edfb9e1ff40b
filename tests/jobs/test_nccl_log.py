"""Logs of NCCL and RCCL: lines in every dress, what they say of a job."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.core.catalog import load
from collbench.core.pasted import plain
from collbench.jobs.log_errors import known_error
from collbench.jobs.log_findings import log_findings
from collbench.jobs.nccl_log.kinds import match_of
from collbench.jobs.nccl_log.lines import Headers, LogSource
from collbench.jobs.nccl_log.model import LogReport
from collbench.jobs.nccl_log.reader import LogReader
from collbench.jobs.nccl_log.summary import chosen, crossings, joined, orders, traffic
from collbench.jobs.tables.log import log_json, log_lines
from tests.support.commands import Invoke, Says, result_of
from tests.support.runs import SHARED
from tests.support.tables import cells_of, values_of

DATA = Path(__file__).parent.parent / "data" / "nccl-logs"
LOGS = SHARED / "nccl-logs"
FILES = [file for file in sorted(DATA.glob("*.txt")) if file.stem != "ras"]


def report_of(*texts: str) -> LogReport:
    """What texts say, each a file."""
    reader = LogReader()
    for number, text in enumerate(texts):
        reader.feed(f"{number}.log", text.splitlines(keepends=True))
    return reader.finish()


def of_file(name: str) -> LogReport:
    """What one of our logs says."""
    return report_of((DATA / name).read_text())


def found(report: LogReport) -> dict[str, str]:
    """The severity of each finding, by its name."""
    return {one.check: one.severity for one in log_findings(report)}


@pytest.mark.parametrize(("prefix",), cells_of(__file__, "prefixes.tsv"))
def test_a_header_is_found_behind_any_prefix(prefix: str) -> None:
    line = f"{prefix}node-3.x:7:9 [3] NCCL INFO Using network IB\r\n"
    (one,) = Headers().messages(plain(line))
    assert one.source == LogSource("node-3.x", 7, 9, 3)
    assert (one.level, one.text) == ("INFO", "Using network IB")


@pytest.mark.parametrize(("line", "level", "where", "text"), cells_of(__file__, "levels.tsv"))
def test_levels_have_forms_of_their_own(line: str, level: str, where: str, text: str) -> None:
    (one,) = Headers().messages(line)
    assert (one.level, one.where, one.text) == (level, where, text)


@pytest.mark.parametrize(("text", "kind"), cells_of(__file__, "kinds.tsv"))
def test_lines_of_all_versions_are_known(text: str, kind: str) -> None:
    known = match_of(text)
    assert known is not None and known[0].name == kind


@pytest.mark.parametrize(
    "text",
    [
        "0 : " + "GPU/" * 900 + " !",
        "NET/IB : Using" + " [0]a:1/x" * 400,
        "NET/IB : Using " + "[0]a:1/x" * 400,
        "Trees" + " [0] 1/1/1->1->1" * 200 + "!",
        "AllReduce |" + " 1.0/ 1.0 |" * 300 + "!",
        "x/" * 2000,
    ],
)
def test_lines_made_to_be_slow_end(text: str) -> None:
    match_of(text)
    list(Headers().messages(text + " NCCL INFO " + text))
    known_error(text)


def test_every_kind_says_what_it_teaches() -> None:
    assert all(kind["says"] for kind in load("logs", "nccl")["kinds"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_our_logs_are_understood_and_shown(file: Path) -> None:
    report = report_of(file.read_text())
    assert report.counters.not_understood == (2 if file.stem == "interleaved" else 0)
    findings = log_findings(report)
    for columns in (80, 160):
        lines = log_lines(report, columns)
        assert len(lines) <= 60
        assert max(map(len, lines)) <= columns
    document = result_of(log_json(report, findings))
    is_clean = all(one.severity == "remark" for one in findings)
    assert (document["verdict"] == "PASS") == is_clean
    assert document["lines"]["of_nccl"] == report.counters.nccl
    # what is found stands in the file
    for finding in findings:
        assert "0.log line " in finding.seen


def test_hosts_joined_by_sockets_though_there_is_roce() -> None:
    report = of_file("v2.10-sockets.txt")
    (known,) = report.communicators
    assert (known.hosts, known.channels, len(known.ranks)) == (["alder", "birch"], 2, 4)
    rows = {(row.where, row.transport): (row.pairs, row.channels) for row in joined([known])}
    assert rows == {
        ("between hosts", "NET/Socket"): (2, (2, 2)),
        ("within a host", "SHM (direct shared memory)"): (2, (2, 2)),
    }
    assert found(report) == {"sockets": "fault", "interface": "fault", "host-memory": "risk"}


def test_a_ring_that_crosses_between_numa_nodes_too_often() -> None:
    report = of_file("v2.28-srun-two-sockets.txt")
    (known,) = report.communicators
    assert orders(known) == [((0, 2, 1, 3), 2)]
    assert crossings(known, (0, 2, 1, 3), report.numa) == (4, 2)
    assert crossings(known, (0, 1, 2, 3), report.numa) == (2, 2)
    assert found(report) == {"ring-order": "risk", "settings": "risk"}
    assert report.tuning["AllReduce", "Ring", "Simple"] == (52.8, 9.0)
    assert ("AllReduce", "Ring", "LL128") not in report.tuning  # no bandwidth: not possible
    assert [(row.op, row.sizes, row.algo) for row in chosen(report)] == [
        ("AllReduce", (2048, 2048), "RING"),
        ("AllReduce", (4096, 4096), "symmetric"),
        ("AllReduce", (2 << 20, 2 << 20), "RING"),
    ]
    assert [(row.op, row.calls, row.bytes) for row in traffic(report)] == [
        ("AllReduce", 2, 2048 + (2 << 20)),
        ("AllGather", 1, 4 * 2 * 4096),
    ]


def test_rccl_and_its_splits() -> None:
    report = of_file("rccl-2.21.txt")
    assert list(report.versions) == ["RCCL 2.21.5-HEAD:1a2b3c4".partition(":")[0]]
    whole, part = report.communicators
    assert (part.parent, part.color, len(part.ranks)) == (whole.name, 0, 2)
    assert len(part.calls) == 2 and not whole.calls
    assert found(report) == {}


def test_messages_cut_by_others_or_by_the_end_of_a_line() -> None:
    report = of_file("interleaved.txt")
    assert report.counters.joined == 1
    assert report.networks["Socket"].count == 1
    assert {text for text, _ in report.counters.unknown.values()} == {
        "Wholly unknown words",
        "Chan",
    }
    assert {host for seen in report.networks.values() for host in seen.hosts} == {"fir"}


CRASHED = "".join(
    f"{line}\n"
    for line in (
        "n1:7:7 [0] NCCL INFO Using network Socket",
        "step 1",
        "[n1:00007] Signal: Segmentation fault (11)",
        "n1:7:7 [0] NCCL INFO Connected all rings",
    )
)


@pytest.mark.parametrize(
    "text",
    [
        CRASHED.replace("\n", "\r"),
        CRASHED.replace("\n", "\0"),
        "\0\0" + CRASHED.replace("\n", "\r\n"),
        json.dumps(CRASHED),
        json.dumps(CRASHED.splitlines()),
        str(CRASHED.splitlines()),
    ],
)
def test_lines_whose_ends_were_lost_are_told_apart(text: str) -> None:
    reader = LogReader()
    reader.feed("x.log", [text])
    report = reader.finish()
    assert (report.counters.lines, report.counters.understood) == (1, 2)
    assert found(report) == {"crashed": "fault"}


def test_of_lines_that_run_together_it_is_said_that_more_may_stand_there() -> None:
    assert found(report_of(CRASHED.replace("\n", " "))) == {
        "crashed": "fault",
        "lines-joined": "risk",
    }
    healthy = "".join(CRASHED.splitlines(keepends=True)[::3])
    assert found(report_of(healthy.replace("\n", " ")))["lines-joined"] == "risk"
    assert "lines-joined" not in found(report_of(healthy)) | found(of_file("interleaved.txt"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_log_that_powershell_redirected(encoding: str, tmp_path: Path, says: Says) -> None:
    file = tmp_path / "job.log"
    file.write_bytes(f"\ufeff{CRASHED}".encode(encoding))
    assert "FAULT  crashed" in says(1, "log", file).out


@pytest.mark.parametrize("fail_on", ["cost", "risk", "never"])
def test_the_verdict_is_what_the_screen_says(fail_on: str, tmp_path: Path, invoke: Invoke) -> None:
    file, out = tmp_path / "job.log", tmp_path / "log.json"
    for text, mark, verdict, fails in (
        ("n1:7:7 [0] NCCL INFO Connected all rings\n", "Nothing", "PASS", ()),
        ("n1:7:7 [0] x.cc:1 NCCL WARN Words of nobody\n", "RISK", "WARN", ("risk",)),
        (CRASHED, "FAULT", "FAIL", ("cost", "risk")),
    ):
        file.write_text(text)
        code, screen, _ = invoke("log", str(file), "--fail-on", fail_on, "--json", str(out))
        assert mark in screen
        assert json.loads(out.read_text())["verdict"] == verdict
        assert code == (fail_on in fails)


@pytest.mark.parametrize(("text", "name"), cells_of(__file__, "errors.tsv"))
def test_errors_are_known_by_their_words(text: str, name: str) -> None:
    assert getattr(known_error(text), "name", None) == name


def test_what_is_well_is_no_error() -> None:
    assert known_error("all is well") is None


def test_several_files_are_one_job() -> None:
    lines = (DATA / "v2.28-srun-two-sockets.txt").read_text().splitlines(keepends=True)
    parts = ["".join(line for line in lines if line.startswith(f"{rank}: ")) for rank in range(4)]
    report = report_of(*parts)
    (known,) = report.communicators
    assert sorted(known.ranks) == [0, 1, 2, 3]
    assert report.files == ["0.log", "1.log", "2.log", "3.log"]
    assert found(report) == {"ring-order": "risk", "settings": "risk"}


def test_a_log_that_ends_before_communicators_have_a_name() -> None:
    line = "a:1:1 [0] NCCL INFO Channel 00 : 0[4] -> 1[5] via SHM/direct/direct\n"
    report = report_of(line)
    (row,) = joined(report.communicators)
    assert (row.where, row.kind) == ("within a host", "SHM")
    assert found(report) == {"host-memory": "risk"}


def test_each_communicator_of_a_thread_has_its_own_connections() -> None:
    # before 2.18 a communicator is named behind what it is about
    lines = [
        f"a:1:{9 + rank} [{rank}] NCCL INFO {text}"
        for number, via in enumerate(("P2P/IPC", "direct shared memory"))
        for rank in (0, 1)
        for text in (
            f"Channel 00 : {rank}[1] -> {1 - rank}[2] via {via}",
            f"comm 0x{number}{rank} rank {rank} nranks 2 cudaDev {rank} busId {rank}000 - Init"
            " COMPLETE",
        )
    ]
    later = "a:1:9 [0] NCCL INFO Channel 01 : 0[1] -> 1[2] via P2P/IPC"
    first, second = report_of("\n".join([*lines, later])).communicators
    assert {via for _, _, via in first.links} == {"P2P/IPC"}
    assert {via for _, _, via in second.links} == {"direct shared memory", "P2P/IPC"}


def test_many_unknown_warnings_are_few_findings() -> None:
    words = [f"{one}{other} fails" for one in "abcde" for other in "vwxyz"]
    text = "\n".join(f"n:1:1 [0] a.cc:1 NCCL WARN {word}" for word in words)
    findings = log_findings(report_of(text))
    assert len(findings) == 6 and "19 other texts" in findings[-1].seen


def test_a_log_of_the_same_job_grows_in_lines_and_not_in_what_is_kept() -> None:
    text = (DATA / "v2.28-srun-two-sockets.txt").read_text()
    once, often = report_of(text), report_of(*[text] * 20)
    assert often.counters.nccl == 20 * once.counters.nccl
    assert len(often.settings) == len(once.settings)
    assert often.choices.keys() == once.choices.keys()


@pytest.mark.skipif(not LOGS.is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize(("name", "transport", "findings"), cells_of(__file__, "reference.tsv"))
def test_logs_of_the_reference_machine(name: str, transport: str, findings: str) -> None:
    report = report_of((LOGS / name).read_text())
    assert report.counters.not_understood == 0
    assert {row.transport for row in joined(report.communicators)} == {transport}
    assert found(report) == values_of(findings)
    assert not report.warnings


DRESSES = ("&amp;", "\x1b[0m", "](https://a)", "\\n", " NCCL INFO ", "n:1:1 [0] NCCL INFO ", "\0")


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_text_is_read_and_the_fast_way_says_what_the_slow_one_does(data: st.DataObject) -> None:
    odd = st.one_of(st.sampled_from(DRESSES), st.text(max_size=20))
    lines = data.draw(st.sampled_from(FILES)).read_text().splitlines(keepends=True)[:200]
    for _ in range(data.draw(st.integers(0, 20))):
        at = data.draw(st.integers(0, len(lines) - 1))
        cut = data.draw(st.integers(0, len(lines[at])))
        on = cut + data.draw(st.integers(0, 20))
        lines[at] = lines[at][:cut] + data.draw(odd) + lines[at][on:]
    lines += lines[: data.draw(st.integers(0, 200))]
    fast, slow = LogReader(), LogReader()
    slow._headers.repeated = lambda line: None  # type: ignore[method-assign]
    for reader in (fast, slow):
        reader.feed("a.log", lines)
    report = fast.finish()
    assert report == slow.finish()
    assert 0 <= report.counters.understood <= report.counters.nccl
    assert log_lines(report, 80)
    result_of(log_json(report, log_findings(report)))
