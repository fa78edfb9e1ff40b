"""Curves of more configurations than a picture has colours for; others: test_answers.py."""

from itertools import product

from collbench.compare.curves import curves
from collbench.compare.plots.lines import MOST_COLORED, lines
from tests.support.frames import records, row


def test_of_many_configurations_the_best_have_a_colour() -> None:
    many = records(
        *[
            row((10.0 + channels + size,), channels=channels, size_bytes=1024 << size)
            for channels, size in product(range(1, 20), range(3))
        ]
    )
    drawn = lines(curves(many))
    assert [line.curve.name for line in drawn if line.role == "one"] == ["ring simple ch 1"]
    assert sum(line.role == "other" for line in drawn) == 18
    wide = records(
        *[
            row((10.0 + (channels - size) ** 2,), channels=channels, size_bytes=1024 << size)
            for channels, size in product(range(1, 20), range(1, 20))
        ]
    )
    assert sum(line.role == "one" for line in lines(curves(wide))) == MOST_COLORED
