"""Logs of NCCL and RCCL with the lines of the subsystem COLL, of one rank or of all.

A log has sends and receives where PyTorch has an exchange: those of one rank between two
collectives, to most of the others, are one alltoall. It is replayed with equal blocks of the same
total, and its skew is kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from collbench.core.collectives import OpName, collective
from collbench.core.dtypes import DtypeName, RedopName, dtype
from collbench.core.errors import UsageError
from collbench.jobs.formats import Opened
from collbench.jobs.formats._torch import op_of
from collbench.jobs.model import Call, Job
from collbench.jobs.nccl_log.lines import LogSource
from collbench.jobs.nccl_log.model import Communicator, LoggedCalls, LogReport, Signature
from collbench.jobs.nccl_log.reader import LogReader
from collbench.jobs.nccl_log.summary import REDOPS, dtype_name, size_of

NAME = "a log of NCCL"
HINT = "run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL"
# of equal width: what only moves does not care, and sums of both signs are the same bits
_DTYPES: dict[str, DtypeName] = {
    "uint32": "int32",
    "uint64": "int64",
    "fp8e4m3": "float8_e4m3fn",
    "fp8e5m2": "float8_e5m2",
}


def is_mine(head: str) -> bool:
    """Whether a file begins like a log; it may begin with what programs print."""
    return " NCCL " in head


def read(files: Opened) -> Job:
    """The calls of the rank that made most, of all communicators in the order of its lines."""
    reader = LogReader()
    for name, lines in files:
        reader.feed(name, lines)
    report = reader.finish()
    name = ", ".join(name for name, _ in files)
    if not report.counters.nccl:
        raise UsageError(f"{name}: there is nothing of NCCL in it", HINT)
    made: dict[LogSource, int] = {}
    for known in report.communicators:
        for member, calls in known.calls.items():
            made[member] = made.get(member, 0) + len(calls.lines) + len(calls.p2p)
    if not made:
        return Job(name=name, source=NAME, calls=())
    member = max(made, key=lambda one: (made[one], -one.device, -one.pid))
    exchanges = {
        known.name: [list(_exchanges(report, calls)) for calls in known.calls.values()]
        for known in report.communicators
    }
    found: list[tuple[int, Call]] = []
    skipped = 0
    for known in report.communicators:
        calls_of = known.calls.get(member)
        if calls_of is None or known.nranks < 2:
            continue
        for line, number in zip(calls_of.lines, calls_of.signatures, strict=True):
            call = _call(report.signatures[number], known)
            skipped += call is None
            if call is not None:
                found.append((line, call))
        for place, exchange in enumerate(_exchanges(report, calls_of)):
            same = [of_rank[place] for of_rank in exchanges[known.name] if len(of_rank) > place]
            found += [(exchange.line, call) for call in _calls_of(exchange, same, known)]
    found.sort(key=lambda pair: pair[0])
    remarks = [f"{skipped} calls have a type that cannot be replayed"] if skipped else []
    if apart := made.keys() - _connected(member, report):
        remarks.append(
            f"{sum(made[one] for one in apart)} calls are left out: their ranks share no"
            " communicator with this one, as those of another job"
        )
    return Job(name=name, source=NAME, calls=[call for _, call in found], remarks=remarks)


def _connected(member: LogSource, report: LogReport) -> set[LogSource]:
    """The ranks that share a communicator with a rank, or with one that does; all, where the log
    does not say who is in which.
    """
    if any(len(one.ranks) < one.nranks for one in report.communicators if one.calls):
        return {other for one in report.communicators for other in one.calls}
    known, more = {member}, True
    while more:
        near = {
            other
            for one in report.communicators
            if not known.isdisjoint(one.calls)
            for other in one.calls
        }
        more = not near <= known
        known |= near
    return known


def _element(number: int) -> DtypeName | None:
    name = dtype_name(number)
    return None if name.startswith("type ") else _DTYPES.get(name, cast(DtypeName, name))


def _call(signature: Signature, known: Communicator) -> Call | None:
    """The call of a line; None where it moves nothing, or is of an unknown type."""
    op, element = op_of(signature.op), _element(signature.dtype)
    if op is None or element is None or not signature.count:
        return None
    redop: RedopName = "sum"
    if collective(op).is_reduction and signature.redop < len(REDOPS):
        redop = cast(RedopName, REDOPS[signature.redop])
    return Call(
        op=op,
        size_bytes=size_of(signature.op, signature.count, signature.dtype, known.nranks),
        dtype=element,
        redop=redop,
        ranks=known.nranks,
        group=known.name,
    )


@dataclass(slots=True)
class _Exchange:
    """Sends and receives of one rank that belong together: bytes by peer."""

    line: int
    element: DtypeName
    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)

    def of(self, op: str) -> dict[int, int]:
        return self.sent if op == "Send" else self.received


def _exchanges(report: LogReport, calls: LoggedCalls) -> Iterator[_Exchange]:
    """What a rank sends and receives between two collectives, up to a peer that comes again."""
    ends, end = list(calls.lines), 0
    current: _Exchange | None = None
    for line, number in zip(calls.p2p_lines, calls.p2p, strict=True):
        one = report.signatures[number]
        element = _element(one.dtype)
        if element is None:
            continue
        is_parted = False
        while end < len(ends) and ends[end] < line:
            end, is_parted = end + 1, True
        if current is not None and (is_parted or one.root in current.of(one.op)):
            yield current
            current = None
        if current is None:
            current = _Exchange(line=line, element=element)
        current.of(one.op)[one.root] = one.count * dtype(element).item_bytes
    if current is not None:
        yield current


def _calls_of(
    exchange: _Exchange, same: Sequence[_Exchange], known: Communicator
) -> Iterator[Call]:
    """One alltoall for an exchange with most ranks, or a gather or a scatter where it goes one way;
    else a shift for every message.
    """
    peers = exchange.sent.keys() | exchange.received.keys()
    if len(peers) > 2 or 2 * len(peers) > known.nranks > 2 or len(peers) == known.nranks:
        yield _exchanged(exchange, same, known)
        return
    op: OpName = "sendrecv"
    for size in (exchange.sent or exchange.received).values():
        if size:
            yield Call(op=op, size_bytes=size, dtype=exchange.element, ranks=2, group=known.name)


def _exchanged(exchange: _Exchange, same: Sequence[_Exchange], known: Communicator) -> Call:
    """The exchange with equal blocks of the same total; same: what all ranks say of it."""
    op: OpName = "alltoall"
    if not exchange.sent or not exchange.received:
        op, same = "scatter" if exchange.sent else "gather", [exchange]
    width, n = dtype(exchange.element).item_bytes, known.nranks
    blocks = [size for one in same for size in one.sent.values()]
    blocks = blocks or [size for one in same for size in one.received.values()]
    mean = sum(blocks) / max(1, len(blocks))
    block = max(width, round(mean / width) * width)
    loads = [sum(part.values()) for one in same for part in (one.sent, one.received) if part]
    return Call(
        op=op,
        size_bytes=block * n,
        dtype=exchange.element,
        ranks=n,
        group=known.name,
        skew=max(blocks) / mean if mean else 1.0,
        load=max(loads) * len(loads) / sum(loads) if sum(loads) else 1.0,
    )
