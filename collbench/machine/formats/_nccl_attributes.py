"""Names in NCCL's topology XML that reading and writing share."""

import re

CPU_ATTRIBUTES = ("host_hash", "numaid", "affinity", "arch", "vendor", "familyid", "modelid")
PCI_ATTRIBUTES = (
    "busid",
    "class",
    "vendor",
    "device",
    "subsystem_vendor",
    "subsystem_device",
    "link_speed",
    "link_width",
)
GPU_ATTRIBUTES = ("dev", "sm", "gcn", "arch", "cu", "mlopart", "rank", "gdr")
NET_ATTRIBUTES = (
    "name",
    "dev",
    "latency",
    "speed",
    "port",
    "guid",
    "maxconn",
    "gdr",
    "coll",
    "net",
    "gin",
    "keep",
)
NO_BUS = "fffffff:ff"  # how bus addresses begin that a virtual machine does not show


def bus_key(address: str) -> tuple[int, ...] | None:
    """A PCI address as numbers, so that 00000000:1A:00.0 is 0000:1a:00.0; None for what is none.

    >>> bus_key("00000000:1A:00.0"), bus_key("eth0")
    ((0, 26, 0, 0), None)
    """
    parts = re.fullmatch(
        r"([0-9a-f]{1,8}):([0-9a-f]{1,4}):([0-9a-f]{1,2})\.([0-9a-f])", address.strip().lower()
    )
    return tuple(int(part, 16) for part in parts.groups()) if parts else None
