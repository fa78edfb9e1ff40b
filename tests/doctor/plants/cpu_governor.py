"""Cores that are held down."""

from tests.support.evidence import Plant, evidence, machine, with_system

PLANTS = [
    Plant(
        name=" and ".join(governors),
        evidence=evidence(with_system(machine("hgx_h100"), governors=governors)),
        words=", ".join(governors),
        severity=severity,
    )
    for governors, severity in (
        (("powersave",), "risk"),
        (("performance", "schedutil"), "risk"),
        (("ondemand",), "remark"),
    )
]
