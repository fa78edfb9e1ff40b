"""The head of a sweep: what decides what the tool takes."""

from collections.abc import Mapping, Sequence

import pytest

from collbench.bench.tables.run import RunOf, head_lines
from collbench.core.options import Settings
from collbench.planning.tuning import Origin

MINE = Origin(is_fitting=True, files=(("mine", "my machine"),))
OTHER = Origin(is_fitting=False, files=(("h200", "H200"),))


@pytest.mark.parametrize(
    ("origins", "wanted"),
    [
        ({MINE: (2,)}, ["auto: by tuning file mine (my machine), which fits this machine"]),
        (
            {MINE: (2,), MINE._replace(priced_by="h200x4-vm"): (2, 4)},
            [
                "auto: by tuning file mine (my machine), which fits this machine; where it says"
                " nothing, algorithm and protocol by the model (constants of h200x4-vm)"
            ],
        ),
        (
            {OTHER._replace(priced_by="h200x4-vm"): (3,), MINE: (2,)},
            [
                "auto of 3 ranks: no tuning file fits this machine; algorithm and protocol by the"
                " model (constants of h200x4-vm), the rest by h200 (H200)",
                "auto of 2 ranks: by tuning file mine (my machine), which fits this machine",
            ],
        ),
    ],
)
def test_the_head_names_each_file_once_and_what_the_model_decides(
    origins: Mapping[Origin, Sequence[int]], wanted: list[str]
) -> None:
    run = RunOf(
        command="collbench sweep", cases=[], settings=Settings(), hosts=["a"], devices={},
        versions={}, links=[], origins=origins, is_timed=True,
    )  # fmt: skip
    lines = [line.removeprefix("# ") for line in head_lines(run, 400)]
    assert [line for line in lines if line.startswith("auto")] == wanted
