"""Carry out `predict`: the machine as it is and as it is changed, prices, rows and lines."""

import csv
import io
import json
import sys

from collbench.cli._files import check_writable, write_document
from collbench.cli._options import is_coloured, remark, width
from collbench.cli._rules import Options
from collbench.cli._screen import say
from collbench.machine.formats import described
from collbench.machine.topology.machines import machine_topology
from collbench.pricing.changes import changed
from collbench.pricing.constants import gpu_costs
from collbench.pricing.fabric import fabric_of
from collbench.pricing.prediction import Machine, predict
from collbench.report.tables.predict import COLUMNS, lines, rows, sensitivity_lines
from collbench.spec.collectives import OpName


def run_predict(options: Options) -> None:
    """The whole command."""
    name, op = options["machine"], options["op"]
    hosts = sorted(options["hosts"])
    sizes = sorted({size for some in options["sizes"] for size in some})
    for key in ("csv", "json"):
        if options[key] not in (None, "-"):
            check_writable(options[key], f"--{key}")
    machine = Machine(
        fabric=fabric_of(described(name) or machine_topology(name), name),
        costs=gpu_costs(name),
        factors={},
        seconds={},
    )
    other = changed(machine, options["changes"])
    prediction = predict(other, op, hosts, _doubled(sizes))
    before = predict(machine, op, hosts, sizes) if options["changes"] else None
    table = rows(prediction, before, hosts, sizes, has_all=options["has_all"])
    documents = {"csv": _csv, "json": _json}
    for key, write in documents.items():
        if options[key] is not None:
            write_document(write(table), options[key], f"--{key}")
    if "-" in (options["csv"], options["json"]):
        return
    out = sys.stdout
    remark(_heading(other, op))
    if max(hosts) > other.fabric.hosts and (links := other.fabric.unknown):
        remark(f"No known rate, so taken to be no limit: {', '.join(links)} on the way to a NIC.")
    for line in lines(
        prediction,
        table,
        _doubled(sizes),
        width(out),
        has_changes=before is not None,
        has_colours=is_coloured(options["color"], out),
    ):
        say(line, color=True)
    if options["sensitivity"]:
        say()
        for line in sensitivity_lines(prediction, hosts, sizes):
            say(line)


def _doubled(sizes: list[int]) -> list[int]:
    """The sizes, and between the least and the largest of them its doubles: for crossovers."""
    between, size = [], sizes[0]
    while size < sizes[-1]:
        between.append(size)
        size *= 2
    return sorted({*sizes, *between})


def _heading(machine: Machine, op: OpName) -> str:
    return (
        f"{op} on {machine.fabric.name}, predicted, not measured; constants of"
        f" {machine.costs.name}; GPUs a host: {machine.fabric.gpus_of_host}"
    )


def _csv(table: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def _json(table: list[dict[str, object]]) -> str:
    return json.dumps(table, indent=1) + "\n"
