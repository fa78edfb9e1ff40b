"""What-if: changes of a machine as people write them, such as nvlink=half, nic=2, latency.net=5us.

A rate or a latency is given anew, or as a share of what it is.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from collbench.pricing.fabric import NIC, NVLINK, SPINE
from collbench.pricing.prediction import CONSTANTS, LATENCIES, Machine
from collbench.util.errors import UsageError, did_you_mean

OVERSUBSCRIPTION, GPUS = "oversubscription", "gpus"
_LAUNCHES = ("launch", "cold")  # constants of a launch
KEYS = (*(name for name in CONSTANTS if name != SPINE), OVERSUBSCRIPTION, GPUS)
_WORDS = {"half": 0.5, "double": 2.0, "same": 1.0}
_VALUE = re.compile(r"(x?)(\d+(?:\.\d*)?|\.\d+)\s*([a-z/]*)", re.IGNORECASE | re.ASCII)
_GBS = {"GB/s": 1.0, "TB/s": 1000.0, "Gb": 0.125, "Gb/s": 0.125, "Gbit/s": 0.125}
_SECONDS = {"us": 1e-6, "ns": 1e-9, "ms": 1e-3}


def changed(machine: Machine, texts: Sequence[str]) -> Machine:
    """The machine with all changes, of which the texts are KEY=VALUE. Raises UsageError.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> from collbench.pricing.constants import gpu_costs
    >>> from collbench.pricing.fabric import fabric_of
    >>> fabric = fabric_of(machine_topology("hgx-h100"), "hgx-h100")
    >>> machine = Machine(fabric=fabric, costs=gpu_costs(), factors={}, seconds={})
    >>> other = changed(machine, ["nvlink=half", "nic=800Gb", "latency.net=5us"])
    >>> dict(other.factors), [f"{us:.0e}" for us in other.seconds.values()]
    ({'nvlink': 0.5, 'nic': 2.0}, ['5e-06'])
    """
    seen: set[str] = set()
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().lower()
        if not equals or key not in KEYS:
            raise UsageError(
                f"--set {text}: there is nothing called '{key}' to change",
                did_you_mean(key, KEYS) or f"one of {', '.join(KEYS)}, as in nvlink=half",
            )
        if key in seen:
            raise UsageError(f"--set {key} is given twice", "give it once")
        seen.add(key)
        machine = _changed(machine, key, value.strip())
    return machine


def _changed(machine: Machine, key: str, value: str) -> Machine:
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
        return replace(machine, fabric=machine.fabric.with_gpus(int(number)))
    if key == OVERSUBSCRIPTION and not unit and number >= 1:
        return _scaled(machine, key, number)
    if key == NIC and not unit:
        fabric = machine.fabric
        return _scaled(machine, key, number * fabric.width / max(1, fabric.nics))
    if key in LATENCIES and unit.lower() in _SECONDS:
        return replace(machine, seconds={**machine.seconds, key: number * _SECONDS[unit.lower()]})
    if key in _LAUNCHES and unit.lower() in _SECONDS:
        us = number * _SECONDS[unit.lower()] * 1e6
        costs = (
            replace(machine.costs, launch_us=us)
            if key == "launch"
            else replace(machine.costs, cold_us=us)
        )
        return replace(machine, costs=costs)
    gbs = number * _GBS.get(unit, 0.0)
    if key in (NIC, NVLINK, "memory") and gbs:
        return _scaled(machine, key, gbs / _gbs_of(machine, key))
    raise _wrong(key, value)


def _gbs_of(machine: Machine, key: str) -> float:
    """What a GPU has of a rate now."""
    if key == NIC:
        return machine.fabric.nic_gbs(0)
    return machine.fabric.nvlink_gbs if key == NVLINK else machine.costs.memory_gbs


def _scaled(machine: Machine, key: str, factor: float) -> Machine:
    if key == OVERSUBSCRIPTION:
        key, factor = SPINE, 1 / factor
    return replace(machine, factors={**machine.factors, key: factor})


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
