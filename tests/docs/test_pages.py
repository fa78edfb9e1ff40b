"""Every command block of every page is run or parsed, links lead somewhere, and files of
docs/examples/cluster are read by who takes them; what runs on Slurm does so in tests/cluster.
"""

import doctest
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import docs.blocks
from collbench.cli import cli
from docs.blocks import LANGUAGES, ROOT, blocks, collbench_arguments, filled, pages
from tests.support.tiers import tiered

PAGES = pages()
PAGES_THAT_RUN = [page for page in PAGES if any(block.is_run for block in blocks(page.read_text()))]
# whose commands take short; the exhaustive tier runs all others
QUICK = ("README.md", "find-a-slow-host.md", "h200x4.md", "is-my-node-normal.md", "predict.md")
# These are for whoever changes the text, and are held by tests of their own.
GENERATED = "<!-- Made by"
WIDEST = 100


def name_of(page: Path) -> str:
    """A page below the root."""
    return str(page.relative_to(ROOT))


def test_examples_of_the_block_reader_hold() -> None:
    assert doctest.testmod(docs.blocks).failed == 0


def commands_of(text: str) -> list[str]:
    """The command lines of a page, those of workflows and batch scripts among them."""
    found = [block for block in blocks(text) if block.language in ("console", "sh", "yaml")]
    fenced = [line for block in found for line in block.commands]
    return fenced + re.findall(r"^    (python3 -m venv .*)$", text, re.MULTILINE)


def parse(line: str) -> int:
    """Parse every call of collbench in a command line; returns how many there are."""
    calls = list(filter(None, collbench_arguments(line)))
    for arguments in calls:
        with click.Context(cli, info_name="collbench", **cli.context_settings) as parent:
            command = cli.get_command(parent, arguments[0]) or cli
            assert command is not cli or arguments[0].startswith("-"), line
            rest = arguments if command is cli else arguments[1:]
            with suppress(click.exceptions.Exit):  # --version
                command.make_context(command.name, rest, parent)
    return len(calls)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_command_lines_parse(page: Path) -> None:
    for line in commands_of(page.read_text()):
        parse(line)


@tiered("page", PAGES_THAT_RUN, [page for page in PAGES if page.name in QUICK], ids=name_of)
def test_commands_run_and_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    assert filled(text, tmp_path) == text, f"run python -m docs.generate {name_of(page)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_have_known_languages(page: Path) -> None:
    found = blocks(page.read_text())
    assert page.read_text().count("\n```") == 2 * len(found)
    assert {block.language for block in found} <= set(LANGUAGES)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if heading:
            slugs = {
                re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in file.read_text().splitlines()
                if line.startswith("#")
            }
            assert heading in slugs, target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_end_at_100_columns(page: Path) -> None:
    text = page.read_text()
    if text.startswith(GENERATED):
        return
    prose = re.sub(r"```(console|text)[^\n]*\n.*?```", "", text, flags=re.DOTALL)
    assert [
        line
        for line in prose.splitlines()
        if len(line) > WIDEST and not line.startswith(("|", "    python3"))
    ] == []


def test_every_page_is_linked_from_the_index() -> None:
    """Or, of the many pages of checks, from an index of their own."""
    targets = {
        (index.parent / name).resolve()
        for index in (ROOT / "docs/index.md", ROOT / "docs/reference/checks/index.md")
        for name in re.findall(r"\]\(([^)#\s]+)", index.read_text())
    }
    expected = {page for page in pages() if page.is_relative_to(ROOT / "docs")}
    assert expected - targets == {ROOT / "docs/index.md"}


def test_the_readme_has_two_commands_and_fits_on_few_screens() -> None:
    """CI runs the second as it stands there."""
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"^    python3 -m venv .*$", text, re.MULTILINE)
    assert len(commands) == 2
    assert "collbench sweep --op allreduce" in commands[0]
    assert "pytest" in commands[1]
    assert len(text.splitlines()) <= 120


def test_the_walk_of_a_case_names_functions_that_exist() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    walk = re.findall(r"^ ([a-z_]+/\S*) +(\S+)\(\)", text, re.MULTILINE)
    assert len(walk) > 10
    for place, name in walk:
        path = ROOT / "collbench" / place
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        source = "".join(file.read_text() for file in files)
        assert all(
            re.search(rf"^ *(def|class) {part}\b", source, re.MULTILINE) for part in name.split(".")
        ), f"{place} {name}"


FILES = ROOT / "docs" / "examples" / "cluster"
SCRIPTS = ("accept.sbatch", "node-check.sh")
MANIFESTS = {"check-job.yaml": "Job", "mpijob.yaml": "MPIJob"}


def containers(part: Any) -> Iterator[dict[str, Any]]:
    """Every container of a manifest."""
    if isinstance(part, dict):
        yield from part.get("containers", ())
        part = part.values()
    for inner in part if not isinstance(part, str | int | None) else ():
        yield from containers(inner)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_parse(name: str) -> None:
    file = FILES / name
    done = subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = re.sub(r'"\$(collbench)"| 2>&1\)', r"\1", file.read_text()).splitlines()
    assert sum(parse(line) for line in lines if "collbench" in line and line[0] != "#") > 0


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_parse(name: str) -> None:
    manifest = yaml.safe_load((FILES / name).read_text())
    assert manifest["kind"] == MANIFESTS[name]
    made = list(containers(manifest))
    assert all(one["image"].startswith("registry.example/collbench:") for one in made)
    lines = [
        words[-1] if words[:2] == ["sh", "-c"] else shlex.join(words)
        for words in (one["command"] for one in made if "command" in one)
    ]
    assert [parse(line) for line in lines] == [1]


def test_a_hunt_that_names_a_host_is_not_run_again() -> None:
    """The operator heeds no policy of a pod, and its own would restart a launcher that fails."""
    spec = yaml.safe_load((FILES / "mpijob.yaml").read_text())["spec"]
    assert spec["launcherCreationPolicy"] == "WaitForWorkersReady"
    assert spec["runPolicy"]["backoffLimit"] == 0
    assert spec["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] == "Never"
    pods = [one["template"]["spec"] for one in spec["mpiReplicaSpecs"].values()]
    assert not any("restartPolicy" in pod for pod in pods)


def test_the_image_has_what_exists() -> None:
    file = FILES / "Containerfile"
    # versions of packages are those of the base image
    words = [str(Path(sys.executable).with_name("hadolint")), "--no-color", "--ignore", "DL3008"]
    done = subprocess.run([*words, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    text = file.read_text()
    extras = tomllib.loads(Path(ROOT, "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"CUDA=(\w+)", text))
    assert named == {"cuda12", "cuda13"} <= set(extras["optional-dependencies"])
