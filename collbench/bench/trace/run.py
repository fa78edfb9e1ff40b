"""Carry out `trace`: a case to traced launches, these to files and to the screen."""

import sys
from dataclasses import replace

from collbench.backends.gpu.session import why_no_gpus
from collbench.bench.points import plan_points
from collbench.bench.ranks import (
    Ranks,
    drive_on_rank0,
    group_here,
    ranks_of,
    recordings_of,
    topology_of_all,
)
from collbench.bench.trace.chrome import chrome_trace
from collbench.bench.trace.least_time import least_time
from collbench.bench.trace.summary import summary
from collbench.bench.trace.table import choice_lines, trace_json, trace_lines
from collbench.bench.trace.traces import chain_costs, default_ranks, refuse_too_many, traced
from collbench.core.case import Case
from collbench.core.errors import UnavailableError
from collbench.core.files import check_files, write_document
from collbench.core.group import Group
from collbench.core.host import cpu_name
from collbench.core.launcher import launcher
from collbench.core.options import Options, refusal
from collbench.core.screen import remark, say, width
from collbench.core.units import format_time_us, to_us
from collbench.device.card import device_count, model_of_all

_FILES = ("out", "json")


def run_trace(options: Options) -> int:
    """The whole command; returns the exit code."""
    timeout_s = options["timeout"] or 10.0
    under = launcher()
    has_gpus = options["backend"] == "cuda"
    if has_gpus and (why := why_no_gpus()):
        raise UnavailableError(why, "give --backend cpu")
    ranks = options["ranks"] or (max(device_count(), 2) if has_gpus else default_ranks())
    group = group_here(timeout_s)
    case = Case(
        op=options["op"],
        backend=options["backend"],
        algo=options["algo"],
        proto=options["proto"],
        transport=options["transport"],
        ranks=under.size if under is not None else ranks,
        size_bytes=options["size"],
    )
    if options["channels"] is not None:
        case = replace(case, channels=options["channels"])
    recordings = recordings_of(group, {"backend": (case.backend,)})

    def drive() -> int:
        where = ranks_of((case.backend,), None, group, (), topology_of_all(recordings))
        return _drive(options, group, case, where, timeout_s)

    return drive_on_rank0(group, drive)


def _drive(options: Options, group: Group, case: Case, where: Ranks, timeout_s: float) -> int:
    check_files(options, *_FILES)
    (point,) = plan_points([case], group, where=where)
    plan, case = point.plan, point.case
    if plan is None or point.waived:
        raise refusal(point.waived or "no plan", "change --op, --algo, --proto or --size")
    refuse_too_many([plan], options["launches"])
    trace = traced(plan, case, group, options["launches"], timeout_s)
    costs = chain_costs(plan, case, group)
    found = summary(trace, costs)
    model = model_of_all() if case.backend == "cuda" else cpu_name()
    if options["out"] is not None:
        write_document(chrome_trace(trace), options["out"], "--out")
    if options["json"] is not None:
        write_document(trace_json(trace, found, costs, model), options["json"], "--json")
    is_document = any(options[name] == "-" for name in _FILES)
    out = sys.stderr if is_document else sys.stdout
    least = least_time(plan, case, costs, where.of(case), model)
    lines = choice_lines(case, point.origin, least, found.launch.total_s, width(out))
    say("\n".join([*lines, *trace_lines(trace, found, costs, width(out))]), file=out)
    if found.slowdown is not None:
        middle, low, high = ((value - 1) * 100 for value in found.slowdown)
        remark(
            f"result compared; a traced launch takes {middle:+.1f} % ({low:+.1f} to {high:+.1f}) of"
            f" one that is not, in {len(trace.slowdowns)} pairs"
        )
    if trace.clock_error_s:
        error_us = format_time_us(to_us(trace.clock_error_s))
        if case.backend == "cuda":
            limit_us = format_time_us(to_us(trace.clock_limit_s))
            remark(
                f"clocks of different GPUs are known to {error_us} us, if messages take as long one"
                f" way as the other, and else to {limit_us} us"
            )
        else:
            remark(f"clocks of different hosts are known to {error_us} us")
    return 0
