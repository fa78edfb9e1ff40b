"""A trace as Chrome's trace events (JSON), which Perfetto and chrome://tracing open. Pure.

The form is Google's "Trace Event Format"; Perfetto reads it as well as its own protobuf form, which
would need a package for writing. A rank is a process, a track of a channel a thread; what moves
messages, and the critical path, have threads of their own. Arrows lead from the action that ended a
wait to the one that waited. Times are microseconds with three decimals.
"""

import json
from collections.abc import Iterator

from collbench import __version__
from collbench.bench.trace.critical_path import critical_path
from collbench.core.trace import Trace, TracedLaunch, TraceSpan, spans
from collbench.core.units import to_us

_LAUNCHES, _FIRST_TRACK, _FIRST_PROXY = 0, 1, 100_000  # numbers of threads of a rank
TraceEvent = dict[str, object]
_AWAITED = {"data": "data of", "slot": "a slot from", "begun": "the launch of"}
_NAMES = {"post": "post flags", "end": "wait until peers have read", "launch": "launch"}


def chrome_trace(trace: Trace) -> str:
    """The text of the file. It begins at 0."""
    events = _Writer(trace).all()
    # one event a line: a file that a person can read, in a fifth of the bytes of an indented one
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    about = {
        "collbench": __version__,
        "clockErrorUs": to_us(trace.clock_error_s),
        "case": trace.title,
    }
    head, tail = '{"traceEvents":[', '],"displayTimeUnit":"ns","otherData":'
    return f"{head}\n{lines}\n{tail}{json.dumps(about)}}}\n"


class _Writer:
    """The events of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.ranks = len(trace.names)
        self.zero_s = min(launch.first_s for launch in trace.launches)
        self.threads: dict[tuple[int, int, str], int] = {}  # of a rank, channel and track

    def all(self) -> Iterator[TraceEvent]:
        events = [
            event
            for number, launch in enumerate(self.trace.launches)
            for event in self._launch(number, launch)
        ]
        yield from self._names()
        yield from events

    def _names(self) -> Iterator[TraceEvent]:
        for rank, name in enumerate((*self.trace.names, "critical path")):
            label = f"{self.trace.title}: {name}"
            yield _meta("process_name", rank, 0, {"name": label})
            yield _meta("process_sort_index", rank, 0, {"sort_index": rank})
            if rank < self.ranks:
                yield _meta("thread_name", rank, _LAUNCHES, {"name": "launches"})
        for (rank, channel, track), tid in self.threads.items():
            name = f"channel {channel} {track}"
            yield _meta("thread_name", rank, tid, {"name": name})
            yield _meta("thread_sort_index", rank, tid, {"sort_index": tid})
        yield _meta("thread_name", self.ranks, 0, {"name": "longest chain"})

    def _launch(self, number: int, launch: TracedLaunch) -> Iterator[TraceEvent]:
        for span in spans(launch):
            yield self._span(number, launch, span)
        for transfer in launch.transfers:
            kind = "send" if transfer.is_sending else "receive"
            name = f"proxy: {kind} {'to' if transfer.is_sending else 'from'} rank {transfer.peer}"
            args = {"launch": number, "slice": transfer.slice}
            tid = self._thread(transfer.rank, transfer.channel, name, _FIRST_PROXY)
            # a message may be posted before the one in front of it is done: asynchronous events
            key = f"{number}.{transfer.rank}.{tid}.{transfer.slice}"
            at = {"cat": "net", "id": key, "pid": transfer.rank, "tid": tid}
            yield {"ph": "b", "name": name, "ts": self._us(transfer.posted_s), **at, "args": args}
            yield {"ph": "e", "name": name, "ts": self._us(transfer.done_s), **at}
        for place, action in enumerate(launch.actions):
            if action.wait is not None and action.wait.origin >= 0:
                origin = launch.actions[action.wait.origin]
                arrow = {"cat": "flag", "name": action.wait.what}
                key = f"{number}.{place}"
                left_s = min(origin.done_s, action.ready_s)
                for phase, at_s, end in (("s", left_s, origin), ("f", action.ready_s, action)):
                    tid = self._thread(end.rank, end.channel, end.track)
                    bound = {"bp": "e"} if phase == "f" else {}
                    ts = self._us(at_s)
                    at = {"id": key, "ts": ts, "pid": end.rank, "tid": tid}
                    yield {"ph": phase, **at, **arrow, **bound}
        for segment in critical_path(launch):
            link = "" if segment.link is None else " {} to {}".format(*segment.link)
            name = f"{segment.cause}{link} (rank {segment.rank})"
            times = segment.start_s, segment.end_s
            yield self._complete(name, self.ranks, 0, *times, {"launch": number})

    def _span(self, number: int, launch: TracedLaunch, span: TraceSpan) -> TraceEvent:
        args: dict[str, object] = {"launch": number}
        name = _NAMES.get(span.what, span.what)
        tid = _LAUNCHES
        if span.action >= 0:
            action = launch.actions[span.action]
            tid = self._thread(span.rank, span.channel, span.track)
            args |= {"round": action.round, "slice": action.slice, "bytes": action.size_bytes}
            if span.what == "wait":
                name = "wait: other tracks of this rank run"
                if action.wait is not None:
                    name = f"wait: {_AWAITED[action.wait.what]} rank {action.wait.peer}"
        return self._complete(name, span.rank, tid, span.start_s, span.end_s, args)

    def _complete(
        self, name: str, rank: int, tid: int, start_s: float, end_s: float, args: TraceEvent
    ) -> TraceEvent:
        ts = self._us(start_s)
        return {
            "ph": "X",
            "name": name,
            "ts": ts,
            "dur": round(self._us(end_s) - ts, 3),
            "pid": rank,
            "tid": tid,
            "args": args,
        }

    def _thread(self, rank: int, channel: int, track: str, first: int = _FIRST_TRACK) -> int:
        key = rank, channel, track
        return self.threads.setdefault(key, first + len(self.threads))

    def _us(self, at_s: float) -> float:
        """Since the first launch began, in whole nanoseconds, so that spans meet exactly."""
        return round(to_us(at_s - self.zero_s), 3)


def _meta(name: str, pid: int, tid: int, args: TraceEvent) -> TraceEvent:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}
