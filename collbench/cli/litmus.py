"""`collbench litmus`: whether what a protocol relies on is true on the links of this machine."""

import click

from collbench.cli._command import StrictCommand, explicit_options
from collbench.cli._options import FileName, Finite, ListOf, OneOf
from collbench.cli._rules import Rule, refuse
from collbench.spec.litmus import TESTS
from collbench.util.errors import UsageError

_NAMES = tuple(dict.fromkeys(test.name for test in TESTS))
_MOST_TRIALS = 1e12


def _trials(context: click.Context, param: click.Parameter, value: str) -> int:
    try:
        trials = float(value)
    except ValueError:
        trials = 0.0
    if not 1 <= trials <= _MOST_TRIALS:
        raise UsageError(
            f"--trials: {value!r} is no number of trials", "give 1 to 1e12, for example 1e8"
        )
    return int(trials)


_OPTIONS = (
    click.option(
        "--backend",
        type=OneOf(("auto", "cpu", "cuda")),
        default="auto",
        show_default=True,
        help="Whose links: cpu, cuda, or auto, which is cuda where there are GPUs.",
    ),
    click.option(
        "--test",
        type=ListOf("test", str, _NAMES),
        default="all",
        show_default=True,
        help="Tests by their names, for example mp-8,sb; --list shows them.",
    ),
    click.option(
        "--trials",
        default="1e8",
        show_default=True,
        callback=_trials,
        metavar="N",
        help="Trials of each test on each link after which it ends, for example 1e6.",
    ),
    click.option(
        "--seconds",
        type=Finite(0.1, 3600),
        default=60.0,
        show_default=True,
        help="Seconds for all tests together, of which each has an equal part, for example 10.",
    ),
    click.option("--list", "is_list", is_flag=True, help="Show the tests, and run none."),
    click.option(
        "--forget",
        is_flag=True,
        help="Forget what was found on this machine, so that auto refuses nothing for it.",
    ),
    click.option(
        "--json",
        metavar="FILE",
        type=FileName(),
        help="Write the results as JSON, for example to litmus.json; - is stdout.",
    ),
)
_LITMUS_RULES = (
    Rule(
        options=("test", "trials", "seconds", "json"),
        when=lambda options: options["forget"] or options["is_list"],
        message="nothing is run",
        hint="leave it out, or leave out --list and --forget",
    ),
    Rule(
        options=("forget",),
        when=lambda options: options["forget"] and options["is_list"],
        message="--list shows the tests",
        hint="give one of --list and --forget",
    ),
)


@click.command(name="litmus", cls=StrictCommand)
@click.pass_context
def command(context: click.Context, /, **_: object) -> int:
    """Test whether what the protocols rely on is true on the links of this machine.

    Two sides race over memory: one writes data and then a flag, the other reads the flag and then
    the data; or both write and then read. Every cell is a trial, and every outcome is counted. The
    table says which outcome is in question, whether the memory model allows it, how often it was
    seen, and which protocols need that it does not happen. What was found is kept, and auto takes
    no protocol of which an assumption failed here. The exit code is 1 if one did.

    \b
    Examples:
      collbench litmus
      collbench litmus --test mp-8,sb --trials 1e7
      collbench litmus --list
    """
    from collbench.cli._run_litmus import run_litmus

    refuse(_LITMUS_RULES, explicit_options(context), context.params)
    return run_litmus(context.params)


for _option in _OPTIONS:
    command = _option(command)
