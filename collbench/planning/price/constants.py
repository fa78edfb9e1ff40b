"""The constants of a machine that price events: those of CPU cores in the table [cpu] of a machine
file, those of GPUs in [gpu].

A user's own machine files (`collbench tune --model` writes them) come before the shipped ones. The
rates of links are no constants: they are the topology's.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

from collbench.core import catalog
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.files import user_folder
from collbench.core.options import DEFAULT_MACHINE, MAX_SETS
from collbench.planning.protocols import FAMILY as PROTOCOLS

REFERENCE = "h200x4-vm"  # whose constants a machine has that has none of its own
# what the shipped constants were fitted to, or hold for as well (docs/results/predictions.md)
_FITTED_TO = {"gpu": ("H200", "H100"), "cpu": ("AMD EPYC",)}
# A machine file has the constants of these. A protocol that it lacks costs what the one of them
# does whose messages may take several slots, or may not, as its own.
CPU_KINDS = ("simple", "ll")
GPU_KINDS = (*CPU_KINDS, "ce")
KIND_OF = {"sentinel": "ll128"}  # protocols with the constants of another, whatever a file says
FULL_THREADS = 512  # of a CTA that a constant is for
WAYS = ("nvlink", "pcie", "net")  # that a message can take


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCosts:
    """What messages of a protocol, or of copy engines, cost a CTA or a core.

    step_us: a step without its bytes. take_us, post_us: to take and to hand on a message. read_gbs,
    write_gbs: of local memory; send_gbs: of a slot or a peer's memory.
    """

    step_us: float
    take_us: float
    post_us: float
    read_gbs: float
    write_gbs: float
    send_gbs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKindCosts(KindCosts):
    """hop_us: until a peer over NVLink sees what was stored. link_share: of the usable rate of a
    link that its bytes reach, those of flags included. thread_power: the rates are those of a CTA
    of 512 threads; one of fewer has that power of its share of them; default 0.
    """

    hop_us: float
    link_share: float
    thread_power: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCosts:
    """cores: more ranks than these share cores. launch_us: of a rank, to begin a launch. hop_us:
    until a waiting rank sees a flag; switch_us: the same where ranks share cores. memory_gbs: of
    all cores together.
    """

    name: str
    cores: int
    launch_us: float
    hop_us: float
    switch_us: float
    memory_gbs: float
    kinds: Mapping[str, KindCosts]

    def crowd(self, n: int) -> int:
        """Ranks on the fullest core."""
        return -(-n // self.cores)

    def hop_s(self, n: int) -> float:
        """Seconds until a flag is seen."""
        return (self.switch_us if n > self.cores else self.hop_us) * 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCosts:
    """launch_us: of a launch with one CTA; cta_us: of each further one. cold_us: what a launch
    takes longer whose data is in no cache, default 0; cache_mib: of a GPU's L2 cache, default 50.
    pdl_us: what a launch saves that takes its place while the one before it ends. pull_share: what
    loads from a peer reach of the rate of stores. memory_gbs: of a GPU's memory, read and written.
    pcie_hops: how many times the hop over NVLink one over PCIe takes; net_hops: how many times a
    whole message over NVLink one over the network takes.
    """

    name: str
    launch_us: float
    cta_us: float
    pdl_us: float
    pull_share: float
    memory_gbs: float
    pcie_hops: float
    net_hops: float
    kinds: Mapping[str, GpuKindCosts]
    cold_us: float = 0.0
    cache_mib: float = 50.0

    def is_cold(self, set_bytes: float) -> bool:
        """Whether launches find their data in no cache: they take sets of so many bytes in turn."""
        return MAX_SETS * set_bytes >= self.cache_mib * 2**20

    def hop_us(self, kind: GpuKindCosts, way: str) -> float:
        """Until a peer sees what was stored, over one of WAYS."""
        if way == "net":
            own = kind.step_us + kind.take_us + kind.post_us
            return self.net_hops * (kind.hop_us + own) - own
        return kind.hop_us * (self.pcie_hops if way == "pcie" else 1.0)


Costs = TypeVar("Costs", bound=CpuCosts | GpuCosts)
_LEAST_NUMBER, _MOST_NUMBER = 1e-6, 1e9
_MOST = {"thread_power": 2.0}  # of numbers with a bound of their own
_MAY_BE_ZERO = (
    *("launch_us", "cta_us", "cold_us", "pdl_us"),
    *("step_us", "take_us", "post_us", "thread_power"),
)


@lru_cache(maxsize=64)
def cpu_costs(machine: str = DEFAULT_MACHINE) -> CpuCosts:
    """The constants of a machine's cores. Raises UsageError if the file has none, or if one is
    missing, unknown or not positive.

    >>> cpu_costs("cpu-2").cores
    2
    """
    profile = catalog.load("machines", machine)
    if not isinstance(profile.get("cpu"), dict):
        links = " it describes the links of the machine, but" if "topology" in profile else ""
        raise UsageError(
            f"machine profile {machine} has no [cpu]:{links} it does not say what a step of a"
            " schedule costs",
            f"add: {', '.join(sorted(_numbers_of(CpuCosts)))}",
        )
    costs = _costs(machine, "cpu", profile["cpu"], CpuCosts, CPU_KINDS, KindCosts)
    if costs.cores != int(costs.cores):
        raise UsageError(
            f"machine profile {machine}: [cpu] cores = {costs.cores} is no whole number"
        )
    return replace(costs, cores=int(costs.cores))


@lru_cache(maxsize=64)
def gpu_costs(machine: str = REFERENCE) -> GpuCosts:
    """The constants of a machine's GPUs, or of the reference machine if its file has none. Raises
    UsageError for a wrong file.

    >>> gpu_costs("dgx-1").kinds == gpu_costs("h200x4-vm").kinds
    True
    """
    is_profile = machine in catalog.names("machines") or machine.endswith(".toml")
    table = catalog.load("machines", machine).get("gpu") if is_profile else None
    if table is None:
        return replace(gpu_costs(REFERENCE), name=f"{REFERENCE}, as {machine} has none")
    return _costs(machine, "gpu", table, GpuCosts, GPU_KINDS, GpuKindCosts)


def own_file(kind: str, model: str) -> Path:
    """Where `collbench tune --model` keeps the constants of CPUs or GPUs of that name. Raises
    UnavailableError if there is no home.
    """
    words = re.sub(r"[^a-z0-9]+", "-", f"{kind} {model}".lower()).strip("-")
    try:
        return user_folder("machines") / f"tuned-{words[:80]}.toml"
    except RuntimeError:
        raise UnavailableError("there is no home folder to keep constants in", "set HOME") from None


def costs_here(kind: Literal["cpu", "gpu"], model: str) -> str:
    """The machine whose constants CPUs or GPUs of that name have: their own file, if
    `collbench tune --model` wrote one, else the one that is shipped for their kind.
    """
    with suppress(UnavailableError):
        file = own_file(kind, model)
        if file.is_file():
            return str(file)
    return DEFAULT_MACHINE if kind == "cpu" else REFERENCE


def are_borrowed(kind: Literal["cpu", "gpu"], model: str) -> bool:
    """Whether CPUs or GPUs of that name have to take constants that were fitted to others.

    >>> are_borrowed("gpu", "NVIDIA H200"), are_borrowed("gpu", "Tesla V100-SXM2-16GB")
    (False, True)
    """
    is_shipped = costs_here(kind, model) in (DEFAULT_MACHINE, REFERENCE)
    return is_shipped and not is_fitted_to(model, kind)


def is_fitted_to(model: str, kind: Literal["cpu", "gpu"] = "gpu") -> bool:
    """Whether the shipped constants hold for CPUs or GPUs of that name."""
    return any(name in model for name in _FITTED_TO[kind])


def _numbers_of(costs: type) -> set[str]:
    """The names of the numbers that a class of constants has."""
    return {field.name for field in fields(costs)} - {"name", "kinds"}


def _costs(
    machine: str,
    section: str,
    table: object,
    costs: type[Costs],
    kinds: tuple[str, ...],
    of_kind: type[KindCosts],
) -> Costs:
    """The constants of a section and of its kinds."""
    if not isinstance(table, dict) or not isinstance(table.get("kinds"), dict):
        raise UsageError(
            f"machine profile {machine}: [{section}] is no table with [{section}.kinds]"
        )
    source = table.get("source")
    if not isinstance(source, str) or not source.strip():
        raise UsageError(
            f"machine profile {machine}: [{section}] has no source: what gave its numbers",
            'add source = "..."',
        )
    known = {*kinds, *PROTOCOLS}
    if not set(kinds) <= set(table["kinds"]) <= known:
        raise UsageError(
            f"machine profile {machine}: [{section}.kinds] must have {', '.join(kinds)}, and may"
            f" have {', '.join(sorted(known - set(kinds)))}"
        )
    of_kinds = {
        kind: of_kind(**_numbers(machine, f"{section}.kinds.{kind}", own, of_kind))
        for kind, own in table["kinds"].items()
    }
    for proto in PROTOCOLS:
        like = next(one for one in kinds if _has_slices(one) == _has_slices(proto))
        of_kinds.setdefault(proto, of_kinds[like])
    of_kinds |= {proto: of_kinds[kind] for proto, kind in KIND_OF.items()}
    own = {key: value for key, value in table.items() if key not in ("kinds", "source")}
    numbers = _numbers(machine, section, own, costs)
    return costs(name=machine, kinds=of_kinds, **numbers)  # type: ignore[arg-type]  # all are numbers


def _has_slices(proto: str) -> bool:
    return bool(PROTOCOLS.load(proto).HAS_SLICES)


def _numbers(machine: str, section: str, table: object, costs: type) -> dict[str, float]:
    """The numbers of a section, which are those of the class; one with a default may be missing."""
    wanted = _numbers_of(costs)
    needed = wanted - {field.name for field in fields(costs) if field.default is not MISSING}
    place = f"machine profile {machine}: [{section}]"
    if not isinstance(table, dict) or not needed <= set(table) <= wanted:
        has = set(table) if isinstance(table, dict) else set()
        wrong = [f"lacks {name}" for name in sorted(needed - has)]
        wrong += [f"has {name}" for name in sorted(has - wanted)]
        raise UsageError(
            f"{place} {', '.join(wrong)}",
            f"it must have {', '.join(sorted(needed))}"
            + (f", and may have {', '.join(sorted(wanted - needed))}" if wanted - needed else ""),
        )
    for key, value in table.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_zero = is_number and value == 0 and key in _MAY_BE_ZERO
        most = _MOST.get(key, _MOST_NUMBER)
        if not is_number or not (_LEAST_NUMBER <= value <= most or is_zero):
            zero = "neither 0 nor a" if key in _MAY_BE_ZERO else "no"
            raise UsageError(
                f"{place} {key} = {value!r} is {zero} number from {_LEAST_NUMBER:g} to {most:g}"
            )
    return {key: float(value) for key, value in table.items()}


def costs_text(costs: CpuCosts | GpuCosts, source: str) -> str:
    """The tables of a machine file that give these constants."""
    section = "cpu" if isinstance(costs, CpuCosts) else "gpu"
    lines = [f"[{section}]", f"source = {json.dumps(source)}"]
    lines += [
        f"{field.name} = {_rounded(getattr(costs, field.name))}"
        for field in fields(costs)
        if field.name not in ("name", "kinds")
    ]
    for kind, own in costs.kinds.items():
        lines += ["", f"[{section}.kinds.{kind}]"]
        lines += [f"{field.name} = {_rounded(getattr(own, field.name))}" for field in fields(own)]
    return "\n".join(lines) + "\n"


def _rounded(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
