"""What a schedule does without its proof: on the reference, and on an executor of its own in other
orders of events.

Without a proof, sizes are multiples of everything, so that no action depends on what the proof
knows of chunks. What the check accepts runs with the sizes of real plans, too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, zip_longest
from random import Random
from unittest import mock

from collbench.backends import reference
from collbench.backends.reference import ReferenceRun, reduce_step
from collbench.backends.repeat import compare_output, prepare_buffers, verify_in_process
from collbench.core.case import Problem
from collbench.core.collectives import collective
from collbench.core.errors import HangError, ScheduleError
from collbench.planning.layout import lay_out
from collbench.planning.lowering import Action, TrackActions, actors, room_wanted
from collbench.planning.plan import Carried, Plan, PortTable
from collbench.schedules.ir import Edge
from collbench.schedules.passes import home, message_chunks, rounds_of, shape_of
from collbench.schedules.verify.check import check
from collbench.schedules.verify.proof import Place, Proof
from tests.mutants.schedules import Subject
from tests.support.adversary import Adversary, Verdict

ActorsOf = Callable[[Plan, int], list[TrackActions]]
Event = Callable[[], bool]
Events = Iterator[Event | None]  # of an actor: what it waits for before it goes on
CHUNK_BYTES = 192  # cut evenly by up to three slices of a multiple of 16 bytes
LOOPS = 2
POISON = 0xA5
# what a broken plan raises: sizes that do not fit, connections that are not there
BROKEN = (ValueError, IndexError, KeyError, AssertionError)
# elements of a block, on so many channels: one, and primes, of which the last takes several loops
REAL_SIZES = ((1, 1), (7, 1), (37, 2), (307, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """reference: in its one order. elsewhere: the worst of several other orders. refused: why the
    check refuses the schedule, "" if it does not.
    """

    subject: Subject
    reference: Verdict
    elsewhere: Verdict
    refused: str

    @property
    def is_bad(self) -> bool:
        return (self.reference, self.elsewhere) != ("right", "right")


def judge(subject: Subject, seed: int, orders: int = 3, *, is_accepted: bool = False) -> Judgement:
    """Ask the check, and try a schedule out in that many orders beside the reference's; in eight
    times as many if the check refuses it and the reference does not show why; and, if the check
    accepts it, on plans as they are laid out. is_accepted: the check was asked before.
    """
    refused = "" if is_accepted else why_refused(subject)
    first: Verdict = on_reference(plan_of(subject))
    elsewhere: Verdict = "right"
    if first == "right":
        plays: Iterator[Verdict] = (
            in_another_order(subject, seed + k) for k in range(8 * orders if refused else orders)
        )
        if not refused:
            plays = chain(plays, map(on_reference, proved_plans(subject)))
        elsewhere = next((found for found in plays if found != "right"), "right")
    return Judgement(subject=subject, reference=first, elsewhere=elsewhere, refused=refused)


def why_refused(subject: Subject) -> str:
    """What the check says against a schedule, "" for nothing."""
    sure_slots = subject.slots - (subject.batch - 1)
    try:
        check(subject.schedule, slots=sure_slots, slices=subject.slices, in_place=subject.in_place)
    except ScheduleError as error:
        return error.message
    return ""


def proved_plans(subject: Subject) -> Iterator[Plan]:
    """Plans of a schedule that the check accepts, as they are laid out: with short last chunks,
    several channels and averages. What senders would write in place goes through slots.
    """
    schedule = replace(subject.schedule, pushed={}, ready={})
    for count, channels in REAL_SIZES:
        problem = Problem(
            op=schedule.op,
            n=schedule.n,
            root=schedule.root,
            block_count=count,
            dtype="float32",
            redop="avg" if collective(schedule.op).is_reduction else "sum",
            in_place=subject.in_place,
        )
        yield lay_out(
            problem,
            schedule,
            channels=channels,
            slots=subject.slots,
            chunk_bytes=CHUNK_BYTES,
            slices=subject.slices,
        )


class Unproved(Plan):
    """A plan of a schedule that may be wrong: an end of a connection may be missing, or count other
    messages than the other one.
    """

    @cached_property
    def port_table(self) -> PortTable:
        schedule = self.schedule
        sent: dict[tuple[int, int, str], list[Carried]] = {}
        taken: dict[tuple[int, int, str], list[Carried]] = {}
        for rank in range(self.n):
            for t, track in enumerate(schedule.program(rank)):
                for r, steps in enumerate(track.rounds):
                    pulled = schedule.pulled_at(rank, t, r)
                    out, into = message_chunks(steps)
                    for edge in out:
                        homes = tuple(
                            home(step) for step in steps if edge in step.send and edge in pulled
                        )
                        sent.setdefault((rank, edge.peer, edge.port), []).append(
                            Carried(edge in pulled, homes)
                        )
                    for edge in into:
                        taken.setdefault((edge.peer, rank, edge.port), []).append(
                            Carried(False, ())
                        )
        messages = {
            key: [
                a if a.is_direct else b
                for a, b in zip_longest(
                    sent.get(key, ()), taken.get(key, ()), fillvalue=Carried(False, ())
                )
            ]
            for key in sorted(sent.keys() | taken.keys())
        }
        return PortTable.of(messages, self.domains)


def plan_of(subject: Subject) -> Plan:
    """The plan that lay_out would make if it did not ask for a proof."""
    schedule = subject.schedule
    parts = schedule.chunks["in"] if collective(schedule.op).is_interleaved else 1
    steps_of = dict(rounds_of(schedule))
    widest = max([1, *(n for steps in steps_of.values() for n in _counts(message_chunks(steps)))])
    piece_bytes = CHUNK_BYTES // subject.slices
    return Unproved(
        problem=Problem(
            op=schedule.op,
            n=schedule.n,
            root=schedule.root,
            block_count=LOOPS * parts * CHUNK_BYTES // 4,
            dtype="float32",
            redop="sum",
            in_place=subject.in_place,
        ),
        schedule=schedule,
        proof=Proof(
            complete=frozenset(),
            chunks={Place(*at, s): 0 for at, steps in steps_of.items() for s in range(len(steps))},
            givers={},
            hops=0,
        ),
        direct=bool(schedule.pulled),
        p2p="pull",
        channels=1,
        slots=subject.slots,
        slot_bytes=widest * piece_bytes,
        chunk_bytes=CHUNK_BYTES,
        piece_bytes=piece_bytes,
        widest=widest,
    )


def _counts(chunks: Sequence[dict[Edge, int]]) -> list[int]:
    return [count for counts in chunks for count in counts.values()]


def on_reference(plan: Plan, actors_of: ActorsOf = actors) -> Verdict:
    """One launch on the reference; a slot that stays full is wrong for the next launch."""
    try:
        machine = ReferenceRun(plan)
        with mock.patch.object(reference, "actors", actors_of):
            wrong = verify_in_process(plan.problem, machine.buffer, machine.launch)
    except HangError:
        return "hang"
    except BROKEN:
        return "wrong"
    return "wrong" if wrong or machine.filled != machine.freed else "right"


def in_another_order(subject: Subject, seed: int) -> Verdict:
    """One play; of credits in batches, with as many loops as they have phases, and some more."""
    try:
        return Adversary(
            subject.schedule,
            in_place=subject.in_place,
            launches=2,
            loops=LOOPS if subject.batch == 1 else LOOPS + subject.batch,
            slices=subject.slices,
            slots=subject.slots,
            batch=subject.batch,
            seed=seed,
        ).play()
    except BROKEN:
        return "wrong"


class Play(ReferenceRun):
    """Two launches with the reference's memory, in an order that a seed draws.

    No rank waits for another between launches. A rank takes its steps one by one, and may read its
    own memory before its own messages have come; or stage by stage, as kernels do: it waits for all
    of a stage, then computes, then hands over. What is free, or the user's between two launches, is
    poisoned.
    """

    LAUNCHES = 2

    def __init__(self, plan: Plan, seed: int, actors_of: ActorsOf = actors) -> None:
        super().__init__(plan)
        self.chance, self.actors_of, self.is_wrong = Random(seed), actors_of, False
        self.by_stage = self.chance.random() < 0.5
        self.begun, self.running = [0] * plan.n, [0] * plan.n
        self.slices = [connection.slices for connection in plan.connections]

    def verdict(self) -> Verdict:
        try:
            return "hang" if not self._ends() else "wrong" if self.is_wrong else "right"
        except BROKEN:
            return "wrong"

    def _ends(self) -> bool:
        """Whether all come to their end."""
        all_actors: list[Events] = []
        for rank in range(self.plan.n):
            tracks = [self._track(rank, actor) for actor in self.actors_of(self.plan, rank)]
            all_actors += [self._user(rank, len(tracks)), *tracks]
        slow = {id(actor) for actor in all_actors if self.chance.random() < 0.3}
        waiting: list[tuple[Events, Event | None]] = [(actor, None) for actor in all_actors]
        while waiting:
            able = [k for k, (_, event) in enumerate(waiting) if event is None or event()]
            if not able:
                return False
            quick = [k for k in able if id(waiting[k][0]) not in slow]
            actor, _ = waiting.pop(self.chance.choice(quick or able))
            for event in actor:
                waiting.append((actor, event))
                break
        return True

    def _user(self, rank: int, tracks: int) -> Events:
        """Fills and compares the buffers of a rank."""
        own = self.inputs[rank], self.outputs[rank], self.tmp[rank]
        for launch in range(self.LAUNCHES):
            prepare_buffers(
                self.plan.problem, rank, self.buffer(rank, "in"), self.buffer(rank, "out")
            )
            self.running[rank], self.begun[rank] = tracks, launch + 1
            yield lambda: self.running[rank] == 0
            found = compare_output(self.plan.problem, rank, self.buffer(rank, "out"))
            self.is_wrong |= found is not None
            for memory in own:
                memory[:] = POISON
            yield None

    def _track(self, rank: int, actor: TrackActions) -> Events:
        for launch in range(self.LAUNCHES):
            yield partial(lambda wanted: self.begun[rank] > wanted, launch)
            for group in self._groups(rank, actor.actions):
                yield from self._run(group, rank, launch)
            for edge, number in actor.back:
                yield partial(self._has_read, edge, launch * self.slices[edge] + number + 1)
            self.running[rank] -= 1

    def _groups(self, rank: int, actions: list[Action]) -> Iterator[list[Action]]:
        """The actions of a stage and slice; or each action."""
        if not self.by_stage:
            yield from ([action] for action in actions)
            return
        program, group, last = self.plan.schedule.program(rank), list[Action](), None
        for action in actions:
            _, track, number, step = action.place
            stages = shape_of(program[track].rounds[number]).stages
            stage = next(k for k, steps in enumerate(stages) if step in steps)
            order = stages[stage].index(step)
            here = (track, number, stage)
            # the same step again, with operands, is the copy that follows an early hand-over
            is_later = last is not None and (
                order > last[1] or (order == last[1] and not group[-1].operands)
            )
            if last is not None and (here != last[0] or not is_later):
                yield group
                group = []
            group.append(action)
            last = (here, order)
        yield group

    def _run(self, group: list[Action], rank: int, launch: int) -> Events:
        read_early = not self.by_stage and self.chance.random() < 0.5
        early = {
            region: self.view(region).copy()
            for action in group
            for region in action.operands
            if read_early and region.owner == rank and region.space != "slot"
        }
        for action in group:
            for edge, number in action.take:
                yield partial(self._is_filled, edge, launch * self.slices[edge] + number + 1)
            for turn in action.room:
                edge = turn.edge
                wanted = room_wanted(turn, self.slices[edge], self.plan.slots)
                yield partial(self._has_read, edge, launch * self.slices[edge] + wanted)
            for edge, number in action.back:
                yield partial(self._has_read, edge, launch * self.slices[edge] + number + 1)
        for action in group:
            yield None
            if action.operands:
                operands = [
                    early[region] if region in early else self.view(region)
                    for region in action.operands
                ]
                result = reduce_step(operands, self.plan, is_complete=action.divide).copy()
                yield None
                for region in action.targets:
                    self.view(region)[...] = result
        yield None
        for action in group:
            for edge, _ in action.post:
                self.filled[edge] += 1
            for turn in action.free:
                slot = self.slots.get(turn.edge)
                if slot is not None:
                    first = turn.number % self.plan.slots * self.plan.slot_bytes
                    slot[first : first + self.plan.slot_bytes] = POISON
                self.freed[turn.edge] += 1

    def _is_filled(self, edge: int, count: int) -> bool:
        return self.filled[edge] >= count

    def _has_read(self, edge: int, count: int) -> bool:
        return self.freed[edge] >= count
