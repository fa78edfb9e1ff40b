"""What a schedule does without its proof: on the reference, and on an executor of its own in other
orders of events.

Without a proof, sizes are multiples of everything, so that no action depends on what the proof
knows of chunks. What the check accepts runs with the sizes of real plans, too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, zip_longest
from unittest import mock

from collbench.backends import reference
from collbench.backends.reference import ReferenceRun
from collbench.backends.repeat import verify_in_process
from collbench.core.case import Problem
from collbench.core.collectives import collective
from collbench.core.errors import HangError, ScheduleError
from collbench.planning.layout import lay_out
from collbench.planning.lowering import TrackActions, actors
from collbench.planning.plan import Carried, Plan, PortTable
from collbench.schedules.ir import Edge
from collbench.schedules.passes import home, message_chunks, rounds_of
from collbench.schedules.verify.check import check
from collbench.schedules.verify.proof import Place, Proof
from tests.mutants.schedules import Subject
from tests.support.adversary import Adversary, Verdict

ActorsOf = Callable[[Plan, int], list[TrackActions]]
CHUNK_BYTES = 192  # cut evenly by up to three slices of a multiple of 16 bytes
LOOPS = 2
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
