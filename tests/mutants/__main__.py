"""Mutants of schedules and of what they are lowered to.

python -m tests.mutants --count 5000 --seed 1
"""

import click

from tests.mutants.lowering import action_mutant, program_mutant
from tests.mutants.report import mutants, noticed, table, unchanged


@click.command()
@click.option("--count", default=5000, show_default=True, help="Mutants of schedules.")
@click.option("--seed", default=1, show_default=True, help="What is drawn.")
def main(count: int, seed: int) -> None:
    """Break valid schedules; print what the reference shows and what the check refuses."""
    print(table(mutants(count, seed)))
    print("\nvalid schedules", table(unchanged(count // 10, seed)), sep="\n")
    for what, make, some in (
        ("actions of CPUs", action_mutant, 10),
        ("kernels", program_mutant, 25),
    ):
        print(f"\nfaults in {what} that data showed")
        for fault, (shown, of) in noticed(make, count // some, seed).items():
            print(f"{fault:<58}{shown:>6} of {of}")


main()
