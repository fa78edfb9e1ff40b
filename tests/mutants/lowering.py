"""Faults in what schedules become: in the actions that CPUs interpret, and in the programs of
kernels.

The check sees schedules only, so these are for the tests that compare data: the reference, and GPUs
made of NumPy arrays. In its one order of events the reference shows what is moved, and no wait.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import NamedTuple

from collbench.core.collectives import collective
from collbench.core.errors import ScheduleError
from collbench.core.knobs import P2p
from collbench.device.layout import pack_program
from collbench.device.program import DATA, DIVIDE, ROOM, SLOT, TAIL, DeviceStep, Program, lower
from collbench.planning.layout import lay_out
from collbench.planning.lowering import Action, Region, actors
from collbench.planning.plan import Kernel, Plan
from tests.mutants.judge import BROKEN, on_reference
from tests.mutants.schedules import Subject, plain
from tests.support.batteries import problem
from tests.support.device import Gpus, Run
from tests.support.structures import unpack

ORDERS = 6


class Found(NamedTuple):
    """A fault, and whether data showed it."""

    fault: str
    is_noticed: bool


def _plan(chance: Random, kernel: Kernel | None, p2p: P2p, *, direct: bool) -> Plan:
    """A plan of two loops and a short one, whose FIFOs are used more often than they have slots."""
    while True:
        subject: Subject = plain(chance)
        schedule = subject.schedule
        if schedule.n > 5:
            continue
        parts = schedule.chunks["in"] if collective(schedule.op).is_interleaved else 1
        what = problem(
            schedule.op,
            schedule.n,
            root=schedule.root,
            count=int(2.4 * parts * 16) + 1,
            redop="avg" if collective(schedule.op).is_reduction else "sum",
            in_place=subject.in_place,
        )
        try:
            return lay_out(
                what,
                schedule,
                direct=direct,
                p2p=p2p,
                slots=chance.choice((2, 3, 4)),
                chunk_bytes=64,
                slices=1 if kernel and kernel.proto != "simple" else chance.choice((1, 2)),
                kernel=kernel,
            )
        except ScheduleError:
            continue  # too few slots for this one


# --- actions


@dataclass(frozen=True, slots=True)
class ActionFault:
    """Which actions can have it, and what it makes of one."""

    name: str
    wanted: Callable[[Action], object]
    change: Callable[[Action, Plan], Action]


def _moved(regions: tuple[Region, ...], by: int) -> tuple[Region, ...]:
    """The first region, further on or, at the end of its memory, further back."""
    first = regions[0]
    offset = first.offset + by if first.offset < by else first.offset - by
    return (first._replace(offset=offset), *regions[1:])


def _slots_first(regions: tuple[Region, ...]) -> tuple[Region, ...]:
    return tuple(sorted(regions, key=lambda region: region.space != "slot"))


def _has_slot(regions: tuple[Region, ...]) -> bool:
    return any(region.space == "slot" for region in regions)


ACTION_FAULTS = (
    ActionFault("drop a signal of data", lambda a: a.post, lambda a, _: a._replace(post=())),
    ActionFault("drop a signal of room", lambda a: a.free, lambda a, _: a._replace(free=())),
    ActionFault(
        "read another slot",
        lambda a: a.operands and _has_slot(a.operands),
        lambda a, plan: a._replace(operands=_moved(_slots_first(a.operands), plan.slot_bytes)),
    ),
    ActionFault(
        "write another slot",
        lambda a: a.targets and _has_slot(a.targets),
        lambda a, plan: a._replace(targets=_moved(_slots_first(a.targets), plan.slot_bytes)),
    ),
    ActionFault(
        "read from another offset",
        lambda a: a.operands and a.targets and a.operands[0].size,
        lambda a, _: a._replace(operands=_moved(a.operands, 4)),
    ),
    ActionFault(
        "write to another offset",
        lambda a: a.targets and a.operands and a.operands[0].size,
        lambda a, _: a._replace(targets=_moved(a.targets, 4)),
    ),
    ActionFault(
        "leave out an operand",
        lambda a: len(a.operands) > 1 and a.operands[0].size,
        lambda a, _: a._replace(operands=a.operands[1:]),
    ),
    ActionFault(
        "leave out a target",
        lambda a: a.targets and a.operands[0].size,
        lambda a, _: a._replace(targets=a.targets[1:]),
    ),
    ActionFault(
        "divide where the sum is not complete, or not where it is",
        lambda a: len(a.operands) > 1 and a.operands[0].size,
        lambda a, _: a._replace(divide=not a.divide),
    ),
)


def action_mutant(chance: Random, number: int) -> Found:
    """A plan with one fault in one action, and what noticed it."""
    fault = ACTION_FAULTS[number % len(ACTION_FAULTS)]
    while True:
        plan = _plan(chance, None, "pull", direct=chance.random() < 0.4)
        rank = chance.randrange(plan.n)
        known = {r: actors(plan, r) for r in range(plan.n)}
        places = [
            (index, k)
            for index, actor in enumerate(known[rank])
            for k, action in enumerate(actor.actions)
            if fault.wanted(action)
        ]
        if places:
            break
    index, k = chance.choice(places)
    actor = known[rank][index]
    changed = [*actor.actions[:k], fault.change(actor.actions[k], plan), *actor.actions[k + 1 :]]
    known[rank][index] = actor._replace(actions=changed)
    return Found(fault.name, on_reference(plan, lambda _, rank: known[rank]) != "right")


# --- programs of kernels


def _drop(program: Program, chance: Random, *, is_wait: bool) -> Program | None:
    """A stage waits for, or says, one thing less."""
    first, count = (2, 3) if is_wait else (4, 5)
    found = [k for k, stage in enumerate(program.stages) if stage[count]]
    if not found:
        return None
    k = chance.choice(found)
    stage, marks = list(program.stages[k]), list(program.waits if is_wait else program.signals)
    last = stage[first] + stage[count] - 1
    dropped = chance.randrange(stage[first], last + 1)
    marks[dropped], marks[last] = marks[last], marks[dropped]
    stage[count] -= 1
    stages = (*program.stages[:k], tuple(stage), *program.stages[k + 1 :])
    return (
        replace(program, stages=stages, waits=tuple(marks))
        if is_wait
        else replace(program, stages=stages, signals=tuple(marks))
    )


def _say_early(program: Program, chance: Random) -> Program | None:
    """A stage says the first of what the next one should say."""
    found = [
        k
        for k in range(1, len(program.stages))
        if program.stages[k][5]
        and program.stages[k][4] == sum(program.stages[k - 1][4:])
        and program.signals[program.stages[k][4]].signal == TAIL
    ]
    if not found:
        return None
    k = chance.choice(found)
    before, here = list(program.stages[k - 1]), list(program.stages[k])
    before[5], here[4], here[5] = before[5] + 1, here[4] + 1, here[5] - 1
    return replace(
        program,
        stages=(*program.stages[: k - 1], tuple(before), tuple(here), *program.stages[k + 1 :]),
    )


def _other_message(program: Program, chance: Random) -> Program | None:
    """A stage waits for another message of a connection."""
    marks = list(program.waits)
    used = [k for stage in program.stages for k in range(stage[2], stage[2] + stage[3])]
    found = [k for k in used if marks[k].signal in (DATA, ROOM)]
    if not found:
        return None
    k = chance.choice(found)
    marks[k] = marks[k]._replace(message=marks[k].message + chance.choice((1, 2)))
    return replace(program, waits=tuple(marks))


def _edit(
    program: Program,
    chance: Random,
    wanted: Callable[[DeviceStep], object],
    change: Callable[[DeviceStep], DeviceStep],
) -> Program | None:
    found = [k for k, step in enumerate(program.steps) if wanted(step)]
    if not found:
        return None
    k = chance.choice(found)
    steps = (*program.steps[:k], change(program.steps[k]), *program.steps[k + 1 :])
    return replace(program, steps=steps)


def _other_slots(step: DeviceStep) -> DeviceStep:
    """It reads the slots of other messages."""
    later = (ref._replace(message=ref.message + (ref.kind == SLOT)) for ref in step.sources)
    return step._replace(sources=tuple(later))


def _other_chunk(step: DeviceStep) -> DeviceStep:
    """It writes another chunk."""
    first, *others = step.targets
    moved = first._replace(chunk=first.chunk + (-1 if first.chunk else 1))
    return step._replace(targets=(moved, *others))


def _has_sources(step: DeviceStep) -> bool:
    return len(step.sources) > 1


ProgramFault = Callable[[Program, Random], Program | None]
# what a kernel of ll reads of a program: flags of data are in the lines
PROGRAM_FAULTS: dict[str, ProgramFault] = {
    "drop a wait": lambda program, chance: _drop(program, chance, is_wait=True),
    "drop a signal": lambda program, chance: _drop(program, chance, is_wait=False),
    "signal before the data": _say_early,
    "wait for another message": _other_message,
    "read another slot": partial(
        _edit, wanted=lambda step: SLOT in [ref.kind for ref in step.sources], change=_other_slots
    ),
    "write another chunk": partial(_edit, wanted=lambda step: step.targets, change=_other_chunk),
    "leave out an operand": partial(
        _edit, wanted=_has_sources, change=lambda step: step._replace(sources=step.sources[:-1])
    ),
    "divide where the sum is not complete, or not where it is": partial(
        _edit, wanted=_has_sources, change=lambda step: step._replace(flags=step.flags ^ DIVIDE)
    ),
}
OF_LINES = frozenset(tuple(PROGRAM_FAULTS)[4:])


def program_mutant(chance: Random, number: int) -> Found:
    """A plan of a kernel with one fault in one rank's program, and what noticed it."""
    name = tuple(PROGRAM_FAULTS)[number % len(PROGRAM_FAULTS)]
    while True:
        proto = chance.choice(("simple", "ll")) if name in OF_LINES else "simple"
        p2p: P2p = chance.choice(("push", "pull"))
        plan = _plan(
            chance,
            Kernel(proto=proto, threads=64),
            p2p,
            direct=proto == "simple" and chance.random() < 0.5,
        )
        rank = chance.randrange(plan.n)
        program = lower(plan, rank)
        broken = PROGRAM_FAULTS[name](program, chance)
        if broken is not None and broken != program and _fits(broken, program):
            break
    for seed in range(ORDERS):
        gpus = Gpus(plan, seed)
        gpus.programs[rank] = unpack(pack_program(broken), "Program", gpus.sizes[rank])
        try:
            gpus.run(*(Run(k % 2) for k in range(4)))
        except (AssertionError, *BROKEN):
            return Found(name, True)
    return Found(name, False)


def _fits(broken: Program, program: Program) -> bool:
    """Whether a kernel that was made for the program takes the broken one."""
    return broken.widest == program.widest
