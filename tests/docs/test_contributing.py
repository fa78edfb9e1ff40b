"""What CONTRIBUTING.md shows must work as it stands there."""

import re
from types import ModuleType

from collbench.core.world import World
from collbench.planning.layout import lay_out
from collbench.schedules.ir import build
from collbench.schedules.passes import pull_zero_copy
from collbench.schedules.verify.check import check
from docs.blocks import ROOT
from tests.support.batteries import assert_right, problem

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_the_example_algorithm_is_right_everywhere() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    relay = ModuleType("relay")
    exec(code, relay.__dict__)
    for n in range(2, 9):
        for root in range(n):
            schedule = build("broadcast", "relay", relay.SERVES["broadcast"], World(n=n, root=root))
            check(pull_zero_copy(schedule, in_place=True), in_place=True)
            assert_right(
                lay_out(problem("broadcast", n, root=root), schedule, chunk_bytes=64, slots=2)
            )


def test_named_files_exist() -> None:
    named = set(re.findall(r"`((?:tests|collbench|docs|profiles)/[\w/]+(?:\.\w+)?)`", TEXT))
    templates = {name for name in named if "NAME" in name}
    assert named - templates
    assert [name for name in named - templates if not (ROOT / name).exists()] == []
