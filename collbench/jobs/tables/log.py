"""What a log of NCCL says, as text and as a document."""

from collections import Counter
from collections.abc import Sequence

from collbench.core.files import result_json
from collbench.core.grouping import grouped
from collbench.core.text import counted, paragraphs, some_of, table, wrapped
from collbench.core.units import format_size, span_of_sizes
from collbench.doctor.check import Finding
from collbench.doctor.tables.findings import block, finding_facts, found_text, mark
from collbench.jobs.nccl_log.model import LogReport
from collbench.jobs.nccl_log.places import Seen
from collbench.jobs.nccl_log.summary import chosen, depth, joined, orders, traffic
from collbench.machine.topology.model import spans

_MOST_ROWS = 8  # of a table on the screen; --json has all
_MOST_RANKS = 16  # of a ring, in full
_MOST_SETTINGS = 12


def log_lines(report: LogReport, columns: int) -> list[str]:
    """The log in a screen: what was found is not in it."""
    lines = wrapped(_lead(report), columns)
    room = columns - 2
    for title, body in (
        ("communicators", _communicators(report, room)),
        ("how ranks are joined", _joined(report, room)),
        ("rings and trees", _rings(report)),
        ("networks and plug-ins", _networks(report)),
        ("settings in the log", _settings(report)),
        ("what RAS says", list(report.ras.summary())[:_MOST_ROWS]),
        ("what tools say of the machine", list(report.facts)[:_MOST_ROWS]),
        ("what NCCL expects (its tuning table)", _expected(report, room)),
        ("what NCCL took", _chosen(report, room)),
        ("operations of a rank", _operations(report, room)),
    ):
        if body:
            lines += ["", title, *paragraphs((f"  {line}" for line in body), columns, " " * 6)]
    return lines


def unread_lines(report: LogReport, columns: int) -> list[str]:
    """What could not be read: how many lines, and examples."""
    counters = report.counters
    if not counters.not_understood:
        return []
    lines = wrapped(
        f"{counters.not_understood} of {counters.nccl} lines of NCCL say what this version of"
        " collbench does not know, or are cut:",
        columns,
    )
    worst = sorted(counters.unknown.values(), key=lambda one: -one[1].count)
    for text, seen in worst[:3]:
        head = f"  {seen.count} x, {seen.places[0]}: "
        lines.append(head + text[: max(20, columns - len(head))])
    return lines


def log_json(report: LogReport, findings: Sequence[Finding]) -> str:
    """The log and what was found as a JSON object."""
    counters = report.counters
    marks = [mark(one) for one in findings]
    document = {
        "files": report.files,
        "lines": {
            "read": counters.lines,
            "of_nccl": counters.nccl,
            "understood": counters.understood,
            "joined": counters.joined,
            "not_understood": counters.not_understood,
            "examples": [
                {"text": text, "count": seen.count, "place": str(seen.places[0])}
                for text, seen in counters.unknown.values()
            ],
        },
        "versions": _places(report.versions),
        "communicators": [
            {
                "name": one.name,
                "ranks": one.nranks,
                "hosts": one.hosts,
                "nodes": one.nodes,
                "call": one.call,
                "parent": one.parent,
                "color": one.color,
                "channels": one.channels,
                "members": [
                    {"rank": rank.rank, "host": rank.host, "pid": rank.pid, "device": rank.device,
                     "bus": rank.bus, "place": str(rank.place),
                     "numa": report.numa.get((rank.host, rank.bus))}
                    for _, rank in sorted(one.ranks.items())
                ],
                "rings": {str(channel): list(ring) for channel, ring in sorted(one.rings.items())},
                "trees": {
                    str(channel): {str(rank): up for rank, up in sorted(tree.items())}
                    for channel, tree in sorted(one.trees.items())
                },
                "links": [
                    {"from": source, "to": target, "via": via, "channels": mask.bit_count()}
                    for (source, target, via), mask in one.links.items()
                ],
                "transports": _places(one.link_places),
            }
            for one in report.communicators
        ],
        "networks": _places(report.networks),
        "nics": _places({f"{kind}: {names}": seen for (kind, names), seen in report.nics.items()}),
        "bootstrap": _places(report.interfaces),
        "gpudirect": _places({f"{what}: {state}": seen for (state, what),
        seen in report.gdr.items()}),
        "plugins": _places({f"{kind} {what}": seen for (what, kind),
        seen in report.plugins.items()}),
        "settings": [
            {"name": name, "value": value, "count": seen.count, "place": str(seen.places[0])}
            for (name, value), seen in report.settings.items()
        ],
        "tuning": [
            {"op": op, "algo": algo, "proto": proto, "latency_us": latency, "bandwidth_gbs": rate}
            for (op, algo, proto), (latency, rate) in report.tuning.items()
        ],
        "chosen": [
            {"op": op, "bytes": size, "algo": one.algo, "proto": one.proto,
             "channels": one.channels, "count": one.seen.count, "place": str(one.seen.places[0])}
            for (op, size), one in sorted(report.choices.items())
        ],
        "operations": [
            {"op": row.op, "dtype": row.dtype, "redop": row.redop, "ranks": row.nranks,
             "calls_of_a_rank": row.calls, "least_bytes": row.sizes[0], "most_bytes": row.sizes[1],
             "bytes_of_a_rank": row.bytes}
            for row in traffic(report)
        ],
        "warnings": [
            {"text": one.text, "where": one.where, "count": one.seen.count,
             "hosts": sorted(one.seen.hosts), "place": str(one.seen.places[0])}
            for one in report.warnings.values()
        ],
        "findings": [finding_facts(one) for one in findings],
        "marks": marks,
    }  # fmt: skip
    return result_json(
        document,
        machine=", ".join(sorted(report.hosts)),
        verdict="FAIL" if "COST" in marks else "WARN" if "RISK" in marks else "PASS",
    )


def _places(facts: dict[str, Seen]) -> dict[str, dict[str, object]]:
    return {
        name: {"count": seen.count, "place": str(seen.places[0])} for name, seen in facts.items()
    }


def origin(report: LogReport) -> str:
    """Of what the log is: the version, the GPUs and hosts, and what it says of NVLS."""
    nvls = [f"NVLS {'available' if is_there else 'not available'}" for is_there in report.nvls]
    nvls += ["=".join(one) for one in report.settings if one[0] == "NCCL_NVLS_ENABLE"]
    return "; ".join([_job(report), *(nvls or ["NVLS is not in the log"])])


def _lead(report: LogReport) -> str:
    counters = report.counters
    share = counters.understood / counters.nccl if counters.nccl else 1
    understood = f", {100 * share:.4g}% of these understood" if counters.nccl else ""
    lines = f"{counted(counters.lines, 'line')}, {counters.nccl} of NCCL{understood}"
    return f"{_job(report)}{'; ' if report.gpus else ': '}{lines}"


def _job(report: LogReport) -> str:
    processes = {
        (rank.host, rank.pid) for one in report.communicators for rank in one.ranks.values()
    }
    version = ", ".join(report.versions) or "a version that the log does not say"
    if not report.gpus:
        return version
    return (
        f"{version}: {counted(len(report.gpus), 'GPU')},"
        f" {counted(len(processes), 'process', 'es')},"
        f" {counted(len(report.hosts), 'host')} ({some_of(sorted(report.hosts), 4)})"
    )


def _cut_rows(
    rows: Sequence[tuple[str, ...]], heads: tuple[str, ...], right: set[int], columns: int
) -> list[str]:
    """A table of the first rows; nothing where there are none."""
    if not rows:
        return []
    lines = table(heads, rows[:_MOST_ROWS], right, columns)
    if len(rows) > _MOST_ROWS:
        lines.append(f"... and {len(rows) - _MOST_ROWS} more (--json has all)")
    return lines


def _communicators(report: LogReport, columns: int) -> list[str]:
    looks = Counter(
        (
            one.nranks,
            one.nodes or len(one.hosts),
            one.channels,
            one.call + " (split of another)" * bool(one.parent),
            len(one.ranks) or len(one.calls),
        )
        for one in report.communicators
    )
    rows = [
        (
            str(nranks),
            str(nodes or ""),
            str(count),
            str(channels) if channels is not None else "",
            call,
            "" if seen == nranks else f"{counted(seen, 'rank')} in the log",
        )
        for (nranks, nodes, channels, call, seen), count in sorted(
            looks.items(), key=lambda item: (-item[0][0], -item[1])
        )
    ]
    heads = ("ranks", "nodes", "how many", "channels", "made by", "")
    return _cut_rows(rows, heads, {0, 1, 2, 3}, columns)


def _joined(report: LogReport, columns: int) -> list[str]:
    rows = [
        (
            one.where,
            one.transport + (" with GPUDirect" if one.has_gdr else ""),
            str(one.pairs),
            _span(one.channels),
            spans(one.nics),
            " ".join(one.examples[:2]) + (" ..." if one.pairs > 2 else ""),
        )
        for one in joined(report.communicators)
    ]
    heads = ("where", "transport", "pairs", "channels", "NICs", "from->to")
    return _cut_rows(rows, heads, {2, 3}, columns)


def _span(bounds: tuple[int, int]) -> str:
    return "-".join(dict.fromkeys(map(str, bounds)))


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers[:8])) + ("..." if len(numbers) > 8 else "")


def _rings(report: LogReport) -> list[str]:
    lines = []
    shown = sorted(report.communicators, key=lambda one: -one.nranks)
    for known in [one for one in shown if one.rings][:1]:
        found = orders(known)
        for order, count in found[:3]:
            ranks = " ".join(map(str, order[:_MOST_RANKS]))
            more = f" ... ({len(order)} ranks)" if len(order) > _MOST_RANKS else ""
            lines.append(f"ring of {counted(count, 'channel')}: {ranks}{more}")
        if len(found) > 3:
            lines.append(f"... and {len(found) - 3} other orders")
    for known in [one for one in shown if one.trees][:1]:
        depths = {deep for tree in known.trees.values() if (deep := depth(tree)) is not None}
        roots = sorted(
            {rank for tree in known.trees.values() for rank, up in tree.items() if up < 0}
        )
        steps = "-".join(str(one) for one in sorted({min(depths), max(depths)})) if depths else "?"
        lines.append(
            f"trees of {counted(len(known.trees), 'channel')}: {steps} steps deep,"
            f" roots {_numbers(roots)}"
        )
    return lines


def _networks(report: LogReport) -> list[str]:
    lines = []
    if report.networks:
        lines.append(f"network: {some_of(report.networks, 4)}")
    for (kind, names), seen in list(report.nics.items())[:3]:
        hosts = f" ({counted(len(seen.hosts), 'host')})" if len(report.nics) > 1 else ""
        lines.append(f"{kind}: {names}{hosts}")
    if report.interfaces:
        lines.append(f"ranks find each other by {some_of(report.interfaces, 4)}")
    states = sorted({state for state, what in report.gdr if not what.startswith("Socket")})
    if states:
        lines.append(f"GPUDirect RDMA: {' and '.join(states).lower()}")
    lines += [
        f"NVLS (switches that reduce): {'available' if is_there else 'not available'}"
        for is_there in report.nvls
    ]
    used = [name for what, name in report.plugins if what == "used"]
    missing = [name for what, name in report.plugins if what == "not found"]
    if used or missing:
        parts = [f"plug-ins used: {some_of(used, 4)}"] if used else []
        where = "normal, unless the network needs one, as EFA"
        parts += [f"no plug-in for {some_of(missing, 6)} ({where})"] if missing else []
        lines.append("; ".join(parts))
    return lines


def _settings(report: LogReport) -> list[str]:
    words = [f"{name}={value}" for name, value in report.settings]
    words += [f"{name}={value} (of the program)" for name, value in report.config]
    return [some_of(words, _MOST_SETTINGS)] if words else []


def _expected(report: LogReport, columns: int) -> list[str]:
    by_op = grouped(
        (op, (f"{algo}/{proto}", latency_us, rate_gbs))
        for (op, algo, proto), (latency_us, rate_gbs) in report.tuning.items()
    )
    rows = []
    for op, ways in by_op.items():
        fastest, widest = min(ways, key=lambda way: way[1]), max(ways, key=lambda way: way[2])
        rows.append((op, f"{fastest[1]:g}", fastest[0], f"{widest[2]:g}", widest[0]))
    heads = ("operation", "least us", "by", "most GB/s", "by")
    return _cut_rows(rows, heads, {1, 3}, columns)


def _chosen(report: LogReport, columns: int) -> list[str]:
    rows = [
        (
            one.op or "any",
            span_of_sizes(*one.sizes),
            one.algo,
            one.proto,
            _span(one.channels) if one.channels else "",
        )
        for one in chosen(report)
    ]
    heads = ("operation", "bytes of a rank", "algorithm", "protocol", "channels")
    return _cut_rows(rows, heads, {1, 4}, columns)


def _operations(report: LogReport, columns: int) -> list[str]:
    rows = [
        (
            row.op,
            row.dtype + (f" {row.redop}" if row.redop else ""),
            str(row.nranks),
            f"{row.calls:.6g}",
            span_of_sizes(*row.sizes),
            format_size(round(row.bytes)),
        )
        for row in traffic(report)
    ]
    heads = ("operation", "of", "ranks", "calls", "bytes of one", "of all")
    return _cut_rows(rows, heads, {2, 3, 4, 5}, columns)


MARKS = {"fault": "FAULT", "risk": "RISK", "remark": "NOTE"}


def finding_block(finding: Finding, columns: int) -> list[str]:
    """A finding of a log as a block of lines."""
    head = f"{MARKS[finding.severity]}  {finding.check}: {finding.subject}"
    parts = (("seen", finding.seen), ("why", finding.why), ("change", finding.change))
    return block(head, parts, columns)


def last_line(findings: Sequence[Finding]) -> str:
    """How many findings of each kind.

    >>> last_line([])
    'Nothing is wrong in what the log says.'
    >>> last_line([Finding(check="", subject="", seen="", why="", change="", severity="fault")])
    '1 finding: 1 that is an error or slow anywhere.'
    """
    count = Counter(one.severity for one in findings)
    errors = "that are errors" if count["fault"] > 1 else "that is an error"
    numbers = {
        f"{errors} or slow anywhere": count["fault"],
        "that may cost": count["risk"],
        "to know": count["remark"],
    }
    return f"{found_text(numbers)}." if findings else "Nothing is wrong in what the log says."
