"""Print the table of docs/results/tomography.md: planted trees, hidden and inferred again.

python -m tests.benchmarks.tomography [SEEDS]
"""

import sys
from collections import Counter
from statistics import median

from collbench.analysis.tomography.search import FlowSearch
from collbench.machine.topology.planted import PlantedFlows
from tests.support.planted import MACHINES, Redirected, Truth, found, infer, planted, random_tree

NOISES = (0.02, 0.03, 0.05)
TREES = 200


def main(seeds: int) -> None:
    """A line for every machine, then what random trees say."""
    print("| machine | groups | found at 2, 3, 5 % | copies at 3 % | without a trace | false |")
    print("| --- | ---: | --- | ---: | --- | ---: |")
    claims = wrong = 0
    for name in MACHINES:
        topology = planted(name)
        groups = Truth(topology, PlantedFlows(topology, 0.0)).groups()
        traceless = groups - found(infer(PlantedFlows(topology, 0.0)))
        shares, counts, false = [], [], 0
        for noise in NOISES:
            hits = 0
            for seed in range(seeds):
                search = FlowSearch(PlantedFlows(topology, noise, seed), lambda: 0.0, 1.0)
                inference = search.run()
                hits += len(groups & found(inference))
                false += len(Truth(topology, PlantedFlows(topology, 0.0)).false(inference))
                claims += len(inference.groupings)
                counts += [search.count] if noise == 0.03 else []
            left = len(groups - traceless) * seeds
            shares.append(f"{hits / left:.0%}" if left else "-")
        wrong += false
        kinds = Counter(kind for kind, _ in traceless)
        lost = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        print(
            f"| `{name}` | {len(groups)} | {', '.join(shares)} | {median(counts):.0f} | {lost} |"
            f" {false} |"
        )
    print(f"\n{claims} groups claimed, {wrong} false")
    for kind in (PlantedFlows, Redirected):
        for is_one_memory in (False, True):
            claims = wrong = there = hits = 0
            for seed in range(1000, 1000 + TREES):
                topology = random_tree(seed)
                source = kind(topology, 0.03, seed, is_one_memory=is_one_memory)
                inference, truth = infer(source), Truth(topology, source)
                claims += len(inference.groupings)
                wrong += len(truth.false(inference))
                there += len(truth.groups())
                hits += len(truth.groups() & found(inference))
            memory = "one memory" if is_one_memory else "memory at every CPU"
            print(
                f"{TREES} random trees, {kind.__name__}, {memory}: {claims} claimed, {wrong} false,"
                f" {hits} of {there} groups found in full"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
