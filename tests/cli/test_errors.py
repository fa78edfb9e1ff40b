"""What is mistyped, given twice, or without effect: two lines on stderr, the exit code, and never a
traceback.
"""

import errno
import gzip
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from shlex import split

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collbench.cli import _COMMANDS, run
from collbench.cli._options import ListOf, OutputFile
from collbench.core.complaint import complain
from collbench.core.dtypes import ALIASES
from collbench.core.host import has_nvidia_gpus, usable_cores
from collbench.core.interrupt import Interrupted
from collbench.core.record import read
from collbench.machine.discovery import dumps
from tests.support.commands import Capture, Says, options
from tests.support.evidence import machine
from tests.support.runs import ROOT
from tests.support.tables import cells_of
from tests.support.tiers import tiered

Complains = Callable[..., tuple[str, str]]
MODEL = ("sweep", "--backend", "model", "--sizes", "1K", "--ranks", "2", "--repeats", "1")
CPU = ("sweep", "--backend", "cpu", "--sizes", "1K", "--algo", "ring", "--dry-run")
PAIRS, JOB = ROOT / "docs/examples/pairs.csv", ROOT / "docs/examples/trace.json"
RESULTS = ROOT / "profiles/results/h100-pciex2-published.csv"
PROGRAM = ROOT / "docs/examples/pairs.xml"
FIRST, BASE = ROOT / "docs/examples/first-run.csv", ROOT / "profiles/results/h200x4.csv"
MATRIX = ROOT / "tests/data/topologies/dgx1v-topo-m.txt"
# exit code, command and words of the error and its hint, of which " ... " leaves some out
REFUSALS, SAID = (cells_of(__file__, name) for name in ("refusals.tsv", "said.tsv"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What tables of commands name: files and folders, among them one of broken recordings."""
    whole, broken = dumps([machine("cpus")]), tmp_path_factory.mktemp("broken")
    old = json.loads(whole)
    for host in old["hosts"]:
        del host["processes"], host["system"]
    wrong = whole.replace('"open_files": 1', '"open_files": -1.')
    of = {"cut": whole[:-40], "empty": "", "text": "<system/>", "wrong": wrong}
    for name, text in {**of, "old": json.dumps(old)}.items():
        (broken / name).write_text(text)
    (broken / "packed").write_bytes(gzip.compress(whole.encode(), mtime=0)[:-40])
    given = {
        "first": FIRST,
        "base": BASE,
        "program": PROGRAM,
        "rows": RESULTS,
        "matrix": MATRIX,
        "job": JOB,
        "broken": broken,
        "nl": "\n",
    }
    return {**given, "logs": ROOT / "tests/data/nccl-logs"}


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def complains(says: Says) -> Complains:
    """Runs a command that must end with a code: the error and the hint, and it says nothing
    else.
    """

    def complains(code: int, *args: str | Path) -> tuple[str, str]:
        out, err = says(code, *args)
        lines = "\n".join(line for line in err.splitlines() if not line.startswith("# "))
        found = re.fullmatch("Error: (.+)\nHint: (.+)", lines)
        assert out == "" and found, err
        return found[1], found[2]

    return complains


@pytest.mark.parametrize(("code", "words", "said"), REFUSALS)
def test_what_is_mistyped_or_makes_no_sense_is_refused(
    complains: Complains,
    in_folder: Path,
    files: dict[str, object],
    code: str,
    words: str,
    said: str,
) -> None:
    error, hint = complains(int(code), *split(words.format(**files)))
    assert all(part in f"{error} Hint: {hint}" for part in said.split(" ... "))


@pytest.mark.parametrize(("code", "words", "said"), SAID)
def test_what_is_said(
    says: Says, in_folder: Path, files: dict[str, object], code: str, words: str, said: str
) -> None:
    """By commands that write no file."""
    text = " ".join(" ".join(says(int(code), *split(words.format(**files)))).split())
    assert all(part in text for part in said.split(" ... "))
    assert not list(in_folder.iterdir())


def test_blocks_that_do_not_fit_the_ranks_are_refused_within_the_screen(
    complains: Complains, says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ragged").write_text("# counts\n1 2\n\n3\n")
    args = ("sweep", "--backend", "cpu", "--op", "alltoallv", "--algo", "auto")
    why, _ = complains(2, *args, "--counts", tmp_path / "ragged")
    assert f"{tmp_path}/ragged, line 4: alltoallv of 2 ranks needs" in why
    assert complains(2, *args, "--skew", "hot:3", "--ranks", "4,2") == (
        "--skew hot:3: 3 ranks cannot have all, there are 2",
        "give hot:1 to hot:2, or more ranks",
    )
    monkeypatch.setattr("collbench.core.screen.is_terminal", lambda _: True)
    more = ("--skew", "hot:3", "--ranks", "2")
    assert says(2, *args, *more, COLUMNS="40").err.splitlines() == [
        "Error: --skew hot:3: 3 ranks cannot have",
        "  all, there are 2",
        "Hint: give hot:1 to hot:2, or more ranks",
    ]


@tiered("name", _COMMANDS, 5)
def test_an_option_that_is_given_twice_is_refused(complains: Complains, name: str) -> None:
    """By its long and its short name; a list says how to give several values."""
    for param in [param for of, param in options() if of == name and not param.multiple]:
        value = [] if param.is_flag else ["1"]
        args = [param.opts[0], *value, param.opts[-1], *value]
        error, hint = complains(2, name, *args)
        flag = max(param.opts, key=len)
        assert error == f"{flag} is given twice"
        is_list = isinstance(param.type, ListOf)
        assert hint == (
            f"give several values as a comma list: {flag} A,B" if is_list else "give it once"
        )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    option=st.sampled_from([(name, param) for name, param in options() if not param.hidden]),
    value=st.sampled_from(
        ["", "x", "-1", "nan", "1e400", ",", ",,", "a,b", "/", "\u2603", "9" * 30]
    ),
)
def test_no_value_ends_in_a_traceback(
    capfd: Capture, option: tuple[str, click.Option], value: str
) -> None:
    name, param = option
    base = {
        "sweep": [*MODEL[1:3], "--dry-run"],
        "topo": ["--machine", "dgx-1v"],
        "hunt": ["--from", str(PAIRS)],
        "doctor": ["--quick"],
        "tune": ["--show"],  # a value that is right is refused beside it
    }.get(name, [])
    if param.is_flag or param.opts[0] in base or isinstance(param.type, click.Path):
        return
    if isinstance(param.type, OutputFile) or param.name == "nodes":
        value = "/no/such/folder/file.svg"
    files = [str(RESULTS)] if name == "compare" else []
    code = run([name, *files, *base, param.opts[0], value])
    err = capfd.readouterr().err
    assert code in (0, 1, 2, 3)
    if code > 1:
        assert re.fullmatch(r"(# .*\n)*Error: .+\nHint: .+\n", err), err


@pytest.mark.parametrize(
    "args",
    [
        ["--op", "AllReduce", "--algo", "Ring", "--proto", "SIMPLE"],
        ["--backend", "MODEL", "--machine", "DGX-1V"],
        ["--op", "ALL", "--algo", "Auto"],
        ["--dtype", "Float32,BF16", "--redop", "Sum,MAX", "--placement", "Out"],
        ["--transport", "SHM", "--direct", "Off", "--color", "Never"],
    ],
)
def test_values_are_read_in_any_case(says: Says, args: list[str]) -> None:
    base = MODEL if "--backend" not in args else ("sweep", *MODEL[3:])
    small = [word if word.startswith("--") else word.lower() for word in args]
    assert says(0, *base, *args, "--dry-run") == says(0, *base, *small, "--dry-run")


@tiered("alias", ALIASES, 5)
def test_aliases_of_types_are_read_in_any_case(says: Says, alias: str) -> None:
    assert f" of {ALIASES[alias]};" in says(0, *MODEL, "--dtype", alias.upper(), "--dry-run").out


def test_the_former_name_of_an_option_is_an_alias(says: Says) -> None:
    for old, new in (
        (["--sweep", "channels"], ["--preset", "channels"]),
        (["--sweep=channels"], ["--preset=channels"]),
    ):
        before, now = (
            says(0, "sweep", *words, "--backend", "model", "--dry-run") for words in (old, new)
        )
        assert (before.out, now.err) == (now.out, "")
        assert before.err == "# --sweep is now called --preset; the next release drops --sweep.\n"
    assert "--sweep" not in says(0, "sweep", "--help").out


@pytest.mark.skipif(has_nvidia_gpus(), reason="this host has GPUs")
@pytest.mark.parametrize("more", [(), ("--backend", "cuda"), ("--backend", "cpu,cuda")])
@pytest.mark.parametrize("gpus", ["0", "0,1", "0,0"])
def test_gpus_on_a_host_without_any_are_refused(
    complains: Complains, gpus: str, more: tuple[str, ...]
) -> None:
    error, _ = complains(3, "sweep", "--gpus", gpus, *more)
    assert error == f"--gpus {gpus}: this host has no NVIDIA GPU"


@pytest.mark.parametrize("args", [("--gpus", "0"), ("--backend", "cuda"), ("--backend", "nccl")])
def test_one_gpu_that_was_asked_for_cannot_be_measured(
    complains: Complains, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    for module in ("sweep_rules", "run_sweep"):
        monkeypatch.setattr(f"collbench.bench.{module}.has_nvidia_gpus", lambda: True)
    monkeypatch.setattr("collbench.bench.sweep_rules.gpus_here", lambda: 1)
    error, hint = complains(3, "sweep", *args)
    assert error == "One GPU: nothing travels between ranks"
    assert "--gpus 0,0 runs two ranks on it" in hint


def test_a_dry_run_marks_what_the_file_has(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    words = (*MODEL[:3], *MODEL[5:], "--algo", "ring", "--csv", str(file))
    says(0, *words, "--sizes", "64K")
    before = read(file)
    out, err = says(0, *words, "--sizes", "64K,128K", "--resume", "--dry-run")
    lines = out.splitlines()
    assert [line.endswith("; in the file already") for line in lines[3:]] == [True, False, False]
    assert lines[-1].startswith("# 2 points, 0 waived, 1 in the file already; about")
    assert "# 1 of 2 points are in" in err
    assert f"# A dry run writes no rows to {file}." in err
    assert read(file) == before


@pytest.mark.parametrize("backend", ["cpu", "reference", "model"])
def test_more_ranks_than_cores_are_said(says: Says, backend: str) -> None:
    """Of backends whose ranks run at the same time."""
    cores = usable_cores()
    words = ("sweep", "--backend", backend, "--sizes", "1K", "--algo", "ring", "--dry-run")
    err = says(0, *words, "--ranks", str(2 * cores)).err
    assert (f"# {2 * cores} ranks share {cores} CPU core" in err) == (backend == "cpu")
    if cores > 1:
        assert says(0, *words, "--ranks", "2").err == ""


def test_an_error_on_the_way_out_of_a_signal_is_the_signals(capfd: Capture) -> None:
    """As where a terminal closes: writing to it fails, too."""
    try:
        try:
            raise Interrupted(signal.SIGHUP)
        except Interrupted:
            raise OSError(errno.EIO, "Input/output error") from None
    except OSError as error:
        assert complain(error) == 128 + signal.SIGHUP
    assert capfd.readouterr().err == "Interrupted by SIGHUP.\n"
