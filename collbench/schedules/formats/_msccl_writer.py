"""Schedules as MSCCL's XML.

Every edge of a track gets a thread block of its own, and an edge in and an edge out of one port
share one where a step passes data on between them. Steps that no type of MSCCL has (several
receptions, several sends) become several, through scratch memory. A step waits for the thread
blocks of its track that write what it reads, or read what it overwrites.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from collbench.schedules.ir import Edge, Operand, Round, Schedule, Step
from collbench.schedules.passes import cell
from collbench.spec.collectives import OpName, collective
from collbench.util.errors import ScheduleError

_LETTERS = {"in": "i", "out": "o", "tmp": "s"}
# What MSCCL's parser knows, of ours.
_OPS: tuple[OpName, ...] = (
    "allreduce",
    "allgather",
    "reducescatter",
    "broadcast",
    "reduce",
    "alltoall",
    "gather",
    "scatter",
)


def write(schedule: Schedule, *, has_in_place: bool) -> str:
    """The text of a file. has_in_place: whether the schedule is right in place, too. Raises
    ScheduleError for a collective that the format does not have.

    >>> import re
    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.spec.world import World
    >>> text = write(build("allreduce", "ring", ring.allreduce, World(n=3)), has_in_place=True)
    >>> re.findall('type="(.*?)" srcbuf="(.)" srcoff="(.)"', text.partition("</tb>")[0])
    [('s', 'i', '2'), ('rrs', 'i', '1'), ('rrcs', 'i', '0'), ('rcs', 'o', '2'), ('r', 'o', '1')]
    """
    if schedule.op not in _OPS:
        raise ScheduleError(
            f"MSCCL has no {schedule.op}", f"it has {', '.join(_OPS[:-1])} and {_OPS[-1]}"
        )
    what = collective(schedule.op)
    programs = [schedule.program(rank) for rank in range(schedule.n)]
    ports = sorted(
        {
            edge.port
            for program in programs
            for track in program
            for steps in track.rounds
            for step in steps
            for edge in step.send
        }
    )
    channel = {port: number for number, port in enumerate(ports)}
    chunks = schedule.chunks["in"] if what.is_interleaved else schedule.n
    root = f' root="{schedule.root}"' if what.is_rooted else ""
    lines = [
        f'<algo name="{schedule.name}_{schedule.op}" proto="Simple" nchannels="{len(ports)}"'
        f' nchunksperloop="{chunks}" ngpus="{schedule.n}" coll="{schedule.op}"{root}'
        f' inplace="{int(has_in_place)}" outofplace="1" minBytes="0" maxBytes="0">'
    ]
    for rank, program in enumerate(programs):
        gpu = _Gpu(schedule, rank)
        for track in program:
            gpu.add(track.rounds)
        held = [
            schedule.chunks[buffer] if what.blocks(buffer, schedule.n, schedule.root, rank) else 0
            for buffer in ("in", "out")
        ]
        lines.append(
            f'  <gpu id="{rank}" i_chunks="{held[0]}" o_chunks="{held[1]}"'
            f' s_chunks="{gpu.scratch}">'
        )
        for number, block in enumerate(gpu.blocks):
            lines += block.lines(number, channel)
        lines.append("  </gpu>")
    return "\n".join((*lines, "</algo>", ""))


@dataclass(slots=True)
class _Line:
    """A step of MSCCL."""

    kind: str
    src: Operand
    dst: Operand
    depid: int = -1
    deps: int = -1
    has_dependents: bool = False

    def text(self, number: int) -> str:
        source, target = (
            (_LETTERS[at.buffer], at.chunk) if self.kind != "nop" else ("i", -1)
            for at in (self.src, self.dst)
        )
        return (
            f'      <step s="{number}" type="{self.kind}" srcbuf="{source[0]}"'
            f' srcoff="{source[1]}" dstbuf="{target[0]}" dstoff="{target[1]}"'
            f' cnt="{int(self.kind != "nop")}" depid="{self.depid}" deps="{self.deps}"'
            f' hasdep="{int(self.has_dependents)}"/>'
        )


@dataclass(slots=True)
class _Block:
    """A thread block; `known`: the last step of every other one that it has waited for."""

    send: Edge | None = None
    recv: Edge | None = None
    steps: list[_Line] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)

    def lines(self, number: int, channel: dict[str, int]) -> list[str]:
        edge = self.send or self.recv
        send, recv = (end.peer if end is not None else -1 for end in (self.send, self.recv))
        chan = channel[edge.port] if edge is not None else 0
        return [
            f'    <tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">',
            *(step.text(k) for k, step in enumerate(self.steps)),
            "    </tb>",
        ]


class _Gpu:
    """The thread blocks of a rank."""

    def __init__(self, schedule: Schedule, rank: int) -> None:
        self.schedule, self.rank = schedule, rank
        self.scratch = schedule.chunks["tmp"]
        self.blocks: list[_Block] = []

    def add(self, rounds: tuple[Round, ...]) -> None:
        """The thread blocks of a track."""
        _TrackWriter(self, rounds).write(rounds)

    def fresh(self) -> Operand:
        """A chunk of scratch memory that nothing else uses."""
        self.scratch += 1
        return Operand("tmp", self.scratch - 1)


class _TrackWriter:
    """One track as thread blocks."""

    def __init__(self, gpu: _Gpu, rounds: tuple[Round, ...]) -> None:
        self.gpu = gpu
        self.senders: dict[Edge, int] = {}
        self.receivers: dict[Edge, int] = {}
        self.local = -1
        self.writes: dict[Operand, tuple[int, int]] = {}
        self.reads: dict[Operand, list[tuple[int, int]]] = {}
        for steps in rounds:
            for step in steps:
                self._join(step)

    def _join(self, step: Step) -> None:
        """Give an edge in and an edge out of one port the same block, where data passes on."""
        if len(step.recv) != 1 or step.recv[0] in self.receivers:
            return
        for edge in step.send:
            if edge.port == step.recv[0].port and edge not in self.senders:
                self.senders[edge] = self.receivers[step.recv[0]] = self._block(edge, step.recv[0])
                return

    def _block(self, send: Edge | None = None, recv: Edge | None = None) -> int:
        self.gpu.blocks.append(_Block(send, recv))
        return len(self.gpu.blocks) - 1

    def _sender(self, edge: Edge) -> int:
        if edge not in self.senders:
            self.senders[edge] = self._block(send=edge)
        return self.senders[edge]

    def _receiver(self, edge: Edge) -> int:
        if edge not in self.receivers:
            self.receivers[edge] = self._block(recv=edge)
        return self.receivers[edge]

    def _worker(self, step: Step) -> int:
        """The block of what a step does locally."""
        if step.send:
            return self._sender(step.send[0])
        if self.local < 0:
            self.local = self._block()
        return self.local

    def write(self, rounds: tuple[Round, ...]) -> None:
        """All steps, in the order of the track."""
        for steps in rounds:
            for step in steps:
                self._step(step)

    def _step(self, step: Step) -> None:
        if not step.recv:
            self._local(step)
            return
        first, *more = step.recv
        block = self._receiver(first)
        passed = next((edge for edge in step.send if self.senders.get(edge) == block), None)
        sources = self._sources(step)
        if more or len(sources) > 1:
            passed = None  # what arrives first is not yet what is sent
        others = [edge for edge in step.send if edge != passed]
        is_kept = bool(step.dst is not None or others or more or len(sources) > 1)
        if sources and passed is not None and not is_kept:
            self._put(block, "rrs", sources[0], sources[0], reads=sources[:1])
            return
        home = step.dst or self.gpu.fresh()
        reads, base = (sources[:1], sources[0]) if sources else ((), home)
        kind = ("rrc" if sources else "r" if passed is None else "rc") + "s" * (passed is not None)
        self._put(block, kind, base, home, reads=reads, writes=(home,))
        for edge in more:
            self._put(self._receiver(edge), "rrc", home, home, reads=(home,), writes=(home,))
        for source in sources[1:]:
            self._put(block, "re", source, home, reads=(source, home), writes=(home,))
        self._send(others, home)

    def _sources(self, step: Step) -> tuple[Operand, ...]:
        """The operands, first of all the one that the result overwrites."""
        target = None if step.dst is None else self._cell(step.dst)
        return tuple(sorted(step.src, key=lambda at: self._cell(at) != target))

    def _local(self, step: Step) -> None:
        """A step that receives nothing."""
        sources = self._sources(step)
        if len(sources) == 1:
            self._send(step.send, sources[0])
            if step.dst is not None:
                self._put(
                    self._worker(step),
                    "cpy",
                    sources[0],
                    step.dst,
                    reads=sources,
                    writes=(step.dst,),
                )
            return
        block, home = self._worker(step), step.dst or self.gpu.fresh()
        if sources[0] != home:
            self._put(block, "cpy", sources[0], home, reads=sources[:1], writes=(home,))
        for source in sources[1:]:
            self._put(block, "re", source, home, reads=(source, home), writes=(home,))
        self._send(step.send, home)

    def _send(self, edges: Iterable[Edge], home: Operand) -> None:
        for edge in edges:
            self._put(self._sender(edge), "s", home, home, reads=(home,))

    def _cell(self, operand: Operand) -> Operand:
        """The memory of an operand where input and output may be one."""
        in_place = collective(self.gpu.schedule.op).has_in_place
        return cell(self.gpu.schedule, self.gpu.rank, operand, in_place=in_place)

    def _put(
        self,
        block: int,
        kind: str,
        src: Operand,
        dst: Operand,
        *,
        reads: Iterable[Operand] = (),
        writes: Iterable[Operand] = (),
    ) -> None:
        """Add a step behind waits for the steps of other blocks that it must come after."""
        needed: dict[int, int] = {}
        read, written = set(map(self._cell, reads)), set(map(self._cell, writes))
        before = [self.writes[at] for at in read | written if at in self.writes]
        before += [access for at in written for access in self.reads.get(at, ())]
        own = self.gpu.blocks[block]
        for other, number in before:
            if other != block and number > own.known.get(other, -1):
                needed[other] = max(number, needed.get(other, -1))
        own.known |= needed
        line = _Line(kind, src, dst)
        waits = sorted(needed.items())
        for other, number in waits:
            self.gpu.blocks[other].steps[number].has_dependents = True
        own.steps += [_Line("nop", src, dst, *wait) for wait in waits[:-1]]
        if waits:
            line.depid, line.deps = waits[-1]
        own.steps.append(line)
        number = len(own.steps) - 1
        for at in read:
            self.reads.setdefault(at, []).append((block, number))
        for at in written:
            self.writes[at] = block, number
            self.reads[at] = []
