"""Launches that are played action by action, of which a link, a rank or an arrival takes long."""

import random
from collections.abc import Mapping
from typing import Literal

from collbench.backends.cpu.flags import filled, freed
from collbench.backends.cpu.trace import RankTrace, TraceEvent
from collbench.core.case import Case
from collbench.planning.lowering import TrackActions, actors, room_wanted
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve

WORK_S, LINK_S, NOISE = 20e-6, 50e-6, 0.2
Part = tuple[Literal["late", "work", "link"], tuple[int, ...]]


def plan_of(algo: str, n: int) -> Plan:
    return resolve(
        Case(op="allreduce", backend="cpu", algo=algo, proto="simple", ranks=n, size_bytes=1 << 16)
    ).plan


class Played:
    """Launches of a plan whose parts take so many times as long as the others; a late rank comes
    late by so many times a link's time.
    """

    def __init__(self, plan: Plan, slow: Mapping[Part, float], seed: int = 3) -> None:
        self.plan, self.slow, self.chance = plan, slow, random.Random(seed)
        self.actors = [actors(plan, rank) for rank in range(plan.n)]

    def launch(self) -> list[RankTrace]:
        plan, n = self.plan, self.plan.n
        start = [
            1.0 + self.slow.get(("late", (rank,)), 0.0) * LINK_S + self.noisy(1e-6)
            for rank in range(n)
        ]
        self.clock, self.known = [*start], dict[tuple[int, int], float]()
        events: list[list[TraceEvent]] = [[] for _ in range(n)]
        places = [[0] * len(tracks) for tracks in self.actors]
        while True:
            ready = [
                (when, rank, track, word)
                for rank in range(n)
                for track, actor in enumerate(self.actors[rank])
                if places[rank][track] <= len(actor.actions)
                and (found := self.ready(rank, actor, places[rank][track])) is not None
                for when, word in [found]
            ]
            if not ready:
                break
            when, rank, track, word = min(ready)
            actor, place = self.actors[rank][track], places[rank][track]
            done = when + self.noisy(WORK_S * self.slow.get(("work", (rank,)), 1.0))
            if place < len(actor.actions):
                action = actor.actions[place]
                for one in action.post:
                    connection = plan.connections[one.edge]
                    link = connection.src, connection.dst
                    sent = filled(plan, one.edge, at_src=False)
                    factor = self.slow.get(("link", link), 1.0)
                    self.known[sent, one.number] = done + self.noisy(LINK_S * factor)
                for one in action.free:
                    self.known[freed(plan, one.edge, at_src=True), one.number] = done
            else:
                done = when
            events[rank].append(TraceEvent(track, place, when, done, done, word))
            self.clock[rank] = done
            places[rank][track] += 1
        assert all(
            place == len(actor.actions) + 1
            for rank, tracks in enumerate(places)
            for place, actor in zip(tracks, self.actors[rank], strict=True)
        ), "the launch hangs"
        return [
            RankTrace(first, first, some, []) for first, some in zip(start, events, strict=True)
        ]

    def ready(self, rank: int, actor: TrackActions, place: int) -> tuple[float, int] | None:
        """When an action can run, and the flag that it waits for last; None if not known yet."""
        plan = self.plan
        waits = []
        is_last = place == len(actor.actions)
        action = None if is_last else actor.actions[place]
        if action is not None:
            waits += [(filled(plan, one.edge, at_src=False), one.number) for one in action.take]
            for one in action.room:
                wanted = room_wanted(one, plan.connections[one.edge].slices, plan.slots)
                if plan.connections[one.edge].fifo_offset >= 0 and wanted > 0:
                    waits.append((freed(plan, one.edge, at_src=True), wanted - 1))
        waits += [
            (freed(plan, one.edge, at_src=True), one.number)
            for one in (actor.back if action is None else action.back)
        ]
        if any(wait not in self.known for wait in waits):
            return None
        when, word = max(((self.known[wait], wait[0]) for wait in waits), default=(0.0, -1))
        return (when, word) if when > self.clock[rank] else (self.clock[rank], -1)

    def noisy(self, seconds: float) -> float:
        return seconds * (1 + self.chance.uniform(0, NOISE))
