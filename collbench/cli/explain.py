"""`collbench explain`: why a collective takes as long as it does, in ten lines."""

import click

from collbench.cli._command import StrictCommand, explicit_options
from collbench.cli._declared import op_option, setting_option
from collbench.cli._options import OneOf, Size, Whole
from collbench.cli._rules import Rule, refuse
from collbench.spec.options import OPTIONS

_OPTIONS = (
    click.option(
        "--backend",
        type=OneOf(("cpu", "cuda")),
        default=None,
        help="Where the ranks are: cpu or cuda. Default: cuda where there are GPUs, else cpu.",
    ),
    op_option(),
    click.option(
        "--size",
        type=Size(),
        default="1M",
        show_default=True,
        metavar="SIZE",
        help="Size in bytes, for example 64K.",
    ),
    click.option(
        "-n",
        "--ranks",
        type=Whole(2, 256),
        default=None,
        help="Ranks without a launcher, for example 4. Default: the GPUs, or the cores (2 to 8).",
    ),
    setting_option(OPTIONS["timeout_s"]),
)
_EXPLAIN_RULES = (
    Rule(
        options=("size",),
        when=lambda options: options["size"] == 0,
        message="a size of 0 bytes",
        hint="give at least one byte",
    ),
)


@click.command(name="explain", cls=StrictCommand)
@click.pass_context
def command(context: click.Context, /, **_: object) -> int:
    """Say why a collective takes as long as it does, in ten lines.

    It measures what the tool chooses, then the same with one knob changed at a time, and beside it
    MPI on CPUs, or NCCL on GPUs in all its forms; every result is verified. One launch is traced.
    It shows what was chosen and by which tuning file, the least time by the model (its hops, and
    its bytes), where the time goes, which knob would make it shorter or longer by how much, and
    what NCCL chose instead. Under mpirun or srun every rank is one of the launcher's.

    \b
    Examples:
      collbench explain --op allreduce --size 1M
      mpirun -n 4 collbench explain --backend cuda --op allreduce --size 64M
      collbench explain --op broadcast --size 64K -n 4
    """
    from collbench.cli._run_explain import run_explain

    refuse(_EXPLAIN_RULES, explicit_options(context), context.params)
    return run_explain(context.params)


for _option in _OPTIONS:
    command = _option(command)
