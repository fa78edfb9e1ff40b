"""Predictions as rows, and as a table with crossovers and what was left out."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import click

from collbench.core.text import counted, table, wrapped
from collbench.core.units import format_rate, format_size, format_time_us, to_us
from collbench.planning.limits import MAX_ENDS
from collbench.planning.predict import LATENCY, Point, Prediction

# columns that a narrow screen has no room for, the first ones first
_SPARE = ("ranks", "a-b us", "scaling", "9 of 10 us")
_WORDS = {"algo", "proto", "busiest"}  # columns of words; numbers stand on the right
_NAMES = {
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "nic": "NIC",
    "spine": "spine",
    "cta": "CTAs",
    "memory": "memory",
}
COLUMNS = (
    "op",
    "machine",
    "hosts",
    "ranks",
    "size_bytes",
    "algo",
    "proto",
    "channels",
    "time_us",
    "busbw_gbs",
    "limit",
    "limit_share",
    "hops",
    "hops_between",
    "alpha_beta_us",
    "scaling",
    "before_us",
    "engine",  # whose prices: nccl, or collbench
    "low_us",
    "high_us",
    "reachable_gbs",
)
_MOST_SHOWN = 6  # constants of a result that are named
_LEAST_SLOPE = 0.01
Row = dict[str, Any]  # a document's: numbers, names, and None for what is not known


def rows(
    prediction: Prediction,
    before: Prediction | None,
    hosts: Sequence[int],
    sizes: Sequence[int],
    *,
    has_all: bool,
) -> list[Row]:
    """A row for each number of hosts and size: of the best algorithm, or of every one."""
    made = []
    for number, size in product(hosts, sizes):
        old, first = (
            one and _of(one, at, size, has_all=has_all)
            for one, at in ((before, number), (prediction, hosts[0]))
        )
        for point in _of(prediction, number, size, has_all=has_all):
            like = [one for one in old or () if not has_all or one.algo == point.algo]
            made.append(_row(prediction, point, first or (), like))
    return made


def _of(prediction: Prediction, hosts: int, size: int, *, has_all: bool) -> list[Point]:
    """Every algorithm, the least first, or the best alone."""
    if has_all:
        return prediction.at(hosts, size)
    best = prediction.best(hosts, size)
    return [] if best is None else [best]


def _row(prediction: Prediction, point: Point, first: Sequence[Point], old: Sequence[Point]) -> Row:
    """first: on the fewest hosts, old: before the changes, the least first."""
    op, kind = prediction.op, point.limit
    busbw, hops = point.busbw_gbs(op), prediction.hops(point)
    low_s, high_s = prediction.interval_s(point) or (None, None)
    return {
        "op": op,
        "machine": prediction.cluster.name,
        "hosts": point.hosts,
        "ranks": point.ranks,
        "size_bytes": point.size_bytes,
        "algo": point.algo,
        "proto": point.plan.proto,
        "channels": point.plan.channels,
        "time_us": rounded(to_us(point.seconds)),
        "busbw_gbs": rounded(busbw),
        "limit": kind,
        "limit_share": None if kind == LATENCY else round(point.busy[kind] / point.seconds, 3),
        "hops": hops[0],
        "hops_between": hops[1],
        "alpha_beta_us": rounded(to_us(prediction.alpha_beta_s(point))),
        "scaling": rounded(busbw / first[0].busbw_gbs(op)) if first else None,
        "before_us": rounded(to_us(old[0].seconds)) if old else None,
        "engine": "collbench",
        "low_us": None if low_s is None else rounded(to_us(low_s)),
        "high_us": None if high_s is None else rounded(to_us(high_s)),
    }


def rounded(number: float) -> float:
    """A number of a document, of five digits."""
    return float(f"{number:.5g}")


def lines(
    prediction: Prediction,
    shown: Sequence[Row],
    sizes: Sequence[int],
    columns: int,
    *,
    has_changes: bool,
    has_colours: bool,
) -> Iterable[str]:
    """The table, which algorithm is best from where to where, and what was left out. sizes: those
    between which crossovers are looked for. columns: of the screen.
    """
    heads = ["hosts", "ranks", "  size", "algo", "proto", "time us", "9 of 10 us", "busbw"]
    heads += ["busiest", "a-b us", "scaling", *(["before", "gain"] if has_changes else [])]
    cells = [dict(zip(heads, _cells(row, has_changes=has_changes), strict=True)) for row in shown]
    if all(row["low_us"] is None for row in shown):
        heads.remove("9 of 10 us")
    for spare in (*_SPARE, None):
        right = [place for place, name in enumerate(heads) if name not in _WORDS]
        head, *body = table(heads, [[row[name] for name in heads] for row in cells], right, columns)
        if spare is None or len(body) == len(cells):
            break
        if spare in heads:
            heads.remove(spare)
    yield click.style(head, bold=True) if has_colours else head
    yield from body
    yield ""
    notes = ["busbw in GB/s."]
    if "9 of 10 us" in heads:
        notes.append("9 of 10: where nine of ten measured rows of such sizes were.")
    if "a-b us" in heads:
        notes.append(
            "a-b: alpha-beta, hops by their latency and bytes of the fullest link by its rate."
        )
    if "scaling" in heads:
        notes.append("scaling: of the bus bandwidth on the fewest hosts.")
    yield from wrapped(" ".join(notes), columns)
    for number in dict.fromkeys(row["hosts"] for row in shown):
        ranges = prediction.ranges(number, sizes)
        if len(ranges) > 1:
            parts = [f"{ranges[0][0]} to {format_size(ranges[0][2])}"]
            parts += [f"{algo} from {format_size(first)}" for algo, first, _ in ranges[1:]]
            on = counted(number, "host")
            yield from wrapped(f"best on {on}: {', '.join(parts)}", columns)
    if small := sorted({*sizes} - {row["size_bytes"] for row in shown}):
        listed = ", ".join(map(format_size, small))
        yield from wrapped(f"no price of {listed}: less than an element for each rank", columns)
    for algo, reasons in prediction.reasons.items():
        for reason in dict.fromkeys(reasons.values()):
            numbers = [number for number, why in reasons.items() if why == reason]
            where = ", ".join(map(str, numbers)) + (" host" if numbers == [1] else " hosts")
            yield from wrapped(f"left out on {where}: {_named(algo, reason)}", columns)
    if crowded := sorted({row["algo"] for row in shown if _ends(prediction, row) > MAX_ENDS}):
        yield from wrapped(
            f"our kernels have room for {MAX_ENDS} ends of connections a rank, which"
            f" {', '.join(crowded)} would exceed here",
            columns,
        )


def _ends(prediction: Prediction, row: Row) -> int:
    point = prediction.of(row["hosts"], row["size_bytes"], row["algo"])
    return 0 if point is None else prediction.ends(point)


def _named(algo: str, reason: str) -> str:
    """A reason that names its algorithm, once."""
    return reason if reason.startswith(f"{algo} ") else f"{algo}: {reason}"


def _cells(row: Row, *, has_changes: bool) -> list[str]:
    time_us, before_us = row["time_us"], row["before_us"]
    ends = [format_time_us(row[name]) for name in ("low_us", "high_us") if row[name] is not None]
    cells = [
        str(row["hosts"]),
        str(row["ranks"]),
        format_size(row["size_bytes"]),
        row["algo"],
        row["proto"],
        format_time_us(time_us),
        "-".join(ends) or "-",
        format_rate(row["busbw_gbs"]),
        _limit(row),
        format_time_us(row["alpha_beta_us"]),
        "-" if row["scaling"] is None else f"{100 * row['scaling']:.3g}%",
    ]
    if has_changes:
        known = before_us is not None
        cells.append(format_time_us(before_us) if known else "-")
        cells.append(f"x{before_us / time_us:.2f}" if known else "-")
    return cells


def _limit(row: Row) -> str:
    if row["limit"] != LATENCY:
        return f"{_NAMES[row['limit']]} {100 * row['limit_share']:.0f}%"
    between = f", {row['hops_between']} between" if row["hops_between"] else ""
    return f"{row['hops']} hop{'' if row['hops'] == 1 else 's'}{between}"


def sensitivity_lines(
    prediction: Prediction, hosts: Sequence[int], sizes: Sequence[int], columns: int
) -> Iterable[str]:
    """What each time depends on most: percent for one percent more of a constant."""
    shown = []
    for number in hosts:
        for size in sizes:
            best = prediction.best(number, size)
            if best is None:
                continue
            slopes = [
                f"{name} {slope:+.2f}"
                for name, slope in prediction.elasticities(best).items()
                if abs(slope) >= _LEAST_SLOPE
            ]
            shown.append(
                [str(number), format_size(size), best.algo, "  ".join(slopes[:_MOST_SHOWN])]
            )
    title = "percent of the time for one percent more of a constant, the largest first"
    yield from wrapped(title, columns)
    yield from table(["hosts", "  size", "algo", "constants"], shown, {0, 1}, columns)
