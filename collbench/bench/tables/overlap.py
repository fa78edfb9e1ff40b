"""What communication cost computation, a line a row, and what to choose by them."""

from collections.abc import Sequence

from collbench.bench.overlap import COPIES, Overlap, OverlapRequest, lost_percent, on_cpus
from collbench.core.text import NARROW_COLUMNS, table, wrapped
from collbench.core.units import format_rate, format_size

# of the most bandwidth beside computing: the fewest channels that reach this are advised
ENOUGH = 0.9
_COPIES = {"kernel": "copy by a kernel", "engine": "copy engine", "host": "to host memory"}
_PEERS = {"nccl": "NCCL", "mpi": "MPI"}
_USUAL = ("auto", "p2p")  # need no word
_PRIORITIES = {"high": "a stream of high priority", "normal": "a stream of the products' priority"}


def heading(request: OverlapRequest, columns: int) -> list[str]:
    """What is measured, in words, and the line above the rows."""
    what = f"{request.op} of {request.ranks} ranks" if request.ranks > 1 else "copies on one GPU"
    stream, gemm = _PRIORITIES[request.settings.priority], request.settings.gemm
    where, cores = f" on {stream}", "multiprocessors"
    loads = f"products of {gemm} x {gemm} bfloat16 matrices"
    if on_cpus(request.backends):
        where, loads, cores = "", "computing in the cache, a process a rank", "cores"
    text = (
        f"{what}, back to back{where}, beside {loads}, and beside copies in memory. alone, beside:"
        " busbw in GB/s, without a load and beside computing. slower: time of a launch beside"
        f" computing over alone. compute: time of computing, which loses the {cores} that are"
        " taken. memory: of copies; what they lose more is memory bandwidth. noise: by which"
        " computing alone varies."
    )
    above = [_row(_HEADS, columns)] if columns >= _WIDE else []
    return [*wrapped(text, columns, ""), "", *above]


_HEADS = ("size", "what", "ch", "alone", "beside", "slower", "compute", "memory", "noise")
_LEAST = (5, 17, 2, 6, 6, 7, 7, 6, 5)  # columns of each
_WIDE = 79  # columns from which on there is room for all of them


def _row(cells: Sequence[str], columns: int) -> str:
    if columns < _WIDE:
        named = [f"{head} {cell}" for head, cell in zip(_HEADS[2:], cells[2:], strict=False)]
        told = named if len(cells) == len(_HEADS) else cells[3:]
        return "\n".join(wrapped(f"{cells[0]} {cells[1]}: {', '.join(told)}", columns))
    known = len(cells) if len(cells) == len(_HEADS) else 3  # behind them a text says why
    right = [place for place in range(known) if place != 1]
    return "\n".join(table(("",) * len(cells), [cells], right, columns, _LEAST[:known]))


def line(overlap: Overlap, columns: int = NARROW_COLUMNS) -> str:
    """One row; what was not measured has its reason."""
    record = overlap.record
    start = [format_size(record.size_bytes), name_of(overlap), str(record.channels or "-")]
    if record.busbw_gbs is None or overlap.concurrent_busbw_gbs is None:
        return _row([*start, f"{record.status}: {record.reason}"], columns)
    rates = map(format_rate, (record.busbw_gbs, overlap.concurrent_busbw_gbs))
    slower = overlap.slower, overlap.gemm_slower, overlap.memory_slower
    ratios = (f"{one or 0:.{3 if (one or 0) < 10 else 1}f}x" for one in slower)
    return _row([*start, *rates, *ratios, f"{overlap.noise_percent or 0:.1f}%"], columns)


def name_of(overlap: Overlap) -> str:
    """What moved the data, in a few words."""
    record = overlap.record
    if record.backend == COPIES:
        return _COPIES[record.algo]
    if record.algo == "library":
        return record.backend
    proto = "" if record.transport == "ce" else record.proto  # which knows one only
    return (
        " ".join(
            word for word in (record.algo, proto, record.transport) if word and word not in _USUAL
        )
        or record.backend
    )


def advice(rows: Sequence[Overlap], columns: int = NARROW_COLUMNS) -> list[str]:
    """What to choose for each size, in lines: the fewest channels that give ENOUGH of the most
    bandwidth beside computing, and what else there is.
    """
    return [
        line
        for size in dict.fromkeys(row.record.size_bytes for row in rows)
        for line in _advice([row for row in rows if row.record.size_bytes == size], columns)
    ]


def _advice(rows: Sequence[Overlap], columns: int) -> list[str]:
    measured = [row for row in rows if row.concurrent_busbw_gbs is not None]
    by_us = [row for row in measured if row.record.backend in ("cuda", "cpu")] or [
        row for row in measured if row.record.algo == "kernel"
    ]
    if not by_us:
        return []
    size = format_size(by_us[0].record.size_bytes)
    stores = [row for row in by_us if row.record.transport != "ce"]
    ours = [row for row in stores if row.record.transport == stores[0].record.transport]
    parts = []
    if ours:
        most = max(ours, key=_rate)
        chosen = min(
            (row for row in ours if _rate(row) >= ENOUGH * _rate(most)),
            key=lambda row: row.record.channels,
        )
        gives = f"give {100 * _rate(chosen) / _rate(most):.0f} % of the bandwidth"
        if on_cpus((chosen.record.backend,)):
            parts.append(f"ours {_costs(chosen)}")
        else:
            parts.append(
                f"{chosen.record.channels} channels {_cost(chosen)} and {gives}: {_gbs(chosen)}"
            )
        if chosen is not most:
            parts.append(f"{most.record.channels} channels {_cost(most)} and give {_gbs(most)}")
    for transport in dict.fromkeys(row.record.transport for row in by_us if row not in ours):
        row = max((row for row in by_us if row.record.transport == transport), key=_rate)
        parts.append(
            f"{transport} {_costs(row)}"
            + ("" if transport == "ce" else f", with {row.record.channels} channels")
        )
    parts += [
        f"{_PEERS.get(row.record.backend, 'the copy engine')} {_costs(row)}"
        for row in measured
        if row.record.backend in _PEERS
        or (row.record.backend == COPIES and row.record.algo == "engine")
    ]
    return wrapped(f"{size}: {'; '.join(parts)}.", columns, "")


def _rate(row: Overlap) -> float:
    return row.concurrent_busbw_gbs or 0.0


def _gbs(row: Overlap) -> str:
    return f"{format_rate(_rate(row))} GB/s"


def _costs(row: Overlap) -> str:
    return f"{_cost(row).replace('cost', 'costs', 1)} and gives {_gbs(row)}"


def _cost(row: Overlap) -> str:
    """Its price in computing; what is within the noise is not shown as a number."""
    noises = row.noise_percent or 0.0, row.memory_noise_percent or 0.0
    losses = [
        f"{lost_percent(slower):.1f} % of {what}"
        for what, slower, noise in zip(
            ("computing", "copying"), (row.gemm_slower, row.memory_slower), noises, strict=True
        )
        if 100 * ((slower or 1) - 1) > noise
    ]
    if not losses:
        return f"cost nothing measurable (noise {noises[0]:.1f} %)"
    return f"cost {' and '.join(losses)}"
