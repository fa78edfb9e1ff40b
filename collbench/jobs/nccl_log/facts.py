"""What lines of NCCL say that is about no communicator: networks, plug-ins, settings, choices."""

import re
from collections.abc import Callable, Mapping

from collbench.jobs.nccl_log.lines import LogMessage
from collbench.jobs.nccl_log.model import LoggedChoice, LogReport
from collbench.jobs.nccl_log.places import LogPlace, Seen, without_numbers

_MOST = 50_000  # of settings and of choices: a log has far fewer
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_CODES = (
    "success", "an error of CUDA", "an error of the system", "an internal error",
    "an invalid argument", "an invalid use", "the error of another rank",
)  # fmt: skip


def _network(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    report.networks.setdefault(match["name"], Seen()).add(place, message.source.host)


def _network_assigned(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    if match["kind"] == "NET":
        _network(report, message, match, place)


def _nics_ib(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    names = [word for word in match["nics"].split() if word != "[RO]"]
    if names:
        key = ("IB", " ".join(names))
        report.nics.setdefault(key, Seen()).add(place, message.source.host)


def _nics_socket(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    names = " ".join(word.partition(":")[0] for word in match["nics"].split())
    shorter = ("Socket", names.rpartition(" ")[0])  # a list of several lines, so far
    seen = report.nics.get(shorter)
    if seen is not None and seen.count == 1 and seen.places[0].line == place.line - 1:
        del report.nics[shorter]
    report.nics.setdefault(("Socket", names), Seen()).add(place, message.source.host)


def _ofi_provider(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    key = ("Libfabric", match["name"] + (f", {match['nics']} NICs" if match["nics"] else ""))
    report.nics.setdefault(key, Seen()).add(place, message.source.host)


def _bootstrap(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    name = match["interface"].rpartition("]")[2]
    report.interfaces.setdefault(name, Seen()).add(place, message.source.host)


def _gdr_hca(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    key = (match["state"], f"{match['net'].strip()} {match['name']}{match['why'].rstrip()}")
    report.gdr.setdefault(key, Seen()).add(place, message.source.host)


def _gdr_gpu(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    report.gdr_of_gpus.setdefault(match["state"], Seen()).add(place, message.source.host)


def _p2p_off(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    link = "NVLink" if match["nvlink"] else "connected"
    report.p2p_off.setdefault(link, Seen()).add(place, message.source.host)


def _plugin_missing(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    key = ("not found", match["kind"])
    report.plugins.setdefault(key, Seen()).add(place, message.source.host)


def _plugin_loaded(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    name = (match["name"] or match["other"]).strip()
    key = ("used", f"{match['kind'] or ''} {name}".strip())
    report.plugins.setdefault(key, Seen()).add(place, message.source.host)


def _plugin_failed(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    why = match["why"] or f"{match['library']}: {match['reason']}"
    key = (match["kind"], why)
    report.failed_plugins.setdefault(key, Seen()).add(place, message.source.host)


def _plugin_unsupported(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    key = (match["name"], "this NCCL does not take its version")
    report.failed_plugins.setdefault(key, Seen()).add(place, message.source.host)


def _setting(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    key = (match["name"], match["value"])
    settings = report.settings
    if key in settings or len(settings) < _MOST:
        settings.setdefault(key, Seen()).add(place, message.source.host)


def _config(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    named = match.groupdict()
    if named.get("name"):
        key = (named["name"], named["value"])
        report.config.setdefault(key, Seen()).add(place, message.source.host)


def _trace_of_error(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    code = int(match["code"])
    if code not in (0, 7):  # success, in progress
        name = _CODES[code] if code < len(_CODES) else f"code {code}"
        report.first_returned = report.first_returned or message.text.partition(" ->")[0]
        report.returned.setdefault(name, Seen()).add(place, message.source.host)


def _system(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    if match["most"]:
        report.max_bw.setdefault(match["most"], Seen()).add(place, message.source.host)


def _topology(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    if "max_link_speed" in message.text or "max_link_width" in message.text:
        report.pci_unknown.add(place, message.source.host)


def _memory(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    if "shareable host buffer" in message.text:
        kind = message.text.partition(" ")[0]
        report.host_buffers.setdefault(kind, Seen()).add(place, message.source.host)


def _no_ib(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    report.no_ib.add(place, message.source.host)


def _nvls_support(
    report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace
) -> None:
    report.nvls.setdefault(not match["no"], Seen()).add(place, message.source.host)


def _closed(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    report.gone.setdefault(without_numbers(message.text), Seen()).add(place, message.source.host)


def _proxy(report: LogReport, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
    if "closed by" in message.text:
        _closed(report, message, match, place)


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


Fact = Callable[[LogReport, LogMessage, "re.Match[str]", LogPlace], None]
# by the kind of line
FACTS: Mapping[str, Fact] = {
    "network": _network,
    "network_assigned": _network_assigned,
    "nics_ib": _nics_ib,
    "nics_socket": _nics_socket,
    "ofi_provider": _ofi_provider,
    "bootstrap": _bootstrap,
    "gdr_hca": _gdr_hca,
    "gdr_gpu": _gdr_gpu,
    "p2p_off": _p2p_off,
    "plugin_missing": _plugin_missing,
    "plugin_loaded": _plugin_loaded,
    "plugin_failed": _plugin_failed,
    "plugin_unsupported": _plugin_unsupported,
    "setting": _setting,
    "config": _config,
    "trace_of_error": _trace_of_error,
    "system": _system,
    "topology": _topology,
    "memory": _memory,
    "no_ib": _no_ib,
    "nvls_support": _nvls_support,
    "closed": _closed,
    "proxy": _proxy,
    "choice": _choice,
    "choice_symmetric": _choice_symmetric,
}
