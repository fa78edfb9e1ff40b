"""Our own CSV as a table of record.COLUMNS."""

from typing import TYPE_CHECKING

from collbench.core.errors import UsageError
from collbench.core.frame import read_frame
from collbench.core.record import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

BEGINNING = f"{COLUMNS[0]},{COLUMNS[1]},".encode()


def is_mine(data: bytes) -> bool:
    """Whether the data begins as our CSV does."""
    return data.startswith(BEGINNING)


def read(data: bytes, name: str, lines: int | None) -> tuple["pd.DataFrame", tuple[str, ...]]:
    """All rows, and remarks for the reader. lines: the plain_lines of the data. Raises UsageError
    with the place.
    """
    if b"\n" not in data:  # ends of lines of an old Mac
        data = data.replace(b"\r", b"\n")
    whole = data[: data.rfind(b"\n") + 1]
    remarks = (
        ()
        if len(whole) == len(data)
        else (f"the last line (line {data.count(bytes([10])) + 1}) is cut and left out",)
    )
    frame = read_frame(name, whole, lines)
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
