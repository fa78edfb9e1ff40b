"""What lines of NCCL say that is about no communicator: networks, plug-ins, settings, choices."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from collbench.core.text import counted
from collbench.jobs.nccl_log.lines import LogMessage
from collbench.jobs.nccl_log.model import LoggedChoice, LogReport
from collbench.jobs.nccl_log.places import LogPlace, Seen, without_numbers

Fact = Callable[[LogReport, LogMessage, "re.Match[str]", LogPlace], None]
# the table that a line counts in, and its key there. Any: each table has its own
Where = Callable[[LogReport, "re.Match[str]"], tuple[dict[Any, Seen], Any]]
_MOST = 50_000  # of one table, such as settings: a log has far fewer
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_CODES = (
    "success", "an error of CUDA", "an error of the system", "an internal error",
    "an invalid argument", "an invalid use", "the error of another rank",
)  # fmt: skip


def _nics_socket(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    names = " ".join(word.partition(":")[0] for word in match["nics"].split())
    shorter = ("Socket", names.rpartition(" ")[0])  # a list of several lines, so far
    seen = report.nics.get(shorter)
    if seen is not None and seen.count == 1 and seen.places[0].line == place.line - 1:
        del report.nics[shorter]
    report.nics.setdefault(("Socket", names), Seen()).add(place, message.source.host)


def _trace_of_error(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    code = int(match["code"])
    if code not in (0, 7):  # success, in progress
        name = _CODES[code] if code < len(_CODES) else f"code {code}"
        report.first_returned = report.first_returned or message.text.partition(" ->")[0]
        report.returned.setdefault(name, Seen()).add(place, message.source.host)


def _topology(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    if "max_link_speed" in message.text or "max_link_width" in message.text:
        report.pci_unknown.add(place, message.source.host)


def _choice(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    channels = int(match["high"]) - int(match["low"]) + 1 if match["high"] else None
    algo, proto = match["algo"], match["proto"]
    if algo.isdigit():
        algo = _ALGORITHMS[int(algo)] if int(algo) < len(_ALGORITHMS) else algo
    if proto.isdigit():
        proto = _PROTOCOLS[int(proto)] if int(proto) < len(_PROTOCOLS) else proto
    _choose(
        report, match["op"] or "", int(match["bytes"]), LoggedChoice(algo, proto, channels), place
    )


def _choice_symmetric(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    channels = int(match["channels"]) if match["channels"] else None
    choice = LoggedChoice(match["form"].lower(), match["kernel"], channels)
    _choose(report, match["op"], int(match["bytes"]), choice, place)


def _choose(
    report: LogReport, op: str, size_bytes: int, choice: LoggedChoice, place: LogPlace
) -> None:
    choices = report.choices
    if (op, size_bytes) in choices or len(choices) < _MOST:
        choices.setdefault((op, size_bytes), choice).seen.add(place)


def _kept(where: Where) -> Fact:
    """What counts a line under its key, or nothing where it has none."""

    def keep(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        table, key = where(report, match)
        if key is not None and (key in table or len(table) < _MOST):
            table.setdefault(key, Seen()).add(place, message.source.host)

    return keep


# by the kind of line, the table and the key under which it counts
_KEPT: Mapping[str, Where] = {
    "network": lambda report, match: (report.networks, match["name"]),
    "network_assigned": lambda report, match: (
        report.networks,
        match["name"] if match["kind"] == "NET" else None,
    ),
    "nics_ib": lambda report, match: (
        report.nics,
        ("IB", names) if (names := " ".join(match["nics"].replace("[RO]", "").split())) else None,
    ),
    "ofi_provider": lambda report, match: (
        report.nics,
        (
            "Libfabric",
            match["name"] + (f", {counted(int(match['nics']), 'NIC')}" if match["nics"] else ""),
        ),
    ),
    "bootstrap": lambda report, match: (report.interfaces, match["interface"].rpartition("]")[2]),
    "gdr_hca": lambda report, match: (
        report.gdr,
        (match["state"], f"{match['net'].strip()} {match['name']}{match['why'].rstrip()}"),
    ),
    "gdr_gpu": lambda report, match: (report.gdr_of_gpus, match["state"]),
    "p2p_off": lambda report, match: (report.p2p_off, "NVLink" if match["nvlink"] else "connected"),
    "plugin_missing": lambda report, match: (report.plugins, ("not found", match["kind"])),
    "plugin_loaded": lambda report, match: (
        report.plugins,
        ("used", f"{match['kind'] or ''} {(match['name'] or match['other']).strip()}".strip()),
    ),
    "plugin_failed": lambda report, match: (
        report.failed_plugins,
        (match["kind"], match["why"] or f"{match['library']}: {match['reason']}"),
    ),
    "plugin_unsupported": lambda report, match: (
        report.failed_plugins,
        (match["name"], "this NCCL does not take its version"),
    ),
    "config": lambda report, match: (
        report.config,
        (match["name"], match["value"]) if match.groupdict().get("name") else None,
    ),
    "setting": lambda report, match: (report.settings, (match["name"], match["value"])),
    "memory": lambda report, match: (
        report.host_buffers,
        match.string.partition(" ")[0] if "shareable host buffer" in match.string else None,
    ),
    "closed": lambda report, match: (report.gone, without_numbers(match.string)),
    "proxy": lambda report, match: (
        report.gone,
        without_numbers(match.string) if "closed by" in match.string else None,
    ),
    "system": lambda report, match: (report.max_bw, match["most"]),
    "nvls_support": lambda report, match: (report.nvls, not match["no"]),
}
# by the kind of line
FACTS: Mapping[str, Fact] = {
    **{kind: _kept(where) for kind, where in _KEPT.items()},
    "nics_socket": _nics_socket,
    "trace_of_error": _trace_of_error,
    "topology": _topology,
    "no_ib": lambda report, message, _, place: report.no_ib.add(place, message.source.host),
    "choice": _choice,
    "choice_symmetric": _choice_symmetric,
}
