"""The order of the layers: a module imports what stands above it in this list, never below."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "collbench"
# A line is a layer: its modules may import each other's package siblings and everything above.
LAYERS = [
    "errors",
    "units registry",
    "dtypes host gpus",
    "collectives world catalog",
    "schedule",
    "passes",
    "proof",
    "clocks",
    "symbolic",
    "check",
    "place",
    "algorithms",
    "topology",
    "protocols transports",
    "case",
    "plan",
    "actions",
    "tuning_net tuning_shm",
    "tuning_knobs",
    "tuning_gpu",
    "tuning_ce",
    "tuning cost",
    "device",
    "pattern stats",
    "group",
    "discovery formats",
    "backends",
    "estimate yardstick",
    "record sweep",
    "measure",
    "soak pairs overlap",
    "compare",
    "report",
    "cli",
]
PLACE = {name: number for number, layer in enumerate(LAYERS) for name in layer.split()}
FILES = sorted(PACKAGE.rglob("*.py"))


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "collbench" and len(parts) > 1 else None


def imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" if node.module == "collbench" else node.module for alias in node.names}
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_only_from_above(file: Path) -> None:
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    assert own in PLACE, f"{own} has no place in the list of layers"
    for module in imports(file):
        target = layer_of(module)
        if target is not None and target != "__version__" and target != own:
            assert PLACE[target] < PLACE[own], f"{own} imports {target}, which stands below it"


HEAVY = ("numpy", "pandas", "cupy", "mpi4py", "ml_dtypes", "rich", "pynvml", "matplotlib")


def modules_after(*args: str) -> tuple[str, set[str]]:
    """What a command says, and the modules that it imported."""
    code = "import sys\nfrom collbench.cli import run\nrun(sys.argv[1:])\nprint('MODULES', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60, check=True)
    said, _, modules = done.stdout.rpartition("MODULES")
    return said, set(modules.split())


COMMANDS = ("sweep", "topo", "algos", "overlap", "compare")


@pytest.mark.parametrize("args", [["--help"], *([command, "--help"] for command in COMMANDS), ["--version"]])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    said, modules = modules_after(*args)
    assert "Usage" in said or "version" in said
    assert not modules & set(HEAVY)


def test_answers_of_one_file_import_no_matplotlib() -> None:
    said, modules = modules_after("compare", str(PACKAGE.parent / "profiles/results/h200x4.csv"))
    assert "allreduce, 4 ranks" in said
    assert not modules & {"matplotlib", "cupy", "mpi4py"}


def test_one_module_imports_matplotlib() -> None:
    assert [file.name for file in FILES if any(module.split(".")[0] == "matplotlib" for module in imports(file))] == ["plots.py"]


def test_no_file_is_much_over_400_lines() -> None:
    tests = sorted(Path(__file__).parent.rglob("*.py"))
    assert [file.name for file in (*FILES, *tests) if len(file.read_text().splitlines()) > 400] == []
