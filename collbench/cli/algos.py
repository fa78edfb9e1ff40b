"""`collbench algos`: which algorithm serves which collective, and one schedule round by round."""

import sys
from dataclasses import replace

import click

from collbench.cli._command import StrictCommand, explicit_options
from collbench.cli._options import MAX_RANKS, Whole, remark, width
from collbench.cli._rules import Options, Rule, refuse
from collbench.cli._screen import say
from collbench.schedules.algorithms import FAMILY, needs_hosts
from collbench.spec.collectives import OPS, OpName, collective
from collbench.spec.world import World, host_numbers
from collbench.util.errors import UsageError, unknown

_DRAWN_RANKS = 16


_ALGOS_RULES = (
    Rule(
        options=("root",),
        when=lambda options: options["op"] and not collective(options["op"]).is_rooted,
        message="{op} has no root",
        hint="give --op broadcast, reduce, gather or scatter, or leave it out",
    ),
)


@click.command(name="algos", cls=StrictCommand)
@click.argument("name", required=False, metavar="[ALGORITHM]")
@click.option(
    "--op",
    metavar="OP",
    help="Collective, for example allreduce. Default: every one that the algorithm serves.",
)
@click.option(
    "--ranks",
    type=Whole(2, MAX_RANKS),
    default=4,
    show_default=True,
    help="Number of ranks, for example 8.",
)
@click.option(
    "--root",
    type=Whole(0),
    default=0,
    show_default=True,
    help="Rank that is the root of rooted collectives, for example 3.",
)
@click.option(
    "--hosts",
    type=Whole(1),
    default=1,
    show_default=True,
    help="Hosts that the ranks are on, the same number on each, for example 2.",
)
@click.pass_context
def command(context: click.Context, /, **_: object) -> None:
    """List the algorithms with their hops and bytes, or check and draw one.

    \b
    Examples:
      collbench algos
      collbench algos ring --op allreduce --ranks 4
      collbench algos --ranks 8 --hosts 2
    """
    options = context.params
    name, op, world = options["name"], options["op"], _world(options)
    refuse(_ALGOS_RULES, explicit_options(context), options)
    ops = (collective(op).even,) if op else OPS
    if name is None:
        _list(list(FAMILY), ops, world)
    elif name.lower() not in FAMILY.names():
        raise unknown("algorithm", name, FAMILY.names())
    elif op is None:
        _list([name.lower()], ops, world)
    else:
        _draw(name.lower(), world, ops[0])


def _world(options: Options) -> World:
    """The ranks, spread over the hosts. Raises UsageError if they cannot be."""
    ranks, hosts = options["ranks"], options["hosts"]
    if ranks % hosts:
        raise UsageError(
            f"--hosts: {ranks} ranks cannot be spread evenly over {hosts} hosts",
            "choose numbers that divide",
        )
    places = host_numbers([rank * hosts // ranks for rank in range(ranks)])
    return World(n=ranks, root=options["root"], hosts=places)


def _list(names: list[str], ops: tuple[OpName, ...], world: World) -> None:
    """One line for each collective that each algorithm serves."""
    from collbench.planning.plan import registered
    from collbench.report.drawings.schedule import share
    from collbench.schedules.passes import between_hosts, traffic
    from collbench.schedules.verify.check import check

    leaving = f"{'to hosts':>10}" if world.hosts else ""
    say(
        f"{'collective':<14}{'algorithm':<14}{'hops':>5}{'sent':>10}{'received':>10}{'messages':>10}{leaving}"
        f"  busiest of {world.n}, S = size"
    )
    for op in ops:
        for name in names:
            if op in FAMILY.load(name).SERVES:
                if needs_hosts(name) and not world.hosts:
                    say(f"{op:<14}{name:<14}  for several hosts: see it with --hosts 2")
                    continue
                schedule = registered(
                    op, name, world if collective(op).is_rooted else replace(world, root=0)
                )
                moved = traffic(schedule)
                # nothing runs it: one loop of one launch has all hops
                hops = check(schedule, loops=1, launches=1).hops
                leaving = (
                    f"{share(between_hosts(schedule, world.hosts)):>10}" if world.hosts else ""
                )
                say(
                    f"{op:<14}{name:<14}{hops:>5}{share(moved.sent):>10}{share(moved.received):>10}{moved.messages:>10}{leaving}"
                )


def _draw(name: str, world: World, op: OpName) -> None:
    """Check one schedule and draw it; of many ranks, print the summary only."""
    from collbench.planning.plan import registered
    from collbench.report.drawings.schedule import LEGEND, drawing, share, summary
    from collbench.schedules.passes import between_hosts
    from collbench.schedules.verify.check import check

    schedule = registered(op, name, world)
    say(summary(schedule, check(schedule)))
    if world.hosts:
        say(
            f"  busiest host sends           {share(between_hosts(schedule, world.hosts))} to other"
            " hosts"
        )
    if world.n > _DRAWN_RANKS:
        remark(f"Too many ranks to draw: give --ranks {_DRAWN_RANKS} or fewer.")
        return
    say(f"\n{LEGEND}\n")
    for line in drawing(schedule, width(sys.stdout)):
        say(line)
