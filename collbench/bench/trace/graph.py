"""A launch as a graph, from what ranks on CPUs noted: which action ended each wait. Pure."""

import math
from collections.abc import Sequence

from collbench.backends.cpu.flags import LINE_WORDS
from collbench.backends.cpu.trace import ANY_FLAG, RankTrace, TraceEvent
from collbench.core.trace import Awaited, TracedAction, TracedLaunch, Transfer, Wait, Work
from collbench.planning.lowering import Action, TrackActions
from collbench.planning.plan import Plan
from collbench.schedules.verify.proof import Place

# what a track does at the end of a launch: it waits
_END = Action(Place(-1, -1, -1, -1), (), (), (), (), (), False, (), ())
# A core that was offered for less had nobody to take it: the call alone takes a part of this.
_SWITCH_S = 5e-6
_Slice = tuple[int, int]  # a connection, and the number of a slice


def launch_graph(
    plan: Plan,
    actors: Sequence[Sequence[TrackActions]],
    traces: Sequence[RankTrace],
    *,
    is_serial: bool = True,
) -> TracedLaunch:
    """A launch by what every rank noted. actors: of every rank, as lowering.actors has them.
    is_serial: a rank does one thing at a time; else each of its tracks does.
    """
    graph = _Graph(plan, actors, traces)
    actions: list[TracedAction] = []
    for rank, trace in enumerate(traces):
        latest: dict[int, int] = {}  # of each track, the number of its latest action
        for number, event in enumerate(trace.events):
            track_before = latest.get(event.actor, -1)
            before = track_before if not is_serial else len(actions) - 1 if number else -1
            actions.append(graph.traced(rank, number, event, before, track_before))
            latest[event.actor] = len(actions) - 1
    return TracedLaunch(
        tuple(trace.arrived for trace in traces),
        tuple(trace.begun for trace in traces),
        tuple(actions),
        tuple(graph.transfers()),
    )


class _Graph:
    """The events of a launch by what they sent and freed, as (rank, number of its event)."""

    def __init__(
        self, plan: Plan, actors: Sequence[Sequence[TrackActions]], traces: Sequence[RankTrace]
    ) -> None:
        self.plan, self.actors, self.traces = plan, actors, traces
        self.links = [(connection.src, connection.dst) for connection in plan.connections]
        self.sent: dict[_Slice, tuple[int, int]] = {}
        self.freed: dict[_Slice, tuple[int, int]] = {}
        self.first = [0]  # of each rank, the number of its first action in the launch
        for rank, trace in enumerate(traces):
            self.first.append(self.first[-1] + len(trace.events))
            for number, event in enumerate(trace.events):
                if (action := self.action(rank, event)) is not None:
                    self.sent |= {(one.edge, one.number): (rank, number) for one in action.post}
                    self.freed |= {(one.edge, one.number): (rank, number) for one in action.free}
        self.flight_s = self._flight_s() if plan.proto != "simple" else 0.0

    def _flight_s(self) -> float:
        """The least time from the end of a sender until its data were taken."""
        return min(
            (
                event.worked - self._worked(self.sent[one.edge, one.number])
                for rank, trace in enumerate(self.traces)
                for event in trace.events
                if (action := self.action(rank, event)) is not None
                for one in action.take
                if (one.edge, one.number) in self.sent
            ),
            default=0.0,
        )

    def action(self, rank: int, event: TraceEvent) -> Action | None:
        """What an event carried out; None at the end of a track."""
        actions = self.actors[rank][event.actor].actions
        return actions[event.position] if event.position < len(actions) else None

    def traced(
        self, rank: int, number: int, event: TraceEvent, before: int, track_before: int
    ) -> TracedAction:
        actor, action = self.actors[rank][event.actor], self.action(rank, event) or _END
        slices = (*action.take, *action.post)
        is_empty = not action.targets or not action.operands[0].size
        sends = sum(target.space == "slot" for target in action.targets)
        wait, ready = None, event.ready
        if event.word == ANY_FLAG:
            wait, ready = self._last_wait(rank, number, event)
        elif event.word >= 0:
            wait = self._wait(rank, number, event)
        work: Work = "end" if action is _END else "hand over"
        if not is_empty:
            work = "reduce" if len(action.operands) > 1 else "move"
        return TracedAction(
            rank=rank,
            channel=actor.channel,
            track=actor.track,
            round=action.place.round,
            step=action.place.step,
            slice=slices[0].number if slices else 0,
            work=work,
            size_bytes=0 if is_empty else action.operands[0].size,
            reads=len(action.operands),
            writes=len(action.targets) - sends,
            sends=sends,
            takes=len(action.take),
            posts=len(action.post),
            ready_s=ready,
            worked_s=event.worked,
            done_s=event.done,
            wait=wait,
            before=before,
            track_before=track_before,
        )

    def _wait(self, rank: int, number: int, event: TraceEvent) -> Wait:
        """For what an event waited, and the event that ended it: the last one that can have been,
        never its own, as where a message of its own left late.
        """
        word, kind = divmod(event.word, 2 * LINE_WORDS)
        edge = word % len(self.links)
        link, action = self.links[edge], self.action(rank, event)
        peer = link[0] if link[1] == rank else link[1]
        wants_data = kind == 0 and action is not None
        origins = self._origins(rank, event, edge, wants_data=wants_data)
        able = [one for one in origins if self._worked(one) <= event.ready]
        origin = max(able, key=self._worked, default=(rank, number))
        is_own = origin == (rank, number)
        is_away = event.offered and event.ready - event.offered > _SWITCH_S
        return Wait(
            "data" if wants_data else "slot",
            peer,
            link,
            -1 if is_own else self.first[origin[0]] + origin[1],
            event.offered if is_away else math.inf,
        )

    def _last_wait(self, rank: int, number: int, event: TraceEvent) -> tuple[Wait | None, float]:
        """The wait of an event that ended last, if it ended after what its track did before, and
        when the event was ready by that. Data with flags are awaited while they are moved.
        """
        action = self.action(rank, event)
        flags = [(one.edge, True) for one in action.take] if action is not None else []
        flags += [(one.edge, False) for one in (action.room if action is not None else ())]
        back = self.actors[rank][event.actor].back if action is None else action.back
        flags += [(one.edge, False) for one in back]
        found = [
            (self._worked(origin), edge, wants_data, origin)
            for edge, wants_data in flags
            for origin in self._origins(rank, event, edge, wants_data=wants_data)
            if origin != (rank, number)
        ]
        limit = event.ready if self.plan.proto == "simple" else event.worked
        able = [one for one in found if one[0] <= limit]
        since = self._track_before(rank, number, event)
        last = max((one[0] for one in able), default=since)
        peers = action.begun if action is not None else ()
        begun = max(((self.traces[peer].begun, peer) for peer in peers), default=(since, -1))
        if max(since, last) < begun[0] <= limit:
            return Wait("begun", begun[1], (rank, begun[1]), -1), event.ready
        if not able or last <= since:
            return self._on_the_wire(found, event), event.ready
        _, edge, wants_data, origin = max(able)
        link = self.links[edge]
        peer = link[0] if link[1] == rank else link[1]
        what: Awaited = "data" if wants_data else "slot"
        done = self.traces[origin[0]].events[origin[1]].done
        ready = max(event.ready, min(done, event.worked))
        is_in_lines = wants_data and self.plan.proto != "simple"
        number = self.first[origin[0]] + origin[1]
        return Wait(what, peer, link, number, is_in_lines=is_in_lines), ready

    def _on_the_wire(
        self, found: Sequence[tuple[float, int, bool, tuple[int, int]]], event: TraceEvent
    ) -> Wait | None:
        """Data with flags that were sent before the event could begin, and need not have come then:
        none of the launch came as fast.
        """
        sent = ((at, edge) for at, edge, wants_data, _ in found if wants_data)
        sent_s, edge = max(sent, default=(-math.inf, 0))
        if sent_s + self.flight_s <= event.ready:
            return None
        return Wait("data", self.links[edge][0], self.links[edge], -1, is_in_lines=True)

    def _track_before(self, rank: int, number: int, event: TraceEvent) -> float:
        """When the track of an event had worked before it."""
        events = self.traces[rank].events
        before = (one.worked for one in reversed(events[:number]) if one.actor == event.actor)
        return next(before, self.traces[rank].begun)

    def _worked(self, at: tuple[int, int]) -> float:
        return self.traces[at[0]].events[at[1]].worked

    def _origins(
        self, rank: int, event: TraceEvent, edge: int, *, wants_data: bool
    ) -> list[tuple[int, int]]:
        """Events that can have ended a wait for a flag of a connection."""
        action = self.action(rank, event)
        if wants_data and action is not None:
            wanted = [(edge, one.number) for one in action.take if one.edge == edge]
            return [self.sent[one] for one in wanted if one in self.sent]
        # a slot, or the end of what a peer pulls; between hosts it comes with a message that left
        room = [] if action is None else action.room
        back = self.actors[rank][event.actor].back if action is None else action.back
        wanted = [(edge, one.number - self.plan.slots) for one in room if one.edge == edge]
        wanted += [(edge, one.number) for one in back if one.edge == edge]
        return [
            source[one] for one in wanted for source in (self.sent, self.freed) if one in source
        ]

    def transfers(self) -> list[Transfer]:
        """The messages of proxies."""
        found = []
        for rank, trace in enumerate(self.traces):
            for edge, is_sending, number, posted, done in trace.messages:
                connection = self.plan.connections[edge]
                peer = connection.dst if is_sending else connection.src
                slice_ = number % connection.slices
                found.append(
                    Transfer(rank, peer, connection.channel, is_sending, slice_, posted, done)
                )
        return found
