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
from collbench.planning.changes import changed
from collbench.planning.predict import Prediction
from collbench.planning.price.cluster import Cluster, cluster_of
from collbench.planning.price.constants import gpu_costs
from collbench.planning.price.ways import unknown_links
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
    machine = cluster_of(described(name) or machine_topology(name), name, gpu_costs(name))
    other = changed(machine, options["changes"])
    prediction = Prediction(other, op)
    for number in hosts:
        prediction.on(number)
    before = Prediction(machine, op) if options["changes"] else None
    table = rows(prediction, before, hosts, sizes, has_all=options["has_all"])
    documents = {"csv": _csv, "json": _json}
    for key, write in documents.items():
        if options[key] is not None:
            write_document(write(table), options[key], f"--{key}")
    if "-" in (options["csv"], options["json"]):
        return
    out = sys.stdout
    remark(_heading(other, op))
    if max(hosts) > other.hosts and (links := unknown_links(other.domain)):
        remark(f"No known rate, so taken to be no limit: {', '.join(links)} on the way to a NIC.")
    for line in lines(
        prediction,
        table,
        sizes,
        width(out),
        has_changes=before is not None,
        has_colours=is_coloured(options["color"], out),
    ):
        say(line, color=True)
    if options["sensitivity"]:
        say()
        for line in sensitivity_lines(prediction, hosts, sizes):
            say(line)


def _heading(machine: Cluster, op: OpName) -> str:
    return (
        f"{op} on {machine.name}, predicted, not measured; constants of"
        f" {machine.costs.name}; GPUs a host: {machine.gpus_of_host}"
    )


def _csv(table: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def _json(table: list[dict[str, object]]) -> str:
    return json.dumps(table, indent=1) + "\n"
