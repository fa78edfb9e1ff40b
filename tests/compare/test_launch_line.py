"""A launch line tells how many ranks it starts, or nothing; other numbers in it are no ranks."""

import pytest

from collbench.compare.readers.launch_line import conditions_of_command, launched_ranks
from tests.support.tables import cells_of


@pytest.mark.parametrize(("line", "ranks"), cells_of(__file__, "launch-lines.tsv"))
def test_ranks_of_a_launch_line(line: str, ranks: str) -> None:
    assert launched_ranks(line) == (int(ranks) if ranks else None)


def test_sizes_and_files_are_no_conditions() -> None:
    one = conditions_of_command("+ mpirun -np 2 /a/b/x_perf -b 8 -e 1M -n 20 | tee a.txt", "x_perf")
    other = conditions_of_command("$ mpirun -np 2 ./x_perf -b 1M -e 1G -n 5 > b.txt", "x_perf")
    assert one == other == "mpirun -np 2 x_perf"
    assert conditions_of_command("mpirun -np 2 ./x_perf -R 1", "x_perf") != one
