"""What hardware checks must not call a fault: what is unknown, and what looks odd and is right."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any

import pytest

from collbench.doctor.check import Evidence, find
from collbench.machine.discovery import recording
from tests.doctor.plants import FILE, evidence_of, host, ill
from tests.support.evidence import MACHINES, awake, machine

HGX = machine("hgx_h100")
NICS = {nic.address for nic in HGX.nics[:2]}


def found(wanted: Evidence) -> list[str]:
    return [f"{one.check}: {one.seen}" for one in find(wanted) if one.severity != "remark"]


def hidden(value: Any, is_hidden: Callable[[Any, str], bool]) -> Any:
    """A copy of a part of a recording, in which the fields that are hidden are None."""
    if isinstance(value, tuple):
        return tuple(hidden(one, is_hidden) for one in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(
        value,
        **{
            one.name: None
            if one.default is None and is_hidden(value, one.name)
            else hidden(getattr(value, one.name), is_hidden)
            for one in fields(value)
        },
    )


OPTIONAL = [
    (owner, one.name)
    for owner in vars(recording).values()
    if isinstance(owner, type) and is_dataclass(owner)
    for one in fields(owner)
    if one.default is None
]


def test_what_is_unknown_is_no_finding() -> None:
    host = replace(
        HGX,
        gpus=HGX.gpus[:2],
        nics=HGX.nics[:2],
        cuda=(0, 1),
        pci=HGX.pci[:10],
        pairs=tuple(one for one in HGX.pairs if max(one.a, one.b) < 2),
    )
    assert len(OPTIONAL) > 100
    for owner, name in OPTIONAL:
        unknown = hidden(host, lambda one, of: isinstance(one, owner) and of == name)  # noqa: B023
        loaded = (awake(unknown),)
        assert not found(Evidence(hosts=(unknown,), loaded=loaded, after=loaded)), (owner, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
def test_clean_machines_of_which_little_is_known(seed: int) -> None:
    draw = Random(seed)
    for _ in range(50):
        name, share = draw.choice(MACHINES), draw.choice((0.01, 0.1, 0.4))
        host = hidden(machine(name), lambda _, of: of != "cuda" and draw.random() < share)  # noqa: B023
        loaded = (awake(host),)
        assert not found(Evidence(hosts=(host,), loaded=loaded, after=loaded))


@pytest.mark.parametrize("odd", FILE["right"], ids=lambda one: one["name"])
def test_what_looks_odd_and_is_right(odd: dict[str, Any]) -> None:
    assert not found(evidence_of(odd))


def test_a_numa_node_that_is_unknown_is_no_other_one() -> None:
    """GPUs that no source places are drawn at the first node, and their NICs are at the second."""
    (swapped,) = next(one for one in FILE["nic-state"] if one["name"] == "on the other socket")[
        "hosts"
    ]
    recording = host(**swapped)
    pci = tuple(one if one.address in NICS else replace(one, numa_node=-1) for one in recording.pci)
    recording = replace(recording, pci=pci)
    recording = ill(recording, {"gpus/*/cpu_affinity": "none"})
    assert not list(find(Evidence(hosts=(recording,)), ["nic-state"]))


def test_a_port_of_unknown_rate_or_state_is_not_counted_as_absent() -> None:
    for unknown in ("rate", "state"):
        first, second = (host("hgx_h100", name, (2, at, 4)) for name, at in (("a", 0), ("b", 2)))
        second = ill(second, {f"nics/mlx5_0/ports/*/{unknown}": "none"})
        assert not list(find(Evidence(hosts=(first, second)), ["hosts-differ"]))
