"""`collbench doctor`: what is wrong here, the proof, and what to change."""

import click

from collbench.cli._command import declared, explicit_options
from collbench.cli._declared import setting_option
from collbench.cli._options import FileName, ListOf, Whole, assessment_options, json_option
from collbench.core.assessment import ASSESSMENT_FILES
from collbench.core.options import OPTIONS, Rule, refuse


def _identifier(text: str) -> str:
    from collbench.doctor.check import check

    check(text)
    return text


_OPTIONS = (
    click.option("--quick", is_flag=True, help="Only read, in less than three seconds."),
    click.option(
        "--deep", is_flag=True, help="Take minutes: more experiments, narrower intervals."
    ),
    click.option(
        "--only",
        type=ListOf("checks", _identifier),
        help="Run these checks alone, for example binding,shm-size.",
    ),
    click.option(
        "-g",
        "--ranks",
        type=Whole(2, 1024),
        default=None,
        help="Number of ranks to measure with. Default: the GPUs, or the usable cores (2 to 8).",
    ),
    setting_option(OPTIONS["timeout_s"]),
    click.option(
        "--from",
        "recording",
        metavar="FILE",
        type=FileName(),
        help=(
            "Look at the recording of another machine, which collbench topo --record wrote, for"
            " example machine.json; - is stdin."
        ),
    ),
    click.option(
        "--list", "is_list", is_flag=True, help="List every check, and why not if it cannot look."
    ),
    click.option("--explain", metavar="CHECK", help="Explain a check, for example binding."),
    click.option(
        "--fail-on",
        metavar="WHAT",
        default="cost",
        help=(
            "What makes the exit code 1: cost (the default), cost:10% (measured costs from 10 %,"
            " and faults), risk (anything that may cost too), never."
        ),
    ),
    json_option("doctor", "the findings"),
    assessment_options("doctor", has_hosts=True),
)

_OF_EXPERIMENTS = ("deep", "ranks", "timeout")
_OF_VERDICT = ("fail_on", "json", *ASSESSMENT_FILES)
_DOCTOR_RULES = (
    Rule(
        options=(*_OF_EXPERIMENTS, "quick", "only", "recording", "is_list", *_OF_VERDICT),
        when=lambda options: options["explain"] is not None,
        message="--explain only explains",
    ),
    Rule(
        options=(*_OF_EXPERIMENTS, *_OF_VERDICT),
        when=lambda options: options["is_list"],
        message="--list only lists",
    ),
    Rule(
        options=_OF_EXPERIMENTS,
        when=lambda options: options["quick"],
        message="--quick measures nothing",
    ),
    Rule(
        options=_OF_EXPERIMENTS,
        when=lambda options: options["recording"] is not None,
        message="nothing can be measured on the machine of a recording",
    ),
)


@declared("doctor", *_OPTIONS)
def command(context: click.Context, /, **_: object) -> int:
    """Find what slows communication down here, prove it, and say what to change.

    Checks read the hardware, the system, the processes and the settings of this machine, or of all
    machines under a launcher. What may cost is measured: with and without, in turns, in processes
    of their own. Nothing is ever changed. The exit code is 1 if something costs, 5 if most checks
    of what is here could not look, and 3 if none could.

    \b
    Examples:
      collbench doctor
      collbench doctor --quick --json doctor.json
      mpirun -n 4 collbench doctor
      collbench doctor --from machine.json
      collbench doctor --explain binding
    """
    from collbench.doctor.run import run_doctor

    explicit = explicit_options(context)
    refuse(_DOCTOR_RULES, explicit, context.params)
    return run_doctor({name: context.params[name] for name in explicit})
