"""What hardware checks must not call a fault: what is unknown, and what looks odd and is right."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any

import pytest

from collbench.doctor.check import Evidence, find
from collbench.machine.discovery import Recording, recording
from collbench.machine.discovery.recording import Port
from tests.doctor.plants.error_counters import with_interface_errors, with_port_errors
from tests.doctor.plants.fabric import tray
from tests.doctor.plants.gpu_modes import with_all
from tests.doctor.plants.hosts_differ import hosts
from tests.doctor.plants.nic_state import swapped
from tests.doctor.plants.nvlinks import with_links, without_links
from tests.support.evidence import (
    GIB,
    MACHINES,
    awake,
    evidence,
    machine,
    under_load,
    with_gpu,
    with_ranks,
    with_system,
)

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


def cards_of_twelve_links() -> Recording:
    """H100 cards use 12 of 18 links: the others are never up."""
    host = HGX
    for index in range(8):
        host = with_links(host, index, *range(12, 18), state=0, is_active=False)
    return host


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("twelve of eighteen links", evidence(cards_of_twelve_links())),
        (
            "NvLinkDisable of a single GPU",
            evidence(
                with_system(
                    replace(
                        without_links(machine("h200_vm")),
                        gpus=without_links(machine("h200_vm")).gpus[:1],
                        pairs=(),
                        cuda=(0,),
                        pci=machine("h200_vm").pci[:2],
                    ),
                    driver_parameters={"NvLinkDisable": "1"},
                )
            ),
        ),
        ("NVLinks of an old recording", evidence(replace(without_links(HGX), pairs=()))),
        (
            "counters that stand still, or were set back",
            under_load(
                with_interface_errors(with_port_errors(HGX, 900), 900),
                after=lambda one: with_interface_errors(with_port_errors(one, 900), 2),
            ),
        ),
        (
            "an idle GPU beside the load",
            under_load(HGX, loaded=lambda one: with_gpu(one, 3, throttle_bits=1, sm_mhz=345)),
        ),
        (
            "a NIC beside GPUs in a flat virtual machine",
            evidence(
                replace(
                    machine("h200_vm"),
                    nics=(
                        replace(
                            machine("h200_vm").nics[0],
                            is_rdma=True,
                            ports=(Port(number=1, rate="400 Gb/sec (4X NDR)", state="4: ACTIVE"),),
                        ),
                    ),
                )
            ),
        ),
        (
            "hosts with unequal numbers of ranks",
            evidence(
                *(
                    with_ranks(
                        host, 2 + place, environment=lambda rank: {"NCCL_IB_HCA": f"mlx5_{rank}"}
                    )
                    for place, host in enumerate(hosts(2))
                )
            ),
        ),
        (
            "an H200 at rest",
            evidence(
                with_all(
                    machine("h200_vm"),
                    sm_mhz=345,
                    throttle_bits=0x1,
                    virtualization=1,
                    power_mw=76_782,
                    counters={"pcie_count_bad_tlp": 5, "pcie_count_naks_sent": 3},
                )
            ),
        ),
        (
            "others on a GPU that CUDA_VISIBLE_DEVICES hides",
            evidence(replace(with_gpu(machine("h200_vm"), 1, pids=(4711,)), cuda=(0,))),
        ),
        ("a rack without a fabric manager", evidence(tray("tray1"), tray("tray2"))),
        (
            "a virtual machine without one",
            evidence(with_system(machine("h200_vm"), has_fabric_manager=False)),
        ),
        ("a GPU for each rank", evidence(with_ranks(HGX, 8, cuda=lambda rank: (rank,)))),
        (
            "memory that firmware keeps",
            evidence(
                *(
                    with_system(one, memory_bytes=512 * GIB - (place << 30))
                    for place, one in enumerate(hosts())
                )
            ),
        ),
        (
            "variables by local rank",
            evidence(
                *(
                    with_ranks(
                        one,
                        2,
                        2 * place,
                        8,
                        environment=lambda rank: {"UCX_NET_DEVICES": f"mlx5_{rank}:1"},
                    )
                    for place, one in enumerate(hosts())
                )
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_looks_odd_and_is_right(name: str, wanted: Evidence) -> None:
    assert not found(wanted)


def test_a_numa_node_that_is_unknown_is_no_other_one() -> None:
    """GPUs that no source places are drawn at the first node, and their NICs are at the second."""
    pci = tuple(
        one if one.address in NICS else replace(one, numa_node=-1) for one in swapped(HGX).pci
    )
    gpus = tuple(replace(one, cpu_affinity=None) for one in HGX.gpus)
    assert not list(find(evidence(replace(swapped(HGX), pci=pci, gpus=gpus)), ["nic-state"]))


def test_a_port_of_unknown_rate_or_state_is_not_counted_as_absent() -> None:
    first, second = hosts(2)
    for unknown in (Port(number=1, state="4: ACTIVE"), Port(number=1, rate="400 Gb/sec (4X NDR)")):
        nics = (replace(second.nics[0], ports=(unknown,)), *second.nics[1:])
        assert not list(find(evidence(first, replace(second, nics=nics)), ["hosts-differ"]))
