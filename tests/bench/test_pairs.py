"""Pairs: what is asked for, what is expected, who falls behind, and what is saved. tests/gpu has no
part in it: topo --measure is run there.
"""

from itertools import permutations

import pytest

from collbench.bench.pairs import RankPair, behind, expected_gbs, with_rates
from collbench.bench.tables.pairs import lines
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path

GPUS = [f"gpu{k}" for k in range(4)]


def stores(near_gbs: float, far_gbs: float) -> list[RankPair]:
    """All pairs of 2 + 2 GPUs."""
    return [
        RankPair(a=a, b=b, way="stores", value=near_gbs if a // 2 == b // 2 else far_gbs)
        for a, b in permutations(range(4), 2)
    ]


def rates(topology: Topology) -> tuple[float | None, float | None]:
    return path(topology, "gpu0", "gpu1").usable_gbs, path(topology, "gpu0", "gpu2").usable_gbs


def test_what_to_expect_of_nvlink_and_of_pcie() -> None:
    machine = machine_topology("hgx-h200")
    assert expected_gbs(machine, "gpu0", "gpu1", "stores") == pytest.approx(364.5)
    assert expected_gbs(machine, "gpu0", "gpu1", "copies") == pytest.approx(391.5)
    assert expected_gbs(machine, "gpu0", "gpu1", "host") == pytest.approx(47.88, abs=0.1)
    assert expected_gbs(machine_topology("pcie-4"), "gpu0", "gpu1", "copies") == pytest.approx(
        11.97, abs=0.01
    )


def test_a_slow_pair_is_named() -> None:
    machine = machine_topology("hgx-h200")
    gpus = [gpu.id for gpu in machine.gpus]
    pairs = [
        RankPair(a=a, b=b, way="stores", value=200.0 if (a, b) == (2, 3) else 365.0)
        for a, b in permutations(range(4), 2)
    ]
    late = [
        RankPair(a=a, b=a + 1, way="latency", is_both=True, value=4.0 if a == 1 else 2.0)
        for a in range(5)
    ]
    found = behind([*pairs, *late], machine, gpus)
    assert [(pair.a, pair.b, pair.way, middle) for pair, middle in found] == [
        (2, 3, "stores", 365.0),
        (1, 2, "latency", 2.0),
    ]


def test_measured_rates_take_the_place_of_expected_ones() -> None:
    machine = machine_topology("dgx-1v")
    gpus = [gpu.id for gpu in machine.gpus]
    there, back = (
        RankPair(a=a, b=1 - a, way="stores", value=value) for a, value in ((0, 19.0), (1, 18.5))
    )
    saved = with_rates(machine, gpus, [there, back], "measured")
    assert path(saved, "gpu0", "gpu1").usable_gbs == 19.0
    assert path(saved, "gpu0", "gpu2").usable_gbs == path(machine, "gpu0", "gpu2").usable_gbs


def test_matrices_show_values_expectations_and_reasons() -> None:
    pairs = [
        RankPair(a=0, b=1, way="stores", value=365.4),
        RankPair(a=1, b=0, way="stores", reason="no peer access"),
    ]
    pairs.append(RankPair(a=0, b=1, way="latency", value=2.07, is_both=True))
    pairs.append(RankPair(a=0, b=1, way="host latency", value=5.31, is_both=True))
    shown = "\n".join(lines(pairs, ["GPU0", "GPU1"], {(0, 1, "stores"): 364.5}))
    assert "stores by the sender's kernel, one way, GB/s; expected 364.5" in shown
    assert "365.4" in shown
    p2p_on, p2p_off = shown.partition("through host memory (P2P off)")[::2]
    assert "2.07" in p2p_on and "5.31" in p2p_off
    assert "- stores: no peer access (GPU1 -> GPU0)" in shown


@pytest.mark.parametrize(("near_gbs", "far_gbs"), [(11.0, 5.0), (13.0, 9.0)])
def test_a_saved_machine_reaches_what_was_measured(near_gbs: float, far_gbs: float) -> None:
    saved = with_rates(machine_topology("pcie-2x2"), GPUS, stores(near_gbs, far_gbs), "measured")
    assert rates(saved) == (near_gbs, far_gbs)


def test_a_link_between_sockets_may_be_narrower_than_was_thought() -> None:
    """Expected were 12 GB/s below a socket, and as much between them. Where 4 came through, it is
    that of the link, whatever it is said to carry; a link that limits nobody keeps its rate.
    """
    wide = with_rates(
        machine_topology("pcie-2x2"), GPUS, stores(12.0, 50.0), "as if sockets limited nobody"
    )
    assert rates(with_rates(wide, GPUS, stores(11.0, 4.0), "measured")) == (11.0, 4.0)
    saved = with_rates(wide, GPUS, stores(11.0, 11.0), "measured")
    assert [link.usable_gbs for link in saved.links if link.kind == "socket"] == [50.0]


def test_a_slow_pair_is_named_beside_those_of_its_class() -> None:
    pairs = [
        pair if (pair.a, pair.b) != (1, 3) else RankPair(a=1, b=3, way="stores", value=3.0)
        for pair in stores(11.0, 5.0)
    ]
    assert behind(pairs, machine_topology("pcie-2x2"), GPUS) == [
        (RankPair(a=1, b=3, way="stores", value=3.0), 5.0)
    ]
