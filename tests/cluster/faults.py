"""What befalls a sweep over four hosts when one of them fails, and the table of it for every host.

python -m tests.cluster.faults
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shlex import split
from typing import NamedTuple

import pytest

from collbench.core.errors import CollbenchError
from collbench.core.record import read
from tests.cluster.lab import Cluster, cluster, missing
from tests.support.runs import environment, needs_mpi

# marks of tests on it
needs_cluster = [
    pytest.mark.exhaustive,
    needs_mpi,
    pytest.mark.skipif(bool(missing()), reason=missing() or "a cluster"),
]
HOSTS, END_S = 4, 150.0
SRUN = split("srun --immediate=30 --overcommit -N 4 -n 4")
COLLBENCH = (sys.executable, "-m", "collbench")
SWEEP = split("sweep --op allreduce --backend cpu --algo ring --hot -b 64K -i 2K -n 20")


def on_host(command: str) -> Callable[[Cluster, int], None]:
    """A command that runs on the host."""

    def strike(lab: Cluster, host: int) -> None:
        done = lab.run("sh", "-c", command, host=host)
        assert done.returncode == 0, done.stderr

    return strike


def unplug(lab: Cluster, host: int) -> None:
    """Take the host's cable out."""
    lab.run("ip", "link", "set", f"v{host}", "down")


def flap(lab: Cluster, host: int) -> None:
    """Take it out, and in again."""
    unplug(lab, host)
    time.sleep(2)
    lab.run("ip", "link", "set", f"v{host}", "up")


LOSS = "iptables-legacy -A OUTPUT -o eth0 -m statistic --mode random --probability 0.05 -j DROP"
# the rank, which its guardian has started
RANK = "$(ps ax -o pid,comm,args | awk '/collbench [s]weep/ && $2 !~ /^cb-/ { print $1; exit }')"
# what strikes while a sweep runs, and before it starts
MEANWHILE = {
    "a killed rank": on_host(f"kill -KILL {RANK}"),
    "a stopped rank": on_host(f"kill -STOP {RANK}"),
    "a killed slurmd": on_host("pkill -KILL -x slurmd"),
    "the link down": unplug,
    "the link down for 2 s": flap,
}
BEFORE = {
    "5 % of packets lost": on_host(LOSS),
    "a full /dev/shm": on_host("head -c 3G /dev/zero > /dev/shm/full; test -s /dev/shm/full"),
    "another name than Slurm's": on_host("hostname other"),
}


class Outcome(NamedTuple):
    """How a sweep ended: its exit code, seconds since the fault, complete rows, whether our
    error or Slurm's names the host or its rank, what it left behind, and its words.
    """

    code: int | None
    seconds: float
    rows: int
    is_named: bool
    left: str
    words: str


def tried(fault: str, host: int, folder: Path, *more: str) -> Outcome:
    """A sweep on a new cluster, of which one host fails. more: options."""
    csv, is_late = folder / "rows.csv", fault in MEANWHILE
    with cluster(HOSTS) as lab:
        if not is_late:
            BEFORE[fault](lab, host)
        words = [*SRUN, *COLLBENCH, *SWEEP, "-e", "84K" if is_late else "66K", *more]
        env = environment({"XDG_STATE_HOME": str(folder / "state")})
        with lab.start([*words, "--csv", str(csv)], env) as run:
            start = time.monotonic()
            while is_late and (not csv.exists() or csv.read_text().count("\n") < 3):
                assert run.poll() is None and time.monotonic() < start + END_S
                time.sleep(0.1)
            if is_late:
                start = time.monotonic()
                MEANWHILE[fault](lab, host)
            try:
                _, said = run.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                run.kill()
                _, said = run.communicate()
        seconds, rows = time.monotonic() - start, 0
        lab.run("rm", "-f", "/dev/shm/full", host=host)
        with suppress(CollbenchError, OSError):
            rows = len(read(csv))
        errors = " ".join(re.findall(r"^(?:Error|srun: error: Node failure).*", said, re.MULTILINE))
        is_named = re.search(rf"\bh{host + 1}\b|\brank {host}\b", errors) is not None
        return Outcome(run.returncode, seconds, rows, is_named, lab.left(), said)


def main(faults: list[str]) -> None:
    """Print the table. What Slurm notices late must not end before."""
    print("| fault | exit code | seconds | rows | named | left behind |")
    print("| --- | --- | --- | --- | --- | --- |")
    for fault in faults or [*MEANWHILE, *BEFORE]:
        found = list[Outcome]()
        for host in range(HOSTS):
            with tempfile.TemporaryDirectory() as folder:
                long = ("-e", "1M") if fault == "a killed slurmd" else ()
                found.append(tried(fault, host, Path(folder), *long))
            print(fault, host, found[-1], file=sys.stderr, flush=True)
        codes, named = sorted({str(one.code) for one in found}), sum(one.is_named for one in found)
        most, least = max(one.seconds for one in found), min(one.rows for one in found)
        left = "; ".join({one.left for one in found if one.left}) or "nothing"
        cells = ", ".join(codes), f"{most:.0f}", f"{least}", f"{named} of {HOSTS}", left
        print(f"| {fault} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
