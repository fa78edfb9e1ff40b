"""Our own CSV as rows."""

from collections.abc import Sequence

from collbench.core.errors import UsageError
from collbench.core.record import COLUMNS, Record, has_another_rate, parse
from collbench.core.text import counted

BEGINNING = f"{COLUMNS[0]},{COLUMNS[1]},".encode()


def is_mine(data: bytes) -> bool:
    """Whether the data begins as our CSV does."""
    return data.startswith(BEGINNING)


def read(data: bytes, name: str) -> tuple[Sequence[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    if b"\n" not in data:  # ends of lines of an old Mac
        data = data.replace(b"\r", b"\n")
    remarks: tuple[str, ...] = ()
    if not data.endswith(b"\n"):
        remarks = (f"the last line (line {data.count(bytes([10])) + 1}) is cut and left out",)
    try:
        records = parse(name, data.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: {error}", "mend or delete that line") from None
    if not records:
        raise UsageError(f"{name} has no rows", "the sweep that wrote it may have failed")
    if odd := sum(map(has_another_rate, records)):
        text = f"busbw_gbs of {counted(odd, 'row')} is not what size and time make"
        remarks = (*remarks, f"{text}: which of them is right is not known")
    devices = sorted({one.device for one in records if one.backend != "model"} - {""})
    if len(devices) > 1:
        remarks = (
            *remarks,
            f"rows of several machines stand side by side here: {'; '.join(devices)}",
        )
    return records, remarks
