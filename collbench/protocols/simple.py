"""Simple: a slot is all data; a counter beside the FIFO says how many slots are full. Any size, full rate, one hand-over a slice."""


def payload_bytes(slot_bytes: int) -> int:
    """Bytes of data that a slot of that many bytes carries.

    >>> payload_bytes(4096)
    4096
    """
    return slot_bytes
