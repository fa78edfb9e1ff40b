"""Carry out `predict`: the machine as it is and as it is changed, prices, rows and lines."""

import csv
import io
import json
import sys

from collbench.cli._files import check_writable, write_document
from collbench.cli._options import is_coloured, remark, width
from collbench.cli._predict_machines import machine_of
from collbench.cli._progress import activity_shown
from collbench.cli._rules import Options
from collbench.cli._screen import say
from collbench.planning.changes import changed
from collbench.planning.nccl.machine import nccl_machine
from collbench.planning.nccl.price import OPS as NCCL_OPS
from collbench.planning.predict import Prediction
from collbench.planning.price.cluster import Cluster, cluster_of
from collbench.planning.price.constants import gpu_costs
from collbench.planning.price.ways import unknown_links
from collbench.report.tables.nccl_hosts import NcclRow, documented, nccl_lines, nccl_rows
from collbench.report.tables.predict import COLUMNS, lines, rows, sensitivity_lines
from collbench.spec.collectives import OpName


def run_predict(options: Options) -> None:
    """The whole command: NCCL first, then our own engine."""
    op = options["op"]
    hosts = sorted(options["hosts"])
    sizes = sorted({size for some in options["sizes"] for size in some})
    for key in ("csv", "json"):
        if options[key] not in (None, "-"):
            check_writable(options[key], f"--{key}")
    name, topology = machine_of(options)
    machine = cluster_of(topology, name, gpu_costs(name))
    other = changed(machine, options["changes"])
    out, is_document = sys.stdout, "-" in (options["csv"], options["json"])
    known: list[NcclRow] = []
    if op in NCCL_OPS:
        seen = nccl_machine(other)
        seen_before = nccl_machine(machine) if options["changes"] else None
        known = nccl_rows(seen, seen_before, op, hosts, sizes)
    prediction = Prediction(other, op)
    for number in hosts:
        prediction.on(number)
    before = Prediction(machine, op) if options["changes"] else None
    if not is_document:
        remark(_heading(other, op))
        for line in nccl_lines(seen, known, width(out)) if known else ():
            say(line)
        out.flush()
    own = hosts
    if known and not (options["has_all"] or options["sensitivity"]):
        own = [number for number in hosts if number <= other.hosts]
    with activity_shown(lambda: "pricing our own engine; NCCL is above"):
        table = rows(prediction, before, own, sizes, has_all=options["has_all"]) if own else []
    documents = {"csv": _csv, "json": _json}
    every = [*documented(known, op, other.name), *table]
    for key, write in documents.items():
        if options[key] is not None:
            write_document(write(every), options[key], f"--{key}")
    if is_document:
        return
    if known and len(own) < len(hosts):
        remark(
            "Our own engine reaches other hosts through CPUs alone, which is not priced; --all"
            " prices it as if GPUs sent by NICs."
        )
    if not own:
        return
    if max(own) > other.hosts and (links := unknown_links(other.domain)):
        remark(f"No known rate, so taken to be no limit: {', '.join(links)} on the way to a NIC.")
    if known:
        say()
        say("Our own engine")
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
        for line in sensitivity_lines(prediction, own, sizes):
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
