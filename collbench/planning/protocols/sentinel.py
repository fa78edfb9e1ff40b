"""Sentinel: data as it is, in slots that hold a marker until it comes, so that each word of 4 bytes
says by itself that it came. All of a slot is payload, and no flag travels. The reader marks the
slot again. GPU memory only.

Source: the Lamport buffers of FlashInfer's allreduce (TensorRT-LLM) and of SGLang's.
"""

from collbench.core.dtypes import DtypeName, dtype
from collbench.core.errors import ScheduleError

HAS_SLICES = False  # whether a message may take several slots
NEEDS_NVLINK = False  # whether other links may tear what it stores
CLEARS = True  # whether the reader of a slot clears it
MARKER_BYTE = 0xFF  # all bytes of a word that has not come
LINE_BYTES = 16  # what a GPU thread moves with one access


def payload_bytes(slot_bytes: int) -> int:
    """What a slot of that size carries.

    >>> payload_bytes(4100)
    4096
    """
    return slot_bytes // LINE_BYTES * LINE_BYTES


def wire_bytes(payload: int) -> int:
    """What that much of one chunk takes in a slot.

    >>> wire_bytes(20)
    32
    """
    return -(-payload // LINE_BYTES) * LINE_BYTES


stored_bytes = wire_bytes  # what a sender stores of it


def why_not(name: DtypeName) -> str:
    """Why a type has no pattern that can be the marker, or an empty text.

    >>> why_not("int32"), why_not("bfloat16")
    ('sentinel marks with a NaN what has not come, and a word of int32 can be any bits', '')
    """
    kind = dtype(name)
    if kind.is_float and kind.item_bytes <= 4:
        return ""
    word = "the lower word of a float64" if kind.is_float else f"a word of {name}"
    return f"sentinel marks with a NaN what has not come, and {word} can be any bits"


def refuse(name: DtypeName, messages: int, loops: int, slots: int) -> None:
    """Raise ScheduleError for what slots cannot carry that are cleared behind a launch. messages:
    along a connection in a loop; loops: of a launch.
    """
    if why := why_not(name):
        raise ScheduleError(why, "use --proto ll or simple")
    if loops > 1:
        raise ScheduleError(
            f"sentinel clears slots between launches, and a launch needs each {loops} times",
            "use more --max-memory, a larger --chunk and --buffsize, or --proto simple",
        )
    if 2 * messages > slots:
        raise ScheduleError(
            f"sentinel clears slots between launches: it needs {2 * messages} for two launches,"
            f" not {slots}",
            f"use --slots {2 * messages}, or leave it out",
        )
