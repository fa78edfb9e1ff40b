"""Which GPUs share a path: of planted machines every pair whose copies take from each other is
found, and no group is claimed that shares nothing; what cannot be told is named.
"""

from itertools import combinations, count, product

import pytest

from collbench.machine.shared_paths import PLACES, FlowSearch, FlowSet, SharedPaths, shared_paths
from collbench.machine.views.shared_paths import lines
from tests.support.planted import MACHINES, PlantedFlows, infer, planted, random_tree
from tests.support.tiers import tiered

DAILY = (
    ("dgx-1", 3, 0),
    ("k40x8", 5, 1),
    ("pcie-2x2", 2, 2),
    ("power8-s822lc", 3, 3),
    ("l40s-8", 2, 4),
)


def pairs(found: SharedPaths) -> set[tuple[int, int]]:
    """All that are in one group."""
    return {pair for one in found.paths for pair in combinations(one.gpus, 2)}


@pytest.mark.parametrize(
    ("name", "percent", "seed"), tiered(product(MACHINES, (0, 2, 3, 5), range(5)), DAILY)
)
def test_every_pair_that_contends_is_found(name: str, percent: int, seed: int) -> None:
    source = PlantedFlows(planted(name), percent / 100, seed)
    found = infer(source)
    assert all(source.is_shared(one.gpus) for one in found.paths)
    assert all(one.confidence >= 0.99 for one in found.paths)
    left = {pair for pair, _ in found.undecided}
    assert source.contend() - left <= pairs(found)
    assert not left or percent == 5
    assert not found.wanted


@pytest.mark.parametrize(
    ("seed", "is_one_memory"),
    tiered(product(range(100), (False, True)), [(7, False), (41, True), (33, True)]),
)
def test_nothing_false_is_claimed_of_random_trees(seed: int, is_one_memory: bool) -> None:
    source = PlantedFlows(random_tree(seed), 0.03, seed, is_one_memory=is_one_memory)
    assert all(source.is_shared(one.gpus) for one in infer(source).paths)


def test_measurements_are_wanted_until_the_budget_is_spent() -> None:
    """And nothing false is said on the way."""
    source = PlantedFlows(planted("k40x8"), 0.02)
    alone = {((gpu, place),) for gpu in range(8) for place in range(PLACES)}
    assert alone < set(shared_paths({}, 8).wanted)
    groups = 0
    for budget in range(0, 440, 40):
        search = FlowSearch(source, count().__next__, budget)
        found = search.run()
        assert search.count <= budget
        assert all(source.is_shared(one.gpus) for one in found.paths)
        groups = len(found.paths)
    assert groups == 4
    assert "not measured: " in " ".join(lines(shared_paths({}, 8)))


def test_gpus_beyond_a_link_between_sockets_share_it_if_all_memory_is_there() -> None:
    found = infer(PlantedFlows(planted("k40x8"), 0.02, is_one_memory=True))
    assert {one.gpus for one in found.paths} == {(0, 1), (2, 3), (4, 5, 6, 7)}


def test_what_shares_nothing_is_no_group() -> None:
    found = infer(PlantedFlows(planted("rtx4090x4"), 0.02))
    assert (found.paths, found.undecided) == ((), ())
    assert lines(found) == ["no two GPUs are known to share a path"]


def test_a_pair_between_is_named_as_not_decided() -> None:
    """Copies whose total falls by less than a link takes and more than none does."""
    rates = {1: [10.0], 2: [8.9, 8.9]}
    sets: list[FlowSet] = [((gpu, place),) for gpu in range(2) for place in range(PLACES)]
    sets += [((0, place), (1, place)) for place in range(PLACES)]
    noisy = [
        {flows: [factor * rate for rate in rates[len(flows)]] for flows in sets}
        for factor in (0.9, 1.1) * 6
    ]
    found = shared_paths({flows: [one[flows] for one in noisy] for flows in sets}, 2)
    assert [pair for pair, _ in found.undecided] == [(0, 1)]
    text = " ".join(lines(found, 200))
    assert "whether GPU0 and GPU1 share a path: their total falls by 11.0%" in text
