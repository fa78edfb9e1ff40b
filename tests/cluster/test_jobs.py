"""The job and the node check of docs/examples/cluster on a real Slurm cluster (see lab.py)."""

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest

from tests.cluster.faults import needs_cluster
from tests.cluster.lab import Cluster, cluster
from tests.support.runs import ROOT, environment

pytestmark = [*needs_cluster, pytest.mark.timeout(900)]

FILES = ROOT / "docs" / "examples" / "cluster"
SLOW = 2  # the host that sends slowly
# Every launch of the check does nothing, which is wrong data on a busy machine, too.
BROKEN = f"cd {quote(str(ROOT))}; exec {quote(sys.executable)} -m tests.support.corrupt idle"
WHOLE = f"exec {quote(sys.executable)} -m tests.support.short_check"


@pytest.fixture
def lab() -> Iterator[Cluster]:
    with cluster(4) as one:
        yield one


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    return program(tmp_path / "bin" / "collbench", WHOLE)


def program(place: Path, words: str) -> Path:
    """A program that runs those words of a shell with its arguments."""
    place.parent.mkdir(exist_ok=True)
    place.write_text(f'#!/bin/bash\n{words} "$@"\n')
    place.chmod(0o755)
    return place


def states(lab: Cluster) -> dict[str, str]:
    """What Slurm thinks of each node."""
    lines = lab.run("sinfo", "-h", "-N", "-o", "%N %T").stdout.splitlines()
    return dict(line.split() for line in lines)


def test_the_job_names_the_slow_node(lab: Cluster, tool: Path, tmp_path: Path) -> None:
    for host in range(4):
        lab.shape(host, f"tbf rate {300 if host == SLOW else 800}mbit burst 256k latency 50ms")
    env = environment({"XDG_STATE_HOME": str(tmp_path), "PATH": f"{tool.parent}:/usr/bin:/bin"})
    words = ["--overcommit", "--nodes=4", "--ntasks-per-node=1"]
    text = (FILES / "accept.sbatch").read_text()
    (tmp_path / "accept.sbatch").write_text(text.replace("--budget 120s", "--budget 1s"))
    words += [f"--chdir={tmp_path}", "--output=job.txt", "accept.sbatch"]
    done = lab.batch(*words, env=env, timeout_s=600)
    said = (tmp_path / "job.txt").read_text()
    assert done.returncode == 1, done.stderr + said
    (bad,) = tmp_path.glob("collbench-*/bad.txt")
    assert bad.read_text() == "bad: h3\n", said
    assert "allreduce, 4 ranks" in said
    node = bad.read_text().removeprefix("bad: ").strip()
    drained = lab.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=collbench")
    assert drained.returncode == 0, drained.stderr
    assert states(lab)[node].startswith("drain")


def test_a_node_is_drained_by_a_failed_check_alone(
    lab: Cluster, tool: Path, tmp_path: Path
) -> None:
    """Not where the check can judge nothing, or is not there."""
    (tmp_path / "nodes").mkdir()
    broken = program(tmp_path / "broken" / "collbench", BROKEN)
    codes = []
    for host, place in enumerate((broken, tool, tmp_path / "nothing")):
        env = {
            "XDG_STATE_HOME": str(tmp_path),
            "COLLBENCH": str(place),
            "COLLBENCH_NODES": str(tmp_path / "nodes"),
            "SLURMD_NODENAME": f"h{host + 1}",
        }
        words = ["bash", str(FILES / "node-check.sh")]
        done = lab.run(*words, host=host, env=environment(env), timeout_s=200)
        codes.append(done.returncode)
    assert codes == [1, 0, 0]
    assert [state.startswith("drain") for state in states(lab).values()] == [True, *[False] * 3]
    assert "collbench: FAIL" in lab.run("scontrol", "show", "node", "h1").stdout
