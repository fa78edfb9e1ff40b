"""What "auto" means: the choice of algorithm, direct access, chunk and slots. Here for processors;
tuning_gpu.py is the table for GPUs.

On the wires of a described machine the algorithm is the one of the lowest price (yardstick.py), and
the rest is as here.

Each number has the sweep that justifies it. The sweeps were made on 2026-11-20 on the machine of
profiles/machines/cpu-2.toml, with 2 and 4 ranks, float32 sum, 1 KiB to 64 MiB.
"""

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from collbench.planning.choice_ce import are_copies_best, best_by_copies, lay_out_copies
from collbench.planning.choice_gpu import (
    Limits,
    best_of,
    lay_out_gpu,
    refuse_in_place,
    slot_wire_bytes,
)
from collbench.planning.lowering import refuse_too_many
from collbench.planning.plan import Plan, along, lay_out
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.transports import net, shm
from collbench.schedules.algorithms import FAMILY
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import widest_message
from collbench.spec.case import Case
from collbench.spec.knobs import AUTO, unheeded
from collbench.util.errors import ScheduleError

# Allreduce over 2 ranks: one-shot 2.5 us at 1 KiB (two-shot 3.3), 4.3 at 16 KiB (4.8), 12.2 at 64
# KiB (11.6). Over 4 ranks on 2 cores: one-shot 27 us at 1 KiB (two-shot 50), 42 at 64 KiB (49), 115
# at 256 KiB (119), 436 at 1 MiB (392).
_ONESHOT_UP_TO_BYTES = 64 << 10
# Broadcast over 4 ranks: direct 27 us at 64 KiB (two-shot 37), 0.51 ms at 4 MiB (0.67), 13.3 ms at
# 64 MiB (15.9).
_PREFERENCE = {
    "allreduce": ("oneshot", "twoshot"),
    "allgather": ("direct", "direct"),
    "reducescatter": ("direct", "direct"),
    "broadcast": ("direct", "direct"),
    "reduce": ("star", "twoshot"),
    "alltoall": ("direct", "direct"),
    "gather": ("direct", "direct"),
    "scatter": ("direct", "direct"),
    "sendrecv": ("direct", "direct"),
}
# Direct, chunks of 256 KiB / 512 KiB / 1 MiB: two-shot of 2 ranks 0.60 / 0.48 / 0.58 ms at 4 MiB,
# 10.2 / 9.3 / 9.7 at 64 MiB; of 4 ranks 5.4 / 5.0 / 5.2 at 16 MiB, 22.9 / 21.1 / 23.7 at 64 MiB;
# direct allgather of 4 ranks 0.87 / 0.81 / 1.04 at 4 MiB. With 128 KiB two-shot takes 20 % longer.
# Through FIFOs, whose slots must stay in the cache, 128 KiB is within 10 % of the best.
_DIRECT_CHUNK_BYTES = 512 << 10
_FIFO_CHUNK_BYTES = 128 << 10
# Over messages of MPI (2 ranks of one host, MPICH 5, 2026-11-21), chunks of 512 KiB / 1 MiB / 2
# MiB: two-shot 0.88 / 0.82 ms at 8 MiB, 1.93 / 1.65 / 1.63 at 16 MiB, 6.9 / 6.4 / 6.0 at 64 MiB; 4
# MiB is slower, and 2 MiB doubles the FIFOs for little. Over TCP 256 KiB to 2 MiB are alike.
_NET_CHUNK_BYTES = 1 << 20
# One-shot and two-shot: 2 ranks 25 and 26 us at 128 KiB, 40 and 36 at 256 KiB; 4 ranks on 2 cores
# 240 and 330 at 256 KiB, 580 and 350 at 1 MiB.
# 2 ranks, 256 KiB and 4 MiB: star 26 and 367 us, chain 27 and 372, two-shot 42 and 765
_NET_PREFERENCE = {"reduce": ("star", "chain")}
_NET_ONESHOT_UP_TO_BYTES, _NET_ONESHOT_RANKS = 64 << 10, 4  # a rank, and the most ranks that count
_SLOTS = 4  # two more than a ring needs: none of the sweeps told 4 from 8
# Lines of data and flags gain nothing here, because a message costs what Python does for it, and
# flags add to that. Simple / ll / ll128, sent and received on one core (2026-11-21): 2.4 / 3.3 /
# 3.1 us at 8 B, 3.0 / 8.1 / 4.4 at 16 KiB, 54 / 307 / 82 at 1 MiB. Allreduce of 2 ranks through
# FIFOs, beside other work, the least of nine repeats: one-shot 2.4 / 3.7 / 4.1 us at 8 B; ring 3.8
# / 7.1 / 7.6 at 1 KiB, 4.9 / 10.6 / 7.8 ms at 16 MiB.
CPU_THREADS, CPU_PROTO, CPU_TRANSPORTS = 1, "simple", ("shm", "net")
# on GPUs; on processors, and their slots may be lines with flags
GPU_BACKENDS, LINE_BACKENDS = ("cuda",), ("cpu",)
MAX_CHANNELS = 64


class Choice(NamedTuple):
    """A case with nothing left to decide, and its plan."""

    case: Case
    plan: Plan


def resolve(case: Case, limits: Limits | None = None) -> Choice:
    """Decide what the case leaves open and lay it out. Raises ScheduleError if it cannot be done.

    >>> resolve(Case(op="allreduce", backend="cpu", ranks=4, size_bytes=1 << 20)).case.algo
    'twoshot'
    """
    hosts = limits.hosts if limits is not None and len(limits.hosts) == case.ranks else ()
    case = replace(case, algo=_between(case, hosts)) if case.algo == "auto" and hosts else case
    if case.backend in GPU_BACKENDS:
        has = limits or Limits()
        if case.transport == "ce" or are_copies_best(case, has):
            schedule = along(
                case.op, best_by_copies(case), case.ranks, case.root, _orders(limits, case), hosts
            )
            return Choice(*lay_out_copies(case, schedule, has))
        algo, proto = best_of(case, has)
        schedule = along(case.op, algo, case.ranks, case.root, _orders(limits, case), hosts)
        return Choice(*lay_out_gpu(case, schedule, proto, has))
    if case.proto not in ("auto", CPU_PROTO) and case.backend not in LINE_BACKENDS:
        raise ScheduleError(
            f"the {case.backend} backend speaks {CPU_PROTO}, not {case.proto}",
            f"leave --proto out or use --proto {CPU_PROTO}",
        )
    found = _domains(case, hosts)
    if case.threads not in (AUTO, CPU_THREADS):
        raise ScheduleError(
            f"{case.threads} threads: a rank of the {case.backend} backend is one thread",
            "leave --threads out",
        )
    given = [knob.flag for knob in unheeded(case, backend=case.backend)]
    if given := given + ["--p2p push"] * (case.p2p == "push"):
        raise ScheduleError(
            f"the {case.backend} backend has no GPU kernels, which {' and '.join(given)} is for",
            f"leave {' and '.join(given)} out",
        )
    if case.channels > MAX_CHANNELS:
        raise ScheduleError(
            f"{case.channels} channels: at most {MAX_CHANNELS} on processors",
            "use fewer --channels",
        )
    orders = _orders(limits, case)
    if case.algo != "auto":
        return _lay_out(case, case.algo, orders, hosts, found)
    small, large = (_NET_PREFERENCE if found else {}).get(case.op, _PREFERENCE[case.op])
    up_to = (
        _NET_ONESHOT_UP_TO_BYTES * min(case.ranks, _NET_ONESHOT_RANKS)
        if found
        else _ONESHOT_UP_TO_BYTES
    )
    return _lay_out(case, small if case.size_bytes <= up_to else large, orders, hosts, found)


def _domains(case: Case, hosts: tuple[int, ...]) -> net.Domains:
    """Which ranks of a case share memory. Raises ScheduleError for a transport that they do not
    have.
    """
    if case.backend not in LINE_BACKENDS:
        if case.transport not in ("auto", "shm"):
            raise ScheduleError(
                f"the {case.backend} backend is one process: nothing travels by {case.transport}",
                "leave --transport out",
            )
        return ()
    if case.transport not in ("auto", *CPU_TRANSPORTS):
        raise ScheduleError(
            f"ranks on processors pass data by {' or '.join(CPU_TRANSPORTS)}, not by"
            f" {case.transport}",
            "leave --transport out",
        )
    places = hosts or (0,) * case.ranks
    why = shm.why_not(places) if case.transport == "shm" else ""
    if why:
        raise ScheduleError(why, "use --transport net, or auto for both")
    found = net.domains(case.transport, places)
    if found and case.proto not in ("auto", CPU_PROTO):
        raise ScheduleError(
            f"{case.proto} carries flags for a reader that sees memory change; a message of MPI"
            " comes whole",
            "use --proto simple",
        )
    return found


def _between(case: Case, hosts: tuple[int, ...]) -> str:
    """What auto means for ranks on several hosts, or auto, which leaves it to the table of one
    host.

    Hosts are joined by less than what joins the ranks of one, so that bytes between hosts decide.
    With L ranks a host, the table's direct exchanges send each to L ranks of every other host;
    hierarchical sends it there once, and each rank sends its part, through the nearest card where
    hosts have several. Where hosts have unlike numbers of ranks, a ring that enters each host once
    does almost as little, through one rank. Small messages cost hops, not bytes. The price says the
    same (cost.wire_price): two hgx-h100, 8 cards of 50 GB/s each, allreduce of 64 MiB 364 us, tree
    861, two-shot 1424, ring 2926; of 64 KiB 42.3, one-shot 23.3.

    >>> case = Case(op="allreduce", backend="cpu", ranks=4, size_bytes=1 << 20)
    >>> _between(case, (0, 0, 1, 1)), _between(case, (0, 1, 1, 1)), _between(case, (0, 1, 2, 3))
    ('hierarchical', 'ring', 'auto')
    """
    ranks_of = Counter(hosts).values()
    algo = "hierarchical" if len(set(ranks_of)) == 1 else "ring"
    is_bound_by_bytes = case.size_bytes > _ONESHOT_UP_TO_BYTES and max(ranks_of) > 1
    return algo if is_bound_by_bytes and algo in algorithms_of(case.op) else "auto"


def _orders(limits: Limits | None, case: Case) -> tuple[tuple[int, ...], ...]:
    """The rank orders of the wires, if they are of so many ranks."""
    return (
        tuple(order for order in limits.orders if len(order) == case.ranks)
        if limits is not None
        else ()
    )


@lru_cache(maxsize=512)
def _choice_of(problem: Case, limits: Limits | None) -> Case | None:
    try:
        return resolve(problem, limits).case
    except ScheduleError:
        return None


def chosen(case: Case, limits: Limits | None = None, algo: str = "auto") -> Case | None:
    """What the tool does for a case's problem if nothing is asked for but the backend (and algo, if
    that is decided), or None if it can do nothing.

    >>> chosen(Case(op="allreduce", backend="cpu", algo="ring", ranks=4, size_bytes=1024)).algo
    'oneshot'
    """
    return _choice_of(
        Case(
            op=case.op,
            backend=case.backend,
            algo=algo,
            dtype=case.dtype,
            redop=case.redop,
            root=case.root,
            placement=case.placement,
            ranks=case.ranks,
            size_bytes=case.size_bytes,
        ),
        limits,
    )


def algorithms_of(op: str, *, has_hosts: bool = True) -> tuple[str, ...]:
    """The registered algorithms that serve a collective; without several hosts, those that need
    none.
    """
    return tuple(
        name
        for name in FAMILY
        if op in FAMILY.load(name).SERVES
        and (has_hosts or not getattr(FAMILY.load(name), "NEEDS_HOSTS", False))
    )


def _lay_out(
    case: Case,
    algo: str,
    orders: tuple[tuple[int, ...], ...],
    hosts: tuple[int, ...],
    found: net.Domains,
) -> Choice:
    schedule = along(case.op, algo, case.ranks, case.root, orders, hosts)
    proto = CPU_PROTO if case.proto == "auto" else case.proto
    protocol, has_lines = PROTOCOLS.load(proto), proto != CPU_PROTO
    if has_lines:
        refuse_in_place(case, proto)
    slots = case.slots or _SLOTS
    first: ScheduleError | None = None
    # who sizes a buffer wants one
    modes = {"on": (True,), "off": (False,), "auto": (False,) if case.buffsize else (True, False)}
    # each chunk begins on a line
    parts, grain = (widest_message(schedule), 16) if has_lines else (1, 1)
    for direct in (False,) if has_lines else modes[case.direct]:
        slot_bytes = parts * (
            protocol.payload_bytes(case.buffsize // slots // parts) // grain * grain
        )
        try:
            if case.buffsize and not slot_bytes:
                raise ScheduleError(
                    f"a buffer of {case.buffsize} bytes has no room for {slots} slots",
                    "use a larger --buffsize",
                )
            plan = lay_out(
                case.problem(),
                schedule,
                direct=direct,
                channels=case.channels or 1,
                slots=slots,
                slot_bytes=slot_bytes,
                slices=case.slices or 1,
                chunk_bytes=_chunk_bytes(
                    case, schedule, slot_bytes, direct=direct, is_net=bool(found)
                ),
                proto=proto,
                domains=found,
            )
            refuse_too_many(plan)
            if case.buffsize and not plan.slot_bytes:
                raise ScheduleError(
                    "every message is read in place: there is no buffer to size", "use --direct off"
                )
        except ScheduleError as error:
            is_loan = case.direct == "on" and "deadlocks" in error.message
            first = first or (
                ScheduleError(
                    f"read in place, {error.message}", _instead(case, algo, orders, hosts, found)
                )
                if is_loan
                else error
            )
            continue
        done = replace(
            case,
            algo=algo,
            direct="on" if direct else "off",
            channels=plan.channels,
            threads=CPU_THREADS,
            slots=slots,
            chunk=plan.chunk_bytes,
            buffsize=plan.slots * (slot_wire_bytes(plan) if has_lines else plan.slot_bytes),
            transport=plan.transport,
            proto=proto,
            slices=plan.slices,
            p2p="pull" if direct else "push",
        )
        return Choice(case=done, plan=plan)
    assert first is not None
    raise first


def _instead(
    case: Case,
    algo: str,
    orders: tuple[tuple[int, ...], ...],
    hosts: tuple[int, ...],
    found: net.Domains,
) -> str:
    """What to do where messages that are read in place deadlock."""
    try:
        _lay_out(replace(case, direct="off"), algo, orders, hosts, found)
    except ScheduleError as error:
        return error.hint
    return "use --direct off"


def _chunk_bytes(
    case: Case, schedule: Schedule, slot_bytes: int, *, direct: bool, is_net: bool
) -> int:
    """The chunk asked for, or one that a slot carries whole, or the table's."""
    if case.chunk:
        return case.chunk
    if slot_bytes and not direct:
        return max(16, slot_bytes // widest_message(schedule))
    if is_net:
        return _NET_CHUNK_BYTES
    return _DIRECT_CHUNK_BYTES if direct else _FIFO_CHUNK_BYTES
