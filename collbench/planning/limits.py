"""What a GPU has for one launch, what a plan takes of it, and what kernels cannot take or can do
without.
"""

from collections.abc import Collection
from dataclasses import dataclass

from collbench.core.case import Case
from collbench.core.errors import ScheduleError
from collbench.core.options import DEFAULT_MEMORY
from collbench.core.units import format_size
from collbench.planning.plan import Domains, Plan, domains_of
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.transports import p2p
from collbench.schedules.ir import Edge, Program, Schedule
from collbench.schedules.passes import widest_message
from collbench.schedules.verify.check import ends_after_peers_begin

FLAG_STRIDE_BYTES = 128  # a word that is polled has a cache line of its own
MEMORY_GRAIN_BYTES = 512  # FIFOs and scratch memory begin at multiples of this
# Kernels count the bytes of a chunk, and of the distance between channels, in 32 bits.
MAX_CHUNK_BYTES = 1 << 30
MAX_CHANNEL_BYTES = 1 << 32
# What the parts of a channel's FIFO add to it at most when each is aligned to the memory grain.
ALIGNMENT_BYTES = 8 * MEMORY_GRAIN_BYTES
# Connections of a rank, counted once for each direction: the arguments of a launch have 4096 bytes.
MAX_ENDS = 70
# p2p: peer access or CUDA IPC, which rows do not tell apart; shm: host memory that both ends map;
# net: messages of MPI
GPU_TRANSPORTS = ("p2p", "shm", "net")
_WITHOUT_FLAGS = next(name for name in PROTOCOLS if PROTOCOLS.load(name).HAS_SLICES)
_LEAST_SM, _OF_AMD = 70, ("gfx90a", "gfx942")  # that keep lines of LL128


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a GPU has for one launch: CTAs that can be resident, bytes that FIFOs may take,
    clusters and with them dependent launches (both from sm_90 on), and whether all GPUs reach their
    peers' memory.

    model: of the GPU or CPU; joined: what joins the ranks; "" where it is not known, both for the
    tuning files. orders: rank orders that use the links best. hosts: of the ranks, where there are
    several (world.host_numbers). is_gpu: whatever the backend, ranks are GPUs (the model's).
    has_lines: as keeps_lines.
    """

    ctas: int = 132
    has_clusters: bool = True
    has_peers: bool = True
    memory_bytes: int = DEFAULT_MEMORY
    model: str = ""
    joined: str = ""
    orders: tuple[tuple[int, ...], ...] = ()
    hosts: tuple[int, ...] = ()
    is_gpu: bool = False
    has_lines: bool = True

    def is_safe(self, proto: str) -> bool:
        """Whether auto may take a protocol: one whose lines other links may tear needs NVLinks, as
        far as is known, between GPUs that keep lines whole.

        >>> Limits(joined="PCIe").is_safe("ll128"), Limits(joined="PCIe").is_safe("ll")
        (False, True)
        """
        has_lines = self.has_lines and self.joined in ("", "NVLink")
        return has_lines or not PROTOCOLS.load(proto).NEEDS_NVLINK

    def safe(self, proto: str) -> str:
        """The protocol, or in its place the one whose data carries no flags."""
        return proto if self.is_safe(proto) else _WITHOUT_FLAGS


def keeps_lines(archs: Collection[str]) -> bool:
    """Whether GPUs of these architectures are known to deliver 128 bytes of a warp whole and in
    order over their NVLinks or xGMI: where NCCL (graph/tuning.cc: one compute capability, from 7.0
    on) and RCCL take LL128.

    >>> keeps_lines({"90"}), keeps_lines({"80", "90"}), keeps_lines({"61"}), keeps_lines({"gfx942"})
    (True, False, False, True)
    """
    return len(archs) == 1 and all(
        int(arch) >= _LEAST_SM if arch.isdigit() else arch in _OF_AMD for arch in archs
    )


def fits_one_loop(plan: Plan) -> bool:
    """Whether every channel has at most one loop, and the messages of a launch fit the slots of
    every connection.
    """
    return plan.most_messages <= plan.slots and plan.most_loops <= 1


def needs_no_credits(plan: Plan) -> bool:
    """Whether a rank cannot end a launch before all ranks that it sends to have begun it, and the
    messages of two launches fit the slots.

    Then a slot that is written was read in an earlier launch. This requires that no message is
    empty.
    """
    # a proxy needs credits to know which slots are free
    if plan.domains or not fits_one_loop(plan) or 2 * plan.most_messages > plan.slots:
        return False
    if not all(
        plan.part_of(channel, count * plan.problem.item_bytes)[1]
        for count in set(plan.problem.counts)
        for channel in range(plan.channels)
    ):
        return False
    loops = [loop for channel in range(plan.channels) for loop in plan.loops(channel)]
    return (
        all(loop.size > (plan.parts - 1) * loop.chunk for loop in loops)
        and len(loops) == plan.channels
        and ends_after_peers_begin(plan.schedule)
    )


def slot_wire_bytes(plan: Plan) -> int:
    """Bytes of a slot as it lies in memory: each chunk of a message begins where the protocol
    can.
    """
    return plan.widest * int(PROTOCOLS.load(plan.proto).wire_bytes(plan.piece_bytes))


def memory_bytes(plan: Plan) -> int:
    """FIFOs, flags and scratch memory of the GPU that has most of them, those in host memory
    included.
    """
    fifo = -(-plan.slots * slot_wire_bytes(plan) // MEMORY_GRAIN_BYTES) * MEMORY_GRAIN_BYTES
    bytes_of = [0] * plan.n  # by one channel, and every other one has the same
    table = plan.port_table
    for (src, dst, _), before in zip(table.ports, table.fifos_before, strict=True):
        bytes_of[src] += FLAG_STRIDE_BYTES
        bytes_of[dst] += FLAG_STRIDE_BYTES
        if before >= 0:
            for owner in (
                (src, dst) if plan.is_remote(src, dst) else (dst if plan.p2p == "push" else src,)
            ):
                bytes_of[owner] += fifo
    return plan.channels * max(bytes_of) + plan.tmp_bytes


def over_budget(needed_bytes: int, allowed_bytes: int) -> ScheduleError:
    """The refusal of a plan that needs more memory than is allowed."""
    return ScheduleError(
        f"FIFOs, flags and scratch of {-(-needed_bytes >> 20)}M a GPU, {allowed_bytes >> 20}M are"
        " allowed",
        "use fewer --channels, a smaller --chunk or --buffsize, or more --max-memory",
    )


def refuse_too_large(plan: Plan, schedule: Schedule) -> None:
    """Raise ScheduleError for a plan whose byte counts do not fit the kernels' 32 bits."""
    fifos = (
        peers_of(plan.schedule) * (2 if plan.domains else 1) if widest_message(plan.schedule) else 0
    )
    channel_bytes = max(
        fifos * (plan.slots * slot_wire_bytes(plan) + ALIGNMENT_BYTES),
        schedule.chunks["tmp"] * plan.chunk_bytes,
    )
    if plan.chunk_bytes > MAX_CHUNK_BYTES or channel_bytes >= MAX_CHANNEL_BYTES:
        raise ScheduleError(
            f"chunks of {format_size(plan.chunk_bytes)} and {plan.slots} slots",
            f"kernels take chunks up to {format_size(MAX_CHUNK_BYTES)}, and"
            f" {format_size(MAX_CHANNEL_BYTES)} a channel",
        )


def refuse_many_ends(schedule: Schedule) -> None:
    """Raise ScheduleError if a rank has more connections than a launch has room for. To ask this
    first saves the proof, which takes long for so many connections.
    """
    ends = max(sum(map(len, edges_of(program))) for program in schedule.programs)
    if ends > MAX_ENDS:
        raise ScheduleError(
            f"a rank has {ends} ends of connections: a launch has room for {MAX_ENDS}",
            "use fewer ranks, or an algorithm with fewer peers where there is one, such as ring",
        )


def edges_of(program: Program) -> tuple[set[Edge], set[Edge]]:
    """The connections into and out of a rank."""
    steps = [step for track in program for steps in track.rounds for step in steps]
    return {edge for step in steps for edge in step.recv}, {
        edge for step in steps for edge in step.send
    }


def peers_of(schedule: Schedule) -> int:
    """The most connections of one channel into or out of one rank."""
    return max(len(ends) for program in schedule.programs for ends in edges_of(program))


def gpu_domains(case: Case, limits: Limits) -> Domains:
    """The domain of every GPU, whose members reach each other's memory or share their host's; ()
    for one.
    """
    return domains_of(case.transport, case.fitting(limits.hosts) or (0,) * case.ranks)


def refuse_transport(case: Case, limits: Limits) -> None:
    """Raise ScheduleError for a transport that GPUs, or the kernels of these GPUs, do not have."""
    name = case.transport
    if name not in ("auto", *GPU_TRANSPORTS):
        raise ScheduleError(
            f"GPUs pass data by {', '.join(GPU_TRANSPORTS)} or ce, not by {name}",
            "leave --transport out",
        )
    if name in ("p2p", "shm") and (why := p2p.why_not(limits.hosts)):
        raise ScheduleError(why, "use --transport net, or auto")
    if name == "p2p" and not limits.has_peers:
        raise ScheduleError(
            "not every GPU can reach the memory of every other",
            "use --transport shm, or see `collbench topo --p2p`",
        )
