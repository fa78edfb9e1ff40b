"""`collbench predict`: what collectives would take on more hosts, or on another machine."""

import click

from collbench.cli._command import declared, explicit_options
from collbench.cli._declared import op_option
from collbench.cli._options import (
    SIZES_HELP,
    FileName,
    ListOf,
    OutputFile,
    Profile,
    Sizes,
    color_option,
    json_option,
    whole,
)
from collbench.core.catalog import names
from collbench.core.errors import UsageError
from collbench.core.options import Rule, refuse

_MOST_HOSTS = 1 << 16
_OPTIONS = (
    op_option(),
    click.option(
        "--machine",
        type=Profile("machine", lambda: names("machines")),
        metavar="NAME",
        help="A machine of the catalogue, or a file: each host is like its first one, for example"
        " hgx-h100. Without a machine they are listed.",
    ),
    click.option(
        "--topo",
        type=FileName(),
        metavar="FILE",
        help="A machine that topo --from reads, for example matrix.txt with what nvidia-smi topo -m"
        " printed; - is stdin.",
    ),
    click.option(
        "--nic",
        metavar="RATE",
        help="With --topo: the rate of each NIC in Gbit/s, for example 400G.",
    ),
    click.option(
        "--links",
        type=ListOf("word", str),
        metavar="LIST",
        help="With --topo: what the file does not tell of its links and of the network, for example"
        " nvlink4,pcie5,roce; or ib, efa, tcp.",
    ),
    click.option(
        "--hosts",
        type=ListOf("number", whole(1, "for example 16", _MOST_HOSTS, "number of hosts")),
        default="1",
        show_default=True,
        help="Numbers of hosts, for example 1,2,16,128,2048.",
    ),
    click.option(
        "--sizes",
        type=Sizes(),
        default="8:1G:x8",
        show_default=True,
        help=f"{SIZES_HELP}, for example 8:1G:x8 or 1K,64M.",
    ),
    click.option(
        "--set",
        "changes",
        metavar="KEY=VALUE",
        multiple=True,
        help=(
            "Change the machine, and show what that gives, for example nvlink=half, nic=2,"
            " nic=800Gb, latency.net=5us, oversubscription=2 or gpus=4. Can be given again."
        ),
    ),
    click.option(
        "--sensitivity",
        is_flag=True,
        help="Show by how many percent the time changes for one percent of each constant.",
    ),
    click.option(
        "--all", "has_all", is_flag=True, help="Show every algorithm, not the best alone."
    ),
    click.option(
        "--csv",
        type=OutputFile("op,machine,hosts,ranks,size_bytes,"),
        metavar="FILE",
        help="Write the rows to a file, for example predicted.csv; - is stdout.",
    ),
    json_option("predict", "the rows"),
    color_option("Colours of the headings"),
)
_PREDICT_RULES = (
    Rule(
        options=("machine",),
        when=lambda options: options["topo"] is not None,
        message="--topo gives another machine",
    ),
    Rule(
        options=("nic", "links"),
        when=lambda options: options["topo"] is None,
        message="they say what a file of --topo does not tell",
        hint="give --topo FILE too; --set nic=400Gb changes a machine of the catalogue",
    ),
)


@declared("predict", *_OPTIONS)
def command(context: click.Context, /, **_: object) -> None:
    """Predict times on hosts that are all alike, from 1 to thousands, and what limits them.

    First NCCL as it is: its algorithms, chosen as its own tables choose them, with between which
    times nine of ten published figures would be. Then the best of our own engine, where it can run:
    on one host, or with --all also where GPUs would send by NICs. Links and constants are those of
    the machine. The network is a rail-optimised fat tree: NICs that serve GPUs with the same number
    are on one rail. Nothing runs and no GPU is needed.

    \b
    Examples:
      collbench predict
      collbench predict --machine hgx-h100 --hosts 1,2,16,128,2048
      collbench predict --topo matrix.txt --nic 400G --links nvlink4,ib --hosts 2
      collbench predict --op alltoall --machine gb200-nvl72 --hosts 18 --sizes 1G
      collbench predict --machine hgx-h100 --hosts 8 --set nic=800Gb --sensitivity
    """
    explicit = explicit_options(context)
    refuse(_PREDICT_RULES, explicit, context.params)
    if context.params["machine"] is None and context.params["topo"] is None:
        if explicit - {"json"}:
            raise UsageError(
                "there is no machine to predict for",
                "give --machine NAME or --topo FILE; collbench predict alone lists the machines",
            )
        from collbench.planning.predict_machines import list_machines

        list_machines(context.params["json"])
        return
    from collbench.planning.run_predict import run_predict

    run_predict(context.params)
