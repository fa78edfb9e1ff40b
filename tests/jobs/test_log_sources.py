"""What stands in a log beside NCCL's own lines: several sources add up, and none passes unseen."""

import pickle
import re
import tomllib
from pathlib import Path

import pytest

from collbench.core import catalog
from collbench.core.errors import UsageError
from collbench.doctor.check import SEVERITIES, Finding
from collbench.jobs.causes_in import with_cause
from collbench.jobs.hang_findings import hang_findings
from collbench.jobs.literals import literals
from collbench.jobs.log_errors import Reader, names_error, numbered, words_of
from collbench.jobs.log_findings import log_findings
from collbench.jobs.nccl_log.progress import behind, watchdog_groups
from collbench.jobs.nccl_log.recorder import Recorders
from collbench.jobs.run_log import refuse_others
from tests.jobs.test_nccl_log import DATA, report_of
from tests.support.commands import Capture
from tests.support.tables import cells_of

SOURCES = tomllib.loads(Path(__file__).with_name("sources.toml").read_text())


def findings_of(text: str) -> list[Finding]:
    """What a text says, as `log` puts it together."""
    report = report_of(text)
    groups = [*watchdog_groups(report), *report.ras.groups()]
    return [*hang_findings(groups), *log_findings(report)]


def severities(text: str) -> dict[str, str]:
    """The severity of each finding, by its name."""
    return {one.check: one.severity for one in findings_of(text)}


@pytest.mark.parametrize("what", SOURCES)
def test_what_a_log_says(what: str) -> None:
    case = SOURCES[what]
    found = findings_of(case["text"] if "text" in case else (DATA / case["file"]).read_text())
    assert [f"{one.check} {one.severity}" for one in found] == case["found"]
    for kind in ("says", "silent"):
        for place, words in case.get(kind, {}).items():
            for attribute, texts in words.items():
                seen = getattr(found[int(place)], attribute)
                assert [text for text in texts if (text in seen) == (kind == "silent")] == [], seen


def test_texts_of_cuda_are_of_numbers_that_are_known() -> None:
    texts = catalog.load("causes", "catalog")["cuda_texts"]
    assert set(texts.values()) <= set(numbered("cuda"))


@pytest.mark.parametrize("cut", range(60, 900, 61))
def test_a_cut_document_of_ras_is_told(cut: int) -> None:
    found = severities((DATA / "ras.json").read_text()[:cut])
    assert found.get("ras-error") == "fault"


@pytest.mark.parametrize(("text", "names", "found"), cells_of(str(DATA / "x"), "lines.tsv"))
def test_a_line_or_a_few_say_it_all(text: str, names: str, found: str) -> None:
    """Also by where they stand, and that nothing is wrong."""
    assert severities(text) == dict(zip(names.split(), found.split(), strict=True))
    assert names or not names_error(text)


def test_words_that_name_an_error() -> None:
    assert names_error("rank 0 failed to join") and names_error("0 errors, 1 failed")


def test_a_healthy_host_and_job_have_no_findings() -> None:
    lines = (DATA / "healthy.txt").read_text().splitlines()
    assert {line: found for line in lines if (found := severities(line))} == {}
    assert severities("\n".join(lines)) == {}


def test_why_a_run_left_no_results(tmp_path: Path) -> None:
    file = tmp_path / "run.txt"
    file.write_text("Test CUDA failure common.cu:9 'no kernel image is available'")
    error = with_cause(UsageError("no table", ""), [file])
    assert error.message.startswith("no table. gpu-code") and "To do: " in error.hint
    assert with_cause(error, [tmp_path / "none.txt"]) is error


def test_a_dump_is_read_and_no_pickle_is_run(tmp_path: Path) -> None:
    def dump(rank: int, last: int) -> bytes:
        entries = [
            {"collective_seq_id": number, "profiling_name": "nccl:all_reduce", "input_sizes": [[8]],
             "process_group": ("0", "default_pg"), "is_p2p": False}
            for number in range(1, last + 1)
        ]  # fmt: skip
        groups = {"0": {"desc": "default_pg", "ranks": "[0, 1]"}}
        return pickle.dumps({"rank": rank, "entries": entries, "pg_config": groups})

    recorders = Recorders()
    recorders.add_pickle("nccl_trace_rank_0", dump(0, 3))
    recorders.add_pickle("nccl_trace_rank_1", dump(1, 2))
    (late,) = behind(recorders.groups())
    assert (late.name, late.missed) == ("rank 1", "nccl:all_reduce of 8")

    class _Runs:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "ran",)

    for data in (pickle.dumps(_Runs()), pickle.dumps({"entries": [_Runs()]}), dump(0, 3)[:-20]):
        with pytest.raises(UsageError, match="pickle"):
            Recorders().add_pickle("x", data)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("head", "command"),
    [
        ("# nccl-tests version 2.17\n", "compare"),
        ("   D\\D     0\nUnidirectional P2P=Enabled Bandwidth", "compare"),
        ("\tGPU0\tGPU1\tCPU Affinity\n", "topo --from"),
        ("host_a,host_b,busbw\n", "hunt --from"),
    ],
)
def test_files_of_other_commands_are_named_with_them(
    head: str, command: str, capsys: Capture
) -> None:
    refuse_others("x.txt", head, is_log=True)
    assert f"collbench {command}" in capsys.readouterr().err
    with pytest.raises(UsageError) as caught:
        refuse_others("x.txt", head)
    assert f"collbench {command}" in caught.value.hint


@pytest.mark.parametrize("name", ["nccl", "programs", "systems", "words"])
def test_tables_of_causes_have_what_is_read(name: str) -> None:
    keys = {"name", "lines", "why", "change", "severity", "source", "is_general", "is_open"}
    for one in catalog.load("causes", name)["causes"]:
        assert one.keys() <= keys, one
        assert one.get("severity", "fault") in SEVERITIES and one["why"] and one["change"]
        assert all(re.compile(line) for line in one["lines"])


def test_every_number_says_what_to_do() -> None:
    tables = [numbered(name) for name in ("xids", "sxids", "cuda", "completions")]
    assert all(one.name and one.why and one.change for table in tables for one in table.values())


@pytest.mark.parametrize("reader", ["nccl", "programs", "words"])
def test_each_pattern_names_a_text_that_it_needs(reader: Reader) -> None:
    """A pattern without one would never be tried, as one whose texts no word is in."""
    words = words_of(reader)
    names = ("programs", "systems") if reader == "programs" else (reader,)
    causes = [one for name in names for one in catalog.load("causes", name)["causes"]]
    for pattern in (pattern for one in causes for pattern in one["lines"]):
        texts = literals(pattern)
        assert texts and all(any(word in text for word in words) for text in texts), pattern
