"""The libraries that are measured as peers."""

from typing import Any, cast

import pytest

from collbench.backends import FAMILY
from collbench.backends.base import Peer
from collbench.core.case import Case
from collbench.core.collectives import OPS, OpName, collective
from collbench.core.peers import PEERS


def waived(peer: str, op: OpName, is_reduction: bool) -> str:
    case = Case(op=op, backend=peer, algo="library", proto="", ranks=2, size_bytes=1024)
    return cast(Peer, FAMILY.load(peer)).why_waived(case, is_reduction)


@pytest.mark.parametrize("peer", PEERS)
def test_a_library_has_every_collective_of_ours_and_no_other(peer: str) -> None:
    assert [waived(peer, op, collective(op).is_reduction) for op in OPS] == [""] * len(OPS)
    assert waived(peer, cast(Any, "allfold"), False).endswith("has no allfold")
