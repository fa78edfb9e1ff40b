"""Mutants of schedules and of what they are lowered to.

python -m tests.mutants --count 5000 --seed 1
"""

import click

from tests.mutants.lowering import action_mutant, program_mutant
from tests.mutants.report import lowered, mutants, table, unchanged


@click.command()
@click.option("--count", default=5000, show_default=True, help="Mutants of schedules.")
@click.option("--seed", default=1, show_default=True, help="What is drawn.")
def main(count: int, seed: int) -> None:
    """Break valid schedules; print what the reference shows and what the check refuses."""
    print(*table(mutants(count, seed)), sep="\n")
    print("\nvalid schedules", *table(unchanged(count // 10, seed)), sep="\n")
    print("\nactions of CPUs, noticed by", *lowered(action_mutant, count // 10, seed), sep="\n")
    print(
        "\nprograms of kernels, noticed by", *lowered(program_mutant, count // 25, seed), sep="\n"
    )


main()
