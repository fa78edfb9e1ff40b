"""Carry out `predict`: the machine as it is and as it is changed, prices, rows and lines."""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from collbench.core.collectives import OpName
from collbench.core.errors import RefusedError, UsageError
from collbench.core.files import check_files, result_json, write_document
from collbench.core.options import Options
from collbench.core.screen import activity_shown, is_coloured, remark, say, width
from collbench.planning.changes import changed
from collbench.planning.nccl.machine import nccl_machine
from collbench.planning.nccl.price import OPS as NCCL_OPS
from collbench.planning.nccl.table import NcclRow, documented, nccl_lines, nccl_rows
from collbench.planning.predict import Prediction
from collbench.planning.predict_machines import machine_of
from collbench.planning.predict_table import COLUMNS, lines, rows, sensitivity_lines
from collbench.planning.price.cluster import Cluster, cluster_of
from collbench.planning.price.constants import gpu_costs
from collbench.planning.price.ways import unknown_links


def run_predict(options: Options) -> None:
    """The whole command: NCCL first, then our own engine where it can run."""
    op, hosts = options["op"], sorted(options["hosts"])
    sizes = sorted(options["sizes"])
    if sizes[0] <= 0:
        raise UsageError("--sizes: a size of 0 bytes has no time", "give at least one byte")
    check_files(options, "csv", "json")
    name, topology = machine_of(options)
    machine = cluster_of(topology, name, gpu_costs(name))
    other = changed(machine, options["changes"])
    is_shown = "-" not in (options["csv"], options["json"])
    if is_shown:
        remark(_heading(other, op))
    known: list[NcclRow] = []
    if op in NCCL_OPS:
        seen = nccl_machine(other)
        before = nccl_machine(machine) if options["changes"] else None
        known = nccl_rows(seen, before, op, hosts, sizes)
        if is_shown:
            _show(nccl_lines(seen, known, width(sys.stdout)))
    own = _priced(options, machine, other, hosts, sizes, has_nccl=bool(known))
    every = [*documented(known, op, other.name), *own.table]
    documents: dict[str, Callable[[list[dict[str, object]]], str]] = {
        "csv": _csv,
        "json": partial(result_json, machine=other.name),
    }
    for key, write in documents.items():
        if options[key] is not None:
            write_document(write(every), options[key], f"--{key}")
    if is_shown:
        if known and own.hosts != hosts and max(hosts) > other.hosts:
            remark(
                "Our own engine reaches other hosts through CPUs alone, which is not priced; --all"
                " prices it as if GPUs sent by NICs."
            )
        if own.hosts:
            _show_own(options, own, sizes, has_nccl=bool(known))


class _Own(NamedTuple):
    """Prices of our own engine, on the hosts where they were asked for."""

    prediction: Prediction
    hosts: list[int]
    table: list[dict[str, object]]


def _priced(
    options: Options,
    machine: Cluster,
    other: Cluster,
    hosts: list[int],
    sizes: Sequence[int],
    *,
    has_nccl: bool,
) -> _Own:
    """On one domain, and on all hosts where that is asked for or there is nothing else to say."""
    prediction = Prediction(other, options["op"])
    for number in hosts:
        prediction.on(number)
    if has_nccl and not (options["has_all"] or options["sensitivity"]):
        hosts = [number for number in hosts if number <= other.hosts]
    if not hosts:
        return _Own(prediction, [], [])
    before = Prediction(machine, options["op"]) if options["changes"] else None
    try:
        with activity_shown(lambda: "pricing our own engine"):
            table = rows(prediction, before, hosts, sizes, has_all=options["has_all"])
    except (RefusedError, UsageError) as error:
        if not has_nccl:
            raise
        remark(f"Our own engine is left out: {error.message}")
        return _Own(prediction, [], [])
    return _Own(prediction, hosts, table)


def _show_own(options: Options, own: _Own, sizes: Sequence[int], *, has_nccl: bool) -> None:
    out, other = sys.stdout, own.prediction.cluster
    if max(own.hosts) > other.hosts:
        remark(
            "Our own engine reaches other hosts through CPUs alone; it is priced as if GPUs sent"
            " by NICs."
        )
        if links := unknown_links(other.domain):
            remark(f"No known rate, so taken as no limit: {', '.join(links)} on the way to a NIC.")
    if has_nccl:
        _show(["", "Our own engine"])
    _show(
        lines(
            own.prediction,
            own.table,
            sizes,
            width(out),
            has_changes=bool(options["changes"]),
            has_colours=is_coloured(options["color"], out),
        )
    )
    if options["sensitivity"]:
        _show(["", *sensitivity_lines(own.prediction, own.hosts, sizes, width(out))])


def _show(text: Iterable[str]) -> None:
    """Lines at once, as what comes next may take long."""
    for line in text:
        say(line, color=True)
    sys.stdout.flush()


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
