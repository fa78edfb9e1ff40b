"""The house: which package may import which, and what commands must not import."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from collbench.backends import FAMILY as BACKENDS
from collbench.core.peers import PEERS
from tests import numbers
from tests.numbers import MARGIN, NUMBERS, Number

PACKAGE = Path(__file__).parent.parent / "collbench"
# Every package stands on a floor. A module imports from its own package and from floors below its
# own.
FLOORS = (
    "core",
    "schedules machine",
    "launch compare",
    "planning",
    "device",
    "backends",
    "bench",
    "doctor",
    "tune",
    "jobs",
    "cli",
)
FLOOR_OF = {name: number for number, floor in enumerate(FLOORS) for name in floor.split()}
FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    """The dotted name of a module of the package."""
    return ".".join(("collbench", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


MODULES = {name_of(file): file for file in FILES}


@cache
def imports(file: Path) -> tuple[str, ...]:
    """The modules that a file imports, anywhere in it."""
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[str]:
    for node in numbers.imports(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module


def test_imports_only_from_floors_below() -> None:
    for file in FILES:
        own = file.relative_to(PACKAGE).parts[0]
        if own in ("__init__.py", "__main__.py"):
            continue
        for module in imports(file):
            parts = module.split(".")
            if parts[0] == "collbench" and len(parts) > 1 and parts[1] != own:
                assert FLOOR_OF[parts[1]] < FLOOR_OF[own], (
                    f"{name_of(file)} imports {module}, which stands above it"
                )


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports anywhere in a file count, those for types alone too."""
    left = {
        name: {module for module in imports(file) if module in MODULES and module != name}
        for name, file in MODULES.items()
    }
    while ready := {name for name, modules in left.items() if not modules & left.keys()}:
        left = {name: modules for name, modules in left.items() if name not in ready}
    assert not left, "in a circle, or importing one that is: " + ", ".join(sorted(left))


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.name)
def test_the_house_does_not_grow(number: Number) -> None:
    assert number.measure() <= MARGIN * number.most, "python -m tests.numbers prints all"


def test_private_modules_are_imported_by_their_own_package() -> None:
    for file in FILES:
        for module in set(imports(file)) & set(MODULES):
            package, _, name = module.rpartition(".")
            assert not name.startswith("_") or name_of(file).startswith(package), (
                f"{name_of(file)} imports {module}"
            )


def test_text_is_printed_in_one_place() -> None:
    """So that what a terminal would obey is spelled out everywhere."""
    allowed = {"core/screen.py"}
    writers = re.compile(r"\bprint\(|click\.s?echo|stdout\.write")
    for file in FILES:
        text, place = file.read_text(), str(file.relative_to(PACKAGE))
        if place not in allowed and writers.search(text):
            calls = {node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}
            names = {ast.unparse(call) for call in calls}
            assert not names & {"print", "click.echo", "click.secho", "sys.stdout.write"}, file


def test_every_package_has_a_floor() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(FLOOR_OF)
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


HEAVY = ("numpy", "pandas", "cupy", "mpi4py", "ml_dtypes", "rich", "pynvml", "matplotlib")


def modules_after(*calls: list[str]) -> tuple[str, set[str]]:
    """What commands say that run in one process, and the modules that they imported."""
    code = (
        "import json, sys\nfrom collbench.cli import run\n"
        "for args in json.loads(sys.argv[1]): run(args)\nprint('MODULES', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(calls)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    said, _, modules = done.stdout.rpartition("MODULES")
    return said, set(modules.split())


COMMANDS = ("sweep", "tune", "topo", "algos", "check", "hunt", "overlap", "compare")


def test_help_imports_nothing_heavy() -> None:
    calls = [["--help"], *([command, "--help"] for command in COMMANDS), ["--version"]]
    said, modules = modules_after(*calls)
    assert said.count("Usage: ") == len(calls) - 1 and "version" in said
    assert not modules & set(HEAVY)


def test_reading_a_csv_loads_no_backend_and_draws_nothing() -> None:
    said, modules = modules_after(["compare", str(PACKAGE.parent / "profiles/results/h200x4.csv")])
    assert "allreduce, 4 ranks" in said
    assert not modules & {"matplotlib", "cupy", "mpi4py"}
    ours = {module for module in modules if module in MODULES}
    unneeded = "backends", "device", "planning", "machine", "schedules", "bench"
    assert not [name for name in ours if name.split(".")[1:2] and name.split(".")[1] in unneeded]
    launch = {name for name in ours if name.startswith("collbench.launch.")}
    assert launch <= {"collbench.core.complaint"}
    assert len(ours) < 60


def test_a_sweep_imports_no_pandas() -> None:
    """A third of what a rank takes to start."""
    said, modules = modules_after(
        ["sweep", "--backend", "reference", "--sizes", "1K", "--ranks", "2", "--repeats", "1"]
    )
    assert "0 wrong" in said
    assert not modules & {"pandas", "matplotlib", "cupy", "mpi4py"}


def test_libraries_are_those_backends_that_run_cases() -> None:
    assert set(PEERS) == {name for name in BACKENDS if BACKENDS.load(name).is_peer}
    assert [BACKENDS.load(name).name for name in BACKENDS] == list(BACKENDS)


def test_one_module_imports_matplotlib() -> None:
    assert [
        file.name
        for file in FILES
        if "matplotlib" in {module.split(".")[0] for module in imports(file)}
    ] == ["draw.py"]
