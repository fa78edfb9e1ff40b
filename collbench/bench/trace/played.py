"""A traced launch as a playback of its schedule: messages with the times that they took. Pure."""

from collbench.core.trace import TracedAction, TracedLaunch
from collbench.core.units import to_us
from collbench.planning.plan import Plan
from collbench.schedules.ir import Schedule, expanded
from collbench.schedules.playback import Playback, StepEvent, playback
from collbench.schedules.verify.check import formed
from collbench.schedules.verify.proof import Place

_SHORTEST_US = 0.001  # a step that took no time by the clock of a rank


def played_trace(plan: Plan, launch: TracedLaunch) -> Playback:
    """The first slice of every message on channel 0, in microseconds since the first rank came.

    A step starts when all that it awaits is there, and ends when the flags of what it sends are
    set. Later loops and slices, and other channels, do the same with other bytes.
    """
    whole = expanded(plan.schedule)
    actions = _first_actions(whole, launch)
    events = []
    for place, found in sorted(formed(plan.schedule).items()):
        step = whole.programs[place.program][place.track].rounds[place.round][place.step]
        one = actions[place]
        start_us = to_us(one.ready_s - launch.first_s)
        end_us = to_us(one.done_s - launch.first_s)
        end_us = max(end_us, start_us + _SHORTEST_US)
        events.append(StepEvent(place, step, found.value, start_us, end_us))
    return playback(whole, events)


def _first_actions(whole: Schedule, launch: TracedLaunch) -> dict[Place, TracedAction]:
    """The first action of every step on channel 0."""
    numbers = [
        {track.name: number for number, track in enumerate(program)} for program in whole.programs
    ]
    found: dict[Place, TracedAction] = {}
    for one in launch.actions:
        if one.channel == 0 and one.work != "end":
            place = Place(one.rank, numbers[one.rank][one.track], one.round, one.step)
            found.setdefault(place, one)
    return found
