"""The libraries that are measured as peers: what they lack, and what forces what."""

from typing import Any, cast

import pytest

from collbench.backends import FAMILY
from collbench.backends.base import Peer
from collbench.core.case import Case
from collbench.core.collectives import OPS, collective
from collbench.core.peers import PEERS, forced_by
from tests.support.tables import cells_of, values_of


def case(peer: str, **more: Any) -> Case:
    of = {"op": "allreduce", "algo": "library", "proto": "", "ranks": 2, "size_bytes": 1024}
    return Case(backend=peer, **{**of, **more}).rounded()


def waived(one: Case, *, is_reduction: bool) -> str:
    return cast(Peer, FAMILY.load(one.backend)).why_waived(one, is_reduction)


@pytest.mark.parametrize("peer", PEERS)
def test_a_library_has_every_collective_of_ours_and_no_other(peer: str) -> None:
    cases = [case(peer, op=op) for op in OPS]
    assert {waived(one, is_reduction=collective(one.op).is_reduction) for one in cases} == {""}
    unknown = Case(op=cast(Any, "allfold"), backend=peer, ranks=2, size_bytes=1024)
    assert waived(unknown, is_reduction=False).endswith("has no allfold")


@pytest.mark.parametrize(("peer", "asked", "reason"), cells_of(__file__, "waived.tsv"))
def test_what_a_library_lacks_is_waived_and_nothing_else(
    peer: str, asked: str, reason: str
) -> None:
    one = case(peer, **values_of(asked))
    why = waived(one, is_reduction=collective(one.op).is_reduction)
    assert reason in why and bool(why) == bool(reason)


@pytest.mark.parametrize(("forced", "variables"), cells_of(__file__, "forced.tsv"))
def test_what_is_forced_of_nccl_becomes_variables(forced: str, variables: str) -> None:
    found = forced_by(case("nccl", **values_of(forced)))
    assert sorted(map("=".join, found)) == sorted(variables.split())
