"""`collbench topo`: what is wired to what, how fast that should be, and which hop limits whom."""

from typing import Any

import click

_SOURCES = (
    click.option(
        "--from",
        "file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help=(
            "Read a file instead of this machine: a recording, NCCL's topology XML, nvidia-smi topo"
            " -m or -p2p, hwloc's XML, our JSON."
        ),
    ),
    click.option(
        "--machine",
        metavar="NAME",
        help="Show a machine of the catalogue, for example dgx-1v, or a profile file.",
    ),
    click.option(
        "--record",
        metavar="FILE",
        help=(
            "Write all that this machine says of itself into a file, for --from or a bug report; -"
            " for stdout."
        ),
    ),
)
_VIEWS = (
    click.option(
        "--tree", is_flag=True, help="The machine as a tree, with every link and its GB/s."
    ),
    click.option(
        "--rates",
        is_flag=True,
        help="GB/s that can be used between every pair, and the hop that limits it.",
    ),
    click.option(
        "--p2p",
        is_flag=True,
        help=(
            "May a GPU read, write and update a peer's memory, is there an NVLink, and if not, why."
        ),
    ),
    click.option("--links", is_flag=True, help="Links one by one: active, speed, error counters."),
    click.option(
        "--measure",
        "is_measured",
        is_flag=True,
        help="Measure every pair: stores, loads, copy engine and host memory, one way and both.",
    ),
    click.option(
        "--rings",
        is_flag=True,
        help="Orders of ranks that use the wires best, and what they carry.",
    ),
)
_DOCUMENTS = (
    click.option(
        "--json", "is_json", is_flag=True, help="The topology as JSON on stdout, nothing else."
    ),
    click.option(
        "--xml",
        "is_xml",
        is_flag=True,
        help="The topology as NCCL's XML, good for NCCL_TOPO_FILE, on stdout, nothing else.",
    ),
    click.option("--svg", metavar="FILE", help="A drawing for a report; - for stdout."),
    click.option(
        "--save",
        metavar="FILE",
        help=(
            "With --measure: write the machine with the rates reached, for --machine and --from"
            " (JSON)."
        ),
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Colours by class of link.",
    ),
)


@click.command(name="topo")
def command(**options: Any) -> int:
    """Show the machine: the link matrix, or other views of what is wired to what and how fast that
    is.

    Without a view: the matrix, as nvidia-smi topo -m has it, with NICs. Views can be combined. GB/s
    are decimal, usable, in one direction. Under mpirun or srun all hosts are asked; hosts that are
    equal are shown once.

    \b
    Examples:
      collbench topo
      collbench topo --rates --rings --machine dgx-1v
      collbench topo --record machine.json
      collbench topo --from machine.json --svg machine.svg
    """
    from collbench.cli._show_topology import show

    return show(**options)


for _option in (*_SOURCES, *_VIEWS, *_DOCUMENTS):
    command = _option(command)
