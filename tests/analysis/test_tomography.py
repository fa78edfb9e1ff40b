"""Inferring a hidden tree: of planted machines every group that leaves a trace is found, and none
that is not there; what cannot be told is named.
"""

from itertools import count, product

import pytest

from collbench.analysis.tomography.estimate import estimate
from collbench.analysis.tomography.search import FlowSearch
from collbench.analysis.tomography.tree import inferred
from collbench.machine.formats import nccl_xml, topology_json
from collbench.machine.topology.paths import path
from collbench.machine.topology.planted import PlantedFlows, hidden
from collbench.results.flows import block
from collbench.util.errors import UsageError
from tests.support.planted import MACHINES, Redirected, Truth, found, infer, planted, random_tree
from tests.support.tiers import tiered

# Groups that leave no trace. Pairs below a switch whose uplink another one limits, and NVLinks or
# xGMI that hide how copies would go otherwise; NUMA nodes of which every memory is across a link.
NO_TRACE = {
    "dgx-2": {("uplink", frozenset((gpu, gpu + 1))) for gpu in range(0, 16, 2)},
    "mi250x-8": {
        *(("uplink", frozenset((gpu, gpu + 1))) for gpu in range(0, 16, 2)),
        *(("socket", frozenset(range(first, first + 4))) for first in (4, 8)),
    },
    # without a PCIe link of the GPUs there is nothing that NVLinks could exceed
    "power9-ac922": {("link", frozenset((0, 1, 2))), ("link", frozenset((3, 4, 5)))},
}
# at 5 % of noise some groups of them are left open
FAINT = ("l40s-8", "mi250x-8", "dgx-1v", "mi300x-8", "a3-ultra")
DAILY = (
    ("dgx-1", 3, 0),
    ("k40x8", 5, 1),
    ("pcie-2x2", 2, 2),
    ("power8-s822lc", 3, 3),
    ("l40s-8", 2, 4),
)


@pytest.mark.parametrize(
    ("name", "percent", "seed"), tiered(product(MACHINES, (0, 2, 3, 5), range(5)), DAILY)
)
def test_every_group_that_leaves_a_trace_is_found(name: str, percent: int, seed: int) -> None:
    topology = planted(name)
    source = PlantedFlows(topology, percent / 100, seed)
    inference, truth = infer(source), Truth(topology, source)
    assert truth.false(inference) == []
    if percent < 5 or name not in FAINT:
        assert truth.groups() - found(inference) == NO_TRACE.get(name, set())
        assert all(one.confidence >= 0.99 for one in inference.groupings)
    assert not inference.wanted


KINDS = (PlantedFlows, Redirected)


@pytest.mark.parametrize(
    ("seed", "kind", "is_one_memory"),
    tiered(
        product(range(100), KINDS, (False, True)),
        [(7, PlantedFlows, False), (41, Redirected, False), (33, PlantedFlows, True)],
    ),
)
def test_nothing_false_is_claimed_of_random_trees(
    seed: int, kind: type[PlantedFlows], is_one_memory: bool
) -> None:
    topology = random_tree(seed)
    source = kind(topology, 0.03, seed, is_one_memory=is_one_memory)
    assert Truth(topology, source).false(infer(source)) == []


def test_measurements_are_wanted_step_by_step_until_the_budget_is_spent() -> None:
    """And nothing false is said on the way."""
    topology = planted("k40x8")
    source = PlantedFlows(topology, 0.02)
    first = estimate({}, source.gpus, source.blocks, source.peers, source.own)
    assert set(first.wanted) == {
        ((gpu, block(number)),) for gpu in range(8) for number in range(source.blocks)
    }
    groups = 0
    for budget in range(0, 440, 40):
        search = FlowSearch(source, count().__next__, budget)
        inference = search.run()
        assert search.count <= budget
        assert Truth(topology, source).false(inference) == []
        assert len(inference.groupings) >= groups
        groups = len(inference.groupings)
        assert len(inferred(hidden(topology), inference).gpus) == 8
    assert groups == 6


def test_copies_that_pass_the_root_tell_no_smaller_groups() -> None:
    """Also not those that all copies meet at."""
    inference = infer(Redirected(planted("pcie-4"), 0.02))
    assert found(inference) == {("uplink", frozenset(range(4)))}
    assert any("redirected" in one.why for one in inference.undecided)


def test_one_memory_shows_what_is_beyond_the_link_to_it() -> None:
    """And the switches there by copies between GPUs."""
    inference = infer(PlantedFlows(planted("k40x8"), 0.02, is_one_memory=True))
    groups = {tuple(sorted(gpus)) for kind, gpus in found(inference) if kind == "uplink"}
    assert groups == {(0, 1), (2, 3), (4, 5), (6, 7), (4, 5, 6, 7)}


def test_what_shares_nothing_is_no_group() -> None:
    inference = infer(PlantedFlows(planted("rtx4090x4"), 0.02))
    assert inference.groupings == ()
    assert [one.what for one in inference.undecided] == [
        "which sockets there are, by the distance to memory"
    ]


def test_a_machine_without_rates_or_of_several_hosts_is_refused() -> None:
    with pytest.raises(UsageError, match="has 1 GPU and 1 CPU: nothing"):
        PlantedFlows(planted("gh200"), 0.0)
    with pytest.raises(UsageError, match="gives no rate of the way from gpu0 to cpu0"):
        infer(PlantedFlows(planted("gb200-nvl72"), 0.0))


@pytest.mark.parametrize("name", ["k40x8", "mi250x-8"])
def test_the_inferred_tree_is_written_and_read_again(name: str) -> None:
    topology = planted(name)
    flat = hidden(topology)
    tree = inferred(flat, infer(PlantedFlows(topology, 0.02)))
    assert {path(flat, "gpu0", gpu.id).kind for gpu in flat.gpus[8:]} <= {"PHB", "NVB", "XGMI"}
    same = topology_json.read(topology_json.write(tree), "tree.json")
    assert same.links == tree.links
    again = nccl_xml.read(nccl_xml.write(tree), "tree.xml")
    classes = {
        (a.id, b.id): (path(tree, a.id, b.id).kind, path(again, a.id, b.id).kind)
        for a in tree.gpus
        for b in tree.gpus
        if a != b
    }
    assert all(one == other for one, other in classes.values())
    assert [node.fact("xml-pci:inferred")[:3] for node in again.of_kind("pci")] == [
        node.fact("xml-pci:inferred")[:3] for node in tree.of_kind("pci")
    ]
    if name == "k40x8":
        wanted = {key: path(topology, *key).kind for key in classes}
        assert {key: one for key, (one, _) in classes.items()} == wanted
