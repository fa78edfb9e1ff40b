"""Cores that are held down."""

from tests.support.evidence import machine, planted, with_system

PLANTS = [
    planted(" and ".join(governors), with_system(machine("hgx_h100"), governors=governors)).finds(
        "this host", ", ".join(governors), severity
    )
    for governors, severity in (
        (("powersave",), "risk"),
        (("performance", "schedutil"), "risk"),
        (("ondemand",), "remark"),
    )
]
