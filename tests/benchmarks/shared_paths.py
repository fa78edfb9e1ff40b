"""Print the table of docs/how-to/find-shared-paths.md: planted machines, whose paths are found.

python -m tests.benchmarks.shared_paths [SEEDS]
"""

import sys
from itertools import combinations

from tests.support.planted import MACHINES, PlantedFlows, infer, planted, random_tree

NOISES = (0.02, 0.03, 0.05)
TREES = 200


def main(seeds: int) -> None:
    """Machines of the catalogue, then random trees."""
    sources = [
        (f"{len(MACHINES)} machines, {noise:.0%}", PlantedFlows(planted(name), noise, seed))
        for noise in NOISES
        for name in MACHINES
        for seed in range(seeds)
    ]
    sources += [
        (
            f"{TREES} random trees, memory at {'one CPU' if is_one else 'every CPU'}, 3%",
            PlantedFlows(random_tree(seed), 0.03, seed, is_one_memory=is_one),
        )
        for is_one in (False, True)
        for seed in range(1000, 1000 + TREES)
    ]
    counts: dict[str, list[int]] = {}
    for name, source in sources:
        found, there = infer(source), source.contend()
        pairs = {pair for one in found.paths for pair in combinations(one.gpus, 2)}
        false = sum(not source.is_shared(one.gpus) for one in found.paths)
        row = len(found.paths), false, len(there & pairs), len(there)
        counts[name] = [a + b for a, b in zip(counts.get(name, [0] * 4), row, strict=True)]
    print("| planted | groups claimed | false | pairs that contend, found |")
    print("| --- | ---: | ---: | ---: |")
    for name, (claimed, false, hits, there_all) in counts.items():
        print(f"| {name} | {claimed} | {false} | {hits} of {there_all} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
