"""Where the parts of a plan lie in the memory of CPU ranks, and how much of it they take."""

import mmap
import os
from dataclasses import dataclass
from functools import lru_cache

from collbench.backends.cpu.flags import LINE_WORDS
from collbench.backends.repeat import accumulates, rotations, stride_bytes
from collbench.core.host import usable_cores
from collbench.core.launcher import launcher
from collbench.planning.limits import slot_wire_bytes
from collbench.planning.plan import Plan, label, seats

LINE_BYTES = LINE_WORDS * 8
# operands bound for all sets of buffers of a plan, by all ranks of a core together: a few seconds
# of work
MAX_BOUND = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLayout:
    """Where a plan's parts lie in the memory of a shared-memory domain, in bytes; `rotations` sets
    of user buffers, each as many ranks of `stride` as a domain has.

    net: the rank's ends of its connections to other domains, behind all that, or in memory of the
    rank's own if the domain's is shared.
    """

    flags: int
    fifos: int
    tmp: int
    user: int
    stride: int
    rotations: int
    total: int
    net: int


def crowd(plan: Plan) -> int:
    """Ranks that share a core. A launcher may have pinned this one, so all cores of its host count
    there.
    """
    if launcher() is None:
        return -(-plan.n // usable_cores())
    return -(-(max(seats(plan.domains, plan.n)) + 1) // (os.cpu_count() or 1))


def sets_of(plan: Plan, *, hot: bool) -> int:
    """Sets of user buffers that launches take in turn: enough to pass the cache, but no more than
    the ranks of a core can bind. The driver decides it for all ranks, which may see other cores.
    """
    bound = crowd(plan) * plan.operand_count()
    least = 1 + accumulates(plan.problem)
    return min(rotations(plan.problem, hot=hot), max(least, MAX_BOUND // bound))


@lru_cache(maxsize=256)
def layout(plan: Plan, sets: int) -> CpuLayout:
    """Control words, flags, FIFOs, scratch memory, user buffers, each from a cache line on."""
    ranks, stride = max(seats(plan.domains, plan.n)) + 1, stride_bytes(plan.problem)
    flags = (plan.n + 1) * LINE_BYTES
    fifos = aligned(flags + flag_words(plan) * 8)
    tmp = aligned(
        fifos
        + (fifo_wire_bytes(plan) if has_lines(plan) else 0 if is_all_net(plan) else plan.fifo_bytes)
    )
    user = aligned(tmp + ranks * aligned(plan.tmp_bytes), 4096)
    return CpuLayout(
        flags=flags,
        fifos=fifos,
        tmp=tmp,
        user=user,
        stride=stride,
        rotations=sets,
        total=user + sets * ranks * stride,
        net=max(len(plan.ends(rank)) for rank in range(plan.n)) * plan.slots * plan.slot_bytes,
    )


def flag_words(plan: Plan) -> int:
    """64-bit words of all flags."""
    return 2 * len(plan.connections) * LINE_WORDS * (2 if plan.domains else 1)


def fifo_wire_bytes(plan: Plan) -> int:
    """All FIFOs together, as they lie in memory."""
    return fifos_before(plan, plan.fifo_bytes) * plan.slots * slot_wire_bytes(plan)


def fifos_before(plan: Plan, fifo_offset: int) -> int:
    """How many FIFOs lie before that offset."""
    return fifo_offset // (plan.slots * plan.slot_bytes) if plan.slot_bytes else 0


def is_all_net(plan: Plan) -> bool:
    """Whether no two ranks share memory."""
    return label(plan.domains) == "net"


def has_lines(plan: Plan) -> bool:
    """Whether the plan's data carries its own flags."""
    return plan.proto != "simple"


def aligned(offset: int, to: int = LINE_BYTES) -> int:
    """An offset rounded up to a multiple."""
    return -(-offset // to) * to


def shared_bytes(plan: Plan, *, hot: bool) -> int:
    """Shared memory that a plan needs on each host."""
    return 0 if is_all_net(plan) else layout(plan, sets_of(plan, hot=hot)).total


def own_bytes(plan: Plan, *, hot: bool) -> int:
    """Memory of its own that a rank needs for a plan."""
    where = layout(plan, sets_of(plan, hot=hot))
    return where.net + (aligned(where.total, mmap.PAGESIZE) if is_all_net(plan) else 0)
