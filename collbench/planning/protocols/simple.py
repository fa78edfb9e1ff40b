"""Simple: data as it is, then a counter of the connection that announces it. All of a slot is
payload, and two flags travel per slice.
"""

HAS_SLICES = True  # whether a message may take several slots
NEEDS_NVLINK = False  # whether other links may tear what it stores
CLEARS = False  # whether the reader of a slot clears it: see sentinel.py


def payload_bytes(slot_bytes: int) -> int:
    """What a slot of that size carries.

    >>> payload_bytes(4096)
    4096
    """
    return slot_bytes


def wire_bytes(payload: int) -> int:
    """What that much of one chunk takes in a slot."""
    return payload


stored_bytes = wire_bytes  # what a sender stores of it
