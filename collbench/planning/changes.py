"""What-if: changes of a machine as people write them, such as nvlink=half, nic=2, latency.net=5us.

A rate or a latency is given anew, or as a share of what it is.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from collbench.core.errors import UsageError, did_you_mean
from collbench.planning.price.cluster import CONSTANTS, LATENCIES, Cluster
from collbench.planning.price.ways import NIC, NVLINK, SPINE

OVERSUBSCRIPTION, GPUS = "oversubscription", "gpus"
_LAUNCHES = ("launch", "cold")  # constants of a launch
KEYS = (*(name for name in CONSTANTS if name != SPINE), OVERSUBSCRIPTION, GPUS)
_WORDS = {"half": 0.5, "double": 2.0, "same": 1.0}
_VALUE = re.compile(r"(x?)(\d+(?:\.\d*)?|\.\d+)\s*([a-z/]*)", re.IGNORECASE | re.ASCII)
_GBS = {"GB/s": 1.0, "TB/s": 1000.0, "Gb": 0.125, "Gb/s": 0.125, "Gbit/s": 0.125}
_SECONDS = {"us": 1e-6, "ns": 1e-9, "ms": 1e-3}


def changed(machine: Cluster, texts: Sequence[str]) -> Cluster:
    """The machine with all changes, of which the texts are KEY=VALUE. Raises UsageError.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> from collbench.planning.price.constants import gpu_costs
    >>> from collbench.planning.price.cluster import cluster_of
    >>> machine = cluster_of(machine_topology("hgx-h100"), "hgx-h100", gpu_costs())
    >>> other = changed(machine, ["nvlink=half", "nic=800Gb", "latency.net=5us"])
    >>> dict(other.rates), [f"{us:.0e}" for us in other.network.seconds.values()]
    ({'nvlink': 0.5, 'nic': 2.0}, ['5e-06'])
    """
    seen: set[str] = set()
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().lower()
        if key not in KEYS:
            raise UsageError(
                f"--set {text}: there is nothing called '{key}' to change",
                did_you_mean(key, KEYS) or f"one of {', '.join(KEYS)}, as in nvlink=half",
            )
        if not equals:
            raise UsageError(f"--set {text} has no value", f"for example {key}=half")
        if key in seen:
            raise UsageError(f"--set {key} is given twice", "give it once")
        seen.add(key)
        machine = _changed(machine, key, value.strip())
    return machine


def _changed(machine: Cluster, key: str, value: str) -> Cluster:
    if value.lower() in _WORDS and key != GPUS:
        return _scaled(machine, key, _WORDS[value.lower()])
    match = _VALUE.fullmatch(value)
    number = float(match[2]) if match is not None else 0.0
    if match is None or not 0 < number < 1e9:
        raise _wrong(key, value)
    unit = match[3]
    if match[1] and not unit and key != GPUS:
        return _scaled(machine, key, number)
    if key == GPUS and not match[1] and not unit and number == int(number):
        return machine.with_gpus(int(number))
    if key == OVERSUBSCRIPTION and not unit and number >= 1:
        return _scaled(machine, key, number)
    if key == NIC and not unit:
        return machine.scaled(key, number * machine.width / max(1, machine.nics))
    if key in LATENCIES and unit.lower() in _SECONDS:
        way, seconds = key.removeprefix("latency."), number * _SECONDS[unit.lower()]
        given = {**machine.network.seconds, way: seconds}
        return replace(machine, network=replace(machine.network, seconds=given))
    if key in _LAUNCHES and unit.lower() in _SECONDS:
        us = number * _SECONDS[unit.lower()] * 1e6
        before = machine.costs
        after = replace(before, launch_us=us) if key == "launch" else replace(before, cold_us=us)
        return replace(machine, costs=after)
    gbs = number * _GBS.get(unit, 0.0)
    if key in (NIC, NVLINK, "memory") and gbs:
        return _scaled(machine, key, gbs / _gbs_of(machine, key))
    raise _wrong(key, value)


def _gbs_of(machine: Cluster, key: str) -> float:
    """What a GPU has of a rate now."""
    if key == NIC:
        return machine.nic_gbs()
    return machine.nvlink_gbs() if key == NVLINK else machine.costs.memory_gbs


def _scaled(machine: Cluster, key: str, factor: float) -> Cluster:
    if key == OVERSUBSCRIPTION:
        return machine.scaled(SPINE, 1 / factor)
    return machine.scaled(key, factor)


def _wrong(key: str, value: str) -> UsageError:
    examples = ["half", "x1.5"]
    if key in (NIC, NVLINK, "memory"):
        examples.append("450GB/s")
    if key == NIC:
        examples += ["400Gb", "2 (NICs a GPU)"]
    if key in (*LATENCIES, *_LAUNCHES):
        examples.append("5us")
    if key == GPUS:
        examples = ["4 (GPUs of a host)"]
    if key == OVERSUBSCRIPTION:
        examples = ["2 (2 to 1)"]
    return UsageError(
        f"--set {key}={value}: that is no value of it", f"for example {', '.join(examples)}"
    )
