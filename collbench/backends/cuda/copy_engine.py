"""Runs plans by a GPU's copy engine: plays what device/engine.py wrote on four streams besides the
main one, also into a graph being captured.

Streams, events and kernels only; what is queued, and in which order, is the script's.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial

from collbench.backends.gpu.rank import DeviceRank
from collbench.device.card import Launch
from collbench.device.compile import move_widths
from collbench.device.copies import queue_copy
from collbench.device.engine import (
    COPYING,
    MAIN,
    MOVING,
    SIGNALLING,
    UNBOUNDED,
    WAITING,
    BeginCommand,
    CopyCommand,
    FlagEntry,
    MoveCommand,
    RecordEvent,
    SignalCommand,
    WaitCommand,
    WaitEvent,
    script,
)
from collbench.device.layout import REPORTS_AT, STATES_AT, Memory
from collbench.device.program import TAIL
from collbench.planning.plan import Plan

ENGINE = struct.Struct("<5Q4I")
NOTE = struct.Struct("<4Q8I")
MOVE = struct.Struct("<2Q4I")
_LANES = 32  # threads of a CTA that waits or signals

Queue = Callable[[int], None]


class CopyEngine:
    """A rank's streams and events, used by all its plans in turn."""

    def __init__(self, gpu: DeviceRank) -> None:
        self.gpu, self.runtime = gpu, gpu.card.runtime
        self._streams = {
            stream: gpu.card.new_stream() for stream in (WAITING, COPYING, MOVING, SIGNALLING)
        }
        self._events: list[int] = []

    def queue(
        self,
        plan: Plan,
        cubin: bytes,
        memory: Memory,
        *,
        set_offset: int,
        delay_ns: int = 0,
        done_before: Sequence[int] | None = None,
        silent_after: int | None = None,
    ) -> Queue:
        """One launch: call it with the stream that it belongs to, as often as wanted.

        done_before: see engine.script. silent_after, for tests: rank 0 does not signal slices
        beyond that on channel 0.
        """
        gpu, rank, kernel = self.gpu, self.gpu.rank, plan.kernel
        assert kernel is not None
        commands = script(plan, rank, memory, set_offset=set_offset, done_before=done_before)
        entries = [
            entry
            for command in commands
            if isinstance(command, BeginCommand | WaitCommand | SignalCommand)
            for entry in command.entries
        ]
        silent = silent_after if rank == 0 and silent_after is not None else UNBOUNDED
        packed_entries = b"".join(_packed(entry, silent) for entry in entries)
        table = gpu.keep(("flags", tuple(entries), silent), packed_entries)
        wait, signal, move = (
            gpu.card.function(cubin, f"collbench_{name}") for name in ("wait", "signal", "move")
        )
        engine = ENGINE.pack(
            memory.own + STATES_AT,
            memory.abort,
            memory.aborts,
            memory.own + REPORTS_AT,
            int(gpu.timeout_s * 1e9),
            rank,
            plan.n,
            delay_ns,
            0,
        )
        calls: list[Callable[[int], object]] = []
        used = 0

        def flags_launch(function: int, count: int, *more: bytes) -> Launch:
            """A kernel that waits for, or sets, the next flags of the table."""
            nonlocal used
            address, used = table + used * NOTE.size, used + count
            args = [engine, struct.pack("<Q", address), struct.pack("<I", count), *more]
            return Launch(gpu.card, function, (1, 1), _LANES, args)

        self._need_events(
            1 + max(command.event for command in commands if isinstance(command, RecordEvent))
        )
        for command in commands:
            call: Callable[[int], object]
            match command:
                case RecordEvent(stream, event):
                    call = partial(self._record, stream, self._events[event])
                case WaitEvent(stream, event):
                    call = partial(self._after, stream, self._events[event])
                case CopyCommand(target, source, size):
                    call = self._on(
                        COPYING, partial(queue_copy, self.runtime, target, source, size)
                    )
                case MoveCommand(target, sources, size, divides):
                    packed = MOVE.pack(target, size, len(sources), divides, plan.n, 0)
                    args = [packed + _addresses(plan, command)]
                    grid = kernel.ctas, 1
                    call = self._on(MOVING, Launch(gpu.card, move, grid, kernel.threads, args))
                case BeginCommand(flags):
                    call = flags_launch(signal, len(flags), struct.pack("<I", 1))
                case WaitCommand(flags):
                    call = self._on(WAITING, flags_launch(wait, len(flags)))
                case SignalCommand(flags):
                    launch = flags_launch(signal, len(flags), struct.pack("<I", 0))
                    call = self._on(SIGNALLING, launch)
            calls.append(call)
        return partial(_play, calls)

    def _on(self, stream: int, call: Callable[[int], object]) -> Callable[[int], object]:
        """A call in one of this class's streams, whatever the main one is."""
        own = self._streams[stream]
        return lambda main: call(own)

    def _record(self, stream: int, event: int, main: int) -> None:
        self.runtime.eventRecord(event, main if stream == MAIN else self._streams[stream])

    def _after(self, stream: int, event: int, main: int) -> None:
        self.runtime.streamWaitEvent(main if stream == MAIN else self._streams[stream], event)

    def _need_events(self, count: int) -> None:
        while len(self._events) < count:
            self._events.append(
                int(self.runtime.eventCreateWithFlags(self.runtime.eventDisableTiming))
            )


def _play(calls: Sequence[Callable[[int], object]], main: int) -> None:
    for call in calls:
        call(main)


def _packed(entry: FlagEntry, silent: int) -> bytes:
    word, per_launch, number, *rest = entry
    limit = silent if entry.signal == TAIL and entry.channel == 0 else UNBOUNDED
    return NOTE.pack(word, per_launch, number, limit, *rest)


def _addresses(plan: Plan, move: MoveCommand) -> bytes:
    """The sources in a table as long as the kernel's."""
    count = move_widths(plan)[-1]
    return struct.pack(f"<{count}Q", *move.sources, *[0] * (count - len(move.sources)))
