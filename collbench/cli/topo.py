"""`collbench topo`: the devices of a machine, their links, rates, and what limits them."""

import click

from collbench.cli._command import declared, explicit_options
from collbench.cli._options import DRAWING, FileName, OutputFile, Profile, color_option, json_option
from collbench.core.catalog import names
from collbench.core.options import Options, Rule, refuse

_SOURCE_OPTIONS = (
    click.option(
        "--from",
        "file",
        type=FileName(),
        metavar="FILE",
        help=(
            "Read a file instead of this machine, for example machine.json: a recording, NCCL's"
            " or RCCL's topology XML, nvidia-smi topo -m or -p2p, rocm-smi --showtopo, hwloc's"
            " XML, our JSON; - is stdin."
        ),
    ),
    click.option(
        "--machine",
        type=Profile("machine", lambda: names("machines")),
        metavar="NAME",
        help="Show a machine of the catalogue, for example dgx-1v, or a profile file.",
    ),
    click.option(
        "--record",
        metavar="FILE",
        type=OutputFile('"collbench-recording"'),
        help=(
            "Write all that this machine reports of itself to a file, for example machine.json, for"
            " --from or a bug report; - is stdout."
        ),
    ),
)
_VIEW_OPTIONS = (
    click.option(
        "--tree", is_flag=True, help="Show the machine as a tree, with every link and its GB/s."
    ),
    click.option(
        "--rates",
        is_flag=True,
        help="Show the usable GB/s between every pair, and the hop that limits it.",
    ),
    click.option(
        "--p2p",
        is_flag=True,
        help=(
            "Show whether a GPU may read, write and update a peer's memory, whether there is an"
            " NVLink, and if not, why."
        ),
    ),
    click.option(
        "--links", is_flag=True, help="Show links one by one: active, speed, error counters."
    ),
    click.option(
        "--gdr",
        is_flag=True,
        help=(
            "Show for every GPU and NIC whether RDMA can be direct, and whether NCCL will use it;"
            " NCCL_NET_GDR_LEVEL is heeded."
        ),
    ),
    click.option(
        "--rails",
        is_flag=True,
        help="Show which NIC serves which GPU; of several hosts the rails and the bisection too.",
    ),
    click.option(
        "--measure",
        "is_measured",
        is_flag=True,
        help="Measure every pair in GB/s: stores, loads, copy engine and host memory, in one"
        " direction and in both.",
    ),
    click.option(
        "--rings",
        is_flag=True,
        help="Show orders of the ranks that use the links best, and their GB/s.",
    ),
)
_DOCUMENT_OPTIONS = (
    json_option("topo", "the topology"),
    click.option(
        "--xml",
        "is_xml",
        is_flag=True,
        help="Write the topology as NCCL's XML, for NCCL_TOPO_FILE, to stdout, and nothing else.",
    ),
    click.option(
        "--svg",
        metavar="FILE",
        type=OutputFile(DRAWING),
        help="Write a drawing for a report, for example to machine.svg; - is stdout.",
    ),
    click.option(
        "--save",
        metavar="FILE",
        type=OutputFile('"collbench-topology"'),
        help=(
            "With --measure: write the machine with the rates reached as JSON, for example to"
            " machine.json, for --machine and --from; - is stdout."
        ),
    ),
    color_option("Colours by class of link"),
)


def _shows_another(options: Options) -> bool:
    """Whether the machine is not the one that the command runs on."""
    return options["file"] is not None or options["machine"] is not None


_TOPO_RULES = (
    Rule(
        options=("save",),
        when=lambda options: not options["is_measured"],
        message="nothing is measured that could be written",
        hint="give --measure too",
    ),
    Rule(
        options=("is_measured", "record"),
        when=_shows_another,
        message="for this machine only, and --from and --machine show another",
    ),
    Rule(
        options=("machine",),
        when=lambda options: options["file"] is not None,
        message="--from gives another machine",
    ),
)


@declared("topo", *_SOURCE_OPTIONS, *_VIEW_OPTIONS, *_DOCUMENT_OPTIONS)
def command(context: click.Context, /, **_: object) -> int:
    """Show the machine: the matrix of links, or other views of its devices, links and rates.

    Without a view it shows the matrix that nvidia-smi topo -m shows, with NICs. Views can be
    combined. GB/s are decimal, usable, in one direction. Under mpirun or srun it asks all hosts;
    hosts that are equal are shown once.

    \b
    Examples:
      collbench topo
      collbench topo --rates --rings --machine dgx-1v
      collbench topo --record machine.json
      collbench topo --from machine.json --svg machine.svg
    """
    from collbench.bench.show_topology import show

    refuse(_TOPO_RULES, explicit_options(context), context.params)
    return show(context.params)
