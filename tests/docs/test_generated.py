"""What is generated is current: reference pages, completion, and what the wheel is built with."""

import re
import subprocess
import sys
import tomllib
import zlib
from pathlib import Path

import pytest

from collbench.bench import overlap
from collbench.core.record import COLUMNS
from docs.blocks import ROOT
from docs.generate import PICTURES, SHELLS, generated
from docs.man import commands, man_pages
from tests.support.runs import said_by

FILES = {str(file.relative_to(ROOT)): make for file, make in generated().items()}


@pytest.mark.parametrize("name", FILES)
def test_generated_files_are_current(name: str) -> None:
    text = (ROOT / name).read_text() if (ROOT / name).exists() else "no file"
    assert FILES[name]() == text, f"run python -m docs.generate {name}"


def test_man_pages_are_those_of_the_commands() -> None:
    pages = {name: make() for name, make in man_pages()}
    assert pages.keys() == {"collbench.1", *(f"collbench-{name}.1" for name, _, _ in commands())}
    assert r"\-\-sizes" in pages["collbench-sweep.1"]
    assert all(page.startswith('.TH "COLLBENCH') for page in pages.values())


def test_man_pages_are_made_with_what_a_build_installs() -> None:
    """Nothing but click: neither numpy nor rich."""
    code = (
        "import sys\nfrom docs.man import man_pages\nfor _, make in man_pages(): make()\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {"numpy", "pandas", "rich", "pynvml"}.isdisjoint(done.stdout.split())


def test_every_option_and_column_is_in_the_reference() -> None:
    options = (ROOT / "docs/reference/commands.md").read_text()
    for _, command, _ in commands():
        for param in command.params:
            if param.param_type_name == "option" and not getattr(param, "hidden", False):
                assert all(option in options for option in param.opts)
    columns = (ROOT / "docs/reference/csv.md").read_text()
    assert [
        name for name in (*COLUMNS, *overlap.OVERLAP_COLUMNS) if f"| `{name}` |" not in columns
    ] == []


def test_pictures_exist() -> None:
    assert [name for name in PICTURES if not (ROOT / "docs/images" / name).stat().st_size] == []


def test_bash_completes_commands_and_options() -> None:
    for words, index, expected in (
        ("collbench sw", 1, "sweep"),
        ("collbench topo --ra", 2, "--rates"),
    ):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(index), "PYTHONPATH": str(ROOT)}
        env = {"_COLLBENCH_COMPLETE": "bash_complete", **asked}
        assert expected in said_by([sys.executable, "-m", "collbench"], env=env).stdout


def test_the_wheel_is_small_and_mpi4py_is_in_every_installation() -> None:
    files = [one for folder in ("collbench", "profiles") for one in (ROOT / folder).rglob("*.*")]
    kept = [one.read_bytes() for one in files if one.is_file() and one.suffix != ".pyc"]
    assert sum(len(zlib.compress(data)) for data in kept) < 3e6
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {"mpi4py", "nvidia-ml-py"} <= {re.split(r"[<>=]", one)[0] for one in needed}


def test_the_wheel_takes_completion() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert all((ROOT / source).exists() for source in shared)
    assert {Path(source).name for source in shared} == set(SHELLS.values())
