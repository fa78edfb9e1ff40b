"""Topologies in files of other tools and of ours: one format a file, found by the file's name;
the content decides which one it is.

What machines look like is in topology, how one is recorded in discovery. A file comes from anyone:
whatever it holds, reading it gives a topology or one UsageError with the place, in bounded time and
memory.
"""

import re
from dataclasses import replace
from pathlib import Path

from collbench.core import xml_tree
from collbench.core.catalog import read_by
from collbench.core.errors import UsageError
from collbench.core.reading import read_text
from collbench.core.registry import Family
from collbench.machine.formats import _paste
from collbench.machine.topology.machines import has_links, machine_topology
from collbench.machine.topology.model import Topology

FAMILY = Family(__name__, __path__, "format")
# the largest dumps we know of, NCCL's of 72 GPUs and hwloc's of a thousand cores, have less than 4
# MiB
MAX_FILE_BYTES = 64 << 20
_KNOWN_FORMATS = (
    "known are NCCL's and RCCL's topology XML, nvidia-smi topo -m and -p2p, nvidia-smi nvlink -s,"
    " rocm-smi --showtopo, amd-smi topology, hwloc's XML, and collbench's own JSON"
)
_OWN_JSON = re.compile(r'"format"\s{0,99}:\s{0,99}"(collbench-[a-z]{1,20})"')


class IsRecording(Exception):  # noqa: N818 - no error: the file is fine, but not ours to read
    """The file is a recording of a machine, which only discovery reads: from this text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def read(file: Path | str) -> Topology:
    """The topology that a file describes; - is stdin. Raises UsageError with the place and what is
    wrong; IsRecording for what discovery has to read.
    """
    name = "stdin" if str(file) == "-" else str(file)
    text = read_text(file, MAX_FILE_BYTES, _KNOWN_FORMATS).replace("\xa0", " ")
    text = _paste.xml_document(text)
    topology = FAMILY.load(detect(text, name)).read(text, name)
    assert isinstance(topology, Topology)
    root = xml_tree.root_tag(text)
    if not root or f"</{root}>" in text:
        return topology
    if not topology.gpus:
        xml_tree.parse(text, name)  # says where it ends
    cut = f"the file is cut in line {text.count(chr(10)) + 1}: what is behind it is missing"
    return replace(topology, notes=(*topology.notes, cut))


def described(name: str) -> Topology | None:
    """The links of a machine: from a shipped profile, a profile's file, or any file that read()
    takes; None for a profile of CPUs.

    Raises UsageError if there is no such machine, or if the file is a recording: building links
    from one is discovery's work.

    >>> len(described("dgx-1v").gpus), described("cpu-2")
    (8, None)
    """
    if Path(name).suffix in ("", ".toml"):
        return machine_topology(name) if has_links(name) else None
    try:
        return read(name)
    except IsRecording:
        raise UsageError(
            f"{name} is a recording of a machine, not yet a description of its links",
            f"write that with: collbench topo --from {name} --json > machine.json",
        ) from None


def detect(text: str, name: str) -> str:
    """The name of the format of a text. Raises UsageError if it is none of them, IsRecording for a
    recording; `name` is for the message.

    >>> detect('<system version="1"/>', "a.xml")
    'nccl_xml'
    """
    own = _OWN_JSON.search(text) if text.lstrip().startswith("{") else None
    if own and own[1] == "collbench-recording":
        raise IsRecording(text)
    format_name = next((format_ for format_ in FAMILY if FAMILY.load(format_).is_mine(text)), None)
    if format_name is not None:
        return format_name
    if text.lstrip().startswith("<"):
        root = xml_tree.parse(text, name)
        if root.tag == "graphs":
            raise UsageError(
                f"{name} is a graph dump of NCCL (NCCL_GRAPH_DUMP_FILE): the rings and trees that"
                " it chose, not what is wired to what",
                "give the file that NCCL_TOPO_DUMP_FILE wrote",
            )
        raise UsageError(
            f"{root.place}: <{root.tag}> is not the root of a topology", _KNOWN_FORMATS
        )
    if own:
        raise UsageError(f"{name}: its format is {own[1]}, which is not a topology", _KNOWN_FORMATS)
    if known := read_by(text, name, "topo --from"):
        raise UsageError(f"{name}: this is {known[0]}, no topology", known[1])
    raise UsageError(f"{name}: no topology of a known format", _KNOWN_FORMATS)
