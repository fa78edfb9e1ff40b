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


def refuse(name: DtypeName, messages: int, loops: int, slots: int) -> None:
    """Raise ScheduleError for what slots cannot carry that are cleared behind a launch. messages:
    along a connection in a loop; loops: of a launch.
    """
    kind = dtype(name)
    if not kind.is_float or kind.item_bytes > 4:
        words = "the lower word of a float64" if kind.is_float else f"a word of {name}"
        raise ScheduleError(
            f"sentinel marks with a NaN what has not come, and {words} can be any bits",
            "use --proto ll or simple",
        )
    if loops > 1 or 2 * messages > slots:
        raise ScheduleError(
            f"{loops} loops of {messages} messages in a launch: sentinel clears slots between"
            f" launches, so that one may fill half of {slots} slots",
            "leave --slots, --chunk and --buffsize out, use more --max-memory, or --proto simple",
        )
