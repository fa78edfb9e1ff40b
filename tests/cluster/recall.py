"""Print the table of docs/results/hunt.md of real traffic: how often `hunt` names what tc made
slow, and how often anything else. Hosts are namespaces of this machine, under Slurm (see lab.py).

python -m tests.cluster.recall [ROUNDS]

A message takes 50 ms, so that waits for cores, which all hosts share, change little; alone pairs
would wait less, and are not measured.
"""

import random
import sys
from collections import defaultdict
from itertools import product
from shlex import split

from tests.cluster.lab import Cluster, cluster
from tests.support.commands import result_of
from tests.support.runs import environment

HOSTS = (4, 8)
MBIT = 40  # of a good link
SLOWER = (5, 10, 20, 50)  # % of that rate
COLUMNS = (*(f"{share} %" for share in SLOWER), "else named")  # of 4 hosts and of 8
KINDS = ("a host, sending", "a host, receiving", "a path, one way")
# of a round: most of them are of 20 %, which hunt should name, or of nothing
PLANTS = (*product(KINDS, (*SLOWER, 20)), *[("nothing", 0)] * 4)
HUNT = f"{sys.executable} -m collbench hunt --backend cpu --together --size 256K --json -"
Named = tuple[str, tuple[int, ...], str]  # kind, key and flow of a place


def plant(lab: Cluster, kind: str, slower: int, host: int, to: int) -> Named | None:
    """Make something slower by so many %; returns how hunt should name it."""
    rate, link = MBIT * (1 - slower / 100), "tbf rate {}mbit burst 8k latency 400ms"
    for one in range(len(lab.hosts)):
        lab.shape(one, link.format(MBIT))
        lab.shape(one, is_sending=False)
    if kind == KINDS[2]:
        lab.slow_path(host, to, f"{rate}mbit", f"{MBIT}mbit")
        return "path", (host, to), "out"
    if kind in KINDS:
        is_sending = kind == KINDS[0]
        lab.shape(host, link.format(rate), is_sending=is_sending)
        return "host", (host,), "out" if is_sending else "in"
    return None


def main(rounds: int) -> None:
    """Hunt, and print the table, also of what was hunted before an interrupt."""
    rng = random.Random(1)
    tally: dict[tuple[str, object, int], list[bool]] = defaultdict(list)
    try:
        for _, n in product(range(rounds), HOSTS):
            srun = split(f"srun --immediate=60 --overcommit -N {n} -n {n} {HUNT}")
            with cluster(n) as lab:
                for kind, slower in PLANTS:
                    slow = plant(lab, kind, slower, *rng.sample(range(n), 2))
                    done = lab.run(*srun, env=environment(), timeout_s=300)
                    sure = [one for one in result_of(done.stdout)["verdicts"] if one["is_certain"]]
                    named = [(one["kind"], tuple(one["key"]), one["flow"]) for one in sure]
                    tally[kind, f"{slower} %", n].append(slow in named)
                    # a host that is named with the other direction is the right one
                    others = {place[:2] for place in named} - {(slow or ())[:2]}
                    tally[kind, COLUMNS[-1], n].append(bool(others))
                    print(n, slower, slow, named, file=sys.stderr, flush=True)
    finally:
        print("| slow is |", " | ".join(COLUMNS), "|\n| --- |", "--- | " * len(COLUMNS))
        for kind in dict.fromkeys(kind for kind, _ in PLANTS):
            row = ([tally[kind, column, n] for n in HOSTS] for column in COLUMNS)
            cells = (" ".join(f"{sum(one)}/{len(one)}" for one in cell if one) for cell in row)
            print(f"| {kind} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
