"""What this host is, found out without root: NVML, sysfs and /proc as a recording; a recording, of
here or elsewhere, as a topology.

record() gives a Recording, on_demand() one whose values are read when they are asked for;
topology_of() turns one or many into a Topology; a Recording travels as JSON.
"""

from collbench.machine.discovery._gather import gather
from collbench.machine.discovery._record import dumps, loads, on_demand, record
from collbench.machine.discovery.build import topology_of
from collbench.machine.discovery.links import LinkRow, links_table
from collbench.machine.discovery.recording import Recording

__all__ = [
    "LinkRow",
    "Recording",
    "dumps",
    "gather",
    "links_table",
    "loads",
    "on_demand",
    "record",
    "topology_of",
]
