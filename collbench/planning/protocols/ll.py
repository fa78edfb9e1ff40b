"""LL, low latency: 8 bytes on the wire are 4 of data and 4 of flag, so data needs no counter and no
fence. Half of the wire is payload.

Source: NCCL's protocol of that name.
"""

DATA_BYTES, FLAG_BYTES = 4, 4
LINE_BYTES, LINE_PAYLOAD = 16, 8  # a GPU thread moves two of them at a time


def payload_bytes(slot_bytes: int) -> int:
    """What a slot of that size carries.

    >>> payload_bytes(4096)
    2048
    """
    return slot_bytes // LINE_BYTES * LINE_PAYLOAD


def wire_bytes(payload: int) -> int:
    """What that much of one chunk takes in a slot.

    >>> wire_bytes(20)
    48
    """
    return -(-payload // LINE_PAYLOAD) * LINE_BYTES
