"""A sweep: lists of values for every axis and knob, and the cases of their product."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from collbench.backends import FAMILY
from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.dtypes import DtypeName, RedopName
from collbench.core.errors import UsageError
from collbench.core.host import has_nvidia_gpus
from collbench.core.knobs import KNOB, KNOBS, UNASKED, Knob, Placement, Value
from collbench.core.peers import BESIDE_GPUS, ON_CPUS, OWN_ALGOS, is_of_libraries
from collbench.core.together import groups_text, split
from collbench.core.uneven import CountsFile
from collbench.core.units import format_size
from collbench.planning.selection import algorithms_of

MAX_POINTS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Values of every axis and knob; a case for each combination.

    knobs: the values of knobs by name; one that is not there has its default, and algo then means
    every algorithm of each collective. counts_file: the unequal blocks, and with them the sizes, if
    not by skew. groups: of the ranks, or split, into what; mix: operations of a grouped launch, in
    the place of op and sizes. asked: the knobs whose values somebody gave, which libraries
    that have them are forced to.
    """

    sizes: tuple[int, ...]
    op: tuple[OpName, ...] = ("allreduce",)
    backend: tuple[str, ...] = ("cpu",)
    ranks: tuple[int, ...] = (2,)
    dtype: tuple[DtypeName, ...] = ("float32",)
    redop: tuple[RedopName, ...] = ("sum",)
    root: tuple[int, ...] = (0,)
    placement: tuple[Placement, ...] = ("out",)
    skew: tuple[str, ...] = ("",)
    counts_file: CountsFile | None = None
    groups: str = ""
    split: str = ""
    mix: str = ""
    knobs: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()

    def values(self, name: str) -> tuple[Value, ...]:
        """The values of a knob."""
        return self.knobs.get(name, (KNOB[name].default,))

    def own_values(self, knob: Knob) -> tuple[Value, ...]:
        """The values of a knob for what is no library."""
        return (knob.default,) if is_of_libraries(knob) else self.values(knob.name)

    @property
    def is_on_gpus(self) -> bool:
        """Whether the buffers of libraries that can have them in GPU memory are there: a backend
        runs on GPUs, and where there are none, no other would measure the CPUs.
        """
        if not any(FAMILY.load(name).is_gpu for name in self.backend):
            return False
        return not set(ON_CPUS) & set(self.backend) or has_nvidia_gpus()


def backend_names() -> tuple[str, ...]:
    """What a sweep may run on, sorted. Imports none of them."""
    return FAMILY.names()


def kernel_name(file: str) -> str:
    """The backend that is somebody's kernel in a file. Raises UsageError."""
    from collbench.backends.kernel.backend import add

    return add(file)


def served(algo: Value, op: OpName) -> Value:
    """The algorithm, or auto where it does not serve the collective."""
    return algo if algo in algorithms_of(op) else "auto"


def sizes_between(first: int, last: int, *, factor: float = 0, step: int = 0) -> tuple[int, ...]:
    """Sizes from first to last, each `factor` times or `step` more than the one before. Raises
    UsageError.

    >>> sizes_between(8, 100, factor=2), sizes_between(8, 20, step=6)
    ((8, 16, 32, 64), (8, 14, 20))
    """
    if first <= 0:
        raise UsageError(f"the smallest size is {first}", "give at least one byte with -b")
    if first > last:
        raise UsageError(
            f"the smallest size {format_size(first)} is above the largest {format_size(last)}",
            "give -b and -e in order",
        )
    if step <= 0 and factor <= 1:
        raise UsageError(
            f"the factor between sizes is {factor:g}",
            "give -f above 1, or an additive step with -i",
        )
    if step > 0:
        number = (last - first) // step + 1
    else:
        # below `dense` a factor leads to every whole number, above it to ever fewer
        dense = min(max(first, 1 / (factor - 1)), last)
        number = int(dense - first + math.log(last / dense) / math.log(factor)) + 1
    if number > MAX_POINTS:
        raise UsageError(
            f"about {number} sizes from {format_size(first)} to {format_size(last)}",
            f"at most {MAX_POINTS} points: give a larger "
            + ("step with -i" if step > 0 else "factor (-f 4, 1K:1M:x4)"),
        )
    if step > 0:
        return tuple(range(first, last + 1, step))
    sizes = [first]
    size = float(first)
    while size <= last:
        if int(size) > sizes[-1]:
            sizes.append(int(size))
        # as often as the next whole number needs: a factor close to 1 would need years
        size *= factor ** max(1, int(math.log((sizes[-1] + 1) / size) / math.log(factor)))
    return tuple(sizes)


# Of a library, the knobs that it can be forced to, each with the values that it has; none named:
# any number.
Forcible = Mapping[str, tuple[str, ...]]


def cases(sweep: Sweep, peers: Mapping[str, Forcible], *, has_hosts: bool = True) -> list[Case]:
    """All cases, each once. Those of one size are together, so that what is compared is measured
    close in time.

    Backends in `peers` choose their own algorithm: they are asked once for every problem, not for
    every algorithm and knob. The knobs in sweep.asked that a peer can be forced to add a case for
    each combination of their values. Without several hosts, algorithms that need them are left out
    unless they are named. Raises UsageError if there are too many cases.
    """
    number = _count(sweep, peers, has_hosts)
    if number > MAX_POINTS:
        raise UsageError(
            f"{number} points: {len(sweep.sizes)} sizes, {number // len(sweep.sizes)} of each",
            f"at most {MAX_POINTS}: give fewer --sizes (a larger -f or -i) or fewer other values",
        )
    return list(dict.fromkeys(_cases(sweep, peers, has_hosts)))


def _count(sweep: Sweep, peers: Mapping[str, Forcible], has_hosts: bool) -> int:
    """The combinations of values that mean something, of which some may still be the same case."""
    others = math.prod(len(sweep.own_values(one)) for one in KNOBS if one.name != "algo")
    number = 0
    for op in sweep.op:
        what = collective(op)
        problems = len(sweep.redop) if what.is_reduction else 1
        problems *= len(sweep.root) if what.is_rooted else 1
        problems *= len(sweep.skew) if what.uneven_of else 1
        for backend in sweep.backend:
            number += problems * (
                sum(1 for _ in _of_library(sweep, backend, op, peers[backend]))
                if backend in peers
                else others * len(_algorithms(sweep, op, has_hosts))
            )
    axes = sweep.ranks, sweep.dtype, sweep.placement, sweep.sizes
    return number * math.prod(map(len, axes))


def _algorithms(sweep: Sweep, op: OpName, has_hosts: bool) -> tuple[Value, ...]:
    if asked := sweep.knobs.get("algo"):
        return asked
    return ("auto",) if sweep.mix else algorithms_of(op, has_hosts=has_hosts)


def _cases(sweep: Sweep, peers: Mapping[str, Forcible], has_hosts: bool) -> Iterator[Case]:
    outer = product(
        *(sweep.ranks, sweep.op, sweep.dtype, sweep.redop, sweep.root, sweep.placement),
        *(sweep.skew, sweep.sizes),
    )
    for ranks, op, dtype, redop, root, placement, skew, size in outer:
        algos = _algorithms(sweep, op, has_hosts)
        groups = groups_text(split(sweep.split, ranks)) if sweep.split else sweep.groups
        for backend in sweep.backend:
            ours = product(
                *(algos if one.name == "algo" else sweep.own_values(one) for one in KNOBS)
            )
            for chosen in (
                _of_library(sweep, backend, op, peers[backend]) if backend in peers else ours
            ):
                knobs = {one.name: value for one, value in zip(KNOBS, chosen, strict=True)}
                yield Case(
                    op=op,
                    backend=backend,
                    dtype=dtype,
                    redop=redop,
                    root=root,
                    placement=placement,
                    skew=skew,
                    groups=groups,
                    mix=sweep.mix,
                    ranks=ranks,
                    size_bytes=size,
                    counts_file=sweep.counts_file,
                    **knobs,  # type: ignore[arg-type]  # each of its knob's type: the table says so
                ).rounded()


def _of_library(
    sweep: Sweep, backend: str, op: OpName, forcible: Forcible
) -> Iterator[tuple[Value, ...]]:
    """The values of all knobs for a library: first its own choice on each kind of user buffers that
    it tells apart, or by each algorithm of its own, where none of them is named; then every
    combination of the values that it was asked for and has.
    """
    least = dict(UNASKED)
    if backend in BESIDE_GPUS and sweep.is_on_gpus:
        least["buffers"] = "gpu"
    for buffers in sweep.values("buffers") if "buffers" in forcible else (least["buffers"],):
        yield tuple({**least, "buffers": buffers}.values())
    own = OWN_ALGOS.get(backend, {})
    if not own.keys() & set(sweep.values("algo")):
        for algo in (algo for algo, ops in own.items() if op in ops):
            yield tuple({**least, "algo": algo}.values())
    values: list[list[Value]] = []
    for name, unasked in least.items():
        is_asked = name in forcible and name in sweep.asked
        known = ("auto", *forcible.get(name, ()))
        values.append(
            [
                unasked if value == "auto" else value
                for value in sweep.values(name)
                if value in known or not known[1:]
            ]
            if is_asked
            else [unasked]
        )
    yield from product(*values)
