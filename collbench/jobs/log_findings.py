"""What is wrong in a log of NCCL, as findings: errors in plain words, and what makes a job slow.

A finding says in which lines of the log it stands. A log has no times, so that nothing here is
measured: what is slower wherever it happens is a fault, what depends is a risk.
"""

import re
from collections.abc import Iterable, Iterator

from collbench.core.text import counted, some_of
from collbench.doctor.check import Finding, Severity, ranked
from collbench.jobs.log_errors import IB_COMPLETION, cut_note, is_mild, numbered
from collbench.jobs.log_finding import log_finding, places, shown, told, whose
from collbench.jobs.nccl_log.model import LoggedWarning, LogReport
from collbench.jobs.nccl_log.places import LogPlace, Seen, merged
from collbench.jobs.nccl_log.summary import BETWEEN, WITHIN, crossings, joined, orders, transport
from collbench.jobs.other_findings import is_bare, known_of, other_findings, unread_error
from collbench.jobs.said import own_words, says_why, system_error
from collbench.machine.settings.files import Setting
from collbench.machine.settings.judge import judge
from collbench.machine.settings.values import version_of

# what switches off the transports that are faster than one
_OF_PEERS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
_DISABLING = {"SHM": _OF_PEERS, "NET": (*_OF_PEERS, "NCCL_SHM_DISABLE")}
_FEW_CHANNELS = 4  # of a communicator over NVLink: H100 takes 16 to 32, A100 24
_WRONG_INTERFACES = ("docker", "virbr", "veth", "br-", "cni", "flannel", "tailscale")
_ENDS = ("rank-exited", "crashed", "killed", "others-ended", "cancelled")
# what the lines behind some kinds are, which say again that it failed
_SAID_AGAIN: dict[str, str | tuple[str, ...]] = {
    "shm": "shm-",
    "slurm-mpi-type": ("slurm-pmix", "slurm-mpi-plugin"),
}
_NEVER_RAN = ("slurm-resources", "slurm-mpi-type", "slurm-mpi-plugin")
_JOB = re.compile(r"\b(?:StepId=|STEP |JobId=|[Jj]ob(?: step)? )(\d+(?:\.\d+)?)\b")
_LAST_WITHOUT_PEERMEM = (2, 22, 3)  # of NCCL, that looks for it at the old place alone
_MOST_OTHERS = 6  # findings of warnings that we do not know
_MOST_SHOWN = 300  # characters of a warning
_SEVERITY: dict[str, Severity] = {"error": "risk", "cost": "risk", "remark": "remark"}
# of these a log of debugging always has some
_EXPECTED_SETTINGS = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")


def log_findings(report: LogReport) -> list[Finding]:
    """What was found, worst first."""
    rules = (
        _errors, _versions, _paths_in_hosts, _peers, _networks, _gpudirect, _plugins, _interfaces,
        _rings, _channels, _settings, _gone,
    )  # fmt: skip
    found = [finding for rule in rules for finding in rule(report)]
    every = [*found, *other_findings(report, has_more=bool(found))]
    every += unread_error(report, every)
    if not any(one.check != "no-verbs" for one in every):
        every += _sockets_alone(report)
    if all(one.severity == "remark" for one in every):
        every += _unfinished(report)
    return ranked(every)


def _hosts(seen: Seen, every: int) -> str:
    hosts = sorted(seen.hosts)
    if not hosts or (every > 1 and len(hosts) == every):
        return "all hosts" if hosts else "the program"
    return some_of(hosts, 4) + " hosts" * (len(hosts) > 4)


def _earlier(report: LogReport, place: LogPlace, name: str, text: str) -> str:
    """Of what before it something may be a consequence: of a cause, or else of an unknown error; of
    none of another step of the job, or of one that never ran.
    """
    found = [(False, seen.places[0]) for seen in report.xids.values()]
    unread = [seen for one, seen in report.unread_errors.values() if not is_mild(one)]
    found += [(True, seen.places[0]) for seen in unread]
    for one in report.warnings.values():
        known, is_cause = known_of(one), not is_bare(one)
        is_said = not one.is_info and (known is None or known.severity != "remark")
        never_ran = known is not None and known.name in _NEVER_RAN and name in _ENDS
        is_said = is_said and not never_ran and not _is_apart(one.text, text)
        if is_said and (is_cause or (name in _ENDS and known and known.name not in _ENDS)):
            found.append((not is_cause, one.seen.places[0]))
    before = min((at for at in found if at[1].file == place.file and at[1] < place), default=None)
    return f" It stands behind the error of {before[1]}, and may follow from it." if before else ""


def _is_apart(one: str, other: str) -> bool:
    """Whether texts name different jobs of Slurm, or different steps of one.

    >>> _is_apart("job 11 failed", "StepId=11.0"), _is_apart("STEP 12.0 ON n1", "StepId=11.0")
    (False, True)
    """
    jobs = [found[1].split(".") for found in map(_JOB.search, (one, other)) if found]
    return len(jobs) > 1 and any(a != b for a, b in zip(*jobs, strict=False))


def _has_several_hosts(report: LogReport) -> bool:
    """Whether the job has several hosts, by its ranks or by what NCCL says of all."""
    return len(report.hosts) > 1 or report.is_between_hosts


def _warnings_by_kind(report: LogReport) -> dict[str, list[LoggedWarning]]:
    groups: dict[str, list[LoggedWarning]] = {}
    for warning in report.warnings.values():
        if warning.is_info and report.communicators and "retrying" in warning.text:
            continue
        completion = IB_COMPLETION.search(warning.text)
        if completion:
            name = f"ib-completion {int(completion['status'])}"
        else:
            known = known_of(warning)
            name = known.name if known else f"warning {warning.text}"
        groups.setdefault(name, []).append(warning)
    for again, kind in _SAID_AGAIN.items():
        if name := next((name for name in groups if name.startswith(kind)), ""):
            groups[name] += groups.pop(again, [])
    others = [name for name in groups if name.startswith("warning ")]
    for name in others[_MOST_OTHERS:]:  # the last that is shown stands for the rest
        groups[others[_MOST_OTHERS - 1]] += groups.pop(name)
    return groups


def _errors(report: LogReport) -> Iterator[Finding]:
    every, groups = len(report.hosts), _warnings_by_kind(report)
    known_names = {name: known_of(warnings[0]) for name, warnings in groups.items()}

    # where something failed and nothing known says why, it is what nobody knows
    kinds = [one for one in known_names.values() if one and one.severity == "fault"]
    leads = bool(kinds) and all(one.is_general for one in kinds)

    def place(name: str) -> tuple[bool, bool, int]:
        known = known_names[name]
        if known is None or not known.is_general:
            return name in _ENDS, False, -1
        return name in _ENDS, not any(says_why(one.text) for one in groups[name]), known.place

    for name in sorted(groups, key=place):  # what says least comes last
        warnings = groups[name]
        known = known_names[name]
        # the text that says of itself why says most
        is_open = known is None or known.is_general
        first = max(
            warnings, key=lambda one: (bool(system_error(one.text)), is_open and says_why(one.text))
        )
        words, to_do = own_words(first.text, is_known=known is not None)
        together = merged([one.seen for one in warnings])
        more = f" (and {counted(len(warnings) - 1, 'other text')})" if len(warnings) > 1 else ""
        seen = f"{places(together)}: {shown(first.text, _MOST_SHOWN)}{more}"
        subject = _hosts(together, every) if together.hosts else whose(together)
        if name.startswith("ib-completion"):
            yield _completion(int(name.split()[1]), subject, seen)
        elif known:
            severity = known.severity
            if severity == "fault" and all(one.is_info for one in warnings):
                severity = "risk"  # what level INFO says of may have been tried again
            elif severity == "risk" and leads and (says_why(first.text) or _crashed(report, first)):
                severity = "fault"
            why, change = f"{known.why}.", known.change
            why += words * known.is_open
            if known.is_general:
                if name.startswith("crashed"):
                    why += _stack(report, is_all=leads and [*groups] == ["crashed"])
                why += _earlier(report, together.places[0], name, first.text)
                change += f"; {to_do}" * bool(to_do)
            general = known.is_general
            yield log_finding(name, subject, seen, why, change, severity, is_general=general)
        else:
            severity = "remark" if first.is_info else "fault" if leads else "risk"
            yield told("warning", subject, seen, severity, more=words, change=to_do)


def _crashed(report: LogReport, warning: LoggedWarning) -> bool:
    """Whether a warning names the function in which the process then crashed."""
    function = re.match(r"\w+", report.crashed_in)
    return function is not None and f"{function[0]}(" in warning.text


def _stack(report: LogReport, *, is_all: bool) -> str:
    """Where the stack of a crash begins. is_all: it is the only kind of warning."""
    if report.crashed_in:
        return f" The stack begins in {report.crashed_in}."
    is_all &= not (report.xids or report.unread_errors or report.torch.timeouts)
    return " No frame with a name and no other error is here: these lines lack its cause." * is_all


def _completion(status: int, subject: str, seen: str) -> Finding:
    known = numbered("completions").get(status)
    if known is None:
        return told("ib-completion", f"{subject}, status {status}", seen)
    number = f"status {status} = {known.name}"
    what = f"{subject}, {number}"
    why = f"{number}: {known.why}.{cut_note('completions', status, seen)}"
    return log_finding("ib-completion", what, seen, why, known.change, "fault")


def _versions(report: LogReport) -> Iterator[Finding]:
    if len(report.versions) < 2:
        return
    rows = [f"{version} ({places(seen)})" for version, seen in report.versions.items()]
    numbers = {version.split("+")[0].split("-")[0] for version in report.versions}
    yield told(
        "versions",
        f"{len(report.versions)} versions",
        "; ".join(rows[:4]),
        "risk" if len(numbers) > 1 else "remark",
    )


def _links_of(report: LogReport, name: str = "") -> Seen:
    """Where ranks are joined, by a transport or by any."""
    links = [link for one in report.communicators for link in one.link_places.items()]
    return merged([seen for via, seen in links if name in ("", transport(via).name)])


def _paths_in_hosts(report: LogReport) -> Iterator[Finding]:
    """Shared memory or a network between ranks of one host."""
    has_nvlink = bool(report.links)
    for row in joined(report.communicators):
        if row.where != WITHIN or row.kind not in ("SHM", "NET"):
            continue
        seen = _links_of(report, row.transport)
        disabled = [
            f"{name}={value}" for name, value in report.settings if name in _DISABLING[row.kind]
        ]
        nvlink = f" These GPUs have NVLink ({', '.join(report.links)} GB/s)." if has_nvlink else ""
        cause = f" The log shows {' and '.join(disabled)}." if disabled else ""
        unset = f"unset {' '.join(one.partition('=')[0] for one in disabled)}"
        yield told(
            "host-memory" if row.kind == "SHM" else "network-in-host",
            f"{counted(row.pairs, 'pair')} of ranks of one host",
            f"via {row.transport}, {places(seen)}",
            "fault" if has_nvlink or disabled else "risk",
            more=nvlink + cause,
            change=unset if disabled else "",
        )


def _networks(report: LogReport) -> Iterator[Finding]:
    """Sockets between hosts although there is InfiniBand or RoCE."""
    rows = [row for row in joined(report.communicators) if row.where == BETWEEN]
    sockets = [row for row in rows if row.transport == "NET/Socket"]
    adapters = {names: seen for (kind, names), seen in report.nics.items() if kind == "IB"}
    is_socket = "Socket" in report.networks
    if adapters and (sockets or (is_socket and "IB" not in report.networks)):
        seen = report.networks.get("Socket") or Seen()
        known = {name for name, _ in report.settings}
        forced = [one for one in ("NCCL_NET", "NCCL_IB_DISABLE", "NCCL_IB_HCA") if one in known]
        yield told(
            "sockets",
            f"{counted(sockets[0].pairs, 'pair')} of ranks" if sockets else "the network",
            f"Socket is used, {places(seen)}; {next(iter(adapters))} is there,"
            f" {places(next(iter(adapters.values())))}",
            row="sockets-beside-adapters",
            change=f"unset {' '.join(forced)}" if forced else "",
        )
    elif sockets or (report.is_between_hosts and is_socket and "IB" not in report.networks):
        off = ("NCCL_IB_DISABLE", "1") in report.settings
        seen = report.networks.get("Socket") or _links_of(report, "NET/Socket")
        none = f"; no device found, {places(report.no_ib)}" if report.no_ib.count else ""
        pairs = f"{counted(sockets[0].pairs, 'pair')} of ranks" if sockets else "ranks"
        yield told(
            "sockets",
            f"{pairs} of different hosts",
            f"via NET/Socket, {places(seen)}{none}",
            row="sockets-between-hosts",
            more=" The log shows NCCL_IB_DISABLE=1." if off else "",
            change="unset NCCL_IB_DISABLE" if off else "",
        )


def _sockets_alone(report: LogReport) -> Iterator[Finding]:
    """Sockets where the text does not tell whether the job has several hosts."""
    is_told = report.communicators or set(report.networks) - {"Socket"}
    seen = [*report.networks.values(), *report.nics.values()]
    if is_told or not seen or any(kind != "Socket" for kind, _ in report.nics):
        return
    hosts = sorted({host for one in seen for host in one.hosts})
    yield told(
        "sockets",
        f"hosts {some_of(hosts)}" if len(hosts) > 1 else "the network, if there are several hosts",
        f"Socket, {places(seen[0])}",
        "risk" if len(hosts) > 1 else "remark",
    )


def _unfinished(report: LogReport) -> Iterator[Finding]:
    """A log that ends while ranks are joined, or look for each other."""
    seen = _links_of(report)
    is_begun = report.versions and report.interfaces
    if is_begun and not (report.networks or report.communicators):
        found = places(merged([*report.interfaces.values()]))
        yield told("start-unfinished", "the job", f"{found}: ranks are to find each other; no more")
    if seen.count and not any(one.complete or one.calls for one in report.communicators):
        yield told(
            "start-unfinished",
            "the communicator",
            f"{places(seen)}: ranks are joined; no line says Init COMPLETE",
        )


def _peers(report: LogReport) -> Iterator[Finding]:
    """GPUs that are connected, and do not reach each other."""
    for link, seen in report.p2p_off.items():
        yield told(
            "peer-access",
            _hosts(seen, len(report.hosts)),
            f"{places(seen)}: peer access is disabled between {link} GPUs",
        )


def _gpudirect(report: LogReport) -> Iterator[Finding]:
    rows = [row for row in joined(report.communicators) if row.where == BETWEEN]
    without = [row for row in rows if row.kind == "NET" and not row.has_gdr]
    without = [row for row in without if row.transport != "NET/Socket"]
    disabled = [
        (what, seen)
        for (state, what), seen in report.gdr.items()
        if state == "Disabled" and "Socket" not in what.partition(" ")[0]
    ]
    is_limited = "NCCL_NET_GDR_LEVEL" in {name for name, _ in report.settings}
    if is_limited and "Disabled" in report.gdr_of_gpus:
        disabled.append(("GPUs beyond NCCL_NET_GDR_LEVEL", report.gdr_of_gpus["Disabled"]))
    elif "Enabled" not in report.gdr_of_gpus:  # far NICs are off wherever near ones are there
        disabled += [("all GPUs, by distance", seen) for seen in report.gdr_of_gpus.values()]
    if not without and not disabled:
        return
    seen = disabled[0][1] if disabled else Seen()
    where = f"{disabled[0][0]}: disabled, {places(seen)}" if disabled else ""
    if without:
        pairs = sum(row.pairs for row in without)
        where = f"{pairs} pairs via {without[0].transport} without GDRDMA; {where}".rstrip("; ")
    elif any(row.has_gdr for row in rows) or report.is_of_one_host:
        return  # of some NIC that no channel takes
    is_off = bool(disabled) and not any(state == "Enabled" for state, _ in report.gdr)
    numbers = [one.removeprefix("NCCL ") for one in report.versions if one.startswith("NCCL ")]
    is_old = is_off and any(version_of(one) <= _LAST_WITHOUT_PEERMEM for one in numbers)
    is_rccl = any(name.startswith("RCCL") for name in report.versions)
    yield told(
        "gpudirect",
        "transfers between hosts" + ("" if _has_several_hosts(report) else ", if there are any"),
        where,
        row="gpudirect" + ("-rccl" if is_rccl else "-old" if is_old else ""),
    )


def _plugins(report: LogReport) -> Iterator[Finding]:
    for (kind, why), seen in report.failed_plugins.items():
        yield told("plugin", f"plug-in of {kind or 'NCCL'}", f"{why[:_MOST_SHOWN]}, {places(seen)}")
    for (kind, name), seen in report.nics.items():
        if kind == "Libfabric" and name.startswith(("tcp", "sockets", "udp")):
            yield told("libfabric-sockets", f"provider {name}", places(seen))


def _interfaces(report: LogReport) -> Iterator[Finding]:
    names: dict[str, Seen] = dict(report.interfaces)
    for (kind, text), seen in report.nics.items():
        if kind == "Socket":
            names |= {word.rpartition("]")[2]: seen for word in text.split()}
    goes_out = any(v.startswith("NET") for one in report.communicators for *_, v in one.links)
    is_several = _has_several_hosts(report) or (goes_out and not report.is_of_one_host)
    wrong = {
        name: seen
        for name, seen in names.items()
        if name.startswith(_WRONG_INTERFACES) or (name == "lo" and not report.is_of_one_host)
    }
    if wrong:
        yield told(
            "interface",
            some_of(wrong, 4),
            f"interface {some_of(wrong, 4)}, {places(next(iter(wrong.values())))}",
            "fault"
            if is_several
            else "risk"
            if report.warnings and {*wrong} != {"lo"}
            else "remark",
        )


def _rings(report: LogReport) -> Iterator[Finding]:
    for known in report.communicators:
        for order, count in orders(known):
            found = crossings(known, order, report.numa)
            if found is not None and found[0] > found[1]:
                ranks = " ".join(map(str, order[:16]))
                yield told(
                    "ring-order",
                    f"a ring of {known.nranks} ranks, {count} channels",
                    f"{ranks}: {found[0]} steps go from one NUMA node to another, {found[1]} must;"
                    f" {places(known.seen)}",
                )
                break


def _channels(report: LogReport) -> Iterator[Finding]:
    limited = [
        f"{name}={value}"
        for name, value in report.settings
        if name in ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS") and value.isdigit()
    ]
    for known in report.communicators:
        if (
            known.channels is not None
            and known.channels < _FEW_CHANNELS
            and known.nranks > 1
            and report.links
            and any(via.startswith("P2P") for _, _, via in known.links)
        ):
            yield told(
                "channels",
                f"{known.nranks} ranks",
                f"{known.channels} channels, {places(known.seen)}"
                + (f"; {', '.join(limited)}" if limited else ""),
                change=f"unset {limited[0].partition('=')[0]}" if limited else "",
            )
            return


def _settings(report: LogReport) -> Iterable[Finding]:
    effective: dict[str, tuple[str, Seen]] = {}
    for (name, value), seen in report.settings.items():
        known = effective.setdefault(name, (value, seen))
        if known[0] != value:
            yield told(
                "settings-differ",
                name,
                f"{known[0] or 'empty'} ({places(known[1])}) and {value or 'empty'}"
                f" ({places(seen)})",
            )
    version = next(iter(report.versions), "")
    number = version.partition(" ")[2].partition("+")[0] if version.startswith("NCCL") else None
    settings = [
        Setting(name, value)
        for name, (value, _) in effective.items()
        if name.startswith("NCCL_") and name not in _EXPECTED_SETTINGS
    ]
    covered = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"} if any(_paths_in_hosts(report)) else set()
    covered |= {"NCCL_NET", "NCCL_IB_DISABLE"} if any(_networks(report)) else set()
    several = len(report.hosts) > 1
    for problem in judge(settings, number or None, ["several hosts"] if several else []):
        if problem.kind == "unknown" or set(problem.names) <= covered:
            continue  # NCCL printed that it read it
        place = places(effective[problem.names[0]][1]) if problem.names[0] in effective else ""
        yield log_finding(
            "settings",
            " and ".join(problem.names),
            f"{problem.seen}; {place}".rstrip("; "),
            problem.why,
            problem.fix.rstrip("."),
            _SEVERITY[problem.severity],
        )


def _gone(report: LogReport) -> Iterator[Finding]:
    if report.gone and not report.warnings and not report.is_ended:
        text, seen = next(iter(report.gone.items()))
        yield told(
            "remote-exit",
            _hosts(seen, len(report.hosts)),
            f"{places(seen)}: {text[:_MOST_SHOWN]}",
            is_general=True,
        )
