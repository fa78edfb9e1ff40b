"""`collbench algos`: what serves what, and one algorithm's schedule round by round."""

import sys
from dataclasses import replace

import click

from collbench.cli._options import width
from collbench.schedules.algorithms import FAMILY
from collbench.spec.collectives import OPS, OpName, collective
from collbench.spec.world import World, host_numbers
from collbench.util.errors import UsageError

_DRAWN_RANKS = 16


@click.command(name="algos")
@click.argument("name", required=False, metavar="[ALGORITHM]")
@click.option(
    "--op",
    metavar="OP",
    help="Collective, for example allreduce. Default: every one that the algorithm serves.",
)
@click.option(
    "--ranks",
    type=click.IntRange(2),
    default=4,
    show_default=True,
    help="Number of ranks, for example 8.",
)
@click.option(
    "--root",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Root of rooted collectives, a rank.",
)
@click.option(
    "--hosts",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Hosts that the ranks are spread over, as many on each, for example 2.",
)
def command(name: str | None, op: str | None, ranks: int, root: int, hosts: int) -> None:
    """List the algorithms with their hops and bytes, or check and draw one.

    \b
    Examples:
      collbench algos
      collbench algos ring --op allreduce --ranks 4
      collbench algos --ranks 8 --hosts 2
    """
    if name is not None and name not in FAMILY.names():
        raise UsageError(
            f"there is no algorithm '{name}'", f"choose from: {', '.join(FAMILY.names())}"
        )
    if ranks % hosts:
        raise UsageError(
            f"{ranks} ranks on {hosts} hosts: not as many on each", "choose numbers that divide"
        )
    ops = (collective(op).name,) if op else OPS
    places = host_numbers([rank * hosts // ranks for rank in range(ranks)])
    if name is not None and op is not None:
        _draw(
            name, World(n=ranks, root=root if collective(op).is_rooted else 0, hosts=places), ops[0]
        )
    else:
        _list([name] if name else list(FAMILY), ops, World(n=ranks, root=root, hosts=places))


def _list(names: list[str], ops: tuple[OpName, ...], world: World) -> None:
    """One line for each collective that each algorithm serves."""
    from collbench.planning.plan import registered
    from collbench.report.drawings.schedule import share
    from collbench.schedules.passes import between_hosts, traffic
    from collbench.schedules.verify.check import check

    leaving = f"{'to hosts':>10}" if world.hosts else ""
    click.echo(
        f"{'collective':<14}{'algorithm':<14}{'hops':>5}{'sent':>10}{'received':>10}{'messages':>10}{leaving}"
        f"  busiest of {world.n}, S = size"
    )
    for op in ops:
        for name in names:
            if op in FAMILY.load(name).SERVES:
                if getattr(FAMILY.load(name), "NEEDS_HOSTS", False) and not world.hosts:
                    click.echo(f"{op:<14}{name:<14}  for several hosts: see it with --hosts 2")
                    continue
                schedule = registered(
                    op, name, world if collective(op).is_rooted else replace(world, root=0)
                )
                moved = traffic(schedule)
                hops = check(schedule).hops
                leaving = (
                    f"{share(between_hosts(schedule, world.hosts)):>10}" if world.hosts else ""
                )
                click.echo(
                    f"{op:<14}{name:<14}{hops:>5}{share(moved.sent):>10}{share(moved.received):>10}{moved.messages:>10}{leaving}"
                )


def _draw(name: str, world: World, op: OpName) -> None:
    """Check one schedule and draw it, or, with many ranks, say what it comes to."""
    from collbench.planning.plan import registered
    from collbench.report.drawings.schedule import LEGEND, drawing, share, summary
    from collbench.schedules.passes import between_hosts
    from collbench.schedules.verify.check import check

    schedule = registered(op, name, world)
    click.echo(summary(schedule, check(schedule)))
    if world.hosts:
        click.echo(
            f"  busiest host sends           {share(between_hosts(schedule, world.hosts))} to other"
            " hosts"
        )
    if world.n > _DRAWN_RANKS:
        click.echo(f"Too many ranks to draw: give --ranks {_DRAWN_RANKS} or fewer.", err=True)
        return
    click.echo(f"\n{LEGEND}\n")
    for line in drawing(schedule, width(sys.stdout)):
        click.echo(line)
