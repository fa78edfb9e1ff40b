"""One odd input for the command line, by the seed and the number that a fault was told with.

python -m tests.fuzz --seed 1 --only 4711
"""

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.fuzz.cases import case
from tests.fuzz.judge import fault, outcome


@click.command()
@click.option("--seed", default=1, show_default=True, help="What is drawn.")
@click.option("--only", type=int, required=True, help="The number of the case.")
def main(seed: int, only: int) -> None:
    """Run a case, and show all that it is and prints; tests.attack runs many."""
    warnings.simplefilter("error")
    drawn = case(seed, only)
    print(*(ascii(word)[:300] for word in drawn.args))
    print(drawn.variables, drawn.encoding)
    for name, data in drawn.files.items():
        print(f"--- {name}: {len(data)} bytes")
        print(data[:6000])
    with TemporaryDirectory() as folder:
        seen = outcome(drawn, Path(folder))
        print(
            f"--- exit code {seen.code}", seen.out[:3000], "--- stderr", seen.err[:6000], sep="\n"
        )
        print(seen.escaped)
        print("--- fault:", fault(seen, Path(folder)))


main()
