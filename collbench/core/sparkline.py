"""A curve as one line of characters."""

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-:=+*#"


def sparkline(values: Sequence[float], marks: str) -> str:
    """A character a value, by its share of the largest; blank where it is unknown.

    >>> (
    ...     sparkline([0.0, 1.0, 2.0, math.nan, 4.0], BLOCKS),
    ...     sparkline([0.0, 1.0, 4.0], ASCII),
    ...     sparkline([0.0], ASCII),
    ... )
    ('▁▃▅ █', '_-#', '_')
    """
    most = max((value for value in values if not math.isnan(value)), default=0.0)
    return "".join(
        (
            " "
            if math.isnan(value)
            else (
                marks[min(len(marks) - 1, int(len(marks) * value / most))] if most > 0 else marks[0]
            )
        )
        for value in values
    )
