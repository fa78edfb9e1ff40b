"""collbench topo on the machine itself: the matrix equals nvidia-smi's, every pair is measured, and
NCCL starts with our XML.
"""

import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from collbench.machine import discovery
from collbench.machine.formats import nccl_xml, nvidia_smi
from collbench.machine.topology.paths import path
from tests.support.runs import ROOT, environment

from ._running import run, started

LIMIT_S = 120.0


def test_the_matrix_is_that_of_nvidia_smi(gpus: int) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("needs nvidia-smi")
    text = subprocess.run(
        ["nvidia-smi", "topo", "-m"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    theirs, ours = (
        nvidia_smi.read(text, "nvidia-smi topo -m"),
        discovery.topology_of([discovery.record()]),
    )
    for a, b in combinations(range(gpus), 2):
        assert path(ours, f"gpu{a}", f"gpu{b}").label == path(theirs, f"gpu{a}", f"gpu{b}").label


def test_every_pair_is_measured(gpus: int, tmp_path: Path) -> None:
    ended = run(
        [
            sys.executable,
            "-m",
            "collbench",
            "topo",
            "--measure",
            "--save",
            str(tmp_path / "saved.json"),
        ],
        LIMIT_S,
    )
    print(ended.stdout)
    assert ended.code == 0, ended.stderr
    assert "- " not in [line[:2] for line in ended.stdout.splitlines()], "a pair has no value"
    assert f"{gpus * (gpus - 1) // 2 * 13} measurements" in ended.stderr
    again = run(
        [
            sys.executable,
            "-m",
            "collbench",
            "topo",
            "--machine",
            str(tmp_path / "saved.json"),
            "--rates",
        ],
        LIMIT_S,
    )
    assert again.code == 0, again.stderr


def _fields(file: Path) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """What a dump says of each element, without what NCCL gets wrong or leaves out in virtual
    machines: a width of 0, a NUMA node of -1.
    """
    dropped = {"link_width", "link_speed", "numaid", "affinity"}
    return sorted(
        (
            element.tag,
            tuple(
                sorted((key, value) for key, value in element.attrib.items() if key not in dropped)
            ),
        )
        for element in ElementTree.parse(file).iter()
    )


def test_nccl_takes_our_xml(gpus: int, tmp_path: Path) -> None:
    """NCCL dumps the same topology and graphs with our file as without, and comes to the right
    results.
    """
    ours = tmp_path / "ours.xml"
    ours.write_text(nccl_xml.write(discovery.topology_of([discovery.record()])))
    for name, more in (("without", {}), ("with", {"NCCL_TOPO_FILE": str(ours)})):
        more |= {
            "NCCL_TOPO_DUMP_FILE": str(tmp_path / f"{name}.xml"),
            "NCCL_GRAPH_DUMP_FILE": str(tmp_path / f"{name}-graph.xml"),
        }
        command = started(
            "mpi",
            gpus,
            [
                "-m",
                "collbench",
                "sweep",
                "--op",
                "allreduce",
                "--backend",
                "nccl",
                "--sizes",
                "8,1M,256M",
            ],
        )
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        print(f"{name} our file:\n{done.stdout}")
        assert done.returncode == 0, done.stderr[-2000:]
    assert _fields(tmp_path / "with-graph.xml") == _fields(tmp_path / "without-graph.xml")
    assert _fields(tmp_path / "with.xml") == _fields(tmp_path / "without.xml")
