"""Containers of one machine."""

from dataclasses import replace

from tests.support.evidence import Plant, evidence, machine, with_ranks


def _apart(kind: str) -> Plant:
    """Each rank in a namespace of its own."""
    return Plant(
        name=f"a {kind} namespace for each rank",
        evidence=evidence(
            with_ranks(
                machine("hgx_h100"),
                8,
                namespaces=lambda rank: {kind: f"{kind}:[{4026532000 + rank}]"},
            )
        ),
        words=f"8 {kind} namespaces: rank 0, rank 1",
        severity={"ipc": "fault", "pid": "risk"}.get(kind, "remark"),
    )


PLANTS = [
    *map(_apart, ("ipc", "pid", "user", "net")),
    Plant(
        name="one machine under two names",
        evidence=evidence(
            with_ranks(replace(machine("hgx_h100", "a"), boot_id="c0ffee"), 8, 0, 16),
            with_ranks(replace(machine("hgx_h100", "b"), boot_id="c0ffee"), 8, 8, 16),
        ),
        subject="a and b",
        words="are one machine under two names",
    ),
]
