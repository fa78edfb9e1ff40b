"""Containers of one machine."""

from dataclasses import replace

from tests.support.evidence import Plant, machine, planted, with_ranks


def _apart(kind: str) -> Plant:
    """Each rank in a namespace of its own."""
    return planted(
        f"a {kind} namespace for each rank",
        with_ranks(
            machine("hgx_h100"), 8, namespaces=lambda rank: {kind: f"{kind}:[{4026532000 + rank}]"}
        ),
    ).finds(
        "this host",
        f"8 {kind} namespaces: rank 0, rank 1",
        {"ipc": "fault", "pid": "risk"}.get(kind, "remark"),
    )


PLANTS = [
    *map(_apart, ("ipc", "pid", "user", "net")),
    planted(
        "one machine under two names",
        with_ranks(replace(machine("hgx_h100", "a"), boot_id="c0ffee"), 8, 0, 16),
        with_ranks(replace(machine("hgx_h100", "b"), boot_id="c0ffee"), 8, 8, 16),
    ).finds("a and b", "are one machine under two names"),
]
