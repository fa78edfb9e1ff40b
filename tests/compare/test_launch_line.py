"""A launch line tells how many ranks it starts, or nothing; other numbers in it are no ranks."""

import pytest

from collbench.compare.readers.launch_line import conditions_of_command, launched_ranks


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("mpirun -np 4 ./osu_allreduce", 4),
        ("$ /opt/ompi/bin/mpirun --allow-run-as-root --np 16 -x A=1 osu_allreduce -n 3", 16),
        ("mpiexec -n 8 --ppn 4 nice -n 10 ./osu_allreduce", 8),
        ("nice -n 10 mpirun -np 4 ./osu_allreduce", 4),
        ("mpirun nice -n 10 ./osu_allreduce", 0),
        ("nice -n 10 ./osu_allreduce", None),
        ("mpirun -np 2 ./osu_allreduce : -np 3 ./osu_allreduce", 5),
        ("mpirun -np $N ./osu_allreduce", 0),
        ("mpirun_rsh -np 6 -hostfile h ./osu_allreduce", 6),
        ("srun -n16 -c 4 ./osu_allreduce", 16),
        ("srun --ntasks=12 -N 3 ./osu_allreduce", 12),
        ("srun --nodes=2 --ntasks-per-node 8 ./osu_allreduce", 16),
        ("srun -N 2 ./osu_allreduce", 0),
        ("srun -N 2 numactl -n 7 ./osu_allreduce", 0),
        ("jsrun -n 2 -a 4 -c 4 -g 4 ./osu_allgather", 8),
        ("jsrun --nrs=3 -r 1 ./osu_allgather", 3),
        ("jsrun -p 6 ./osu_allgather", 6),
        ("lrun -N 2 -T 4 ./osu_allgather", 8),
        ("aprun -n 32 -N 16 ./osu_allgather", 32),
        ("flux run -N 2 --tasks-per-node=4 ./osu_allgather", 8),
        ("PALS: mpiexec --np 4 -ppn 4 --cpu-bind depth ./osu_allgather", 4),
        ("openmpi@1.10.7%intel osu_allgather", None),
    ],
)
def test_ranks_of_a_launch_line(line: str, ranks: int | None) -> None:
    assert launched_ranks(line) == ranks


def test_sizes_and_files_are_no_conditions() -> None:
    one = conditions_of_command("+ mpirun -np 2 /a/b/x_perf -b 8 -e 1M -n 20 | tee a.txt", "x_perf")
    other = conditions_of_command("$ mpirun -np 2 ./x_perf -b 1M -e 1G -n 5 > b.txt", "x_perf")
    assert one == other == "mpirun -np 2 x_perf"
    assert conditions_of_command("mpirun -np 2 ./x_perf -R 1", "x_perf") != one
