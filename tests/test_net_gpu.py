"""GPUs over messages of MPI: which road a case takes, that both ends lie apart from all else, and every collective, on GPUs made of NumPy arrays."""

from itertools import pairwise

import pytest

from collbench.case import Case
from collbench.collectives import OpName
from collbench.device.layout import LINE_BYTES, layout, net_layout, reach
from collbench.device.messages import messages
from collbench.device.program import lower, needs_no_credits
from collbench.errors import ScheduleError
from collbench.plan import Kernel, Plan, lay_out, registered
from collbench.transports.net import Islands, islands, label
from collbench.tuning import resolve
from collbench.tuning_gpu import Limits, slot_wire_bytes

from ._batteries import PAIRS, problem, world_of
from ._device import Gpus, Run, memory_of, place_of

TWO_HOSTS = Limits(hosts=(0, 0, 1, 1))
PROTOS = ("simple", "ll")


def case(**more: object) -> Case:
    return Case(**{"op": "allreduce", "backend": "cuda", "ranks": 4, "size_bytes": 1 << 20, **more})  # type: ignore[arg-type]


def plan_of(
    op: OpName, algo: str, proto: str, found: Islands, *, count: int = 611, slots: int = 4, channels: int = 2, slices: int = 2, chunk_bytes: int = 64
) -> Plan:
    n = len(found)
    return lay_out(
        problem(op, n, count=count), registered(op, algo, world_of(algo, n, 0)), p2p="push", channels=channels, slots=slots, chunk_bytes=chunk_bytes,
        slices=slices if proto == "simple" else 1, kernel=Kernel(proto=proto, threads=64), transport=label(found, "p2p"), islands=found,
    )


@pytest.mark.parametrize(
    ("limits", "asked", "found"),
    [
        (Limits(), "auto", "p2p"), (Limits(), "net", "net"), (TWO_HOSTS, "auto", "p2p+net"), (TWO_HOSTS, "net", "net"),
        (Limits(hosts=(0, 1, 2, 3)), "auto", "net"), (Limits(hosts=(0, 0, 1, 1), has_peers=False), "auto", "shm+net"), (Limits(has_peers=False), "net", "net"),
    ],
)
def test_the_row_says_which_roads_were_taken(limits: Limits, asked: str, found: str) -> None:
    for size in (64, 1 << 20):
        done = resolve(case(transport=asked, size_bytes=size), limits)
        assert (done.case.transport, done.plan.transport) == (found, found)
        assert "net" not in found or done.case.direct == "off"


@pytest.mark.parametrize(
    ("limits", "more", "said"),
    [
        (Limits(), {"transport": "net", "proto": "ll128"}, "lines of 128 bytes"), (TWO_HOSTS, {"proto": "ll128"}, "lines of 128 bytes"),
        (Limits(), {"transport": "net", "direct": "on", "proto": "simple"}, "in place"), (TWO_HOSTS, {"p2p": "pull", "proto": "simple"}, "is pulled"),
        (TWO_HOSTS, {"transport": "p2p"}, "on 2 hosts"), (TWO_HOSTS, {"transport": "shm"}, "on 2 hosts"), (TWO_HOSTS, {"transport": "ce"}, "on 2 hosts"),
    ],
)
def test_what_messages_cannot_do_is_refused(limits: Limits, more: dict[str, object], said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        resolve(case(algo="ring", **more), limits)


def test_a_proxy_is_told_which_slots_are_free() -> None:
    small = {"op": "allreduce", "algo": "oneshot", "proto": "ll", "size_bytes": 64}
    assert needs_no_credits(resolve(case(**small)).plan)
    assert not needs_no_credits(resolve(case(transport="net", **small)).plan)


@pytest.mark.parametrize("proto", PROTOS)
@pytest.mark.parametrize("found", [(0, 1, 2, 3), (0, 0, 1, 1), (0, 1, 0, 1)])
def test_ends_between_islands_lie_apart(proto: str, found: Islands) -> None:
    """No word or slot of them is part of another, all are the rank's own, and no address of theirs is a peer's."""
    for op, algo in PAIRS:
        plan = plan_of(op, algo, proto, found)
        for rank in range(plan.n):
            memory, where, program = memory_of(plan.problem, rank), net_layout(plan, rank), lower(plan, rank)
            used: list[tuple[int, int]] = []
            for is_sending, number in where.ends:
                to = reach(plan, rank, memory, number, (program.sending if is_sending else program.receiving)[number], is_sending=is_sending)
                assert (to.peer_in, to.peer_out) == (0, 0)
                for channel in range(plan.channels):
                    used += [(word + channel * stride, LINE_BYTES) for word, stride in ((to.heard, to.heard_stride), (to.said, to.said_stride))]
                    used.append((to.slots + channel * to.slots_stride, plan.slots * slot_wire_bytes(plan)))
            used.sort()
            assert all(a + size <= b for (a, size), (b, _) in pairwise(used))
            assert {place_of(at)[0][:2] for at, _ in used} <= {(rank, rank)}
            words = [(at - memory.net, size) for at, size in used if at < memory.net_slots]
            assert all(where.words <= at and at + size <= where.words_end for at, size in words)
            assert all(at - memory.net_slots + size <= where.slots_bytes for at, size in used if at >= memory.net_slots)
            near = sum(not plan.is_apart(c.src, c.dst) and c.fifo_offset >= 0 and c.dst == rank and c.channel == 0 for c in plan.connections)
            assert len(layout(plan, rank).fifo_of) == near


@pytest.mark.parametrize("proto", PROTOS)
@pytest.mark.parametrize("found", [(0, 1), (0, 1, 2, 3), (0, 0, 1, 1), (0, 1, 0)])
def test_every_algorithm(proto: str, found: Islands) -> None:
    for number, (op, algo) in enumerate(PAIRS):
        Gpus(plan_of(op, algo, proto, found, slots=(4, 5, 8)[number % 3]), number).run(Run(0), Run(0), Run(1))


@pytest.mark.parametrize("proto", PROTOS)
@pytest.mark.parametrize(("count", "channels", "slots", "slices"), [(1, 1, 4, 1), (3, 2, 4, 1), (1024, 3, 3, 2), (4099, 1, 8, 3)])
def test_sizes_and_knobs(proto: str, count: int, channels: int, slots: int, slices: int) -> None:
    for seed, (op, algo) in enumerate((("allreduce", "ring"), ("allreduce", "twoshot"), ("alltoall", "direct"), ("broadcast", "chain"))):
        plan = plan_of(op, algo, proto, islands("net", "abcd"), count=count, channels=channels, slots=slots, slices=slices, chunk_bytes=192)  # type: ignore[arg-type]
        Gpus(plan, seed).run(*[Run(number % 2) for number in range(5)])


@pytest.mark.parametrize("proto", PROTOS)
def test_launches_of_other_sizes(proto: str) -> None:
    """As a soak queues them."""
    plan = plan_of("allreduce", "ring", proto, islands("net", "abc"), count=700)
    Gpus(plan, 3, any_size=True).run(*[Run(number % 2, count) for number, count in enumerate((700, 1, 350, 699, 2, 700))])


def test_short_slices_are_sent_short() -> None:
    plan = plan_of("allreduce", "ring", "ll", (0, 1), count=9, channels=1)
    sent = messages(plan, 0, 0, 0)
    assert [message.size for message in sent] == [48, 48] or max(message.size for message in sent) <= slot_wire_bytes(plan)
    assert messages(plan, 0, 0, 0, 1) != sent
