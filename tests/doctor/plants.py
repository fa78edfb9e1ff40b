"""Machines with one thing changed, of plants.toml: faults, and what looks odd and is right.

A host is one of MACHINES, or of the file's own, with changes to its recording by path: names of
fields, and of the things in a list (a NIC's name, a PCI address, the number of a link or port, the
GPUs of a pair, or the place) or patterns of them. "each" changes them one by one, "+" adds some. A
value of "none" is unknown; a thing that is "none" is gone.
"""

import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any, get_type_hints

from collbench.bench.pairs import RankPair
from collbench.core.codec import decode
from collbench.doctor.check import Evidence, LeftOut
from collbench.machine.discovery import Recording
from collbench.machine.discovery.recording import Nic, NvLink, PairRecord, PciDevice, Port
from tests.support.evidence import MACHINES, awake, machine, with_ranks

FILE = tomllib.loads(Path(__file__).with_name("plants.toml").read_text())
_hints = cache(get_type_hints)


@dataclass(frozen=True)
class Plant:
    """A fault in an otherwise clean machine, and the finding of it: words are a part of what it
    says was seen.
    """

    name: str
    evidence: Evidence
    subject: str
    words: str
    severity: str = "risk"


def name_of(thing: object, place: int) -> str:
    """What a path calls a thing in a list."""
    match thing:
        case Nic():
            return thing.name
        case PciDevice():
            return thing.address
        case NvLink() | Port():
            return str(thing.number)
        case PairRecord():
            return f"{thing.a}-{thing.b}"
    return str(place)


def changed(value: Any, path: Sequence[str], new: Any) -> Any:  # Any: a part of a recording
    """A part of a recording with another value at a path below it."""
    first, *rest = path
    if isinstance(value, Mapping):
        return {**value, first: new}
    if not isinstance(value, tuple):
        kind: Any = type(value)
        below = getattr(value, first)
        after = changed(below, rest, new) if rest else decode(_hints(kind)[first], new, first)
        return replace(value, **{first: after})
    if first == "+":
        return (*value, *(decode(type(value[0]), one, first) for one in new))
    if first == "each":
        return tuple(changed(one, rest, own) for one, own in zip(value, new, strict=True))
    patterns = first.split(",")
    named = [
        (one, any(fnmatch(name_of(one, place), pattern) for pattern in patterns))
        for place, one in enumerate(value)
    ]
    if rest:
        return tuple(changed(one, rest, new) if is_meant else one for one, is_meant in named)
    if new is None:
        return tuple(one for one, is_meant in named if not is_meant)
    return tuple(decode(type(one), new, first) if is_meant else one for one, is_meant in named)


def ill(recording: Recording, changes: Mapping[str, Any]) -> Recording:
    """A recording with changes by path."""
    for path, new in changes.items():
        recording = changed(recording, path.split("/"), None if new == "none" else new)
    return recording


def host(of: str, name: str = "", ranks: Sequence[int] = (), **changes: Any) -> Recording:
    """A machine with a name of its own, with n ranks from the first of all, and changes."""
    if of in MACHINES:
        recording = machine(of, name)
    else:
        base = dict(FILE["machines"][of])
        recording = host(base.pop("of"), name, **base)
    return ill(with_ranks(recording, *ranks) if ranks else recording, changes)


def evidence_of(plant: Mapping[str, Any]) -> Evidence:
    """The evidence of hosts, of one of them under load and after it if that changes something, and
    of what is measured there.
    """
    hosts = tuple(host(**one) for one in plant["hosts"])
    measured = {key: make(plant[key]) for key, make in MEASURED.items() if key in plant}
    if plant.keys() & {"loaded", "after"}:
        measured["loaded"] = tuple(ill(awake(one), plant.get("loaded", {})) for one in hosts)
        measured["after"] = tuple(ill(one, plant.get("after", {})) for one in hosts)
    return Evidence(hosts=hosts, **measured)


def plants_of(check: str) -> list[Plant]:
    """The faults of a check."""
    return [Plant(one["name"], evidence_of(one), *one["finds"]) for one in FILE[check]]


def left_out(slow: int, factor: float, n: int = 4) -> tuple[LeftOut, ...]:
    """Bus bandwidths with noise of one percent; without the slow GPU they are so much higher."""
    noise = random.Random(slow)
    rates = {missing: factor if missing == slow else 1.0 for missing in (None, *range(n))}
    return tuple(
        LeftOut(gpu=missing, busbw_gbs=tuple(300 * rate * noise.gauss(1, 0.01) for _ in range(7)))
        for missing, rate in rates.items()
    )


def pairs(
    slow: Mapping[str, float], others: float, by_host: float, n: int = 4
) -> tuple[RankPair, ...]:
    """All pairs of GPUs at a rate but some, such as "0 1" from 0 to 1, and through the host."""
    return tuple(
        RankPair(a=a, b=b, way=way, value=slow.get(f"{a} {b}", others) if is_near else by_host)
        for a, b in permutations(range(n), 2)
        for way, is_near in (("stores", True), ("host", False))
    )


def copies(rates: Mapping[str, float]) -> dict[int, float]:
    """Rates of eight GPUs, some of which have one of their own."""
    return {gpu: rates.get(str(gpu), rates["all"]) for gpu in range(8)}


MEASURED: dict[str, Callable[[Any], Any]] = {
    "alone": copies,
    "together": copies,
    "pairs": lambda given: pairs(**given),
    "left_out": lambda given: left_out(**given),
}
PLANTS = {check: plants_of(check) for check in FILE if check not in ("machines", "right")}
