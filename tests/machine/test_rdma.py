"""GPUDirect RDMA and the NICs of GPUs, on machines of a few nodes."""

from dataclasses import replace

import pytest

from collbench.core.errors import UsageError
from collbench.machine import formats
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Topology
from collbench.machine.topology.rdma import bisection_gbs, level_of, rails, rdma
from collbench.machine.views.rdma import gdr, rail_lines
from tests.support.machines import two_hosts
from tests.support.tables import cells_of
from tests.support.topologies import OWN


def with_facts(topology: Topology, kind: str, **facts: str) -> Topology:
    nodes = tuple(
        replace(node, facts=(*node.facts, *facts.items())) if node.kind == kind else node
        for node in topology.nodes
    )
    return replace(topology, nodes=nodes)


def answer(topology: Topology, nic: str, level: str = "PXB") -> tuple[str, str]:
    found = rdma(topology, topology.by_id["gpu0"], topology.by_id[nic], level)
    return found.direct, found.used


@pytest.mark.parametrize(("nic", "level", "direct", "used"), cells_of(__file__, "gdr-levels.tsv"))
def test_nccl_stops_at_its_level(nic: str, level: str, direct: str, used: str) -> None:
    assert answer(machine_topology("hgx-h200"), nic, level) == (direct, used)


def test_what_the_host_and_the_dump_tell_decides() -> None:
    hgx = machine_topology("hgx-h200")
    assert answer(with_facts(hgx, "gpu", peermem="yes"), "nic0") == ("yes", "yes")
    assert answer(with_facts(hgx, "gpu", peermem="no", open_driver="yes"), "nic0")[1] == "yes"
    assert answer(with_facts(hgx, "gpu", peermem="no", open_driver="no"), "nic0") == ("no", "no")
    assert answer(with_facts(hgx, "gpu", iommu="translated"), "nic0")[0] == "unknown"
    assert answer(with_facts(hgx, "nic", gdr="0"), "nic0") == ("no", "no")
    assert answer(with_facts(hgx, "nic", rdma="no"), "nic0") == ("no", "no")
    assert answer(formats.read(OWN / "mi300x-rccl.xml"), "nic0") == ("yes", "yes")
    # before Ampere, and without NVLinks
    box = formats.read(OWN / "pcie-box-hwloc.xml")
    old = replace(box, links=tuple(link for link in box.links if link.kind != "nvlink"))
    assert answer(old, "nic0")[1] == "if supported, to receive"


def test_levels_of_nccl() -> None:
    assert [level_of(text) for text in ("", "0", "2", "phb")] == ["PXB", "LOC", "PXB", "PHB"]
    with pytest.raises(UsageError, match="NCCL_NET_GDR_LEVEL is 'near'"):
        level_of("near")


def test_each_gpu_has_a_nic_of_its_own_where_there_are_enough() -> None:
    hgx = machine_topology("hgx-h200")
    assert [rail.nic for rail in rails(hgx)] == [f"nic{n}" for n in range(8)]
    vm = formats.read(OWN / "switch-by-peers-nccl.xml")
    assert [rail.nic for rail in rails(vm)] == ["nic0", "nic1", "nic2", "nic0"]
    assert "NIC0 is shared by 2 GPUs" in rail_lines(vm)


def test_rails_and_bisection_of_several_hosts() -> None:
    four = two_hosts(hosts=4)
    assert bisection_gbs(four, range(4)) == 50.0
    lines = rail_lines(four)
    assert "1 rail of 4 NICs, if switches join equal numbers" in lines
    assert lines[-1].startswith("bisection, 2 hosts to 2: at most 50.0 GB/s")


def test_reasons_keep_to_the_columns() -> None:
    box = machine_topology("dgx-1")
    lines, wide = (gdr(box, columns=columns) for columns in (80, 200))
    assert max(map(len, lines)) <= 80 < max(map(len, wide))
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(wide).split())


def test_views_of_machines_without_nics() -> None:
    plain = machine_topology("pcie-4")
    assert gdr(plain)[-1] == rail_lines(plain)[-1] == "There is no GPU with a NIC."
