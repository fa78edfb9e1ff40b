"""`collbench algos`: which algorithm serves which collective, and one schedule round by round."""

import sys
from typing import TYPE_CHECKING

import click

from collbench.cli._command import StrictCommand, explicit_options, force_option
from collbench.cli._options import MAX_RANKS, PAGE, OneOf, OutputFile, Size, Whole, json_option
from collbench.core.collectives import OPS, OpName, collective
from collbench.core.errors import UsageError, unknown
from collbench.core.files import check_files, result_json, write_document
from collbench.core.options import Options, Rule, refuse
from collbench.core.screen import remark, say, width
from collbench.core.text import table
from collbench.core.world import World, host_numbers
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.algorithms import FAMILY
from collbench.schedules.formats import is_file, load
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import step_count

if TYPE_CHECKING:
    from collbench.planning.plan import Plan

_QUICK_RANKS = 512
_DRAWN_RANKS = 16
_DRAWN_STEPS = 200  # of a rank: about as many lines
_ALGOS_RULES = (
    Rule(
        options=("ranks", "root", "hosts"),
        when=lambda options: is_file(options["name"] or ""),
        message="{name} says itself how many ranks there are, and which one is the root",
        hint="leave out --ranks, --root and --hosts",
    ),
    Rule(
        options=("root",),
        when=lambda options: options["op"] and not collective(options["op"]).is_rooted,
        message="{op} has no root",
        hint="give --op broadcast, reduce, gather or scatter, or leave it out",
    ),
    Rule(
        options=("html",),
        when=lambda options: (
            not is_file(options["name"] or "") and not (options["name"] and options["op"])
        ),
        message="one schedule is drawn",
        hint="name an algorithm and a collective, for example ring --op allreduce",
    ),
    Rule(
        options=("size",),
        when=lambda options: (
            not (options["name"] and options["op"])
            or options["hosts"] > 1
            or is_file(options["name"])
        ),
        message="messages are shown of one registered algorithm on one host",
        hint="for example ring --op allreduce --size 1M",
    ),
    Rule(
        options=("proto", "channels", "slots"),
        when=lambda options: options["size"] is None,
        message="nothing is cut without a size",
        hint="give one, for example --size 1M",
    ),
    Rule(
        options=("html", "size"),
        when=lambda options: options["ranks"] > _DRAWN_RANKS,
        message="{ranks} ranks are too many to draw",
        hint=f"give --ranks {_DRAWN_RANKS} or fewer; 4 to 8 show best how an algorithm works",
    ),
)


@click.command(name="algos", cls=StrictCommand)
@click.argument("name", required=False, metavar="[ALGORITHM|FILE]")
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
@click.option(
    "--size", type=Size(), help="Show how messages of so many bytes are cut, for example 1M."
)
@click.option(
    "--proto",
    type=OneOf(PROTOCOLS.names()),
    help=f"Its protocol: {', '.join(PROTOCOLS.names())}. Default: the tool's choice.",
)
@click.option(
    "--channels",
    type=Whole(1, 128),
    help="Its channels, for example 2. Default: the tool's choice.",
)
@click.option(
    "--slots",
    type=Whole(1, 64),
    help="Slots of a connection, for example 4. Default: the tool's choice.",
)
@force_option
@click.option(
    "--html",
    metavar="FILE",
    type=OutputFile(PAGE),
    help="Write a page that plays the steps, for example to ring.html; - is stdout.",
)
@json_option("algos", "the list, or the steps,")
@click.pass_context
def command(context: click.Context, /, **_: object) -> None:
    """List the algorithms with their hops and bytes, or check and draw one.

    FILE is a program of MSCCL (XML) or an execution plan of MSCCL++ (JSON).

    \b
    Examples:
      collbench algos
      collbench algos ring --op allreduce --ranks 4
      collbench algos --ranks 8 --hosts 2
      collbench algos ring --op allreduce --html ring.html
      collbench algos ring --op allreduce --size 1M --proto ll128 --slots 4
      collbench algos mine.xml
    """
    options = context.params
    name, op, world = options["name"], options["op"], _world(options)
    refuse(_ALGOS_RULES, explicit_options(context), options)
    if world.n > _QUICK_RANKS:
        remark(f"Schedules of {world.n} ranks are checked: that may take minutes.")
    ops = (collective(op).even,) if op else OPS
    if is_file(name or ""):
        _draw_file(name, ops if op else (), options)
    elif name is None:
        _list(list(FAMILY), ops, world, options["json"])
    elif name.lower() not in FAMILY.names():
        raise unknown("algorithm", name, FAMILY.names())
    elif op is None:
        _list([name.lower()], ops, world, options["json"])
    else:
        _draw(name.lower(), world, ops[0], options)


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


def _list(names: list[str], ops: tuple[OpName, ...], world: World, file: str | None) -> None:
    """One line for each collective that each algorithm serves. file: of the same as JSON."""
    from collbench.planning.algorithm_costs import algorithm_costs

    heads, *rows = algorithm_costs(names, ops, world)
    if file is not None:
        data = [dict(zip(heads, row, strict=True)) for row in rows]
        write_document(result_json(data), file, "--json")
    if file != "-":
        say(f"Of the busiest of {world.n} ranks; S is the size.")
        say("\n".join(table(heads, rows, range(2, len(heads)), width(sys.stdout))))
        if not world.hosts and any("-" in row for row in rows):
            remark("-: for several hosts; --hosts 2 shows it.")


def _draw(name: str, world: World, op: OpName, options: Options) -> None:
    """Check one schedule and draw it, on the screen or in files; of many ranks a summary."""
    from collbench.planning.cut import cut, cut_lines
    from collbench.planning.layout import registered
    from collbench.schedules.drawings.schedule import share, summary
    from collbench.schedules.passes import between_hosts
    from collbench.schedules.verify.check import check

    schedule, plan = registered(op, name, world), None
    if options["size"] is not None:
        knobs = options["proto"] or "auto", options["channels"] or 0, options["slots"] or 0
        plan = cut(op, name, world.n, world.root, options["size"], *knobs)
    if _writes(schedule, world, options, plan):
        return
    say(summary(schedule, check(schedule)))
    if world.hosts:
        say(
            f"  busiest host sends           {share(between_hosts(schedule, world.hosts))} to other"
            " hosts"
        )
    if world.n > _DRAWN_RANKS:
        remark(f"Too many ranks to draw: give --ranks {_DRAWN_RANKS} or fewer.")
        return
    if plan is None:
        _draw_rounds(schedule)
        return
    say("\n".join(cut_lines(plan, width(sys.stdout))))


def _draw_file(name: str, ops: tuple[OpName, ...], options: Options) -> None:
    """Check the schedule of a file for the placement that it is written for, and draw it, or write
    it.
    """
    from collbench.schedules.drawings.schedule import summary
    from collbench.schedules.verify.check import check

    file = load(name)
    if ops and file.op not in ops:
        raise UsageError(f"{name} is {file.op}, not {ops[0]}", "leave --op out")
    world = World(n=file.n)
    if _writes(file.schedule(in_place=False), world, options):
        return
    in_place = file.program.is_aliased and collective(file.op).has_in_place
    schedule = file.schedule(in_place=in_place)
    say(summary(schedule, check(schedule, in_place=in_place)))
    if file.n > _DRAWN_RANKS or step_count(schedule) > _DRAWN_STEPS:
        remark(
            f"Too much to draw: at most {_DRAWN_RANKS} ranks with {_DRAWN_STEPS} steps each are"
            " drawn."
        )
        return
    _draw_rounds(schedule)


def _draw_rounds(schedule: Schedule) -> None:
    """Every round of every rank."""
    from collbench.schedules.drawings.schedule import LEGEND, drawing

    say(f"\n{LEGEND}\n")
    say("\n".join(drawing(schedule, width(sys.stdout))))


def _writes(schedule: Schedule, world: World, options: Options, plan: "Plan | None" = None) -> bool:
    """Write what is asked for, the page and the steps as JSON; returns whether that is all. Raises
    UnavailableError if a file cannot be written.
    """
    from collbench.planning.cut import playback_of, steps_data
    from collbench.schedules.drawings.page import page
    from collbench.schedules.playback import play

    if options["html"]:
        check_files(options, "html")
        if world.n > _DRAWN_RANKS:
            raise UsageError(f"{world.n} ranks are too many to draw", "at most 16 are drawn")
        steps, slots = playback_of(plan) if plan is not None else (play(schedule), None)
        write_document(page(steps, world.hosts, slots), options["html"], "--html")
    if options["json"] is not None:
        write_document(result_json(steps_data(schedule, plan)), options["json"], "--json")
    return bool(options["html"]) or options["json"] == "-"
