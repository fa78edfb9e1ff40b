"""Plans over messages of MPI to try on GPUs: every pair with simple and ll, between all ranks, and
between halves whose ranks share memory.
"""

from collbench.planning.limits import Limits
from collbench.planning.plan import Kernel, Plan, lay_out, registered
from collbench.planning.planner import resolve
from collbench.planning.transports.net import label
from collbench.spec.case import Case
from collbench.spec.collectives import collective
from collbench.util.errors import ScheduleError
from tests.gpu._plans import SHAPES
from tests.support.batteries import PAIRS, placements, problem, world_of

KERNELS = (
    Kernel(proto="simple", threads=96, unroll=4),
    Kernel(proto="ll", threads=64, specialized=True),
    Kernel(proto="ll", threads=96, unroll=2),
)


def net_plans(n: int) -> list[Plan]:
    """Each algorithm of each collective with each kernel, on one shape, alternately over net,
    p2p+net and shm+net.
    """
    halves = tuple(2 * rank // n for rank in range(n))
    transports = [(tuple(range(n)), "p2p"), *([(halves, "p2p"), (halves, "shm")] if n > 2 else [])]
    found = []
    for k, kernel in enumerate(KERNELS):
        for p, (op, algo) in enumerate(PAIRS):
            root = (p % n) if collective(op).is_rooted else 0
            shape, (domains, inside) = (
                SHAPES[(p + k) % len(SHAPES)],
                transports[(p + k) % len(transports)],
            )
            what = problem(
                op,
                n,
                root=root,
                count=shape.count,
                in_place=shape.in_place and True in placements(op),
            )
            try:
                found.append(
                    lay_out(
                        what,
                        registered(op, algo, world_of(algo, n, root)),
                        p2p="push",
                        channels=shape.channels,
                        slots=shape.slots,
                        chunk_bytes=shape.chunk_bytes,
                        slices=shape.slices if kernel.proto == "simple" else 1,
                        kernel=kernel,
                        transport=label(domains, inside),
                        domains=domains,
                    )
                )
            except ScheduleError:  # too few slots for that algorithm
                continue
    return found


def net_measured_plans(n: int) -> list[Plan]:
    """Plans as a sweep makes them, with the default knobs."""
    forced, halves = Limits(), Limits(hosts=tuple(2 * rank // n for rank in range(n)))
    cases = [
        (
            Case(
                op="allreduce",
                backend="cuda",
                transport="net",
                algo="ring",
                proto="simple",
                ranks=n,
                size_bytes=1 << 20,
            ),
            forced,
        ),
        (
            Case(
                op="allreduce",
                backend="cuda",
                transport="net",
                algo="oneshot",
                proto="ll",
                ranks=n,
                size_bytes=4096,
            ),
            forced,
        ),
        (
            Case(
                op="alltoall",
                backend="cuda",
                transport="net",
                proto="ll",
                dtype="int8",
                ranks=n,
                size_bytes=6007,
            ),
            forced,
        ),
        (
            Case(
                op="broadcast",
                backend="cuda",
                transport="net",
                algo="chain",
                root=n - 1,
                ranks=n,
                size_bytes=1_000_004,
            ),
            forced,
        ),
        (Case(op="sendrecv", backend="cuda", transport="net", ranks=n, size_bytes=8), forced),
        (
            Case(
                op="allreduce",
                backend="cuda",
                redop="avg",
                dtype="bfloat16",
                ranks=n,
                size_bytes=4_000_002,
            ),
            halves,
        ),
    ]
    return [resolve(case.rounded(), limits).plan for case, limits in cases]
