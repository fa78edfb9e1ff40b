"""Which transport, algorithm and protocol a case takes that leaves them open: by the tuning files,
among those that can run here.

Where no file that fits decides, and links are known, prices do (chooser.py). And what the planner
returns then, with what its ways (CPUs, kernels, copy engines) share.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.errors import ScheduleError
from collbench.core.knobs import KNOBS
from collbench.core.units import format_size
from collbench.planning.limits import Limits, gpu_domains
from collbench.planning.plan import Plan, label
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.protocols import sentinel
from collbench.planning.transports import FAMILY as TRANSPORTS
from collbench.planning.tuning import Fact, Facts, Tuning, TuningRow, Values
from collbench.schedules.algorithms import FAMILY, needs_hosts
from collbench.schedules.ir import Schedule

_OTHERS = [knob for knob in KNOBS if knob.name not in ("algo", "proto")]
_other_knobs = attrgetter(*(knob.name for knob in _OTHERS))
_OPEN = tuple(knob.default for knob in _OTHERS)


def facts_of(case: Case, hosts: tuple[int, ...], *, is_gpu: bool = True) -> dict[str, Fact]:
    """What is known of a case before anything is decided. hosts: of its ranks, () for one host.
    is_gpu: whether GPUs are to run it, which have more protocols.

    The links between hosts are slower than those within one, so large sizes ask for few bytes
    between hosts: see the tables `hosts`.
    """
    what, ranks_of = collective(case.op), Counter(hosts).values()
    return {
        "op": what.even,
        "rooted": what.is_rooted,
        "reduction": what.is_reduction,
        "ranks": case.ranks,
        "size": case.size_bytes,
        "hosts": len(ranks_of) or 1,
        "ranks_of_host": max(ranks_of, default=case.ranks),
        "even_hosts": len(set(ranks_of)) < 2,
        "asked_algo": case.algo,
        "asked_proto": case.proto,
        "open": _other_knobs(case) == _OPEN,
        "algo_given": case.algo != "auto",
        # unequal blocks take a slot several times
        "has_marker": is_gpu and case.skew in ("", "even") and not sentinel.why_not(case.dtype),
    }


def way_of(
    case: Case, facts: Facts, tuning: Tuning, limits: Limits | None = None
) -> tuple[str, str]:
    """Algorithm and protocol of a case, by the tuning files where it leaves them open. facts: with
    the transport. limits: of GPUs, which say what is not safe there. Raises ScheduleError if no
    algorithm serves the collective.

    >>> from collbench.planning.tuning import Machine, tuning_of
    >>> case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=8)
    >>> way_of(case, facts_of(case, ()) | {"transport": "p2p"}, tuning_of(Machine("gpu"), 4))
    ('oneshot', 'sentinel')
    """
    algo, proto = case.algo, case.proto
    if proto == "auto":
        proto = tuning.text("proto", facts, "auto")
    if algo == "auto":
        way = _way_of_tables(case, facts, tuning, proto)
        algo = str(way["algo"])
        proto = str(way.get("proto", proto)) if proto == "auto" else proto
    if proto == "auto":
        proto = tuning.text("proto", {**facts, "algo_given": True})
    return algo, limits.safe(proto) if limits is not None and case.proto == "auto" else proto


def is_measured(case: Case, limits: Limits, tuning: Tuning) -> bool:
    """Whether a tuning file that fits decides what a case leaves open of algorithm and protocol;
    where it leaves neither open, whether any file fits.
    """
    if tuning.is_whole or "auto" not in (case.algo, case.proto):
        return tuning.origin.is_fitting
    facts = facts_of(case, case.fitting(limits.hosts))
    facts["transport"] = case.transport
    if case.transport == "auto":
        try:
            facts["transport"] = transport_of(case, limits, facts, tuning)
        except ScheduleError:
            return tuning.origin.is_fitting
    if case.algo != "auto":
        return any(tuning.tables("proto", facts, only_fitting=True))
    return any(_serving(rows, case) for rows in tuning.tables("algo", facts, only_fitting=True))


def _way_of_tables(case: Case, facts: Facts, tuning: Tuning, proto: str) -> Values:
    """The first row with an algorithm that serves the collective, if there is one in its table with
    the protocol that is wanted; else any algorithm that does.
    """
    for table in tuning.tables("algo", facts):
        rows = _serving(table, case)
        for row in rows:
            if proto in ("auto", row.values.get("proto", proto)):
                return row.values
        if rows:
            return rows[0].values
    if served := algorithms_of(case.op, has_hosts=False):
        return {"algo": served[0]}
    raise ScheduleError(f"no algorithm serves {case.op}", "see `collbench algos`")


def _serving(rows: Sequence[TuningRow], case: Case) -> list[TuningRow]:
    """The rows whose algorithm serves the collective."""
    what = collective(case.op).even
    return [row for row in rows if what in FAMILY.load(str(row.values["algo"])).SERVES]


def transport_of(case: Case, limits: Limits, facts: Facts, tuning: Tuning) -> str:
    """Where the connections of a case have their memory that leaves it open: the first transport of
    the tuning files that works inside a domain, and messages between domains.

    >>> from collbench.planning.tuning import Machine, tuning_of
    >>> case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=8)
    >>> tuning = tuning_of(Machine("gpu"), 4)
    >>> [
    ...     transport_of(case, Limits(hosts=hosts), facts_of(case, hosts), tuning)
    ...     for hosts in ((), (0, 0, 1, 1))
    ... ]
    ['p2p', 'p2p+net']
    """
    domains = gpu_domains(case, limits)
    for row in (row for rows in tuning.tables("transport", facts) for row in rows):
        name = str(row.values["transport"])
        transport = TRANSPORTS.load(name)
        has_peers = limits.has_peers or not transport.NEEDS_PEERS
        if transport.IN_DOMAIN and has_peers and (transport.BESIDE_NET or not domains):
            return label(domains, name)
    raise ScheduleError("no tuning file names a transport that works here")


VECTOR_BYTES = 16  # chunks in a slot begin at multiples of this, where kernels or lines read them
Orders = tuple[tuple[int, ...], ...]


class Choice(NamedTuple):
    """A case with nothing left to decide, and its plan."""

    case: Case
    plan: Plan


def choice_of(case: Case, schedule: Schedule, plan: Plan) -> Choice:
    """The choice of a case whose other knobs are those of its plan."""
    return Choice(
        replace(
            case,
            algo=schedule.name,
            transport=plan.transport,
            proto=plan.proto,
            channels=plan.channels,
            slots=plan.slots,
            chunk=plan.chunk_bytes,
            slices=plan.slices,
        ),
        plan,
    )


def slot_bytes_of(
    case: Case,
    slots: int,
    chunks: int,
    proto: str,
    grain: int,
    hint: str = "use a larger --buffsize",
) -> int:
    """The payload of a slot of the buffer that the case asks for; 0 where it asks for none.

    chunks: of a message; each begins at a multiple of grain bytes. Raises ScheduleError.
    """
    if not case.buffsize:
        return 0
    part = PROTOCOLS.load(proto).payload_bytes(case.buffsize // slots // max(1, chunks))
    slot_bytes = chunks * (int(part) // grain * grain)
    if not slot_bytes:
        raise ScheduleError(
            f"a buffer of {format_size(case.buffsize)} has no room for {slots} slots", hint
        )
    return slot_bytes


def algorithms_of(op: str, *, has_hosts: bool = True) -> tuple[str, ...]:
    """The registered algorithms that serve a collective; without several hosts, those that need
    none.
    """
    return tuple(
        name
        for name in FAMILY
        if collective(op).even in FAMILY.load(name).SERVES and (has_hosts or not needs_hosts(name))
    )
