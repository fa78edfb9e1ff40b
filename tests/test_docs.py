"""What the documents show must work as it stands there."""

import re
from pathlib import Path
from types import ModuleType

from collbench.cli.topo import command as topo
from collbench.planning.plan import lay_out
from collbench.results.record import SCHEMA
from collbench.schedules.ir import build
from collbench.schedules.passes import pull_zero_copy
from collbench.schedules.verify.check import check
from collbench.spec.world import World
from tests.support.batteries import assert_right, problem

ROOT = Path(__file__).parent.parent


def test_the_example_algorithm_of_contributing_is_right_everywhere() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    relay = ModuleType("relay")
    exec(code, relay.__dict__)
    for n in range(2, 9):
        for root in range(n):
            schedule = build("broadcast", "relay", relay.SERVES["broadcast"], World(n=n, root=root))
            check(pull_zero_copy(schedule, in_place=True), in_place=True)
            assert_right(
                lay_out(problem("broadcast", n, root=root), schedule, chunk_bytes=64, slots=2)
            )


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:tests|collbench)/[a-z_/]+\.py)`", text))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_readme_has_two_commands() -> None:
    """CI runs the second as it stands there."""
    commands = re.findall(
        r"^    python3 -m venv .*$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert len(commands) == 2
    assert "collbench sweep --op allreduce" in commands[0]
    assert "pytest" in commands[1]


def test_readme_has_every_option_of_topo_and_the_schema() -> None:
    text = (ROOT / "README.md").read_text()
    table = text[
        text.index("## What is wired to what") : text.index("## A machine that you do not have")
    ]
    options = {option for param in topo.params for option in param.opts} - {"--color"}
    assert sorted(option for option in options if f"`{option}" not in table) == []
    assert f"; schema {SCHEMA}:" in text
