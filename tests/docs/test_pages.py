"""Every command block of every page is run or parsed, and links lead somewhere."""

import doctest
import re
from contextlib import suppress
from pathlib import Path

import click
import pytest

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
    fenced = [
        line for block in blocks(text) if _has_commands(block.language) for line in block.commands
    ]
    return fenced + re.findall(r"^    (python3 -m venv .*)$", text, re.MULTILINE)


def _has_commands(language: str) -> bool:
    return language in ("console", "sh", "yaml")


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
