"""GPUs over messages of MPI: which transport a case takes, that both ends lie apart from all else,
and every collective, on GPUs made of NumPy arrays.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from collbench.backends.base import GpuOptions
from collbench.backends.cuda import backend as cuda
from collbench.backends.cuda.net_memory import reserve_net
from collbench.backends.cuda.rank import CudaRank
from collbench.backends.gpu.rank import DeviceRank
from collbench.backends.net.gpu_proxy import GpuProxy, Outside, net_bytes
from collbench.backends.net.proxy import DataComm, SendConnector
from collbench.backends.net.receivers import RECEIVED_FROM, TAKEN_FROM, Receivers
from collbench.core.case import Case
from collbench.core.collectives import OpName
from collbench.core.errors import HangError, RefusedError, UnavailableError
from collbench.core.group import RankContext
from collbench.device.layout import CONTROL_BYTES, FLAG_LINE_BYTES, layout, net_layout, reach
from collbench.device.messages import messages
from collbench.device.program import lower
from collbench.launch.local import LocalGroup
from collbench.planning.layout import lay_out, registered
from collbench.planning.limits import needs_no_credits, slot_wire_bytes
from collbench.planning.plan import Domains, Kernel, Plan, domains_of, label
from collbench.planning.planner import resolve
from tests.device.test_device import Mode, plan_for
from tests.support.batteries import PAIRS, problem, uneven_problem, world_of
from tests.support.device import Gpus, Run, memory_of, place_of
from tests.support.gpu_session import Workers
from tests.support.tiers import tiered

PROTOS = ("simple", "ll")


class Silent:
    """A communicator on which nothing comes."""

    def Dup(self) -> "Silent":
        return self

    def Get_rank(self) -> int:
        return 1

    def Get_size(self) -> int:
        return 4

    def Irecv(self, *_: Any) -> Any:
        return SimpleNamespace(Test=lambda: False)

    def Improbe(self, *_: Any) -> None:
        pass


def case(**more: object) -> Case:
    return Case(**{"op": "allreduce", "backend": "cuda", "ranks": 4, "size_bytes": 1 << 20, **more})  # type: ignore[arg-type]


def plan_of(
    op: OpName, algo: str, proto: str, found: Domains, *, near: str = "p2p", **knobs: Any
) -> Plan:
    what = problem(op, len(found), count=knobs.pop("count", 611))
    schedule = registered(op, algo, world_of(algo, len(found), 0))
    return plan_for(
        what, schedule, Mode(proto, False, "push", label(found, near)), domains=found, **knobs
    )


def test_a_proxy_is_told_which_slots_are_free() -> None:
    small = {"op": "allreduce", "algo": "oneshot", "proto": "ll", "size_bytes": 64}
    assert needs_no_credits(resolve(case(**small)).plan)
    assert not needs_no_credits(resolve(case(transport="net", **small)).plan)


@pytest.mark.parametrize("proto", PROTOS)
@pytest.mark.parametrize("found", [(0, 1, 2, 3), (0, 0, 1, 1), (0, 1, 0, 1)])
def test_ends_between_islands_lie_apart(proto: str, found: Domains) -> None:
    """No word or slot of them is part of another, all are the rank's own, and no address of theirs
    is a peer's.
    """
    for op, algo in PAIRS:
        plan = plan_of(op, algo, proto, found)
        for rank in range(plan.n):
            memory, where, program = (
                memory_of(plan.problem, rank),
                net_layout(plan, rank),
                lower(plan, rank),
            )
            used: list[tuple[int, int]] = []
            for is_sending, number in where.ends:
                to = reach(
                    plan,
                    rank,
                    memory,
                    number,
                    (program.sending if is_sending else program.receiving)[number],
                    is_sending=is_sending,
                )
                assert (to.peer_in, to.peer_out) == (0, 0)
                for channel in range(plan.channels):
                    used += [
                        (word + channel * stride, FLAG_LINE_BYTES)
                        for word, stride in (
                            (to.local_flag, to.local_flag_stride),
                            (to.remote_flag, to.remote_flag_stride),
                        )
                    ]
                    used.append(
                        (to.slots + channel * to.slots_stride, plan.slots * slot_wire_bytes(plan))
                    )
            used.sort()
            assert all(a + size <= b for (a, size), (b, _) in pairwise(used))
            assert {place_of(at)[0][:2] for at, _ in used} <= {(rank, rank)}
            words = [(at - memory.net, size) for at, size in used if at < memory.net_slots]
            assert all(where.words <= at and at + size <= where.words_end for at, size in words)
            assert all(
                at - memory.net_slots + size <= where.slots_bytes
                for at, size in used
                if at >= memory.net_slots
            )
            near = sum(
                not plan.is_remote(c.src, c.dst)
                and c.fifo_offset >= 0
                and c.dst == rank
                and c.channel == 0
                for c in plan.connections
            )
            assert len(layout(plan, rank).fifo_of) == near


SHAPES: tuple[Domains, ...] = ((0, 1), (0, 1, 2, 3), (0, 0, 1, 1), (0, 1, 0))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("found", "proto", "pairs"),
    [*product(SHAPES, PROTOS, (PAIRS[::2], PAIRS[1::2]))],
    ids=["-".join(map(str, one)) for one in product(SHAPES, PROTOS, ("even", "odd"))],
)
def test_every_algorithm(proto: str, found: Domains, pairs: Sequence[tuple[OpName, str]]) -> None:
    for number, (op, algo) in enumerate(pairs):
        if len(found) == 4 and (number + PROTOS.index(proto) + SHAPES.index(found) // 2) % 2:
            continue  # of the two shapes of four ranks each pair has one in each protocol
        Gpus(plan_of(op, algo, proto, found, slots=(4, 5, 8)[number % 3]), number).run(
            Run(0), Run(0), Run(1)
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("proto", PROTOS)
def test_host_memory_beside_messages(proto: str) -> None:
    """The protocols take the algorithms in turns."""
    for number, (op, algo) in enumerate(PAIRS[PROTOS.index(proto) :: len(PROTOS)]):
        Gpus(plan_of(op, algo, proto, (0, 0, 1, 1), near="shm"), number).run(Run(0), Run(1))


SIZES = ((1, 1, 4, 1), (3, 2, 4, 1), (1024, 3, 3, 2), (4099, 1, 8, 3))


@tiered(
    ("proto", "count", "channels", "slots", "slices"),
    [(proto, *size) for proto in PROTOS for size in SIZES],
    1,
)
def test_sizes_and_knobs(proto: str, count: int, channels: int, slots: int, slices: int) -> None:
    knobs: dict[str, Any] = {
        "channels": channels,
        "slots": slots,
        "slices": slices,
        "chunk_bytes": 192,
    }
    pairs: list[tuple[OpName, str]] = [("allreduce", "ring"), ("allreduce", "twoshot")]
    for seed, (op, algo) in enumerate([*pairs, ("alltoall", "direct"), ("broadcast", "chain")]):
        plan = plan_of(op, algo, proto, domains_of("net", "abcd"), count=count, **knobs)
        Gpus(plan, seed).run(*[Run(number % 2) for number in range(5)])


@pytest.mark.parametrize("proto", PROTOS)
def test_launches_of_other_sizes(proto: str) -> None:
    """As a soak queues them."""
    plan = plan_of("allreduce", "ring", proto, domains_of("net", "abc"), count=700)
    Gpus(plan, 3, any_size=True).run(
        *[Run(number % 2, count) for number, count in enumerate((700, 1, 350, 699, 2, 700))]
    )


def test_short_slices_are_sent_short() -> None:
    """Nine elements over two ranks: chunks of 20 and 16 bytes, which are 3 and 2 lines of ll."""
    for proto, sizes in (("simple", [20, 16]), ("ll", [48, 32])):
        sent = [
            messages(plan_of("allreduce", "ring", proto, (0, 1), count=9, channels=1), rank, 0, 0)
            for rank in (0, 1)
        ]
        assert sorted({message.size for found in sent for message in found}, reverse=True) == sizes


class Card:
    """A GPU that reaches others' memory at made-up addresses."""

    def open(self, exported: str) -> int:
        return 1000 + int(exported)

    def open_host(self, handle: str) -> int:
        return 2000 + int(handle)


@pytest.mark.parametrize(
    ("near", "is_peered", "arenas", "host_arenas"),
    [
        (None, True, [1000, 7, 1020, 1030], [2000, 2010, 2020, 2030]),
        ([0, 1], True, [1000, 7, 0, 0], [2000, 2010, 0, 0]),
        ([0, 1], False, [0, 7, 0, 0], [2000, 2010, 0, 0]),
        (None, False, [7], [2000, 2010, 2020, 2030]),
    ],
)
def test_a_rank_opens_the_memory_of_its_host_only(
    near: list[int] | None, is_peered: bool, arenas: list[int], host_arenas: list[int]
) -> None:
    gpu: Any = DeviceRank(1, 4, Card(), is_alone=False)  # type: ignore[arg-type]
    kept: dict[str, tuple[int, ...]] = {}
    vars(gpu).update(
        arena=7,
        user=8,
        keep=lambda key, data: kept.setdefault(key, struct.unpack(f"<{len(data) // 8}Q", data)),
    )
    gpu.connect(
        [(str(10 * rank), str(10 * rank + 1), str(10 * rank)) for rank in range(4)],
        1.0,
        is_peered=is_peered,
        near=near,
    )
    assert (gpu.arenas, gpu.host_arenas) == (arenas, host_arenas)
    assert gpu.control == (7 if near or is_peered else 2010)
    assert len(kept["aborts"]) == (1 if near else 4)


@pytest.mark.parametrize(
    ("whys", "asked", "proto", "said", "refused"),
    [
        (["", ""], "auto", "simple", "GPU memory", ""),
        (["", "no"], "auto", "simple", "host memory", ""),
        (["", "no"], "device", "simple", "host memory", "no"),
        (["", ""], "host", "simple", "host memory", ""),
        (["", ""], "device", "ll", "host memory", "looks at the lines of ll"),
        (["", ""], "auto", "ll", "host memory", ""),
    ],
)
@pytest.mark.parametrize(
    ("cores", "chunk_bytes"), [(0, 2 * RECEIVED_FROM), (6, 2 * RECEIVED_FROM), (6, 64)]
)
def test_where_slots_are(
    whys: list[str], asked: Any, proto: str, said: str, refused: str, cores: int, chunk_bytes: int
) -> None:
    plan = plan_of("allreduce", "ring", proto, (0, 1), count=1 << 20, chunk_bytes=chunk_bytes)
    reserved: list[tuple[int, ...]] = []
    asked_for: list[str] = []

    def answer(method: str, args: Any, timeout_s: float) -> list[Any]:
        asked_for.append(method)
        if method == "reserve":
            reserved.append(args)
        return [("An MPI", why, frozenset(range(cores))) for why in whys]

    text, taken, refuse = reserve_net(
        Workers(answer), [plan], GpuOptions(net_memory=asked), ("a", "a")
    )
    assert asked_for == ["mpi", "reserve", "join"], (
        "who has no memory says so before any rank waits for it"
    )
    assert text.startswith("; An MPI, messages in")
    assert said in text
    if refused:
        with pytest.raises(RefusedError, match=refused):
            refuse(plan)
    else:
        refuse(plan)
    assert ("2 threads receive" in text) == (
        cores > 0 and said == "host memory" and chunk_bytes > 64
    )
    ((words, slots, gpu_slots),) = reserved
    assert taken == words + slots + gpu_slots
    is_on_gpu = said != "host memory" and proto == "simple"
    assert (words > 0, slots > 0, gpu_slots > 0) == (True, not is_on_gpu, is_on_gpu)


@pytest.mark.parametrize(
    ("missing", "said"),
    [([2], "rank 1 waited for rank 2 to begin"), ([1], "the messages of rank 1 do not leave")],
)
def test_who_is_missing_at_a_meeting_is_named(missing: list[int], said: str) -> None:
    """A rank whose own messages do not leave has not waited for itself."""
    memory = np.zeros(4 * 4096 + CONTROL_BYTES, np.uint8)
    outside = Outside(
        cast(Any, SimpleNamespace(rank=1, barrier=lambda *args: missing, abort=lambda: None)),
        memory.ctypes.data,
        CONTROL_BYTES,
        4096,
    )
    outside.proxy, outside.is_at_barrier = cast(Any, SimpleNamespace()), True
    with pytest.raises(HangError, match=said):
        outside.wait(cast(Any, None), 1.0, 1.0)
    assert outside.is_aborted()


def test_a_soak_moves_messages_as_it_was_asked_to_or_not_at_all() -> None:
    """A sweep waives such rows; a soak had slots in host memory instead."""

    def refuse(plan: Plan) -> None:
        raise RefusedError("An MPI takes no GPU memory")

    session = object.__new__(cuda.CudaSession)
    vars(session).update(_refuse=refuse)
    with pytest.raises(RefusedError, match="takes no GPU memory"):
        session.stress(plan_of("allreduce", "ring", "simple", (0, 1)), [1], 0)


def test_plans_without_messages_reserve_nothing() -> None:
    text, taken, refuse = reserve_net(cast(Any, None), [], GpuOptions(net_memory="device"), ())
    refuse(resolve(case()).plan)
    assert (text, taken) == ("", 0)


def test_threads_that_mpi_does_not_allow_are_refused() -> None:
    plan = plan_of(
        "allreduce", "ring", "simple", (0, 1), count=1 << 20, chunk_bytes=2 * RECEIVED_FROM
    )
    joined: list[int] = []

    def on(cores: int) -> Workers:
        def answer(method: str, args: Any, timeout_s: float) -> list[Any]:
            joined.extend(args[:1] if method == "join" else ())
            return [("An MPI", "no", frozenset(range(cores)))] * 2

        return Workers(answer)

    refuse = reserve_net(on(0), [plan], GpuOptions(net_threads=3), "aa")[2]
    with pytest.raises(RefusedError, match="without the thread level multiple"):
        refuse(plan)
    for cores, asked, hosts in ((0, 0, "aa"), (4, 3, "aa"), (16, None, "aa"), (16, None, "ab")):
        reserve_net(on(cores), [plan], GpuOptions(net_threads=asked), hosts)[2](plan)
    assert joined == [0, 0, 3, 4, 0], "what another host sends nobody copies"


def test_a_rank_without_memory_for_messages_keeps_nobody_waiting() -> None:
    """Making a communicator takes all ranks: one that cannot come has said so before."""

    def refuse(size: int) -> None:
        raise UnavailableError("the GPU cannot map it")

    rank: Any = CudaRank(
        RankContext(rank=0, n=2, comm=SimpleNamespace())
    )  # which cannot be duplicated
    rank._gpu = SimpleNamespace(card=SimpleNamespace(own_host=refuse))
    with pytest.raises(UnavailableError, match="cannot map"):
        rank.reserve(4096, 4096, 0)
    rank.gpu.card = SimpleNamespace(own_host=lambda size: SimpleNamespace(address=1 << 20))
    rank.reserve(4096, 4096, 0)
    assert rank.outside is None


def test_a_rank_waits_for_the_others_with_a_deadline() -> None:
    watched: list[bool] = []

    @contextmanager
    def limit(what: str, deadline_s: float) -> Iterator[None]:
        watched.append(True)
        yield
        watched.append(False)

    def duplicate() -> Any:
        assert watched == [True]
        return SimpleNamespace(Free=lambda: None)

    memory = np.zeros(2 * 4096, np.uint8)
    comm = SimpleNamespace(Dup=duplicate, Get_rank=lambda: 0, Get_size=lambda: 2)
    rank = CudaRank(RankContext(rank=0, n=2, comm=comm, watchdog=SimpleNamespace(limit=limit)))
    rank.reserved = memory.ctypes.data, 4096, 4096, 0, 0
    rank.net_memory = cast(Any, SimpleNamespace(close=lambda: None))
    rank.join(2, ("a", "b"))
    assert (watched, rank.outside is not None) == ([True, False], True)
    rank.close()


@tiered(
    ("chunk_bytes", "taken", "threads"),
    [(64, [], []), (TAKEN_FROM, [0, 2], []), (RECEIVED_FROM, [0, 2], [0, 2])],
    1,
)
def test_large_messages_of_the_host_are_taken_one_by_one(
    chunk_bytes: int, taken: list[int], threads: list[int]
) -> None:
    knobs: dict[str, Any] = {
        "count": 2 * chunk_bytes,  # eight chunks: more than there are slots
        "slices": 1,
        "chunk_bytes": chunk_bytes,
        "channels": 1,
    }
    plan = plan_of("alltoall", "direct", "simple", (0, 1, 2, 3), **knobs)
    receivers, (words, slots, _) = Receivers(1, OSError), net_bytes([plan], has_gpu_slots=False)
    memory = memoryview(bytearray(words)).cast("Q"), bytearray(slots)
    proxy = GpuProxy(DataComm(Silent(), OSError), plan, 1, *memory, (0, 1, 2), receivers)
    receivers.close()
    proxy.expect(1)
    proxy.turn()
    inlets = [end for end in proxy.ends if not isinstance(end, SendConnector)]
    assert sorted(end.peer for end in inlets if not end.pending) == taken
    assert sorted(end.peer for end in inlets if getattr(end, "receivers", None)) == threads
    assert sorted(end.peer for end in inlets if len(end.pending) == plan.slots) == sorted(
        {0, 2, 3} - set(taken)
    )


@pytest.mark.parametrize("proto", PROTOS)
def test_nothing_is_on_its_way_before_kernels_begin(proto: str) -> None:
    """Blocks without an element in more loops than a FIFO has slots: a barrier before the launch
    waits until every message has left.
    """
    plan = lay_out(
        uneven_problem("alltoallv", 2, (0, 999, 0, 0)),
        registered("alltoall", "direct", world_of("direct", 2, 0)),
        p2p="push",
        channels=1,
        slots=4,
        chunk_bytes=64,
        kernel=Kernel(proto=proto, threads=64),
        transport="net",
        domains=(0, 1),
    )
    gpus = Gpus(plan)
    for proxy in gpus.proxies:
        proxy.expect(2)
    for _ in range(3):
        for proxy in gpus.proxies:
            proxy.turn()
    assert all(proxy.is_sent() for proxy in gpus.proxies)


def test_ranks_of_one_process_send_no_messages() -> None:
    plan = resolve(case(transport="net")).plan
    assert "start with mpirun" in cuda.BACKEND.why_waived(plan, LocalGroup())
    assert not cuda.BACKEND.why_waived(resolve(case()).plan, LocalGroup())
