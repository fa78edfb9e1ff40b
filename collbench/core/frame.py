"""Records as a table of pandas, whose columns are record.COLUMNS."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from collbench.core.record import COLUMNS, FLOATS, INTEGERS, Record

if TYPE_CHECKING:
    import pandas as pd

_TYPES = dict.fromkeys(INTEGERS, "int64") | dict.fromkeys(FLOATS, "float64")


def frame_of(records: Sequence[Record]) -> "pd.DataFrame":
    """The rows as a table of record.COLUMNS: int64, float64 with NaN for what is missing, and else
    what the records have. Raises OverflowError above 64 bits.
    """
    import pandas as pd

    return pd.DataFrame(
        {
            name: pd.Series(list(map(attrgetter(name), records)), dtype=_TYPES.get(name, "object"))
            for name in COLUMNS
        }
    )
