"""Our own CSV, schema record.SCHEMA, as a table of record.COLUMNS."""

import csv
import io
import math
import warnings
from typing import TYPE_CHECKING, get_args

from collbench.analysis.readers.foreign import FLOATS, frame_of
from collbench.results.record import COLUMNS, INTEGERS, MEASURED, SCHEMA, TIMES, Status, parse
from collbench.util.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

BEGINNING = f"{COLUMNS[0]},{COLUMNS[1]},".encode()


def is_mine(data: bytes) -> bool:
    """Whether the data begins as our CSV does."""
    return data.startswith(BEGINNING)


def read(data: bytes, name: str) -> tuple["pd.DataFrame", tuple[str, ...]]:
    """All rows, and what the reader must know. Fast where every cell is what its column holds;
    where one is not, record.parse finds which, and UsageError names it.
    """
    import pandas as pd

    whole = data[: data.rfind(b"\n") + 1]
    remarks = (
        ()
        if len(whole) == len(data)
        else (f"the last line (line {data.count(bytes([10])) + 1}) is cut and left out",)
    )
    try:
        frame = _fast(whole)
    # ParserError and UnicodeDecodeError are ValueErrors
    except (ValueError, OverflowError, pd.errors.ParserWarning):
        frame = _slow(name, whole)
    if frame.empty:
        raise UsageError(f"{name} has no rows", "the sweep that wrote it may have failed")
    devices = sorted(
        frame["device"][(frame["backend"] != "model") & (frame["device"] != "")].unique()
    )
    if len(devices) > 1:
        remarks = (
            *remarks,
            f"rows of several machines stand side by side here: {'; '.join(devices)}",
        )
    return frame, remarks


def _fast(data: bytes) -> "pd.DataFrame":
    """The table by pandas' own parser. Raises ValueError, OverflowError or ParserWarning if a cell
    is not what its column holds.
    """
    import pandas as pd

    if tuple(data.partition(b"\n")[0].decode().strip().split(",")) != COLUMNS:
        raise ValueError("other columns")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(
            io.BytesIO(data),
            engine="c",
            index_col=False,
            keep_default_na=False,
            na_values={name: [""] for name in FLOATS},
            dtype={
                name: "int64" if name in INTEGERS else "float64" if name in FLOATS else str
                for name in COLUMNS
            },
        )
    is_fine = (frame["schema"] == SCHEMA).all() and frame["status"].isin(get_args(Status)).all()
    if not is_fine or not (frame["wrong"].isna() | (frame["wrong"] % 1 == 0)).all():
        raise ValueError("a schema, a status or a count")
    if not _are_times(frame["repeat_times_us"]) or not all(
        _is_measured(frame[name], name) for name in MEASURED
    ):
        raise ValueError("a time or a rate")
    return frame


def _is_measured(cells: "pd.Series[float]", name: str) -> bool:
    """Whether all are empty or what record.parse takes: times above zero, rates from zero on, both
    finite.
    """
    known = cells.dropna()
    return bool((((known > 0) | (known == 0) & (name not in TIMES)) & (known < math.inf)).all())


def _are_times(cells: "pd.Series[str]") -> bool:
    """Whether all repeats are times with one semicolon between them."""
    import numpy as np

    joined = ";".join(filter(None, cells))
    if not joined:
        return True
    with warnings.catch_warnings():
        # numpy warns where it stops early; the count shows it
        warnings.simplefilter("ignore", DeprecationWarning)
        times = np.fromstring(joined, sep=";")
    return len(times) == joined.count(";") + 1 and bool(((times > 0) & (times < math.inf)).all())


def _slow(name: str, data: bytes) -> "pd.DataFrame":
    try:
        return frame_of(list(parse(name, data.decode())))
    except (csv.Error, OverflowError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: {error}", "mend or delete that line") from None
