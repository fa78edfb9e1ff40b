"""Plans to try on GPUs: every pair, form of a protocol, element type and reduction, on sizes and
layouts that fit badly; and every pair over messages of MPI.

How many there are is a matter of cost: each kernel that differs is about a second of compilation,
and a specialised one differs by schedule, rank, alignment and loops. So algorithms vary with
float32, types and reductions on two algorithms, random schedules on one layout each.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeVar

from collbench.core.case import Case, Problem
from collbench.core.collectives import OpName, collective
from collbench.core.dtypes import DTYPES, REDOPS
from collbench.core.errors import ScheduleError
from collbench.core.knobs import P2p
from collbench.core.world import World
from collbench.planning.layout import lay_out, registered
from collbench.planning.limits import Limits
from collbench.planning.plan import Domains, Kernel, Plan, label, most_messages
from collbench.planning.planner import resolve
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.together import Part, Together
from collbench.schedules.ir import Schedule, build
from tests.support.batteries import (
    PAIRS,
    UNEVEN_PAIRS,
    drawn_counts,
    placements,
    problem,
    uneven_problem,
    world_of,
)
from tests.support.random_schedules import draw_allreduce, draw_blocks
from tests.support.runs import ROOT
from tests.support.tables import cells_of, values_of

PartJob = TypeVar("PartJob", bound=Plan | Case)
Knobs = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way in which a protocol's kernel is built and data is moved; every `each`-th pair is
    tried with it, on so many shapes.
    """

    kernel: Kernel
    direct: bool = False
    p2p: P2p = "push"
    transport: str = "p2p"
    domains: Domains = ()
    shapes: int = 2
    each: int = 1

    @property
    def is_clustered(self) -> bool:
        """Whether its CTAs are in clusters of two where their number is even."""
        return self.transport != "ce" and not self.domains


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Elements of a block and how they are cut; slices are a message's, for the protocol that has
    more than one.
    """

    count: int
    channels: int = 1
    slots: int = 4
    chunk_bytes: int = 256
    slices: int = 1
    in_place: bool = False


FORMS: dict[str, tuple[Form, ...]] = {}
for _name, _kernel, _how in cells_of(__file__, "forms.tsv"):
    _form = Form(kernel=Kernel(**{"proto": _name, **values_of(_kernel)}), **values_of(_how))
    FORMS[_name] = (*FORMS.get(_name, ()), _form)
SHAPES = (
    # several loops, 12 bytes left over, blocks at odd places
    Shape(count=611, channels=3, slots=3, slices=2),
    Shape(count=1024, channels=2, chunk_bytes=4096, slots=16),  # all aligned, in one loop
    Shape(count=1),
    Shape(count=4099, chunk_bytes=6144, slots=5),  # pieces long enough for the unrolled parts
    Shape(count=3, in_place=True),  # fewer elements than ranks
    Shape(count=599, channels=2, slots=2, chunk_bytes=192, slices=3, in_place=True),
    Shape(count=40, channels=5, slots=8, in_place=True),  # channels that are empty
)
TURNS = (SHAPES[:2], (SHAPES[3], SHAPES[5]))  # by turns, for types and reductions
REDUCED: tuple[tuple[OpName, str], ...] = (("allreduce", "ring"), ("reducescatter", "direct"))
MOVED: tuple[OpName, str] = ("alltoall", "direct")
SCHEDULES = 12  # random ones
NET_KERNELS = (
    Kernel(proto="simple", threads=96, unroll=4),
    Kernel(proto="ll", threads=64, specialized=True),
    Kernel(proto="ll", threads=96, unroll=2),
)
PROTOS = tuple(FORMS)


def describe(plan: Plan) -> str:
    """A plan in a line."""
    what, kernel = plan.problem, plan.kernel
    assert kernel is not None
    how = f"{plan.transport}, {plan.p2p} {'direct' if plan.direct else 'FIFO'}"
    if kernel.proto != "simple":
        how = ("specialised" if kernel.specialized else "interpreted") + (
            "" if kernel.reload else ", no reload"
        )
    elements = f"blocks of {what.counts}" if what.counts else f"{what.block_count} elements a block"
    return (
        f"{what.op} {plan.schedule.name} {kernel.proto} ({how}) {what.dtype} {what.redop} root"
        f" {what.root}, {elements} {'in' if what.in_place else 'out of'}"
        f" place, {plan.channels} channels, {plan.slots} slots, chunks of {plan.chunk_bytes} in"
        f" {plan.slices}"
    )


def plan_of(what: Problem, schedule: Schedule, form: Form, shape: Shape) -> Plan | None:
    """The plan; None if the knobs do not fit together, as where messages that are read in place
    would deadlock. A reader that clears slots has one loop, and slots of two launches.
    """
    if PROTOCOLS.load(form.kernel.proto).CLEARS:
        slots, chunk_bytes = 2 * most_messages(schedule), what.block_bytes + 16
        shape = replace(shape, slots=slots, chunk_bytes=chunk_bytes)
    try:
        return lay_out(
            what,
            schedule,
            direct=form.direct,
            p2p=form.p2p,
            channels=shape.channels,
            slots=shape.slots,
            chunk_bytes=shape.chunk_bytes,
            slices=shape.slices if form.kernel.proto == "simple" else 1,
            kernel=replace(
                form.kernel, cluster=2 if shape.channels % 2 == 0 and form.is_clustered else 1
            ),
            transport=form.transport,
            domains=form.domains,
        )
    except ScheduleError:
        return None


def problem_on(shape: Shape, op: OpName, n: int, root: int = 0) -> Problem:
    """The problem of a collective on a shape, in place where the collective can be."""
    in_place = shape.in_place and True in placements(op)
    return problem(op, n, root=root, count=shape.count, in_place=in_place)


def every_pair(proto: str, n: int) -> list[Plan]:
    """Each algorithm of each collective in each form, float32, on some of the shapes: which ones
    changes from pair to pair.
    """
    plans = []
    for f, form in enumerate(FORMS[proto]):
        for p, (op, algo) in enumerate(PAIRS):
            if p % form.each:
                continue
            root = (p % n) if collective(op).is_rooted else 0
            schedule = registered(op, algo, world_of(algo, n, root))
            first = form.shapes * (p // form.each) + f
            shapes = [SHAPES[(first + k) % len(SHAPES)] for k in range(form.shapes)]
            plans += [
                plan_of(problem_on(shape, op, n, root), schedule, form, shape) for shape in shapes
            ]
    return kept(plans)


def every_type(proto: str, n: int) -> list[Plan]:
    """Each element type with each reduction, and moved without one, in the forms by turns, on two
    shapes.
    """
    plans, forms = [], [form for form in FORMS[proto] if form.each == 1]
    for d, dtype in enumerate(DTYPES):
        for o, redop in enumerate((*REDOPS, None)):
            op, algo = MOVED if redop is None else REDUCED[(d + o) % len(REDUCED)]
            schedule, form = registered(op, algo, World(n=n)), forms[(d + o) % len(forms)]
            for shape in TURNS[o % 2]:
                what = problem(
                    op,
                    n,
                    count=shape.count,
                    dtype=dtype,
                    redop=redop or "sum",
                    in_place=shape.in_place and redop is not None,
                )
                plans.append(plan_of(what, schedule, form, shape))
    return kept(plans)


def one_protocol(proto: str, n: int) -> list[Plan]:
    """All that is tried with a protocol."""
    return every_pair(proto, n) + every_type(proto, n)


def random_schedules(n: int) -> list[Schedule]:
    """Valid schedules over n ranks that nobody registered, always the same ones."""
    draws = (draw_allreduce, draw_blocks)
    return [draws[seed % len(draws)](random.Random(seed), n) for seed in range(SCHEDULES)]


def random_plans(n: int) -> list[Plan]:
    """Each random schedule in every form of every protocol."""
    plans = []
    for s, schedule in enumerate(random_schedules(n)):
        for p, proto in enumerate(PROTOS):
            shape = (*TURNS[0], *TURNS[1])[(s + p) % 4]
            what = problem_on(shape, schedule.op, n)
            plans += [plan_of(what, schedule, form, shape) for form in FORMS[proto]]
    return kept(plans)


def relay_plans(n: int) -> list[Plan]:
    """The example algorithm of CONTRIBUTING.md, from the first and the last root."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    relay = ModuleType("relay")
    exec(code, relay.__dict__)
    plans = []
    for root in (0, n - 1):
        schedule = build("broadcast", "relay", relay.SERVES["broadcast"], World(n=n, root=root))
        what = problem("broadcast", n, root=root, count=SHAPES[0].count)
        plans += [
            plan_of(what, schedule, form, SHAPES[0]) for forms in FORMS.values() for form in forms
        ]
    return kept(plans)


def uneven_counts(op: OpName, n: int, number: int, most: int) -> tuple[int, ...]:
    """Counts of unequal blocks by turns: drawn ones, of which several are 0; all for one rank, the
    last, or all from it; and multiples of 16 elements, which every type's vectors divide.
    """
    drawn = drawn_counts(op, n, random.Random(number), most)
    if number % 3 == 0:
        hot = (*(0,) * (n - 1), most)
        return hot * n if len(drawn) > n else hot
    return drawn if number % 3 == 1 else tuple(-(-count // 16) * 16 for count in drawn)


def uneven_problem_on(shape: Shape, op: OpName, n: int, number: int) -> Problem:
    """A problem of unequal blocks, the largest as large as the shape's; types and reductions by
    turns.
    """
    return uneven_problem(
        op,
        n,
        uneven_counts(op, n, number, max(shape.count, 5)),
        dtype=DTYPES[number % len(DTYPES)],
        redop=REDOPS[number % len(REDOPS)] if collective(op).is_reduction else "sum",
        in_place=shape.in_place and True in placements(op),
    )


def uneven_plans(n: int) -> list[Plan]:
    """Each algorithm of each collective of unequal blocks in each form of each protocol, on two
    shapes by turns.
    """
    plans, number = [], 0
    for form in (form for forms in FORMS.values() for form in forms):
        for op, algo in UNEVEN_PAIRS:
            schedule = registered(collective(op).even, algo, world_of(algo, n))
            for _ in range(2):
                shape = SHAPES[number % len(SHAPES)]
                what = uneven_problem_on(shape, op, n, number)
                plans.append(plan_of(what, schedule, form, shape))
                number += 1
    return kept(plans)


def net_plans(n: int) -> list[Plan]:
    """Each algorithm of each collective over messages, with each kernel, on one shape; alternately
    between all ranks, and between halves that reach each other's memory or share their host's.
    Those of unequal blocks take the kernels by turns.
    """
    every, halves = tuple(range(n)), halves_of(n)
    domains = [(every, "p2p"), *([(halves, "p2p"), (halves, "shm")] if n > 2 else [])]
    plans = []
    for k, kernel in enumerate(NET_KERNELS):
        for p, (op, algo) in enumerate(PAIRS):
            root = (p % n) if collective(op).is_rooted else 0
            shape, (of_ranks, inside) = (
                SHAPES[(p + k) % len(SHAPES)],
                domains[(p + k) % len(domains)],
            )
            form = Form(kernel=kernel, transport=label(of_ranks, inside), domains=of_ranks)
            schedule = registered(op, algo, world_of(algo, n, root))
            plans.append(plan_of(problem_on(shape, op, n, root), schedule, form, shape))
    for p, (op, algo) in enumerate(UNEVEN_PAIRS):
        kernel, shape = NET_KERNELS[p % len(NET_KERNELS)], SHAPES[p % len(SHAPES)]
        of_ranks, inside = domains[p % len(domains)]
        form = Form(kernel=kernel, transport=label(of_ranks, inside), domains=of_ranks)
        schedule = registered(collective(op).even, algo, world_of(algo, n))
        plans.append(plan_of(uneven_problem_on(shape, op, n, p), schedule, form, shape))
    return kept(plans)


def halves_of(n: int) -> tuple[int, ...]:
    """The half of each rank."""
    return tuple(2 * rank // n for rank in range(n))


def measured_plans(n: int) -> list[Plan]:
    """Plans as a sweep makes them, with the default knobs."""
    return [resolved(n, **knobs) for (knobs,) in measured("even", n)]


def measured(kind: str, n: int = 0) -> list[list[Knobs]]:
    """What is measured of a kind, of so many ranks: operations at once."""
    lines = [text for of, text in cells_of(__file__, "measured.tsv") if of == kind]
    return [list(map(values_of, text.format(last=n - 1).split(" + "))) for text in lines]


def special_plans(n: int) -> list[Plan]:
    """Plans of sentinel for data that has its marker, in every type that it serves."""
    ways: Sequence[tuple[OpName, str, str]] = (
        *(
            ("allreduce", algo, redop)
            for algo in ("oneshot", "twoshot")
            for redop in ("sum", "max")
        ),
        *((op, "direct", "sum") for op in ("allgather", "alltoall", "broadcast", "reducescatter")),
    )
    types = [dtype for dtype in DTYPES if "float" in dtype and dtype != "float64"]
    return [
        resolved(n, op=op, algo=algo, redop=redop, dtype=dtype, proto="sentinel", size_bytes=size)
        for op, algo, redop in ways
        for dtype in types
        if op not in ("allreduce", "reducescatter") or not dtype.startswith("float8")
        for size in (4096, 12_348 * n)
    ]


def uneven_measured_plans(n: int) -> list[Plan]:
    """Plans of unequal blocks as a sweep makes them, with the default knobs."""
    return [resolved(n, **knobs) for (knobs,) in measured("uneven", n)]


def net_measured_plans(n: int) -> list[Plan]:
    """Plans over messages as a sweep makes them, with the default knobs."""
    average: dict[str, Any] = {"op": "allreduce", "redop": "avg", "dtype": "bfloat16"}
    return [
        *(resolved(n, transport="net", **knobs) for (knobs,) in measured("net", n)),
        resolved(n, Limits(hosts=halves_of(n)), **average, size_bytes=4_000_002),
    ]


def jobs_at_once(n: int, job_of: Callable[[int, Knobs], PartJob]) -> list[list[Together[PartJob]]]:
    """What runs at once in a session each: one operation, and two, in halves of the ranks, in
    halves and across them, in all ranks twice, and in all ranks once. job_of: of so many ranks.
    """
    every, half = tuple(range(n)), n // 2
    rows = (every[:half], every[half:])
    columns = tuple((rank, rank + half) for rank in range(half))
    groups: list[tuple[tuple[int, ...], ...]] = [(every, every), (every,)]
    if n == 4:
        groups += [rows, (*rows, *columns)]

    def together(of_ranks: Sequence[tuple[int, ...]], knobs: Sequence[Knobs]) -> Together[PartJob]:
        parts = tuple(
            Part(
                job=job_of(len(ranks), one),
                ranks=ranks,
                size_bytes=one["size_bytes"],
                factor=1.0,
                group=group,
            )
            for one in knobs
            for group, ranks in enumerate(of_ranks)
        )
        return Together(n=n, parts=parts)

    return [
        [together(of_ranks, operations) for operations in jobs]
        for of_ranks in groups
        for jobs in (measured("one"), measured("two"))
        if len(of_ranks) * len(jobs[0]) > 1
    ]


def together_jobs(n: int) -> list[list[Together[Plan]]]:
    """Plans at once, of two channels each."""
    return jobs_at_once(n, lambda ranks, knobs: resolved(ranks, channels=2, **knobs))


def resolved(n: int, limits: Limits | None = None, /, **knobs: Any) -> Plan:
    """The plan of a case of n ranks with those knobs."""
    return resolve(Case(backend="cuda", ranks=n, **knobs).rounded(), limits or Limits()).plan


def through_fifos(plan: Plan) -> Plan:
    """The same steps on the same chunks with nothing pushed past a FIFO, which the reference cannot
    do; what comes out is the same bit for bit.
    """
    if not plan.schedule.pushed:
        return plan
    schedule = replace(plan.schedule, pushed={}, ready={})
    return lay_out(
        plan.problem,
        schedule,
        channels=plan.channels,
        slots=plan.slots + 8,
        chunk_bytes=plan.chunk_bytes,
        slices=plan.slices,
    )


def kept(plans: Sequence[Plan | None]) -> list[Plan]:
    """Those that could be laid out."""
    return [plan for plan in plans if plan is not None]
