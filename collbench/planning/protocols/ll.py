"""LL, low latency: 8 bytes in a slot are 4 of data and 4 of flag, so data needs no counter and no
fence. Half of a slot is payload.

Source: NCCL's protocol of that name.
"""

HAS_SLICES = False  # whether a message may take several slots
NEEDS_NVLINK = False  # whether other links may tear what it stores
CLEARS = False  # whether the reader of a slot clears it: see sentinel.py
DATA_BYTES, FLAG_BYTES = 4, 4
LL_LINE_BYTES, LL_LINE_PAYLOAD = 16, 8  # what a GPU thread moves with one access


def payload_bytes(slot_bytes: int) -> int:
    """What a slot of that size carries.

    >>> payload_bytes(4096)
    2048
    """
    return slot_bytes // LL_LINE_BYTES * LL_LINE_PAYLOAD


def wire_bytes(payload: int) -> int:
    """What that much of one chunk takes in a slot.

    >>> wire_bytes(20)
    48
    """
    return -(-payload // LL_LINE_PAYLOAD) * LL_LINE_BYTES


stored_bytes = wire_bytes  # what a sender stores of it
