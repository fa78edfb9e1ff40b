"""Odd inputs for the command line.

python -m tests.fuzz --count 20000 --seed 1
python -m tests.fuzz --seed 1 --only 4711
"""

import time
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.fuzz.cases import case
from tests.fuzz.judge import fault, outcome


@click.command()
@click.option("--count", default=20_000, show_default=True, help="Cases.")
@click.option("--first", default=0, show_default=True, help="Number of the first case.")
@click.option("--seed", default=1, show_default=True, help="What is drawn.")
@click.option("--only", type=int, help="Run and show the case of this number.")
@click.option("--slow", default=0, show_default=True, help="Show so many of the slowest cases.")
def main(count: int, first: int, seed: int, only: int | None, slow: int) -> None:
    """Run cases; print each fault once with its number of cases, and exit with 1 for any."""
    warnings.simplefilter("error")
    with TemporaryDirectory() as folder:
        if only is not None:
            show(seed, only, Path(folder))
            return
        faults: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        codes: Counter[int] = Counter()
        numbers: dict[str, int] = {}
        seconds: list[tuple[float, int]] = []
        for number in range(first, first + count):
            drawn, start = case(seed, number), time.process_time()
            seen = outcome(drawn, Path(folder))
            seconds.append((time.process_time() - start, number))
            kinds[drawn.name] += 1
            codes[seen.code] += 1
            if found := fault(seen, Path(folder)):
                faults[found] += 1
                numbers.setdefault(found, number)
    for found, times in faults.most_common():
        print(f"{times:6} x (--only {numbers[found]}) {found}")
    for taken, number in sorted(seconds, reverse=True)[:slow]:
        print(f"{taken:8.3f} s (--only {number}) {str(case(seed, number).args)[:200]}")
    print(f"seed {seed}, {count} cases: {dict(kinds)}; exit codes {dict(sorted(codes.items()))}")
    print(f"{sum(faults.values())} faults in {sum(taken for taken, _ in seconds):.0f} s of CPU")
    raise SystemExit(bool(faults))


def show(seed: int, number: int, root: Path) -> None:
    """One case with all that it is, and all that it shows."""
    drawn = case(seed, number)
    print(*(ascii(word)[:300] for word in drawn.args))
    print(drawn.variables, drawn.encoding)
    for name, data in drawn.files.items():
        print(f"--- {name}: {len(data)} bytes")
        print(data[:6000])
    seen = outcome(drawn, root)
    print(f"--- exit code {seen.code}", seen.out[:3000], "--- stderr", seen.err[:6000], sep="\n")
    print(seen.escaped)
    print("--- fault:", fault(seen, root))


main()
