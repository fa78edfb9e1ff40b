"""Records as a table of pandas, and our CSV read as such a table: the columns and what each holds
are record.KINDS.
"""

import io
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from collbench.core.distribution import histogram_text, parse_histogram
from collbench.core.errors import UsageError
from collbench.core.knobs import KNOB, Value
from collbench.core.record import (
    COLUMNS,
    FLOATS,
    INTEGERS,
    KINDS,
    LEAST_OF_KIND,
    MOST,
    NAMES,
    SCHEMA,
    SCHEMAS,
    Record,
    columns_of,
    named,
    parse,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

_BYTES_AT_ONCE = 1 << 20
_PRINTED = bytes(range(32, 127))  # of ASCII
_TYPES: dict[str, type] = {
    name: int if name in INTEGERS else float if name in FLOATS else object for name in COLUMNS
}
_REPEATING = named("text", "status")  # columns in which many rows have the same text


def frame_of(records: Sequence[Record]) -> "pd.DataFrame":
    """The rows as a table of record.COLUMNS: int64, float64 with NaN for what is missing, texts as
    categories, and repeats and histograms as in a cell of the file. Raises OverflowError above 64
    bits.
    """
    import pandas as pd

    columns: dict[str, pd.Series] = {}
    for name in COLUMNS:
        values = [getattr(record, name) for record in records]
        if name in INTEGERS:
            columns[name] = pd.Series(values, dtype="int64")
        elif name in FLOATS:
            columns[name] = pd.Series(
                [math.nan if value is None else float(value) for value in values], dtype="float64"
            )
        elif KINDS[name] == "times":
            columns[name] = pd.Series(
                [";".join(f"{item:.6g}" for item in value) for value in values], dtype=str
            )
        elif KINDS[name] == "histogram":
            columns[name] = pd.Series([histogram_text(value) for value in values], dtype=str)
        else:
            columns[name] = pd.Series(values, dtype=str).astype("category")
    return pd.DataFrame(columns, columns=list(COLUMNS))


def with_strings(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The rows with categories as texts, which can be changed, and combined with other files'."""
    return frame.astype(dict.fromkeys(frame.select_dtypes("category").columns, str))


def numbers_of(frame: "pd.DataFrame", names: Iterable[str]) -> "NDArray[np.int64]":
    """Of each row the number of what it has in some columns, counted from 0 in the order of the
    rows: rows that agree there have the same number.
    """
    import numpy as np
    import pandas as pd

    numbers = np.zeros(len(frame), dtype=np.int64)
    for name in names:
        codes, values = frame[name].factorize()
        if len(values) > 1:
            numbers = pd.factorize(numbers * len(values) + codes)[0].astype(np.int64, copy=False)
    return numbers


def distinct_values(
    frame: "pd.DataFrame", names: Sequence[str]
) -> tuple[list[tuple[Any, ...]], list[int]]:
    """What there is in some columns, each once, in the order of the rows; and of each row which of
    these it has.
    """
    import numpy as np
    import pandas as pd

    numbers = numbers_of(frame, names)
    first = np.flatnonzero(~pd.Series(numbers).duplicated().to_numpy())
    columns = [frame[name].iloc[first].to_numpy().tolist() for name in names]
    return list(zip(*columns, strict=True)), numbers.tolist()


def texts_of(frame: "pd.DataFrame", name: str) -> list[str]:
    """The values of a column in order, as texts, without those that stand for nothing."""
    return [str(value) for value in sorted(frame[name].unique()) if value not in ("", 0)]


def plain_lines(data: bytes) -> int | None:
    """How many line ends data has that is ASCII that can be printed else; None of other data."""
    lines = 0
    for at in range(0, len(data), _BYTES_AT_ONCE):
        left = data[at : at + _BYTES_AT_ONCE].translate(None, _PRINTED)
        if left.strip(b"\n"):
            return None
        lines += len(left)
    return lines


def read_frame(name: str, data: bytes, lines: int | None = None) -> "pd.DataFrame":
    """The rows of our CSV, which ends with a line end. lines: its plain_lines. Raises UsageError
    with the place.
    """
    import pandas as pd

    try:
        return _by_pandas(data, lines)
    # ParserError and UnicodeDecodeError are ValueErrors
    except (ValueError, OverflowError, RuntimeWarning, pd.errors.ParserWarning):
        pass
    try:  # row by row, which says where it is broken
        return frame_of(list(parse(name, data.decode())))
    except (OverflowError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: {error}", "mend or delete that line") from None


def _by_pandas(data: bytes, lines: int | None) -> "pd.DataFrame":
    """The table by pandas' own parser, which is fast. Raises ValueError, OverflowError or
    a warning if a cell is not what its column holds.
    """
    import pandas as pd

    schema = SCHEMAS.get(tuple(data[: data.find(b"\n")].decode().strip().split(",")))
    if schema is None:
        raise ValueError("other columns")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        warnings.simplefilter("error", RuntimeWarning)  # a count that is no whole number of 64 bits
        frame = pd.read_csv(
            io.BytesIO(data),
            engine="c",
            index_col=False,
            keep_default_na=False,
            na_values={name: [""] for name in FLOATS},
            dtype={name: str if kind is object else kind for name, kind in _TYPES.items()},
        )
        for name in columns_of(schema):
            if name not in _REPEATING and not _is_sound(frame[name], name):
                raise ValueError(name)
    if lines is not None and len(frame) != lines - 1:
        raise ValueError("a line end in a cell, or an empty line")
    if not (frame["schema"] == schema).all():
        raise ValueError("another schema")
    frame["schema"] = SCHEMA
    return pd.DataFrame(
        {
            name: _column_of_older(name, len(frame))
            if name not in frame
            else _category(frame[name], name)
            if name in _REPEATING
            else frame[name]
            for name in COLUMNS
        }
    )


def _category(cells: "pd.Series[str]", name: str) -> "pd.Series[Any]":
    """A column with each text once. Raises ValueError if one may not be there."""
    column = cells.astype("category")
    known = NAMES.get(name)  # other texts are read as Record shows them
    for text in column.cat.categories:
        if not text.isprintable() if known is None else text not in known:
            raise ValueError(name)
    return column


def _column_of_older(name: str, rows: int) -> "pd.Series[Any]":
    """What rows of a schema before that column have there."""
    import pandas as pd

    value: Value | float = math.nan if name in FLOATS else ""
    if name in KNOB:
        value = KNOB[name].default
    column = pd.Series([value] * rows, dtype=str if _TYPES[name] is object else _TYPES[name])
    return column.astype("category") if name in _REPEATING else column


def _is_sound(cells: "pd.Series", name: str) -> bool:
    """Whether all cells are empty, where they may be, or what the column holds."""
    kind = KINDS[name]
    if kind == "count":
        return bool((cells.isna() | (cells % 1 == 0)).all())
    if kind == "times":
        return _are_times(cells)
    if kind == "histogram":
        return all(parse_histogram(text) or not text for text in cells.unique())
    return kind not in LEAST_OF_KIND or bool(
        (cells.isna() | cells.between(LEAST_OF_KIND[kind], MOST)).all()
    )


def _are_times(cells: "pd.Series[str]") -> bool:
    """Whether all repeats are times with one semicolon between them."""
    import numpy as np

    joined = ";".join(filter(None, cells.to_numpy(dtype=object)))
    if not joined:
        return True
    with warnings.catch_warnings():
        # numpy warns where it stops early; the count tells
        warnings.simplefilter("ignore", DeprecationWarning)
        times = np.fromstring(joined, sep=";")
    is_whole = len(times) == joined.count(";") + 1
    return is_whole and bool(((times >= LEAST_OF_KIND["times"]) & (times <= MOST)).all())
