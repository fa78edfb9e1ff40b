"""Carry out `litmus`: options to tests, results to the screen, a file and the user's state."""

import sys
from collections.abc import Iterator

from collbench.backends.gpu.session import why_no_gpus
from collbench.bench.litmus import measure_on_cpus, measure_on_gpus
from collbench.cli._files import check_writable, write_document
from collbench.cli._options import remark, width
from collbench.cli._rules import Options
from collbench.cli._screen import say
from collbench.device.card import model_of_all
from collbench.launch.launcher import launcher
from collbench.machine.host import cpu_name, has_nvidia_gpus
from collbench.report.tables.litmus import (
    conclusion,
    heading,
    list_lines,
    litmus_json,
    outcome_lines,
    row,
)
from collbench.results.litmus import forget, keep, saved
from collbench.spec.litmus import TESTS, LitmusResult, catalogue, litmus
from collbench.util.errors import UnavailableError


def run_litmus(options: Options) -> int:
    """The whole command; returns the exit code. Under a launcher one rank runs the tests."""
    under = launcher()
    if under is not None and under.rank:
        return 0
    if options["is_list"]:
        say("\n".join(list_lines(TESTS, width(sys.stdout))))
        return 0
    kind = _kind(options["backend"])
    model = model_of_all() if kind == "gpu" else cpu_name()
    if options["forget"]:
        had = forget(kind, model)
        say(f"Forgot the litmus tests of {model}." if had else f"Nothing is known of {model}.")
        return 0
    names = [name for name in options["test"] if name in {test.name for test in catalogue(kind)}]
    if not names:
        litmus(options["test"][0], kind)  # which says what there is
    if options["json"] not in (None, "-"):
        check_writable(options["json"], "--json")
    out = sys.stderr if options["json"] == "-" else sys.stdout
    saved(kind, model)  # refuses a broken file before anything is measured
    results: list[LitmusResult] = []
    try:
        for result in _measured(kind, names, options):
            results.append(result)  # before it is shown: an interrupt keeps whatever was shown
            if len(results) == 1 or results[-2].link != result.link:
                say("\n".join(heading(result.link, result.model)), file=out)
            say(row(result), file=out)
    finally:
        _keep(kind, model, results)
    say("\n".join(outcome_lines(results, width(out))), file=out)
    say("\n".join(conclusion(results, width(out))), file=out)
    if options["json"] is not None:
        write_document(litmus_json(results), options["json"], "--json")
    return int(any(result.broken for result in results))


def _kind(backend: str) -> str:
    """Which kind of tests to run. Raises UnavailableError where GPUs are asked for, or present, and
    cannot run.
    """
    if backend == "cpu" or (backend == "auto" and not has_nvidia_gpus()):
        return "cpu"
    if why := why_no_gpus():
        raise UnavailableError(why, "give --backend cpu")
    return "gpu"


def _measured(kind: str, names: list[str], options: Options) -> Iterator[LitmusResult]:
    tests = [litmus(name, kind) for name in names]
    measure = measure_on_cpus if kind == "cpu" else measure_on_gpus
    return measure(tests, options["trials"], options["seconds"])


def _keep(kind: str, model: str, results: list[LitmusResult]) -> None:
    if not results:
        return
    try:
        file = keep(kind, model, results)
    except (OSError, RuntimeError) as error:
        remark(f"what was found is not kept: {error}")
        return
    remark(f"kept in {file}; collbench litmus --forget removes it")
