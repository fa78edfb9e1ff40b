"""Carry out `overlap`: options to what is measured, rows to file and screen, and the advice."""

import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from collbench.backends.gpu.session import why_no_gpus
from collbench.bench.busy import BusyRemark
from collbench.bench.overlap import (
    COPIES,
    OVERLAP_COLUMNS,
    Overlap,
    OverlapRequest,
    measure,
    on_cpus,
    to_line,
)
from collbench.bench.ranks import drive_on_rank0, group_here
from collbench.bench.tables.overlap import advice, heading, line
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.files import result_json, write_document
from collbench.core.group import Group
from collbench.core.host import usable_cores
from collbench.core.launcher import launcher
from collbench.core.options import (
    OVERLAP_OF_CPUS,
    OVERLAP_OF_GPUS,
    OVERLAP_OPTIONS,
    Options,
    OverlapSettings,
    refuse_sharing,
)
from collbench.core.record import Writer
from collbench.core.rows import devices_of
from collbench.core.screen import document_on_stdout, remark, say, width
from collbench.device.card import device_count
from collbench.device.loads import load_cublas


def run_overlap(options: Options) -> int:
    """The whole command; returns the exit code."""
    settings = OverlapSettings(
        **{
            name: options[option.key]
            for name, option in OVERLAP_OPTIONS.items()
            if options[option.key] is not None
        }
    )
    refuse_sharing(options)
    no_gpus = why_no_gpus()
    backends = options["backend"] or (OVERLAP_OF_CPUS if no_gpus else OVERLAP_OF_GPUS)
    if min(options["sizes"]) <= 0:
        raise UsageError("a size of 0 bytes", "give at least one byte")
    under = launcher()
    if on_cpus(backends):
        if not set(backends) <= set(OVERLAP_OF_CPUS):
            raise UsageError("--backend names GPUs and CPUs", "measure one after the other")
        if under is not None:
            raise UsageError("overlap starts the ranks on CPUs itself", "start it without mpirun")
        settings, ranks = replace(settings, gemm=0), max(2, min(8, usable_cores() // 2))
    elif no_gpus:
        raise UnavailableError(
            f"what was asked for is of GPUs: {no_gpus}", "--backend cpu,mpi measures the CPUs"
        )
    else:
        load_cublas()
        ranks = under.size if under is not None else len(settings.gpus) or device_count()
    if ranks == 1 and COPIES not in backends:
        raise UnavailableError(
            "one GPU: nothing travels between ranks",
            "plain copies can be measured: --backend copies",
        )
    request = OverlapRequest(
        ranks=ranks,
        backends=backends,
        transports=options["transport"],
        settings=settings,
        **{name: options[name] for name in ("op", "sizes", "channels", "cluster")},
    )
    group = group_here(settings.timeout_s)
    return drive_on_rank0(group, lambda: _drive(request, group, options["csv"], options["json"]))


def _drive(request: OverlapRequest, group: Group, csv: str | None, file: str | None) -> int:
    """Measure, write and show; returns the exit code. However it ends, what was measured until then
    is in the file and has its advice.
    """
    out = sys.stderr if "-" in (csv, file) else sys.stdout
    writer = (
        Writer(document_on_stdout() if csv == "-" else Path(csv), OVERLAP_COLUMNS)
        if csv is not None
        else None
    )
    rows: list[Overlap] = []
    busy = BusyRemark()
    if request.ranks == 1:
        remark("One GPU: nothing travels between ranks, so only plain copies are measured.")
    try:
        columns = width(out)
        say("\n".join(heading(request, columns)), file=out)
        with closing(measure(request, group)) as measured:
            for row in measured:
                rows.append(row)
                if writer is not None:
                    writer.write_lines([to_line(row)])
                say(line(row, columns), file=out)
    finally:
        if writer is not None:
            writer.close()
        if busy.of_all(request.ranks):
            say("\nCannot tell what it costs: other processes had the cores.", file=out)
        elif lines := advice(rows, width(out)):
            say("\n" + "\n".join(lines), file=out)
    if file is not None:
        machine = devices_of([row.record for row in rows])
        text = result_json([asdict(row) for row in rows], machine=machine)
        write_document(text, file, "--json")
    return _exit_code(rows)


def _exit_code(rows: list[Overlap]) -> int:
    if any(row.record.status == "wrong" for row in rows):
        return 1
    if all(row.record.status == "waived" for row in rows):
        raise UnavailableError(
            f"nothing could be measured: {rows[0].record.reason if rows else 'no point'}",
            "change the options that the reason names",
        )
    return 0
