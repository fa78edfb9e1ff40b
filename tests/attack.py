"""The long attack, for hours rather than for CI: faults in every command, an oracle that knows no
schedule, hostile input, and many sweeps at once.

python -m tests.attack --faults 100 --exits 50 --oracle 500 --inputs 5000 --sweeps 100 --seed 1

A part is left out by 0. Each fault is printed with what draws it again; any ends with exit code 1.
`--seed 1 --only 4711` shows one of the inputs, and what it ends with.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import click
import ml_dtypes
import numpy as np

from collbench.backends.cpu.backend import CpuSession
from collbench.backends.reference import ReferenceSession
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.dtypes import DTYPES, REDOPS, divide, dtype, ufunc
from collbench.core.errors import ScheduleError
from collbench.core.pattern import bits
from collbench.core.record import read
from collbench.launch.local import LocalGroup
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from collbench.schedules.algorithms import needs_hosts
from tests.cluster.lab import RUN, Cluster, cluster, missing
from tests.support.batteries import CPU_PROTOCOLS, PAIRS, random_inputs
from tests.support.faults import Fault, draw, table, what_is_wrong
from tests.support.runs import ROOT, environment, library, sweep, under_mpirun

RANKS = ("--ranks", "2")
# beside sweep, whose exit codes a table promises: arguments, and those without a launcher
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "tune": (("tune", "--backend", "cpu", "--sizes", "1K", "--budget", "4"), RANKS),
    "trace": (("trace", "--op", "allreduce", "--size", "64K", "--launches", "20"), RANKS),
    "check": (("check", "--backend", "cpu"), RANKS),
    "hunt": (("hunt",), ("--from", str(ROOT / "docs/examples/pairs.csv"))),
    "doctor": (("doctor", "--quick"), ()),
    "overlap": (("overlap",), ()),
    "topo": (("topo",), ()),
    "algos": (("algos",), ()),
    "runs": (("runs",), ()),
    "predict": (("predict", "--op", "allreduce", "--sizes", "1M", "--machine", "hgx-h100"), ()),
    "compare": (("compare", str(ROOT / "docs/examples/first-run.csv")), ()),
    "replay": (("replay", str(ROOT / "docs/examples/job.log"), "--dry-run"), ()),
    "log": (("log", str(ROOT / "docs/examples/job.log")), ()),
    "collbench": ((), ()),
}
HOSTS = 2  # of the cluster
ROWS = {"alone": 6, "mpirun": 9, "srun": 6}  # of a whole sweep
SPECIAL = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], np.float32)
TAKES_S = 90.0  # check and doctor end within their minute
AT_ONCE = 12  # plans of a session: its ranks are forked once
ODD = (1, 3, 17, 255, 257, 4097, 40_001)  # elements of a block
FEW_BITS = ("float8_e4m3fn", "float8_e5m2")  # no infinity in a result: each step saturates
SAVED = "collbench/runs/*/run.json"  # below XDG_STATE_HOME
Found = Iterator[tuple[str, str]]  # what was tried, and what is wrong with it: empty if nothing


def under_srun(lab: Cluster, hosts: int, command: Sequence[str]) -> tuple[str, ...]:
    """A command as two ranks of a cluster, begun in the folder of the run."""
    there = ("env", f"SLURM_CONF={RUN}/slurm.conf", "sh", "-c", 'cd "$TMPDIR"; exec "$@"', "sh")
    srun = ("srun", "--immediate=30", "--overcommit", "-N", str(hosts), "-n", "2")
    return tuple(lab.command([*there, *srun, *command]))


def drawn_fault(
    number: int, promised: Iterable[tuple[str, str]], lab: Cluster | None, is_exit: bool
) -> tuple[str, Fault]:
    """The command and the fault of a number: half of them sweeps, or sweeps alone where it comes
    about the last row.
    """
    chance, known = Random(number), {*promised}
    if is_exit:
        known = {(start, "cleaner") for start, _ in known if start in ("mpirun", "srun")} | {
            one for one in known if one[0] in ROWS and one[1] in ("guardian", one[0], "driver")
        }
    fault, name = draw(number, sorted(known)), "sweep"
    if is_exit:
        name, rows = "exit of sweep", ROWS[fault.start] - chance.randrange(2)
        signal, after_s = chance.choice(("KILL", "STOP", "TERM")), chance.uniform(0, 0.5)
        fault = replace(fault, signal=signal, after_s=after_s, rows=rows)
    elif fault.start != "own mpirun" and chance.random() < 0.5:
        name = chance.choice(list(COMMANDS))
        arguments, alone = COMMANDS[name]
        line = [sys.executable, "-m", "collbench", *arguments]
        line += alone if fault.start == "alone" else ()
        command = under_mpirun(2, line) if fault.start == "mpirun" else line
        fault = replace(fault, command=tuple(command), after_s=chance.uniform(0.05, 4.0))
    if lab is not None and fault.start == "srun":
        fault = replace(fault, command=under_srun(lab, chance.randint(1, HOSTS), fault.command))
    return name, fault


def faults(seed: int, count: int, *, is_exit: bool = False) -> Found:
    """Signals at random moments to every launcher's processes, half of them in sweeps."""
    has_slurm = library() == "MPICH" and not missing()
    promised = table(library(), has_slurm)
    with cluster(HOSTS) if has_slurm else nullcontext() as lab:
        for number in range(seed * count, (seed + 1) * count):
            name, fault = drawn_fault(number, promised, lab, is_exit)
            at = promised.get((fault.start, fault.which), {})
            codes = set(range(256)) if name in COMMANDS else at.get(fault.signal, {0})
            with tempfile.TemporaryDirectory() as folder:
                wrong = what_is_wrong(Path(folder), fault, codes, TAKES_S)
            if name in COMMANDS and wrong.startswith("exit code"):
                wrong = ""  # no table promises one
            if lab is not None and fault.start == "srun":
                wrong += lab.left()
            told = f"number {number}, {fault}: {wrong}"
            yield f"{name}, {fault.start}, {fault.which}", wrong and told


def exits(seed: int, count: int) -> Found:
    """Signals about the last row to guardians, cleaners and launchers, which stay stopped."""
    return faults(seed, count, is_exit=True)


def drawn_plan(chance: Random, n: int) -> Plan | None:
    """A plan for CPU ranks; None where that choice does not exist."""
    op, algo = chance.choice([(op, algo) for op, algo in PAIRS if not needs_hosts(algo)])
    what, name = collective(op), chance.choice(DTYPES)
    size = chance.choice(ODD) * dtype(name).item_bytes * (n if what.size_in_blocks else 1)
    try:
        return resolve(
            Case(
                op=op, backend="cpu", algo=algo, ranks=n, size_bytes=size, dtype=name,
                proto=chance.choice(CPU_PROTOCOLS),
                redop=chance.choice(REDOPS) if what.is_reduction else "sum",
                root=chance.randrange(n) if what.is_rooted else 0,
                placement="in" if what.has_in_place and chance.random() < 0.5 else "out",
            )
        ).plan  # fmt: skip
    except ScheduleError:
        return None


def inputs_of(plan: Plan, seed: int) -> list[np.ndarray]:
    """Numbers that are not exact; in half of the plans, a third of the floats is special."""
    what, chance = plan.problem, np.random.default_rng(seed)
    given = random_inputs(what, seed)
    special = SPECIAL[:4] if what.dtype in FEW_BITS else SPECIAL
    for values in given if seed % 2 and dtype(what.dtype).is_float else ():
        places = chance.random(len(values)) < 0.3
        values[places] = chance.choice(special, places.sum())
    return given


def expected(plan: Plan, inputs: list[np.ndarray], rank: int) -> tuple[np.ndarray, np.ndarray]:
    """A rank's output by the definition of the collective, in double precision or whole numbers,
    and how far rounding in each step may lead from it.
    """
    what, kind = plan.problem, dtype(plan.problem.dtype)
    wide = [one.astype(np.float64 if kind.is_float else kind.numpy()) for one in inputs]
    eps = least = 0.0
    if kind.is_float:
        has = ml_dtypes.finfo(kind.numpy())  # type: ignore[no-untyped-call]
        eps, least = float(has.eps), float(has.smallest_subnormal)
    blocks, bounds = [np.empty(0)], [np.empty(0)]
    for want in collective(what.op).wants(plan.n, what.root, rank):
        block = slice(want.in_block * what.block_count, (want.in_block + 1) * what.block_count)
        parts = [wide[giver][block] for giver in want.ranks]
        whole, redop = parts[0].copy(), what.redop if parts[1:] else "sum"
        for part in parts[1:]:
            ufunc(redop)(whole, part, whole)
        scale = np.abs(whole) if redop == "prod" else sum(map(np.abs, parts))
        if redop == "avg":
            divide(whole, len(parts))
        blocks.append(whole)
        bounds.append(len(parts) * (eps * np.nan_to_num(scale, posinf=0.0) + least))
    return np.concatenate(blocks), np.concatenate(bounds)


def difference(plan: Plan, outputs: list[np.ndarray], inputs: list[np.ndarray]) -> str:
    """What is not as the definition has it. Products of small floats leave their range on the way
    in one order and not in another, and are held against the reference alone.
    """
    if plan.problem.redop == "prod" and plan.problem.item_bytes < 4:
        return ""
    for rank, output in enumerate(outputs):
        right, bound = expected(plan, inputs, rank)
        found = output.astype(right.dtype)
        if len(found) != len(right):
            return f"rank {rank} has {len(found)} elements, not {len(right)}"
        far = ~(
            (np.abs(found - right) <= bound)
            | (found == right)
            | (found != found) & (right != right)
        )
        if far.any():
            return f"rank {rank}: {far.sum()} of {len(far)}: {found[far][0]}, not {right[far][0]}"
    return ""


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two outputs have the same bits but for a NaN's, which the processor chooses."""
    return bool(((bits(one) == bits(other)) | (one != one) & (other != other)).all())


def oracle(seed: int, count: int) -> Found:
    """Plans on CPU ranks, held against the definition, and bit for bit against the reference."""
    done = 0
    while done < count:
        chance = Random(f"{seed} {done}")
        n = chance.randint(2, 7)
        drawn = (drawn_plan(chance, n) for _ in range(min(AT_ONCE, count - done)))
        plans = [plan for plan in drawn if plan is not None]
        session = CpuSession(LocalGroup(), plans, hot=True)
        try:
            for plan in plans:
                done += 1
                inputs = inputs_of(plan, done)
                outputs = session.once(plan, inputs)
                known = ReferenceSession().once(plan, inputs)
                wrong = difference(plan, outputs, inputs)
                if not all(map(same_bits, outputs, known)):
                    wrong += "; other bits than the reference has"
                what = f"number {done}, {plan.problem}, {plan.schedule.name}, {plan.proto}"
                yield plan.problem.op, wrong and f"{what}: {wrong}"
        finally:
            session.close()


def inputs(seed: int, count: int) -> Found:
    """Odd inputs for every reader and page, in this process."""
    from tests.fuzz.cases import case
    from tests.fuzz.judge import fault, outcome

    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            drawn = case(seed, number)
            wrong = fault(outcome(drawn, Path(folder)), Path(folder))
            yield drawn.name, wrong and f"--seed {seed} --only {number}: {wrong}"


def show(seed: int, number: int) -> None:
    """All that an odd input is, and what it prints."""
    from tests.fuzz.cases import case
    from tests.fuzz.judge import fault, outcome

    warnings.simplefilter("error")
    drawn = case(seed, number)
    print(*(ascii(word)[:300] for word in drawn.args), drawn.variables, drawn.encoding)
    for name, data in drawn.files.items():
        print(f"--- {name}: {len(data)} bytes", data[:6000], sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        seen = outcome(drawn, Path(folder))
        print(
            f"--- exit code {seen.code}", seen.out[:3000], "--- stderr", seen.err[:6000], sep="\n"
        )
        print(seen.escaped, "--- fault:", fault(seen, Path(folder)))


def sweeps(seed: int, count: int) -> Found:
    """Sweeps at once with one state, half of them into one file: every run is kept, every row is
    whole, and who finds that another one writes there ends with 3.
    """
    sizes = ("--sizes", f"{1 + seed}K,64K", "--repeats", "1", "--algo", "ring", "--ranks", "2")
    with tempfile.TemporaryDirectory() as folder:
        place, home = Path(folder), environment({"XDG_STATE_HOME": folder, "TMPDIR": folder})
        command = sweep(*sizes, "--backend", "reference", "--csv")
        names = ["rows.csv" if number % 2 else f"{number}.csv" for number in range(count)]
        with (place / "said").open("w") as said:
            start = partial(subprocess.Popen, cwd=place, env=home, stdout=said, stderr=said)
            running = [start([*command, name]) for name in names]
            codes = Counter(process.wait() for process in running)
        rows = sum(len(read(file)) for file in place.glob("*.csv"))
        kept, fine = len([*place.glob(SAVED)]), codes[0]
        is_right = set(codes) <= {0, 3} and fine > count // 2 and (rows, kept) == (2 * fine, fine)
        text = f"exit codes {dict(codes)}, {rows} rows, {kept} runs: {(place / 'said').read_text()}"
        yield "sweeps at once", "" if is_right else text[:3000]


@click.command()
@click.option("--faults", default=100, show_default=True)
@click.option("--exits", default=50, show_default=True)
@click.option("--oracle", default=500, show_default=True)
@click.option("--inputs", default=5000, show_default=True)
@click.option("--sweeps", default=100, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--only", type=int, help="Show the input of that number.")
def main(seed: int, only: int | None, **counts: int) -> None:
    """Attack, print what is wrong and how much was tried."""
    if only is not None:
        return show(seed, only)
    warnings.simplefilter("ignore")
    any_wrong = False
    with tempfile.TemporaryDirectory() as state:
        os.environ |= {"XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state}
        for part in (faults, exits, oracle, inputs, sweeps):
            count = counts[part.__name__]
            start_s, tried, failed = time.monotonic(), Counter[str](), 0
            for name, wrong in part(seed, count) if count else ():
                tried[name] += 1
                failed += bool(wrong)
                if wrong:
                    print(f"{part.__name__}: {name}: {wrong}", flush=True)
            took = f"{failed} of {tried.total()} wrong, {time.monotonic() - start_s:.0f} s"
            print(f"{part.__name__}: {took}; {dict(sorted(tried.items()))}", flush=True)
            any_wrong |= failed > 0
    raise SystemExit(any_wrong)


if __name__ == "__main__":
    main()
