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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A file that is read without an error, the ending of its name, and how it is changed."""

    text: str
    ending: str
    change: Callable[[Random, str], bytes]


def _files(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in endings)


@cache
def rows() -> tuple[Sample, ...]:
    """The first rows of our own results."""
    return tuple(
        Sample(
            text="".join(file.read_text().splitlines(keepends=True)[: _ROWS + 1]),
            ending=".csv",
            change=mutate.table,
        )
        for file in _files(PROFILES / "results", (".csv",))
    )


@cache
def foreign_results() -> tuple[Sample, ...]:
    """Results of every other tool that compare reads."""
    texts = tuple(
        Sample(text=file.read_text(), ending=".txt", change=mutate.data)
        for file in _files(DATA / "results", (".txt", ".jsonl"))
    )
    written = tuple(
        Sample(text=file.read_text(), ending=".json", change=mutate.document)
        for file in _files(DATA / "results", (".json",))
    )
    return (*texts, *written, *written)


@cache
def logs() -> tuple[Sample, ...]:
    """Logs of NCCL, and what else says where a job hangs."""
    return tuple(
        Sample(
            text=file.read_text(),
            ending=file.suffix,
            change=mutate.document if file.suffix == ".json" else mutate.data,
        )
        for file in _files(DATA / "nccl-logs", (".txt", ".json"))
    )


@cache
def topologies() -> tuple[Sample, ...]:
    """Every format that describes links, and a recording."""
    samples = [
        Sample(
            text=file.read_text(),
            ending=file.suffix,
            change=mutate.xml if file.suffix == ".xml" else mutate.data,
        )
        for file in _files(DATA / "topologies", (".txt", ".xml"))
    ]
    machine = machine_topology("pcie-2x2")
    own = Sample(text=topology_json.write(machine), ending=".json", change=mutate.document)
    with TemporaryDirectory() as folder:
        recording = dumps([fake_hosts.asked(Path(folder), fake_hosts.dgx1v(Path(folder)))])
    return (*samples, own, Sample(text=recording, ending=".json", change=mutate.document))


@cache
def programs() -> tuple[Sample, ...]:
    """Programs of MSCCL and MSCCL++."""
    return tuple(
        Sample(text=text, ending=ending, change=mutate.xml if ending == ".xml" else mutate.document)
        for text, ending in algorithm_files.texts()
    )


@cache
def machines() -> tuple[Sample, ...]:
    """Profiles of machines."""
    return tuple(
        Sample(
            text=(PROFILES / "machines" / f"{name}.toml").read_text(),
            ending=".toml",
            change=mutate.toml,
        )
        for name in MACHINES
    )


@cache
def presets() -> tuple[Sample, ...]:
    """Presets of sweeps."""
    return tuple(
        Sample(text=file.read_text(), ending=".toml", change=mutate.toml)
        for file in _files(PROFILES / "sweeps", (".toml",))
    )
