"""The machine that `predict` is asked about, and the list of those that it knows."""

import sys
from pathlib import Path

from collbench.core.catalog import names
from collbench.core.files import result_json, write_document
from collbench.core.options import Options
from collbench.core.screen import say, width
from collbench.core.text import table
from collbench.machine.formats import described
from collbench.machine.topology.given import completed, link_words, nic_gbits
from collbench.machine.topology.machines import has_links, machine_topology
from collbench.machine.topology.model import Topology

_HOW = (
    "Give one of them, this machine, or what nvidia-smi topo -m printed:",
    "  collbench predict --machine hgx-h100 --hosts 1,2,16",
    "  collbench topo --json > this.json; collbench predict --topo this.json",
    "  collbench predict --topo matrix.txt --nic 400G --links nvlink4 --hosts 2",
)


def machine_of(options: Options) -> tuple[str, Topology]:
    """The name and the links of the machine that was given. Raises UsageError for what is wrong in
    a file, or said of it.
    """
    name, file = options["machine"], options["topo"]
    if file is None:
        return name, described(name) or machine_topology(name)
    gbits = None if options["nic"] is None else nic_gbits(options["nic"])
    words = tuple(map(link_words, options["links"] or ()))
    found = completed(_read(file), gbits, words)
    return "stdin" if file == "-" else Path(file).stem, found


def _read(file: str) -> Topology:
    """As `topo --from` reads it, recordings too."""
    from collbench.machine import discovery, formats

    try:
        return formats.read(file)
    except formats.IsRecording as recording:
        return discovery.topology_of(discovery.loads(recording.text, file))


def list_machines(file: str | None) -> None:
    """Show the machines of the catalogue, and how to give one. file: their JSON document."""
    machines: list[tuple[str, int, int, str]] = []
    for name in names("machines"):
        if has_links(name):
            topology = machine_topology(name)
            hosts, gpus = len(topology.hosts), len(topology.gpus)
            machines.append((name, hosts, gpus // hosts, topology.name))
    if file is not None:
        data = [
            dict(zip(("machine", "hosts", "gpus", "name"), row, strict=True)) for row in machines
        ]
        write_document(result_json(data), file, "--json")
    if file == "-":
        return
    rows = [list(map(str, row)) for row in machines]
    heads = ("machine", "hosts", "GPUs", "what it is")
    say("\n".join((*table(heads, rows, {1, 2}, width(sys.stdout)), "", *_HOW)))
