"""Valid schedules, and one fault in each: a step dropped, an edge redirected, a wait that closes a
circle.

A fault is a function that changes a draft of a schedule at a place that is drawn, and says whether
it found one.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from operator import attrgetter
from random import Random
from typing import TypeVar

from collbench.core.collectives import collective
from collbench.core.errors import ScheduleError
from collbench.planning.layout import registered
from collbench.schedules.ir import (
    At,
    BufferName,
    Edge,
    Operand,
    PendingPull,
    Schedule,
    Step,
    Track,
    expanded,
)
from collbench.schedules.passes import (
    braid,
    kept,
    landing,
    message_chunks,
    pull_zero_copy,
    reorder,
    rounds_of,
)
from collbench.schedules.zero_copy import push_zero_copy
from tests.support.batteries import PAIRS, placements, roots, world_of
from tests.support.random_schedules import draw_allreduce, draw_blocks, draw_exchange

Item = TypeVar("Item")
Key = TypeVar("Key", At, int)
RANKS = (2, 3, 3, 4, 4, 5, 6, 7, 8)
CHANGED = attrgetter("programs", "pulled", "pending_pulls", "pushed", "ready", "chunks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A schedule with what it runs with; `fault` names what was changed, "" if nothing was.

    batch: how many slots a receiver gives back at a time.
    """

    schedule: Schedule
    in_place: bool = False
    slots: int = 4
    slices: int = 1
    batch: int = 1
    fault: str = ""


def plain(chance: Random) -> Subject:
    """A valid schedule without zero-copy messages: registered, with any root and order of ranks, or
    random.
    """
    op, algo = chance.choice(PAIRS)
    n = chance.choice(RANKS)
    root = chance.choice(roots(op, n))
    schedule = registered(op, algo, world_of(algo, n, root))
    variant = chance.random()
    if variant < 0.2:
        schedule = chance.choice((draw_allreduce, draw_blocks))(chance)
    elif variant < 0.3:
        order = tuple(chance.sample(range(n), n))
        # a shift by one is defined by the numbers of the ranks, so no other order is right
        schedule = reorder(schedule, order) if collective(op).follows_order else schedule
    elif variant < 0.35 and collective(op).is_interleaved and n < 6:
        schedule = braid([schedule, schedule])
    # a random one may send an input after it was overwritten in place
    in_place = schedule.name != "random" and chance.choice(placements(schedule.op))
    slices = chance.choice((1, 1, 2))
    slots = slices * chance.choice((3, 4, 8))
    return Subject(schedule=schedule, in_place=in_place, slots=slots, slices=slices)


def pulled(subject: Subject) -> Subject:
    """With every message read in place that can be. In place, a one-shot cannot wait for its pulls:
    it stays as it is.
    """
    if subject.in_place and subject.schedule.name == "oneshot":
        return subject
    return replace(subject, schedule=pull_zero_copy(subject.schedule, in_place=subject.in_place))


def pushed(subject: Subject) -> Subject:
    """With every message written in place that can be; as it is if the schedule is refused."""
    with suppress(ScheduleError):
        return replace(
            subject, schedule=push_zero_copy(subject.schedule, in_place=subject.in_place)
        )
    return subject


def with_some_way(subject: Subject, chance: Random) -> Subject:
    """With zero-copy messages, or without."""
    way = chance.random()
    if way < 0.25:
        return pulled(subject)
    return pushed(subject) if way < 0.4 and subject.schedule.n < 6 else subject


def valid(chance: Random) -> Subject:
    """A valid schedule, with zero-copy messages or without."""
    return with_some_way(plain(chance), chance)


class Draft:
    """A schedule that can be changed. Of a symmetric one, all ranks' programs or one."""

    def __init__(self, schedule: Schedule, chance: Random) -> None:
        self.chance = chance
        is_whole = schedule.is_symmetric and not schedule.pushed and chance.random() < 0.2
        self.schedule = schedule if is_whole else expanded(schedule)
        self.programs = [
            [(track.name, [list(steps) for steps in track.rounds]) for track in program]
            for program in self.schedule.programs
        ]
        names = ("pulled", "pending_pulls", "pushed", "ready")
        self.pulled, self.pending_pulls, self.pushed, self.ready = (
            dict(getattr(self.schedule, name)) for name in names
        )

    def made(self) -> Schedule:
        programs = tuple(
            tuple(
                Track(name=name, rounds=tuple(tuple(steps) for steps in rounds if steps))
                for name, rounds in program
                if any(rounds)
            )
            for program in self.programs
        )
        return replace(
            self.schedule,
            programs=programs,
            pulled=self.pulled,
            pending_pulls=self.pending_pulls,
            pushed=self.pushed,
            ready=self.ready,
        )

    def tracks(self) -> list[list[list[Step]]]:
        """The rounds of every track of every rank."""
        return [rounds for program in self.programs for _, rounds in program]

    def track(self, least: int = 1) -> list[list[Step]]:
        """A track of some rank with that many rounds; [] if the draw has fewer."""
        program = self.chance.choice([program for program in self.programs if program])
        rounds = self.chance.choice(program)[1]
        return rounds if len(rounds) >= least else []

    def steps(self, wanted: Callable[[Step], object]) -> tuple[list[Step], int] | None:
        """A round and a step in it that is as wanted."""
        found = [
            (steps, s)
            for rounds in self.tracks()
            for steps in rounds
            for s, step in enumerate(steps)
            if wanted(step)
        ]
        return self.chance.choice(found) if found else None

    def edit(self, wanted: Callable[[Step], object], change: Callable[[Step], Step]) -> bool:
        """Change one step."""
        found = self.steps(wanted)
        if found is None:
            return False
        steps, s = found
        steps[s] = change(steps[s])
        return True

    def other_chunk(self, at: Operand) -> Operand:
        count = self.schedule.chunks[at.buffer]
        return Operand(at.buffer, (at.chunk + self.chance.randrange(1, max(2, count))) % count)

    def any_chunk(self, buffers: Sequence[BufferName]) -> Operand:
        """Any chunk of one of the buffers, or new scratch memory."""
        buffer = self.chance.choice(buffers)
        count = self.schedule.chunks[buffer]
        if count:
            return Operand(buffer, self.chance.randrange(count))
        self.schedule = replace(self.schedule, chunks={**self.schedule.chunks, "tmp": 1})
        return Operand("tmp", 0)

    def without(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        """One item fewer."""
        k = self.chance.randrange(len(items))
        return items[:k] + items[k + 1 :]

    def drop_edge(self, of: dict[Key, frozenset[Edge]]) -> Key | None:
        """One edge fewer of some key, which is returned; None if there is none."""
        if not of:
            return None
        key = self.chance.choice(sorted(of))
        of[key] -= {self.chance.choice(sorted(of[key]))}
        return key

    def swapped_in(self, items: tuple[Item, ...], new: Callable[[Item], Item]) -> tuple[Item, ...]:
        """One item replaced by what `new` makes of it."""
        k = self.chance.randrange(len(items))
        return (*items[:k], new(items[k]), *items[k + 1 :])


def drop_step(draft: Draft) -> bool:
    found = draft.steps(lambda step: True)
    if found:
        del found[0][found[1]]
    return bool(found)


def duplicate_step(draft: Draft) -> bool:
    rounds = draft.track()
    if not rounds:
        return False
    steps = draft.chance.choice(rounds)
    step = draft.chance.choice(steps)
    if draft.chance.random() < 0.5:
        steps.insert(draft.chance.randrange(len(steps) + 1), step)
    else:
        rounds.insert(draft.chance.randrange(len(rounds) + 1), [step])
    return True


def drop_round(draft: Draft) -> bool:
    rounds = draft.track(2)
    if rounds:
        del rounds[draft.chance.randrange(len(rounds))]
    return bool(rounds)


def swap_rounds(draft: Draft) -> bool:
    rounds = draft.track(2)
    if rounds:
        a, b = draft.chance.sample(range(len(rounds)), 2)
        rounds[a], rounds[b] = rounds[b], rounds[a]
    return bool(rounds)


def merge_rounds(draft: Draft) -> bool:
    rounds = draft.track(2)
    if rounds:
        k = draft.chance.randrange(len(rounds) - 1)
        rounds[k : k + 2] = [rounds[k] + rounds[k + 1]]
    return bool(rounds)


def move_round_to_another_track(draft: Draft) -> bool:
    programs = [program for program in draft.programs if len(program) > 1]
    if not programs:
        return False
    (_, source), (_, target) = draft.chance.sample(draft.chance.choice(programs), 2)
    target.insert(
        draft.chance.randrange(len(target) + 1), source.pop(draft.chance.randrange(len(source)))
    )
    return True


def split_track(draft: Draft) -> bool:
    """The later rounds of a track run beside the earlier ones."""
    programs = [
        (program, t)
        for program in draft.programs
        for t, (_, rounds) in enumerate(program)
        if len(rounds) > 1
    ]
    if not programs or draft.schedule.is_symmetric:
        return False
    program, t = draft.chance.choice(programs)
    name, rounds = program[t]
    k = draft.chance.randrange(1, len(rounds))
    program[t : t + 1] = [(name, rounds[:k]), (f"{name} too", rounds[k:])]
    return True


def join_tracks(draft: Draft) -> bool:
    """Two tracks of a rank run one after the other, or their rounds in turn."""
    programs = [program for program in draft.programs if len(program) > 1]
    if not programs:
        return False
    program = draft.chance.choice(programs)
    a, b = draft.chance.sample(range(len(program)), 2)
    (name, first), (_, second) = program[a], program[b]
    joined = [*first, *second]
    if draft.chance.random() < 0.5:
        joined = [steps for pair in zip_longest(first, second) for steps in pair if steps]
    program[a] = (name, joined)
    del program[b]
    return True


def split_round(draft: Draft) -> bool:
    """Some steps of a round are a round of their own, before or after the others."""
    rounds = draft.track()
    found = [k for k, steps in enumerate(rounds) if len(steps) > 1]
    if not found:
        return False
    k = draft.chance.choice(found)
    first = [step for step in rounds[k] if draft.chance.random() < 0.5]
    rounds[k : k + 1] = [first, [step for step in rounds[k] if step not in first]]
    return True


def move_step_to_another_round(draft: Draft) -> bool:
    rounds = draft.track(2)
    if not rounds:
        return False
    source, target = draft.chance.sample(rounds, 2)
    step = source.pop(draft.chance.randrange(len(source)))
    target.insert(draft.chance.randrange(len(target) + 1), step)
    return True


def cyclic_wait(draft: Draft) -> bool:
    """A rank receives what it needs for later before it sends what others wait for."""
    found = [
        (rounds, a, b)
        for rounds in draft.tracks()
        for a in range(len(rounds))
        for b in range(a + 1, len(rounds))
        if any(step.send for step in rounds[a]) and any(step.recv for step in rounds[b])
    ]
    if found:
        rounds, a, b = draft.chance.choice(found)
        rounds.insert(b, rounds.pop(a))
    return bool(found)


def _redirect(draft: Draft, moved: Callable[[Edge], Edge]) -> bool:
    """An edge of a send or of a receive is another one."""
    if draft.chance.random() < 0.5:
        return draft.edit(
            lambda step: step.send,
            lambda step: replace(step, send=draft.swapped_in(step.send, moved)),
        )
    return draft.edit(
        lambda step: step.recv, lambda step: replace(step, recv=draft.swapped_in(step.recv, moved))
    )


def redirect_to_another_peer(draft: Draft) -> bool:
    n = draft.schedule.n
    return _redirect(
        draft, lambda edge: Edge((edge.peer + draft.chance.randrange(1, n)) % n, edge.port)
    )


def redirect_to_another_port(draft: Draft) -> bool:
    steps = chain.from_iterable(chain.from_iterable(draft.tracks()))
    ports = sorted({edge.port for step in steps for edge in (*step.send, *step.recv)})

    def moved(edge: Edge) -> Edge:
        return Edge(edge.peer, draft.chance.choice([p for p in ports if p != edge.port] or ["?"]))

    return _redirect(draft, moved)


def wrong_source_chunk(draft: Draft) -> bool:
    return draft.edit(
        lambda step: any(draft.schedule.chunks[at.buffer] > 1 for at in step.src),
        lambda step: replace(step, src=draft.swapped_in(step.src, draft.other_chunk)),
    )


def wrong_target_chunk(draft: Draft) -> bool:
    return draft.edit(
        lambda step: step.dst and draft.schedule.chunks[step.dst.buffer] > 1,
        lambda step: replace(step, dst=step.dst and draft.other_chunk(step.dst)),
    )


def detour(draft: Draft) -> bool:
    """What a step writes is written to another chunk of the output, or to scratch, and copied."""
    found = [
        (rounds, r, s)
        for rounds in draft.tracks()
        for r, steps in enumerate(rounds)
        for s, step in enumerate(steps)
        if step.dst is not None
    ]
    if not found:
        return False
    rounds, r, s = draft.chance.choice(found)
    target = rounds[r][s].dst
    assert target is not None
    park = draft.any_chunk(("out", "out", "tmp"))
    rounds[r][s] = replace(rounds[r][s], dst=park)
    rounds.insert(r + 1, [Step(src=(park,), dst=target)])
    return True


def needless_copy_to_the_output(draft: Draft) -> bool:
    """What is only sent is kept in some chunk of the output, too, which a later step may write."""
    return draft.edit(
        lambda step: step.dst is None, lambda step: replace(step, dst=draft.any_chunk(("out",)))
    )


def cut_otherwise(draft: Draft) -> bool:
    """A buffer has one chunk more or less."""
    chunks = draft.schedule.chunks
    buffer = draft.chance.choice(sorted(chunks))
    count = max(0, chunks[buffer] + draft.chance.choice((-1, 1)))
    draft.schedule = replace(draft.schedule, chunks={**chunks, buffer: count})
    return True


def missing_operand(draft: Draft) -> bool:
    """One contribution is not added; a message that it came in stays."""

    def less(step: Step) -> Step:
        if step.recv and (not step.src or draft.chance.random() < 0.5):
            return replace(step, recv=draft.without(step.recv))
        return replace(step, src=draft.without(step.src))

    return draft.edit(lambda step: len(step.src) + len(step.recv) > 1, less)


def extra_contribution(draft: Draft) -> bool:
    """One more local operand: the same again, or any other."""
    operands = [
        Operand(buffer, chunk)
        for buffer, count in draft.schedule.chunks.items()
        for chunk in range(count)
    ]
    return draft.edit(
        lambda step: True,
        lambda step: replace(
            step, src=(*step.src, draft.chance.choice([*step.src, *step.src, *operands]))
        ),
    )


def _other_buffer(draft: Draft, at: Operand) -> Operand:
    others: list[BufferName] = [
        buffer
        for buffer, count in draft.schedule.chunks.items()
        if count and buffer not in (at.buffer,)
    ]
    buffer = draft.chance.choice(others or [at.buffer])
    return Operand(buffer, at.chunk % draft.schedule.chunks[buffer])


def wrong_source_buffer(draft: Draft) -> bool:
    return draft.edit(
        lambda step: step.src,
        lambda step: replace(
            step, src=draft.swapped_in(step.src, lambda at: _other_buffer(draft, at))
        ),
    )


def wrong_target_buffer(draft: Draft) -> bool:
    """Another one, or none where the result is sent."""

    def moved(step: Step) -> Step:
        assert step.dst is not None
        if step.send and draft.chance.random() < 0.5:
            return replace(step, dst=None)
        return replace(step, dst=_other_buffer(draft, step.dst))

    return draft.edit(lambda step: step.dst is not None, moved)


def missing_send(draft: Draft) -> bool:
    return draft.edit(
        lambda step: step.send, lambda step: replace(step, send=draft.without(step.send))
    )


def order_of_operands(draft: Draft) -> bool:
    """Right in exact arithmetic, unless it changes which chunk of a message is which."""

    def shuffled(step: Step) -> Step:
        return replace(step, src=step.src[::-1], recv=step.recv[::-1], send=step.send[::-1])

    return draft.edit(lambda step: max(len(step.src), len(step.recv), len(step.send)) > 1, shuffled)


def order_of_steps(draft: Draft) -> bool:
    """Right where no two steps share a message."""
    found = draft.steps(lambda step: True)
    if found is None or len(found[0]) < 2:
        return False
    steps, s = found
    other = draft.chance.choice([k for k in range(len(steps)) if k != s])
    steps[s], steps[other] = steps[other], steps[s]
    return True


def needless_copy(draft: Draft) -> bool:
    """Right: what is only sent is kept in new scratch memory too."""
    chunk = draft.schedule.chunks["tmp"]
    draft.schedule = replace(draft.schedule, chunks={**draft.schedule.chunks, "tmp": chunk + 1})
    return draft.edit(
        lambda step: step.dst is None, lambda step: replace(step, dst=Operand("tmp", chunk))
    )


def _pull(draft: Draft, wanted: Callable[[list[Step]], bool]) -> bool:
    """One more message is pulled, of which the steps that send it are as wanted."""
    if draft.pushed:
        return False
    found = [
        (at, edge)
        for at, steps in rounds_of(draft.schedule)
        for edge in message_chunks(steps)[0]
        if edge not in draft.pulled.get(at, ())
        and wanted([step for step in steps if edge in step.send])
    ]
    if found:
        at, edge = draft.chance.choice(found)
        draft.pulled[at] = draft.pulled.get(at, frozenset()) | {edge}
    return bool(found)


def pull_too_much(draft: Draft) -> bool:
    """A message is pulled that the rank may overwrite."""
    return _pull(draft, lambda steps: all(kept(step) is not None for step in steps))


def pull_what_is_not_kept(draft: Draft) -> bool:
    """A message is pulled of which no step leaves some chunk in the input or output."""
    return _pull(draft, lambda steps: any(kept(step) is None for step in steps))


def pull_less(draft: Draft) -> bool:
    """A message goes through its FIFO; waits for its pull may stay."""
    return draft.drop_edge(draft.pulled) is not None


def forget_a_pull(draft: Draft) -> bool:
    """A step does not wait for a pull that it overwrites."""
    if draft.pending_pulls:
        del draft.pending_pulls[draft.chance.choice(sorted(draft.pending_pulls))]
        return True
    return False


def wait_for_another_pull(draft: Draft) -> bool:
    """A step waits for the pull of another round, or by another peer; or another step waits."""
    if not draft.pending_pulls:
        return False
    at = draft.chance.choice(sorted(draft.pending_pulls))
    due = dict(draft.pending_pulls[at])
    s = draft.chance.choice(sorted(due))
    pulls = due.pop(s)
    if draft.chance.random() < 0.5:
        others = [other for other, edges in draft.pulled.items() if edges and other[:2] == at[:2]]
        other: At = draft.chance.choice(others or [at])
        edges = sorted(draft.pulled.get(other, ()))
        edge = draft.chance.choice(edges or [pulls[0].edge])
        due[s] = draft.swapped_in(pulls, lambda _: PendingPull(other.round, edge))
    else:
        count = len(draft.programs[at.program][at.track][1][at.round])
        due[draft.chance.randrange(count)] = pulls
    draft.pending_pulls[at] = due
    return True


def push_too_much(draft: Draft) -> bool:
    """A message is written into an output that its rank may still use, or not use yet."""
    found = [
        (at, edge)
        for at, steps in rounds_of(draft.schedule)
        for edge in message_chunks(steps)[1]
        if edge not in draft.pushed.get(at, ()) and landing(steps, edge)
    ]
    if found:
        at, edge = draft.chance.choice(found)
        draft.pushed[at] = draft.pushed.get(at, frozenset()) | {edge}
    return bool(found)


def push_less(draft: Draft) -> bool:
    """A message goes through its FIFO: right, unless others rely on its order."""
    return draft.drop_edge(draft.pushed) is not None


def forget_a_ready_signal(draft: Draft) -> bool:
    """A rank does not say that it has begun the launch."""
    return draft.drop_edge(draft.ready) is not None


def redirect_a_ready_signal(draft: Draft) -> bool:
    """A rank says it to another peer, or on another port."""
    before = dict(draft.ready)
    rank = draft.drop_edge(draft.ready)
    if rank is None:
        return False
    edges = {
        edge
        for at, steps in rounds_of(draft.schedule)
        for edge in message_chunks(steps)[1]
        if at.program == rank
    }
    others = sorted(edges - before[rank])
    draft.ready[rank] |= set(draft.chance.sample(others, min(1, len(others))))
    return True


PULL_FAULTS = (
    pull_too_much,
    pull_what_is_not_kept,
    pull_less,
    forget_a_pull,
    wait_for_another_pull,
)
PUSH_FAULTS = (push_too_much, push_less, forget_a_ready_signal, redirect_a_ready_signal)
FAULTS: tuple[Callable[[Draft], bool], ...] = (
    drop_step,
    duplicate_step,
    drop_round,
    swap_rounds,
    merge_rounds,
    move_round_to_another_track,
    split_track,
    join_tracks,
    split_round,
    move_step_to_another_round,
    cyclic_wait,
    redirect_to_another_peer,
    redirect_to_another_port,
    wrong_source_chunk,
    wrong_target_chunk,
    missing_operand,
    missing_send,
    extra_contribution,
    wrong_source_buffer,
    wrong_target_buffer,
    order_of_operands,
    order_of_steps,
    needless_copy,
    needless_copy_to_the_output,
    detour,
    cut_otherwise,
    *PULL_FAULTS,
    *PUSH_FAULTS,
)
# no zero-copy messages are laid over these
OF_A_WAY = frozenset({*PULL_FAULTS, *PUSH_FAULTS})


def too_few_slots(subject: Subject, chance: Random) -> Subject:
    """FIFOs of one to three slots, with messages of one to three slices."""
    return replace(
        subject, slots=chance.randint(1, 3), slices=chance.randint(1, 3), fault="too_few_slots"
    )


def late_credits(chance: Random) -> Subject:
    """FIFOs of few slots, some of which their receivers give back late, as ll and ll128 do."""
    subject = plain(chance)
    if chance.random() < 0.7:
        subject = Subject(schedule=draw_exchange(chance))
    slots = chance.randint(2, 14)
    batch = chance.choice((slots // 2, chance.randint(1, slots)))
    return replace(subject, slots=slots, slices=1, batch=batch, fault="late_credits")


def two_faults(chance: Random) -> Subject:
    """Two faults that both find their place."""
    while True:
        subject = with_some_way(plain(chance), chance)
        draft = Draft(subject.schedule, chance)
        first, second = chance.sample(FAULTS, 2)
        if not first(draft):
            continue
        draft = Draft(draft.made(), chance)
        if second(draft) and CHANGED(made := draft.made()) != CHANGED(subject.schedule):
            return replace(subject, schedule=made, fault="two_faults")


KINDS = len(FAULTS) + 3


def mutant(chance: Random, number: int) -> Subject:
    """A valid schedule with a fault, which its number picks in turn."""
    kind = number % KINDS
    if kind >= len(FAULTS):
        others = (
            lambda: too_few_slots(valid(chance), chance),
            lambda: late_credits(chance),
            lambda: two_faults(chance),
        )
        return others[kind - len(FAULTS)]()
    fault = FAULTS[kind]
    while True:
        subject = plain(chance)
        if fault in PULL_FAULTS and chance.random() < 0.7:
            subject = pulled(subject)
        if fault in PUSH_FAULTS[1:]:
            subject = pushed(subject)
        draft = Draft(subject.schedule, chance)
        before = draft.schedule
        if not fault(draft) or CHANGED(made := draft.made()) == CHANGED(before):
            continue
        subject = replace(subject, schedule=made, fault=fault.__name__)
        return subject if fault in OF_A_WAY else with_some_way(subject, chance)
