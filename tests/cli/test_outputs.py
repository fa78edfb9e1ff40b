"""Files that commands write: what another program wrote, an input and another output stay."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from collbench.cli import run
from collbench.cli._options import OutputFile
from tests.support.commands import Capture, Says, options
from tests.support.tables import cells_of
from tests.support.tiers import tiered

ROWS = str(Path(__file__).parent.parent.parent / "docs" / "examples" / "first-run.csv")
OUTPUTS = cells_of(__file__, "outputs.tsv")
# What makes each option write, by command and option; appended to it is the file.
WRITES = {(command, option): words.format(rows=ROWS) for command, option, words, _ in OUTPUTS}
# What takes no processes and no minutes, and so is written twice, too.
QUICK = [(command, option) for command, option, _, quick in OUTPUTS if quick]
FOREIGN = "Date,Amount\n2026-11-26,12\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nccl.log").write_text(
        "vm:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
        "vm:1:1 [0] NCCL INFO Channel 00/02 : 0 1\n"
    )
    rows = Path(ROWS).read_text().splitlines(keepends=True)
    (tmp_path / "new.csv").write_text("".join(rows[:-1]))
    return tmp_path


def plot_name(option: str) -> str:
    return "mine.svg" if option == "--plot" else "mine"


def test_every_output_is_known() -> None:
    outputs = ((name, param) for name, param in options() if isinstance(param.type, OutputFile))
    assert {(name, max(param.opts, key=len)) for name, param in outputs} == set(WRITES)


def test_every_file_option_says_whether_it_writes() -> None:
    words = ("rite", "append", "Draw", "added to")
    for name, param in options():
        text = (param.help or "").partition(", for example")[0]
        if param.metavar == "FILE":
            writes = any(word in text for word in words) and "Read" not in text
            assert isinstance(param.type, OutputFile) == writes, (name, param.opts)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("command", "option"), sorted(WRITES), ids="".join)
def test_the_file_of_another_program_stays(
    command: str, option: str, folder: Path, capsys: Capture
) -> None:
    file = folder / plot_name(option)
    file.write_text(FOREIGN)
    assert run([*WRITES[command, option].split(), option, file.name]) in (2, 3)
    assert file.read_text() == FOREIGN
    if command != "overlap":  # which needs GPUs, and says only that where there are none
        assert file.name in capsys.readouterr().err


@tiered(("command", "option"), QUICK, 6, ids="".join)
def test_its_own_file_is_written_again(command: str, option: str, folder: Path) -> None:
    file = folder / plot_name(option)
    words = [*WRITES[command, option].split(), option, file.name]
    file.write_text(FOREIGN)
    assert run([*words, "--force"]) in (0, 1)
    assert file.read_text() != FOREIGN
    assert run(words) in (0, 1)


@pytest.mark.parametrize(
    "words",
    [
        "log nccl.log --html nccl.log",
        "log nccl.log --json link.log",
        "log nccl.log --json x --html x",
        "compare new.csv --html new.csv",
        "predict --machine m.toml --json m.toml",
        "topo --from new.csv --svg ./new.csv",
        "hunt --from new.csv --csv new.csv",
        "sweep --counts new.csv --op alltoallv --csv new.csv",
        "replay new.csv --json new.csv --dry-run",
    ],
)
def test_an_input_and_another_output_are_no_target(words: str, folder: Path, says: Says) -> None:
    (folder / "link.log").symlink_to("nccl.log")
    (folder / "m.toml").write_text("[topology]\n")
    before = {file.name: file.read_text() for file in folder.iterdir()}
    assert re.search("would write over|writes there, too", says(2, *words.split(), "--force").err)
    assert {file.name: file.read_text() for file in folder.iterdir()} == before


def test_what_stdin_reads_is_no_target(folder: Path) -> None:
    log = folder / "nccl.log"
    before = log.read_text()
    words = [sys.executable, "-m", "collbench", "log", "-", "--json", log.name, "--force"]
    with log.open() as stdin:
        done = subprocess.run(
            words, stdin=stdin, cwd=folder, capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    assert "would write over what files reads" in done.stderr
    assert log.read_text() == before
