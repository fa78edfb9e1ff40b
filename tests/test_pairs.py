"""What is made of measured pairs: who falls behind, and the machine that is saved."""

from itertools import permutations

import pytest

from collbench.pairs import Pair, behind, expected_gbs, with_rates
from collbench.topology.machines import machine_topology
from collbench.topology.model import Topology
from collbench.topology.paths import path

GPUS = [f"gpu{k}" for k in range(4)]


def stores(near_gbs: float, far_gbs: float) -> list[Pair]:
    """All pairs of 2 + 2 GPUs."""
    return [Pair(a=a, b=b, way="stores", value=near_gbs if a // 2 == b // 2 else far_gbs) for a, b in permutations(range(4), 2)]


def rates(topology: Topology) -> tuple[float | None, float | None]:
    return path(topology, "gpu0", "gpu1").usable_gbs, path(topology, "gpu0", "gpu2").usable_gbs


@pytest.mark.parametrize(("near_gbs", "far_gbs"), [(11.0, 5.0), (13.0, 9.0)])
def test_a_saved_machine_reaches_what_was_measured(near_gbs: float, far_gbs: float) -> None:
    saved = with_rates(machine_topology("pcie-2x2"), GPUS, stores(near_gbs, far_gbs), "measured")
    assert rates(saved) == (near_gbs, far_gbs)


def test_a_link_between_sockets_may_be_narrower_than_was_thought() -> None:
    """Expected were 12 GB/s below a socket, and as much between them; between them 4 came through, whatever the link is said to carry."""
    wide = with_rates(machine_topology("pcie-2x2"), GPUS, stores(12.0, 50.0), "as if sockets limited nobody")
    saved = with_rates(wide, GPUS, stores(11.0, 4.0), "measured")
    assert rates(saved) == (11.0, 4.0)


def test_a_link_that_limits_nobody_keeps_its_rate() -> None:
    wide = with_rates(machine_topology("pcie-2x2"), GPUS, stores(12.0, 50.0), "as if sockets limited nobody")
    saved = with_rates(wide, GPUS, stores(11.0, 11.0), "measured")
    assert [link.usable_gbs for link in saved.links if link.kind == "socket"] == [50.0]


def test_a_slow_pair_is_named_beside_those_of_its_class() -> None:
    pairs = [pair if (pair.a, pair.b) != (1, 3) else Pair(a=1, b=3, way="stores", value=3.0) for pair in stores(11.0, 5.0)]
    assert behind(pairs, machine_topology("pcie-2x2"), GPUS) == [(Pair(a=1, b=3, way="stores", value=3.0), 5.0)]


def test_copy_engines_are_expected_to_use_nvlink_better_than_stores() -> None:
    """395 of 450 GB/s were measured on 4 x H200, stores reached 366."""
    topology = machine_topology("hgx-h200")
    assert expected_gbs(topology, "gpu0", "gpu1", "copies") == pytest.approx(391.5)
    assert expected_gbs(topology, "gpu0", "gpu1", "stores") == pytest.approx(364.5)
    assert expected_gbs(topology, "gpu0", "gpu1", "host") == pytest.approx(47.9, abs=0.1)
