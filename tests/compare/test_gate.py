"""The exit codes of `collbench compare` and its gate, of files that are made up."""

from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from tests.support.commands import Invoke, Says, result_of
from tests.support.frames import write
from tests.support.simulated import Noise, sweep
from tests.support.tables import cells_of
from tests.support.tiers import tiered


def beside_a_library(seed: int, slower: float = 0.0) -> pd.DataFrame:
    """A curve of ours, and one of NCCL, all of which may be slower."""
    ours = sweep(Noise(), seed, ("ring",), 12)
    library = sweep(Noise(), seed + 1, ("library",), 12, slower=dict.fromkeys(range(12), slower))
    return pd.concat([ours, library.assign(backend="nccl", proto="")], ignore_index=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files."""
    frames = {
        "new": sweep(Noise(), 1),
        "base": sweep(Noise(), 2),
        "slow": sweep(Noise(), 3, slower={5: 0.9}),
        "other": sweep(Noise(), 4).assign(device="b"),
        "base2": sweep(Noise(), 12),
        "late": sweep(Noise(), 18, slower={5: 0.2}),
        "half": sweep(Noise(), 15, slower=dict.fromkeys(range(50), -0.5)),
        "twice": sweep(Noise(), 16, slower=dict.fromkeys(range(50), 1.0)),
        "thrice": sweep(Noise(), 17, slower=dict.fromkeys(range(50), 2.0)),
        "base3": sweep(Noise(), 13),
        "short": sweep(Noise(), 14)[5:],
        "empty": sweep(Noise(), 5).assign(status="waived", time_us=float("nan")),
        "hot": sweep(Noise(), 6).assign(notes="hot"),
        "noise": sweep(Noise(), 8).assign(notes="noisy"),
        "mostly": sweep(Noise(), 9, slower=dict.fromkeys(range(30, 50), 1.0)).assign(
            notes=["noisy"] * 30 + [""] * 20
        ),
        "busy": sweep(Noise(), 10, slower=dict.fromkeys(range(50), 1.0)).assign(
            notes="noisy other-processes:2"
        ),
        "rough": sweep(Noise(within=0.1, between=0.0), 19),
        "libraries": beside_a_library(20),
        "updated": beside_a_library(22, 0.2),
        "wrong": sweep(Noise(), 7).assign(status=["wrong", *["ok"] * 49]),
    }
    folder = tmp_path_factory.mktemp("made")
    for name, frame in frames.items():
        write(frame, folder / name)
    (folder / "cut").write_text((folder / "slow").read_text() + "allreduce,cu")
    return folder


@pytest.fixture
def invoke(invoke: Invoke, made: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """The command in the folder of those files."""
    monkeypatch.chdir(made)
    return partial(invoke, "compare")


@tiered(("code", "words"), cells_of(__file__, "exit-codes.tsv"), 4)
def test_exit_codes(says: Says, code: str, words: str) -> None:
    says(int(code), *words.split())


def test_a_gate_says_what_it_cannot_tell(says: Says) -> None:
    """With one base a single row that is 20 % slower may be so by chance: that is no pass."""
    err = says(5, "late", "base", "--fail-below", "5%").err
    assert "not judged: 1 row took over 5% longer, which may be chance" in err
    assert "3 runs of the base (--base A B C)" in err


def test_talk_goes_to_stderr(says: Says) -> None:
    out, err = says(1, "cut", "base", "--fail-below", "5%", "--color", "never")
    assert "cut: the last line (line 52) is cut and left out" in err
    assert "1 row slower by more than 5%" in err
    assert "not judged" not in err
    assert out.startswith("new cut, base base")
    assert "\033" not in out
    assert "\033[31m" in says(0, "slow", "base", "--color", "always").out


def test_noise_is_said_before_what_differs(says: Says) -> None:
    """And a gate that had noise to judge fails because of that."""
    out, err = says(5, "new", "noise", "--fail-below", "50%")
    text = " ".join(out.split())
    assert text.startswith("noise: 50 of 50 rows are noise.")
    assert "what to do end other processes" in text
    assert "cannot judge: most rows of noise are noise" in err


def test_json_and_junit_have_the_verdicts_of_the_gate(invoke: Invoke, tmp_path: Path) -> None:
    for line, verdict in (
        ("slow base", "FAIL"),
        ("late base", "UNKNOWN"),
        ("new base", "PASS"),
        ("short base", "FAIL"),
    ):
        files = tmp_path / "changes.json", tmp_path / "junit.xml"
        options = ["--fail-below", "5%", "--json", str(files[0]), "--junit", str(files[1])]
        code, out, _ = invoke(*line.split(), *options)
        told = result_of(files[0].read_text())
        assert (told["gate"]["verdict"], told["gate"]["exit_code"]) == (verdict, code)
        for name, count in told["counts"].items():
            assert sum(row["verdict"] == name for row in told["rows"]) == count
            assert f"{count} {name}" in out
        suite = ElementTree.parse(files[1]).getroot()
        cases = {kind: len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "error")}
        assert {kind: int(suite.get(f"{kind}s", "")) for kind in cases} == cases
        groups = sum(one["verdict"] == "worse" for one in told["groups"])
        slower = told["gate"]["slower_rows"]
        # and the gate itself, so that no suite is green where the exit code is not 0
        assert cases["failure"] == slower + groups + len(told["losses"]) + (code == 1)
        assert cases["error"] == (told["gate"]["unjudged_rows"] if code else 0) + (code == 5)
        assert bool(cases["failure"]) == (code == 1)


def test_no_failure_of_junit_is_without_a_reason(says: Says) -> None:
    for code, gate in ((0, ()), (1, ("--fail-below", "5%"))):
        out = says(code, "slow", "base", "--junit", "-", *gate).out
        failures = ElementTree.fromstring(out).findall("testcase/failure")
        assert failures and all(one.get("message") for one in failures)


def test_what_got_slower_is_bad_for_prometheus_without_a_gate(says: Says) -> None:
    assert 'grade="bad"} 1' in says(0, "slow", "base", "--prometheus", "-").out


def test_a_document_on_stdout_stands_alone(says: Says) -> None:
    out, err = says(0, "new", "base", "--json", "-")
    assert result_of(out)["gate"] is None
    assert "rows compared" in err
