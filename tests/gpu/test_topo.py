"""`collbench topo` on this machine's GPUs: what it writes it reads again, and every view ends."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from collbench.machine import discovery, formats
from collbench.machine.formats import nvidia_smi
from collbench.machine.topology import unnamed
from collbench.machine.topology.rings import ring_rate_gbs, rings
from tests.support.runs import ROOT, said_by
from tests.support.topologies import labels

VIEWS = ("--tree", "--rates", "--rings", "--links", "--p2p", "--gdr", "--rails")


LEAST_GPUS = 1


def topo(*args: str) -> str:
    done = said_by([sys.executable, "-m", "collbench", "topo", *args], cwd=ROOT)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_this_machine(view: str) -> None:
    assert topo(view).strip()


def test_documents_of_this_machine_are_read_again(tmp_path: Path) -> None:
    topology = discovery.topology_of([discovery.record()])
    for option, name in (("--json", "machine.json"), ("--xml", "machine.xml")):
        file = tmp_path / name
        file.write_text(topo(option))
        again = formats.read(file)
        assert [gpu.address.lower()[-7:] for gpu in again.gpus] == [
            gpu.address.lower()[-7:] for gpu in topology.gpus
        ]
        assert labels(again) == labels(topology)
    assert json.loads((tmp_path / "machine.json").read_text())["data"]["nodes"]


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="there is no nvidia-smi here")
def test_nvidia_smi_says_the_same_classes() -> None:
    topology = discovery.topology_of([discovery.record()])
    text = said_by(["nvidia-smi", "topo", "-m"]).stdout
    assert labels(nvidia_smi.read(text, "topo-m.txt")) == labels(topology)


def test_nothing_is_left_out_where_nvml_answers() -> None:
    """Rates are known where all links are, and no link of the GPUs is unnamed."""
    topology = discovery.topology_of([discovery.record()])
    assert unnamed.remark(topology) == ""
    if len(topology.gpus) > 1 and all(topology.bundles(gpu.id) for gpu in topology.gpus):
        assert (ring_rate_gbs(topology, rings(topology)) or 0) > 0
