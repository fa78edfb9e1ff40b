"""LL128: 128 bytes in a slot are 120 of data and 8 of flag. For links that deliver 128 bytes of a
warp whole and in order, as NVLink does.

A warp moves 16 lines at a time, 1920 bytes of payload. Source: NCCL's protocol of that name.
"""

HAS_SLICES = False  # whether a message may take several slots
NEEDS_NVLINK = True  # whether other links may tear what it stores
CLEARS = False  # whether the reader of a slot clears it: see sentinel.py
DATA_BYTES, FLAG_BYTES = 120, 8
WARP_BYTES, WARP_PAYLOAD = 2048, 1920


def payload_bytes(slot_bytes: int) -> int:
    """What a slot of that size carries.

    >>> payload_bytes(65536)
    61440
    """
    return slot_bytes // WARP_BYTES * WARP_PAYLOAD


def wire_bytes(payload: int) -> int:
    """What that much of one chunk takes in a slot: whole accesses of a warp.

    >>> wire_bytes(1921)
    4096
    """
    return -(-payload // WARP_PAYLOAD) * WARP_BYTES


def stored_bytes(payload: int) -> int:
    """What a sender stores of it: the last access may be half a warp's.

    >>> stored_bytes(1921), stored_bytes(3000)
    (3072, 4096)
    """
    return -(-payload // (WARP_PAYLOAD // 2)) * (WARP_BYTES // 2)
