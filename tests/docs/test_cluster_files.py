"""Files of docs/examples/cluster are read by who takes them, and their commands parse. What runs on
Slurm does so in tests/cluster.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_pages import parse
from tests.support.runs import ROOT

FILES = ROOT / "docs" / "examples" / "cluster"
SCRIPTS = ("accept.sbatch", "node-check.sh")
MANIFESTS = {"check-job.yaml": "Job", "mpijob.yaml": "MPIJob"}


def containers(part: Any) -> Iterator[dict[str, Any]]:
    """Every container of a manifest."""
    if isinstance(part, dict):
        yield from part.get("containers", ())
        part = part.values()
    for inner in part if not isinstance(part, str | int | None) else ():
        yield from containers(inner)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_parse(name: str) -> None:
    file = FILES / name
    done = subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = re.sub(r'"\$(collbench)"| 2>&1\)', r"\1", file.read_text()).splitlines()
    assert sum(parse(line) for line in lines if "collbench" in line and line[0] != "#") > 0


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_parse(name: str) -> None:
    manifest = yaml.safe_load((FILES / name).read_text())
    assert manifest["kind"] == MANIFESTS[name]
    made = list(containers(manifest))
    assert all(one["image"].startswith("registry.example/collbench:") for one in made)
    lines = [
        words[-1] if words[:2] == ["sh", "-c"] else shlex.join(words)
        for words in (one["command"] for one in made if "command" in one)
    ]
    assert [parse(line) for line in lines] == [1]


def test_a_hunt_that_names_a_host_is_not_run_again() -> None:
    """The operator heeds no policy of a pod, and its own would restart a launcher that fails."""
    spec = yaml.safe_load((FILES / "mpijob.yaml").read_text())["spec"]
    assert spec["launcherCreationPolicy"] == "WaitForWorkersReady"
    assert spec["runPolicy"]["backoffLimit"] == 0
    assert spec["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] == "Never"
    pods = [one["template"]["spec"] for one in spec["mpiReplicaSpecs"].values()]
    assert not any("restartPolicy" in pod for pod in pods)


def test_the_image_has_what_exists() -> None:
    file = FILES / "Containerfile"
    # versions of packages are those of the base image
    words = [str(Path(sys.executable).with_name("hadolint")), "--no-color", "--ignore", "DL3008"]
    done = subprocess.run([*words, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    text = file.read_text()
    extras = tomllib.loads(Path(ROOT, "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"CUDA=(\w+)", text))
    assert named == {"cuda12", "cuda13"} <= set(extras["optional-dependencies"])
