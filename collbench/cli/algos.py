"""`collbench algos`: what serves what, and one algorithm's schedule round by round."""

import sys

import click

from collbench.algorithms import FAMILY
from collbench.cli._options import width
from collbench.collectives import OPS, OpName, collective
from collbench.errors import UsageError

_DRAWN_RANKS = 16


@click.command(name="algos")
@click.argument("name", required=False, metavar="[ALGORITHM]")
@click.option("--op", metavar="OP", help="Collective, for example allreduce. Default: every one that the algorithm serves.")
@click.option("--ranks", type=click.IntRange(2), default=4, show_default=True, help="Number of ranks, for example 8.")
@click.option("--root", type=click.IntRange(0), default=0, show_default=True, help="Root of rooted collectives, a rank.")
def command(name: str | None, op: str | None, ranks: int, root: int) -> None:
    """List the algorithms with their hops and bytes, or check and draw one.

    \b
    Examples:
      collbench algos
      collbench algos ring --op allreduce --ranks 4
    """
    if name is not None and name not in FAMILY.names():
        raise UsageError(f"there is no algorithm '{name}'", f"choose from: {', '.join(FAMILY.names())}")
    ops = (collective(op).name,) if op else OPS
    if name is not None and op is not None:
        _draw(name, ops[0], ranks, root)
    else:
        _list([name] if name else list(FAMILY), ops, ranks, root)


def _list(names: list[str], ops: tuple[OpName, ...], ranks: int, root: int) -> None:
    """One line for each collective that each algorithm serves."""
    from collbench.check import check
    from collbench.passes import traffic
    from collbench.plan import registered
    from collbench.report.schedule_text import share
    from collbench.world import World

    click.echo(f"{'collective':<14}{'algorithm':<11}{'hops':>5}{'sent':>10}{'received':>10}{'messages':>10}    busiest rank of {ranks}, S = size")
    for op in ops:
        for name in names:
            if op in FAMILY.load(name).SERVES:
                schedule = registered(op, name, World(n=ranks, root=root if collective(op).is_rooted else 0))
                moved = traffic(schedule)
                hops = check(schedule).hops
                click.echo(f"{op:<14}{name:<11}{hops:>5}{share(moved.sent):>10}{share(moved.received):>10}{moved.messages:>10}")


def _draw(name: str, op: OpName, ranks: int, root: int) -> None:
    """Check one schedule and draw it, or, with many ranks, say what it comes to."""
    from collbench.check import check
    from collbench.plan import registered
    from collbench.report.schedule_text import LEGEND, drawing, summary
    from collbench.world import World

    schedule = registered(op, name, World(n=ranks, root=root if collective(op).is_rooted else 0))
    click.echo(summary(schedule, check(schedule)))
    if ranks > _DRAWN_RANKS:
        click.echo(f"Too many ranks to draw: give --ranks {_DRAWN_RANKS} or fewer.", err=True)
        return
    click.echo(f"\n{LEGEND}\n")
    for line in drawing(schedule, width(sys.stdout)):
        click.echo(line)
