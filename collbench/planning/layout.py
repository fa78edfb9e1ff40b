"""From a case to its plan: the schedule of its algorithm along rank orders, which messages of it
need no FIFO, and its proof with the slots and slices that the layout gives it.

    lay_out(problem, schedule, ...) -> Plan
"""

from dataclasses import replace
from functools import lru_cache

from collbench.core.case import Case, Problem
from collbench.core.collectives import OpName, collective
from collbench.core.errors import ScheduleError
from collbench.core.knobs import P2p
from collbench.core.units import exact_size, format_size
from collbench.core.world import World
from collbench.planning.plan import Domains, Kernel, Plan, label
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules import formats
from collbench.schedules.algorithms import FAMILY, needs_hosts
from collbench.schedules.ir import MAX_KEPT, Schedule, build
from collbench.schedules.passes import (
    braid,
    has_shared_cells,
    pull_zero_copy,
    reorder,
    rounds_of,
    widest_message,
)
from collbench.schedules.verify.check import Proof, check
from collbench.schedules.verify.proof import Place
from collbench.schedules.verify.state import has_clocks
from collbench.schedules.zero_copy import push_zero_copy

MAX_SLICES = 64  # a message cut finer than this is a mistake in the knobs, and slow to prove


@lru_cache(maxsize=MAX_KEPT)
def registered(op: OpName, algo: str, world: World) -> Schedule:
    """The schedule of a registered algorithm. Raises ScheduleError if it does not serve the
    collective.
    """
    serves = FAMILY.load(algo).SERVES
    if op not in serves:
        raise ScheduleError(f"{algo} does not serve {op}", f"it serves: {', '.join(serves)}")
    what = collective(op)
    together = world if what.is_rooted else replace(world, root=0)
    order = (
        (world.order or together.together(ends_at_root=what.is_reduction))
        if what.follows_order
        else ()
    )
    positions = replace(
        world, order=order, root=world.root if what.is_rooted else order[0] if order else 0
    ).positions()
    return reorder(build(op, algo, serves[op], positions), order)


@lru_cache(maxsize=MAX_KEPT)
def along(
    op: OpName,
    algo: str,
    n: int,
    root: int,
    orders: tuple[tuple[int, ...], ...],
    hosts: tuple[int, ...] = (),
) -> Schedule:
    """The schedule of an algorithm along rank orders: several at once, each with its part of the
    data, where the collective can be cut.

    hosts: of the ranks, as world.host_numbers counts them. Raises ScheduleError for an algorithm
    that needs several hosts where there is one.
    """
    if needs_hosts(algo) and not hosts:
        raise ScheduleError(
            f"{algo} needs ranks on several hosts, and they are on one",
            "take another algorithm, or start ranks on several hosts",
        )
    followed = orders if collective(op).is_interleaved else orders[:1]
    return braid(
        [
            registered(op, algo, World(n=n, root=root, order=order, hosts=hosts))
            for order in followed or ((),)
        ]
    )


def schedule_of(
    case: Case, algo: str, orders: tuple[tuple[int, ...], ...], hosts: tuple[int, ...]
) -> Schedule:
    """The schedule of an algorithm for a case: that of a file, or a registered one along those rank
    orders, and over those hosts, that fit the case. Raises ScheduleError if it does not serve it.
    """
    file = None if algo in FAMILY else formats.loaded(algo)
    if file is None:
        fitting = tuple(order for order in orders if len(order) == case.ranks)
        op, hosts = collective(case.op).even, case.fitting(hosts)
        return along(op, algo, case.ranks, case.root, fitting, hosts)
    if (case.op, case.ranks, case.root) != (file.op, file.n, file.root):
        at_root = f", root {file.root}" if collective(file.op).is_rooted else ""
        raise ScheduleError(
            f"{algo} is {file.op} over {file.n} ranks{at_root}",
            f"use --op {file.op} --ranks {file.n}" + at_root.replace(", root", " --root"),
        )
    return file.schedule(in_place=case.in_place)


def proved(schedule: Schedule, slots: int, slices: int, in_place: bool) -> Proof:
    """The proof of a schedule as it will run, with slots to count on. Raises ScheduleError.

    More slots than were proved need no other proof: ranks only wait less, and slots that come back
    order no accesses (verify/clocks.py), so nothing else depends on how many there are.
    """
    known = _proofs(schedule, slices, in_place)
    if any(fewer <= slots for fewer in known):
        return known[min(known)]
    proof = check(schedule, slots=slots, slices=slices, in_place=in_place, with_one_slice=False)
    if slices > 1 and has_clocks(schedule):
        proved(schedule, slots, 1, in_place)
    return known.setdefault(slots, proof)


@lru_cache(maxsize=MAX_KEPT)
def _proofs(schedule: Schedule, slices: int, in_place: bool) -> dict[int, Proof]:
    """The proofs of a schedule so far, by slots."""
    return {}


def made_direct(schedule: Schedule, p2p: P2p, in_place: bool, is_single: bool = False) -> Schedule:
    """The schedule with every message that needs no FIFO pulled or pushed zero-copy.

    is_single: see passes.pull_zero_copy.
    """
    return _made_direct(schedule, p2p, in_place, is_single and p2p == "pull")


@lru_cache(maxsize=MAX_KEPT)
def _made_direct(schedule: Schedule, p2p: P2p, in_place: bool, is_single: bool) -> Schedule:
    return (
        pull_zero_copy(schedule, in_place=in_place, is_single=is_single)
        if p2p == "pull"
        else push_zero_copy(schedule, in_place=in_place)
    )


def lay_out(
    problem: Problem,
    schedule: Schedule,
    *,
    direct: bool = False,
    p2p: P2p = "pull",
    channels: int = 1,
    slots: int = 4,
    chunk_bytes: int = 1 << 17,
    slot_bytes: int = 0,
    slices: int = 1,
    kernel: Kernel | None = None,
    transport: str = "",
    proto: str = "simple",
    domains: Domains = (),
) -> "Plan":
    """Cut a problem's blocks into channels, loops, chunks and slices, and prove the schedule for
    that.

    slot_bytes 0 means as large as the widest message needs for that many slices; given, it decides
    how many there are. Raises ScheduleError if the knobs do not fit together or the schedule fails
    its proof with them.
    """
    of_problem = collective(problem.op).even, problem.n, problem.root
    if of_problem != (schedule.op, schedule.n, schedule.root):
        raise ScheduleError(
            f"a schedule for {schedule.op} over {schedule.n} ranks, root {schedule.root}, does not"
            f" fit {problem}"
        )
    unit = 16  # a multiple of every element's width
    chunk_bytes -= chunk_bytes % unit
    if chunk_bytes <= 0:
        raise ScheduleError(
            f"a chunk must hold at least {unit} bytes", f"use --chunk {unit} or more"
        )
    ready = made_direct(schedule, p2p, problem.in_place, bool(domains)) if direct else schedule
    # A message that is pulled zero-copy between domains has a slot at its receiver.
    widest = max(widest_message(ready), 1 if domains else 0)
    slot_bytes = slot_bytes if widest else 0
    piece_bytes = slot_bytes // widest if slot_bytes else -(-chunk_bytes // slices)
    piece_bytes = min(
        piece_bytes - piece_bytes % unit if slot_bytes else -(-piece_bytes // unit) * unit,
        chunk_bytes,
    )
    if piece_bytes <= 0:
        raise ScheduleError(
            f"a slot of {format_size(slot_bytes)} cannot carry {widest} chunks of a message",
            f"use --buffsize {exact_size(widest * unit * slots)} or more",
        )
    slices = -(-chunk_bytes // piece_bytes)
    if slices > MAX_SLICES:
        raise ScheduleError(
            f"a chunk of {format_size(chunk_bytes)} needs {slices} slices of"
            f" {format_size(piece_bytes)}",
            f"at most {MAX_SLICES}: use a larger --buffsize or a smaller --chunk",
        )
    if direct and domains:
        # Pulled zero-copy or not, a message between domains waits for a slot at its receiver.
        proved(schedule, slots, slices, problem.in_place)
    sure_slots = kernel.sure_slots(slots) if kernel else slots
    proof = proved(ready, sure_slots, slices, problem.in_place)
    if problem.counts:
        _refuse_other_blocks(ready, proof)
        _refuse_lost_order(problem, ready, kernel.proto if kernel else proto)
    plan = Plan(
        problem=problem,
        schedule=ready,
        proof=proof,
        direct=direct,
        p2p=p2p,
        channels=channels,
        slots=slots,
        slot_bytes=slot_bytes or widest * piece_bytes,
        chunk_bytes=chunk_bytes,
        piece_bytes=piece_bytes,
        widest=widest,
        kernel=kernel,
        transport=transport or ("p2p" if kernel else label(domains)),
        proto=kernel.proto if kernel else proto,
        domains=domains,
    )
    protocol = PROTOCOLS.load(plan.proto)
    if protocol.CLEARS:
        protocol.refuse(problem.dtype, plan.most_messages, plan.most_loops, slots)
    return plan


def _refuse_other_blocks(schedule: Schedule, proof: Proof) -> None:
    """Raise ScheduleError if a step keeps a block where another one lies in the end, or lay from
    the start, which may be shorter.
    """
    what = collective(schedule.op)
    for at, steps in rounds_of(schedule):
        wants = what.wants(schedule.n, schedule.root, at.program)
        own = {("out", want.out_block): (want.ranks[0], want.in_block) for want in wants}
        own |= {("in", block): (at.program, block) for block in range(schedule.chunks["in"])}
        for s, step in enumerate(steps):
            place = Place(*at, s)
            giver, chunk = proof.givers[place], proof.chunks[place]
            for operand in (*step.src, *((step.dst,) if step.dst else ())):
                known = own.get(operand, (giver, chunk))
                if (giver if not what.is_reduction else known[0], chunk) != known:
                    raise ScheduleError(
                        f"{schedule.op} {schedule.name}: rank {at.program}, round {at.round} keeps"
                        f" another block in {operand.buffer}[{operand.chunk}], which may be"
                        " shorter",
                        "use another --algo",
                    )


def _refuse_lost_order(problem: Problem, schedule: Schedule, proto: str) -> None:
    """Raise ScheduleError if messages whose data carries the flags order the accesses of two tracks
    to one chunk: an empty one, as of a block that ends before others do, is waited for by nobody.
    """
    if (
        proto != "simple"
        and len(set(problem.counts)) > 1
        and has_shared_cells(schedule, in_place=problem.in_place)
    ):
        raise ScheduleError(
            f"{schedule.op} {schedule.name}: tracks of a rank pass data to each other, and an empty"
            f" message of {proto} keeps no order between them",
            "use --proto simple",
        )
