"""The proof: run a schedule symbolically, with bounded FIFOs, and refuse it unless it does what its
collective asks for.

The unit is the contribution (rank, input chunk): a value is a set of ranks that gave one input
chunk, kept as a bit mask, so that a rank added twice is an overlap and an error. Several launches
of several loops run back to back over FIFOs of `slots` slots, each message being `slices` of them;
ranks run as far ahead as the slots let them. Found here: wrong, missing or doubled contributions;
deadlocks; ports that do not pair; slots left full; a chunk overwritten before its last read (in
place, too); a value in an output chunk that may be shorter; tracks that touch one chunk in no
order; pulled messages overwritten before they were read; pushed messages into an output that its
rank still uses, in this launch or, because the writer cannot know that it has begun, in the one
before. Backends execute a round's steps in the order assumed here.

Two loops of two launches stand for any number. A port carries as many messages in every loop, so a
cycle of waits for data and slots that spans loops would need a slot of a later loop, and nothing
waits for one: a deadlock shows within one loop. What one loop leaves to the next, and one launch to
the next, the second of each shows.

A symmetric schedule is run for rank 0 alone: what rank q sends is what rank 0 sends, shifted by q,
and all ranks move in step. Bounded FIFO networks are determinate, so a deadlock in one order of
execution is a deadlock in all of them. Pushed messages need the clocks of all ranks (clocks.py), so
a symmetric schedule that has some is expanded.
"""

from functools import lru_cache
from itertools import chain

from collbench.core.collectives import collective
from collbench.core.errors import ScheduleError
from collbench.schedules.ir import At, Edge, Operand, Round, Schedule, Step, expanded
from collbench.schedules.passes import cell, kept, landing, rounds_of
from collbench.schedules.verify.clocks import Clock, learn
from collbench.schedules.verify.proof import Key, Place, Proof, Value, name_of, where
from collbench.schedules.verify.symbolic import Execution

__all__ = ["Place", "Proof", "check"]


def check(
    schedule: Schedule,
    *,
    slots: int = 8,
    slices: int = 1,
    in_place: bool = False,
    loops: int = 2,
    launches: int = 2,
    with_one_slice: bool = True,
) -> Proof:
    """Prove a schedule for FIFOs of that many slots and messages of at most that many slices.

    slots: those that a sender can count on (plan.Kernel.sure_slots). Where accesses are ordered by
    messages, the order is proved with one slice, too, because short loops send fewer slices: the
    slices of one number run as in a loop that has no others. Raises ScheduleError saying rank,
    track, round and what is wrong. Cost: every step of every rank (of rank 0 alone if symmetric and
    without pushed messages) loops x launches x slices times.

    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> check(build("allreduce", "ring", ring.allreduce, World(n=4)), slots=2).hops
    6
    >>> check(build("allreduce", "ring", ring.allreduce, World(n=4)), slots=1)
    Traceback (most recent call last):
    collbench.core.errors.ScheduleError: allreduce ring over 4 ranks deadlocks with 1 slot and ...
    """
    if in_place and not collective(schedule.op).has_in_place:
        raise ScheduleError(
            f"{schedule.op} has no in-place form: every rank sends what it would overwrite"
        )
    if schedule.is_symmetric and any(len(program) > 1 for program in schedule.programs):
        raise ScheduleError(
            f"{name_of(schedule)}: a symmetric schedule has one track",
            "give every rank its own program",
        )
    _check_shape(schedule, in_place)
    whole = expanded(schedule) if schedule.pushed else schedule
    run = Execution(whole, slots, slices, in_place, loops, launches)
    proof = run.prove()
    if run.has_clocks and slices > 1 and with_one_slice:
        Execution(whole, slots, 1, in_place, loops, launches).prove()
    if whole is schedule:
        return proof
    return Proof(
        complete=frozenset(place for place in proof.complete if place.program == 0),
        chunks={place: chunk for place, chunk in proof.chunks.items() if place.program == 0},
        givers={place: giver for place, giver in proof.givers.items() if place.program == 0},
        hops=proof.hops,
    )


@lru_cache(maxsize=512)
def ends_after_peers_begin(schedule: Schedule) -> bool:
    """Whether no rank can end a launch before every rank that it sends to has begun that launch, if
    all messages carry something.

    True of what waits for an answer from everybody, as an allreduce does; not of a broadcast, whose
    root runs ahead.

    >>> from collbench.schedules.algorithms import chain, ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> ends_after_peers_begin(build("allreduce", "ring", ring.allreduce, World(n=4)))
    True
    >>> ends_after_peers_begin(build("broadcast", "chain", chain.broadcast, World(n=4)))
    False
    """
    whole = expanded(schedule)
    run = Execution(whole, slots=1 << 30, slices=1, in_place=False, loops=1, launches=1)
    run.has_clocks = True
    run.prove()
    for rank, program in enumerate(whole.programs):
        known: Clock = {}
        for clock in run.history.ends[rank, 0]:
            learn(known, clock)
        peers = {
            edge.peer
            for track in program
            for steps in track.rounds
            for step in steps
            for edge in step.send
        }
        if not all(run.history.knows_start(known, peer, 0) for peer in peers):
            return False
    return True


def formed(schedule: Schedule) -> dict[Place, Value]:
    """What every step of every rank forms in one loop of one launch. Raises ScheduleError as check
    does.

    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> steps = formed(build("allreduce", "ring", ring.allreduce, World(n=4)))
    >>> steps[Place(program=1, track=0, round=1, step=0)]
    Value(piece=0, chunk=3, mask=3)
    """
    check(schedule, loops=1, launches=1)
    run = Execution(expanded(schedule), slots=8, slices=1, in_place=False, loops=1, launches=1)
    steps: dict[Place, Value] = {}
    run.formed = steps
    run.prove()
    return steps


def _check_shape(schedule: Schedule, in_place: bool) -> None:
    """Refuse what can be seen without running: buffers of other chunks than the collective's,
    operands that do not exist, ports without a partner, steps of one round that touch the same
    memory, tables of zero-copy messages that do not fit the rounds.
    """
    _check_chunks(schedule)
    if schedule.pulled and schedule.pushed:
        raise ScheduleError(
            f"{name_of(schedule)} has messages that are pulled and messages that are pushed",
            "use pull_zero_copy or push_zero_copy, not both",
        )
    senders: dict[Key, tuple[int, int]] = {}
    receivers: dict[Key, tuple[int, int]] = {}
    for at, steps in rounds_of(schedule):
        _check_zero_copy(schedule, at, steps)
        written: dict[Operand, int] = {}
        for s, step in enumerate(steps):
            _check_operands(schedule, at, step)
            _check_edges(schedule, at, step.send, senders, is_sending=True)
            _check_edges(schedule, at, step.recv, receivers, is_sending=False)
            if step.dst is not None:
                target = cell(schedule, at.program, step.dst, in_place=in_place)
                if target in written:
                    raise _error(schedule, at, f"two steps write {target.buffer}[{target.chunk}]")
                written[target] = s
        _check_sources(schedule, at, steps, written, in_place=in_place)
    if schedule.is_symmetric:
        receivers = {
            Key(0, (key.dst - key.src) % schedule.n, key.port): end
            for key, end in receivers.items()
        }
    for key in senders.keys() ^ receivers.keys():
        verb = "sends but nobody receives" if key in senders else "is waited for but nobody sends"
        raise ScheduleError(
            f"{name_of(schedule)}: port {key.port} from rank {key.src} to rank {key.dst}: one side"
            f" {verb}"
        )


def _error(schedule: Schedule, at: At, problem: str) -> ScheduleError:
    return ScheduleError(f"{name_of(schedule)}: {where(schedule, at)}: {problem}")


def _check_chunks(schedule: Schedule) -> None:
    """Refuse buffers that are cut otherwise than those of a plan will be."""
    what, chunks = collective(schedule.op), schedule.chunks
    if what.is_interleaved:
        fits = chunks["in"] == chunks["out"] > 0
    else:
        fits = (chunks["in"], chunks["out"]) == tuple(
            schedule.n if count == "n" else 1 for count, _ in (what.inputs, what.outputs)
        )
    if not fits:
        raise ScheduleError(
            f"{name_of(schedule)}: {chunks['in']} chunks of the input and {chunks['out']} of the"
            " output"
        )


def _check_zero_copy(schedule: Schedule, at: At, steps: Round) -> None:
    """Refuse messages that their sender cannot write, or their receiver cannot read, in place, and
    waits for pulls that are not under way.
    """
    for edge in schedule.pushed.get(at, ()):
        if not landing(steps, edge):
            raise _error(
                schedule, at, f"rank {edge.peer} cannot write what is not just copied to the output"
            )
    for edge in schedule.pulled.get(at, ()):
        senders = [step for step in steps if edge in step.send]
        if not senders or any(kept(step) is None for step in senders):
            raise _error(
                schedule, at, f"rank {edge.peer} cannot read what the input or output does not keep"
            )
    for pull in chain.from_iterable(schedule.pending_pulls.get(at, {}).values()):
        sent = schedule.pulled.get(at._replace(round=pull.round), ())
        if pull.round >= at.round or pull.edge not in sent:
            raise _error(
                schedule, at, f"a wait for a pull by rank {pull.edge.peer} that is not under way"
            )


def _check_operands(schedule: Schedule, at: At, step: Step) -> None:
    """Refuse a step that does nothing, writes the input, or names a chunk that does not exist."""
    if not step.src and not step.recv:
        raise _error(schedule, at, "a step without operands")
    if step.dst is None and not step.send:
        raise _error(schedule, at, "a step whose result goes nowhere")
    if step.dst is not None and step.dst.buffer == "in":
        raise _error(schedule, at, "a step writes to the input")
    what = collective(schedule.op)
    for buffer, chunk in (*step.src, *((step.dst,) if step.dst else ())):
        if not 0 <= chunk < schedule.chunks[buffer]:
            raise _error(schedule, at, f"{buffer}[{chunk}] does not exist")
        if buffer != "tmp" and what.blocks(buffer, schedule.n, schedule.root, at.program) == 0:
            raise _error(schedule, at, f"the rank has no {buffer} buffer")


def _check_edges(
    schedule: Schedule,
    at: At,
    edges: tuple[Edge, ...],
    ends: dict[Key, tuple[int, int]],
    *,
    is_sending: bool,
) -> None:
    """Refuse edges that lead nowhere or that two tracks share; note the track of each in `ends`."""
    if len(set(edges)) < len(edges):
        raise _error(schedule, at, "one step uses an edge twice")
    for edge in edges:
        if edge.peer == at.program or not 0 <= edge.peer < schedule.n:
            raise _error(schedule, at, f"an edge to rank {edge.peer}")
        source, target = (at.program, edge.peer) if is_sending else (edge.peer, at.program)
        track = at.program, at.track
        if ends.setdefault(Key(source, target, edge.port), track) != track:
            raise _error(
                schedule, at, f"port {edge.port} to or from rank {edge.peer} is used by two tracks"
            )


def _check_sources(
    schedule: Schedule, at: At, steps: Round, written: dict[Operand, int], *, in_place: bool
) -> None:
    """Refuse a step that reads what another step of its round writes."""
    for s, step in enumerate(steps):
        for operand in step.src:
            source = cell(schedule, at.program, operand, in_place=in_place)
            if written.get(source, s) != s:
                raise _error(
                    schedule,
                    at,
                    f"one step reads {source.buffer}[{source.chunk}] and another writes it",
                )
