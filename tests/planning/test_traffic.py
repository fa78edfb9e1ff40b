"""What a plan is said to move is what its actions move."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from collbench.core.case import Case
from collbench.core.collectives import OpName
from collbench.planning.limits import Limits
from collbench.planning.lowering import actors
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from collbench.planning.traffic import FLAG_BYTES, traffic

SIZE = 100_000


def plan_of(op: OpName, algo: str, n: int, **knobs: Any) -> Plan:
    skew = "linear" if op.endswith("v") else ""
    case = Case(op=op, backend="cpu", algo=algo, ranks=n, size_bytes=SIZE, skew=skew, chunk=4096)
    plan = resolve(replace(case, **knobs).rounded(), Limits(memory_bytes=1 << 28)).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("op", "algo", "n"),
    [
        ("allreduce", "ring", 3),
        ("allreduce", "halving", 5),
        ("allgather", "direct", 4),
        ("broadcast", "tree", 5),
        ("alltoallv", "direct", 3),
    ],
)
def test_messages_and_slots_have_the_bytes_of_the_actions(op: OpName, algo: str, n: int) -> None:
    for transport in ("net", "shm"):
        plan = plan_of(op, algo, n, transport=transport, direct="off")
        slices, sent, stored = Counter[object](), Counter[object](), Counter[object]()
        for rank in range(n):
            for action in (action for actor in actors(plan, rank) for action in actor.actions):
                for edge, _ in action.post:
                    slices[rank, plan.connections[edge].dst] += 1
                for (edge, _), region in action.sent:
                    sent[rank, plan.connections[edge].dst] += region.size
                for region in action.targets:
                    if region.space == "slot":
                        stored[rank, plan.connections[region.owner].dst] += region.size
        known = {pair: one for pair, one in traffic(plan).items() if one.messages}
        assert {pair: one.messages for pair, one in known.items()} == slices
        assert {pair: one.payload for pair, one in known.items()} == stored
        if transport == "net":
            assert {pair: one.wire for pair, one in known.items()} == sent


def test_protocols_take_their_part_of_the_link() -> None:
    sizes = {}
    for proto in ("simple", "ll", "ll128"):
        (one,) = {
            (sent.payload, sent.wire, sent.flags, sent.messages)
            for sent in traffic(plan_of("allreduce", "ring", 2, proto=proto)).values()
        }
        sizes[proto] = one
    payload = SIZE
    assert {one[0] for one in sizes.values()} == {payload}
    assert sizes["simple"][1] == payload
    # a flag that a slice is there, and one of the other direction that its slot is free
    assert sizes["simple"][2] == 2 * FLAG_BYTES * sizes["simple"][3]
    assert sizes["ll"][1] == 2 * payload
    assert sizes["ll128"][1] >= payload * 128 / 120
    # a slice ends with a part of a warp's access, of which at least half is stored
    assert sizes["ll128"][1] <= payload * 128 / 120 + 1024 * sizes["ll128"][3]
