"""Machines that are well, as evidence for checks, and ways to make one of them ill.

The hardware is that of fake_hosts; the state of the system, the GPUs and the processes is that of
healthy.toml, as a well kept machine reports it.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from collbench.core.codec import decode
from collbench.doctor.check import Evidence
from collbench.machine.discovery import Recording, record
from collbench.machine.discovery.recording import GpuCondition, ProcessRecord, SystemRecord
from tests.support import fake_hosts
from tests.support.fake_nvml import driver

GIB = 1 << 30
_HEALTHY = tomllib.loads(Path(__file__).with_name("healthy.toml").read_text())
CONDITION = decode(GpuCondition, _HEALTHY["condition"], "condition")
SYSTEM = decode(SystemRecord, _HEALTHY["system"], "system")
PROCESS = decode(ProcessRecord, _HEALTHY["process"], "process")
MACHINES = ("cpus", "dgx1v", "dgx_a100", "hgx_h100", "pcie_box", "h200_vm")


@cache
def machine(name: str, hostname: str = "") -> Recording:
    """One of MACHINES, well kept; with a name of its own if that is given."""
    if hostname:
        return replace(machine(name), hostname=hostname, boot_id=f"boot-of-{hostname}")
    with TemporaryDirectory() as folder:
        root = Path(folder)
        if name == "cpus":
            host = fake_hosts.Host(root, "cpus")
            host.cpu(fake_hosts.SAPPHIRE, {0: ("0-15", 0), 1: ("16-31", 1)})
            with driver(None):
                recording = record(root)
        else:
            with driver(getattr(fake_hosts, name)(root)):
                recording = record(root)
    gpus = tuple(replace(gpu, condition=CONDITION) for gpu in recording.gpus)
    # the NIC of pcie_box has half of its lanes
    pci = tuple(replace(one, current_link_width=one.max_link_width) for one in recording.pci)
    process = replace(PROCESS, cpulist=recording.cpus, cuda=recording.cuda)
    return replace(recording, gpus=gpus, pci=pci, system=SYSTEM, processes=(process,))


def with_gpu(recording: Recording, index: int, **values: Any) -> Recording:
    """A recording with values of one GPU changed; those of GpuCondition in its condition."""
    gpus = list(recording.gpus)
    state = {name: values.pop(name) for name in tuple(values) if hasattr(CONDITION, name)}
    condition = gpus[index].condition
    assert condition is not None
    gpus[index] = replace(gpus[index], condition=replace(condition, **state), **values)
    return replace(recording, gpus=tuple(gpus))


def with_system(recording: Recording, **values: Any) -> Recording:
    """A recording with values of its system changed."""
    assert recording.system is not None
    return replace(recording, system=replace(recording.system, **values))


def with_ranks(
    recording: Recording, n: int, first: int = 0, ranks: int = 0, **values: Any
) -> Recording:
    """A recording with n ranks; a function of a rank's number here gives it a value of its own."""
    (process, *_) = recording.processes

    def value(one: Any, number: int) -> Any:
        return one(number) if callable(one) else one

    return replace(
        recording,
        processes=tuple(
            replace(
                process,
                rank=first + number,
                ranks=ranks or n,
                **{name: value(one, number) for name, one in values.items()},
            )
            for number in range(n)
        ),
    )


def awake(recording: Recording) -> Recording:
    """A recording whose PCIe links are up, as under load."""
    return replace(
        recording,
        gpus=tuple(replace(one, pcie_generation=one.pcie_max_generation) for one in recording.gpus),
    )


def clean() -> Iterator[Evidence]:
    """Every machine at rest and under load, with one process and with a rank for every GPU; and two
    equal hosts.
    """
    machines: list[Sequence[Recording]] = [(machine(name),) for name in MACHINES]
    machines += [(with_ranks(machine(name), max(2, len(machine(name).gpus))),) for name in MACHINES]
    pair = [machine("hgx_h100", name) for name in ("node1", "node2")]
    machines.append([with_ranks(one, 8, 8 * place, 16) for place, one in enumerate(pair)])
    for hosts in map(tuple, machines):
        load = tuple(map(awake, hosts))
        yield Evidence(hosts=hosts)
        yield Evidence(hosts=hosts, loaded=load, after=load)
