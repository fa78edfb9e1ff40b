"""The files that are mutated: of every format that a command reads, small ones of our own."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from collbench.machine.discovery import dumps
from collbench.machine.formats import topology_json
from collbench.machine.topology.machines import machine_topology
from tests.fuzz import mutate
from tests.support import algorithm_files, fake_hosts

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data"
PROFILES = ROOT / "profiles"
MACHINES = ("cpu-2", "dgx-1", "gn5-8xp100", "h200x4-vm", "pcie-2x2", "pcie-4", "gb200-nvl72")
_ROWS = 6


CHANGES: dict[str, Callable[[Random, str], bytes]] = {
    ".csv": mutate.table,
    ".json": mutate.document,
    ".jsonl": mutate.data,
    ".toml": mutate.toml,
    ".txt": mutate.data,
    ".xml": mutate.xml,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A file that is read without an error, and the ending of its name."""

    text: str
    ending: str

    def changed(self, random: Random) -> bytes:
        """Made a little wrong, as files with that ending are."""
        return CHANGES[self.ending](random, self.text)


def _samples(folder: Path, *endings: str) -> tuple[Sample, ...]:
    files = sorted(file for file in folder.iterdir() if file.suffix in endings)
    return tuple(Sample(file.read_text(), file.suffix) for file in files)


@cache
def rows() -> tuple[Sample, ...]:
    """The first rows of our own results."""
    return tuple(
        Sample("".join(one.text.splitlines(keepends=True)[: _ROWS + 1]), one.ending)
        for one in _samples(PROFILES / "results", ".csv")
    )


@cache
def foreign_results() -> tuple[Sample, ...]:
    """Results of every other tool that compare reads; few are documents, so each counts twice."""
    documents = _samples(DATA / "results", ".json")
    return (*_samples(DATA / "results", ".txt", ".jsonl"), *documents, *documents)


@cache
def logs() -> tuple[Sample, ...]:
    """Logs of NCCL, and what else says where a job hangs."""
    return _samples(DATA / "nccl-logs", ".txt", ".json")


@cache
def topologies() -> tuple[Sample, ...]:
    """Every format that describes links, and a recording."""
    own = topology_json.write(machine_topology("pcie-2x2"))
    with TemporaryDirectory() as folder:
        recording = dumps([fake_hosts.asked(Path(folder), fake_hosts.dgx1v(Path(folder)))])
    written = Sample(own, ".json"), Sample(recording, ".json")
    return (*_samples(DATA / "topologies", ".txt", ".xml"), *written)


@cache
def programs() -> tuple[Sample, ...]:
    """Programs of MSCCL and MSCCL++."""
    return tuple(Sample(*one) for one in algorithm_files.texts())


@cache
def machines() -> tuple[Sample, ...]:
    """Profiles of machines."""
    files = (PROFILES / "machines" / f"{name}.toml" for name in MACHINES)
    return tuple(Sample(file.read_text(), ".toml") for file in files)


@cache
def presets() -> tuple[Sample, ...]:
    """Presets of sweeps."""
    return _samples(PROFILES / "sweeps", ".toml")
