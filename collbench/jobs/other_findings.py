"""What stands in a log beside NCCL's own warnings, as findings: what RAS, PyTorch, the kernel and
tools say, what NCCL says at level INFO, and what nobody understood.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from collbench.core.grouping import grouped
from collbench.core.text import counted, some_of
from collbench.doctor.check import Finding, Severity
from collbench.jobs.log_errors import (
    IB_COMPLETION,
    KnownError,
    NumberKind,
    cut_note,
    is_mild,
    known_error,
    numbered,
)
from collbench.jobs.log_finding import log_finding, places, shown, told, whose
from collbench.jobs.nccl_log.model import LoggedWarning, LogReport
from collbench.jobs.nccl_log.places import LogPlace
from collbench.jobs.nccl_log.state import known_state
from collbench.jobs.nccl_log.torch_text import UNNAMED, RecorderReport, Timeout
from collbench.jobs.said import own_words, said, says_why

_MOST_SHOWN = 300  # characters of a line
_NEAR_LINES = 10  # in which errors are of one message
_CAME = re.compile(r"world_size=(?P<world>\d{1,6}), worker_count=(?P<count>\d{1,6})")
_GIVERS = {"sxids": "NVSwitch", "xids": "driver"}
_ASSUMED_GBS = 12.0  # by NCCL for a link of PCIe whose speed the system does not tell

_FIRST = (
    " It is the first of the group: where all wait in it, GPUs of one host may not reach each other"
    " over PCIe for an IOMMU or ACS; NCCL_P2P_DISABLE=1 for one run tells (NVIDIA/nccl#667)."
)


def other_findings(report: LogReport, *, has_more: bool) -> Iterator[Finding]:
    """What was found. has_more: whether other rules found something."""
    yield from _xids(report)
    yield from _states(report)
    yield from _ras(report)
    yield from _recorder(report)
    yield from _silent(report)
    yield from _unknown_speeds(report)
    yield from _mixed_buffers(report)
    yield from _hosts_apart(report)
    yield from _run_together(report)
    is_any = has_more or bool(report.xids or report.states or report.torch.timeouts)
    is_told = any(
        "peer" in one.text or not (is_bare(one) or _is_aside(one))
        for one in report.warnings.values()
    )
    if report.returned and not is_told and not _went_on(report):
        yield from _returned(report)
    if report.ras.is_ok and is_any:
        yield told("ras-ok", "RAS", f"{report.ras.first}: {'; '.join(report.ras.summary())}")


def _xids(report: LogReport) -> Iterator[Finding]:
    for code, seen in sorted(report.xids.items()):
        is_switch = report.xid_texts[code].startswith("SXid")
        kind: NumberKind = "sxids" if is_switch else "xids"
        known, word = numbered(kind).get(code), "SXid" if is_switch else "Xid"
        told_as = f"{known.name}; {known.why}" if known else f"an error of the {_GIVERS[kind]}"
        is_mild = "onfatal" in report.xid_texts[code]  # the line's own word, of NVLink's units
        buses = some_of(sorted(seen.hosts))
        yield log_finding(
            "xid",
            f"{word} {code} on {buses}",
            f"{places(seen)}: {report.xid_texts[code]}",
            f"{word} {code}: {told_as}.{cut_note(kind, code, report.xid_texts[code])}",
            known.change
            if known and not is_mild
            else f"look it up in NVIDIA's catalogue of {word} errors",
            "remark" if is_mild else known.severity if known else "risk",
        )


def _states(report: LogReport) -> Iterator[Finding]:
    groups = grouped((name, (text, seen)) for (name, text), seen in report.states.items())
    for name, found in groups.items():
        known = known_state(name)
        subject = some_of([text for text, _ in found], 4)
        where = places(found[0][1])
        yield log_finding(name, subject, where, f"{known.why}.", known.change, known.severity)


def _ras(report: LogReport) -> Iterator[Finding]:
    ras = report.ras
    where = f"RAS's report, {ras.first}" if ras.first else ""
    if ras.garbage:
        yield told("ras-garbage", "RAS", f"{where}: {some_of(ras.garbage)}")
    dead = ras.processes.get("DEAD", [])
    processes = [one for kind, some_ in ras.processes.items() if kind != "DEAD" for one in some_]
    for comm, members in (ras.missing or {"": processes}).items():
        # the report names processes first, and of communicators ranks alone
        named = [] if "process" in " ".join(members) else processes
        if members:
            yield told(
                "ras-missing",
                "; ".join(filter(None, (some_of(members), some_of(named)))),
                f"{where}: {f'communicator {comm}' if comm else 'a communicator'} is incomplete",
            )
    if lost := [*dead, *(one for one in ras.lost if not one.startswith(tuple(dead) or "\0"))]:
        yield told("ras-dead", some_of(lost), where)
    for comm, members in ras.errors.items():
        yield told(
            "ras-error",
            some_of(members),
            f"{where}: {f'communicator {comm}' if comm else 'the report'}",
        )
    for comm, states in ras.states.items():
        yield told("ras-states", some_of(states), f"{where}: communicator {comm}")


def _recorder(report: LogReport) -> Iterator[Finding]:
    """The report of the flight recorder's analyser."""
    for one in report.torch.reports[:20]:
        what, state = _collective(one), one.fields.get("collective state")
        seen = f"{one.place}: {what}" + (f"; its state is {state}" if state else "")
        if one.kind == "absent":
            ranks = [f"rank {rank}" for rank in one.missing]
            yield told("rank-behind", some_of(ranks) or "ranks that the report does not name", seen)
        elif one.kind in ("sizes", "wrong"):
            yield told("mismatched-collective", one.fields.get("error msg", what), seen)
        elif one.kind == "dumps":
            ranks = [f"rank {rank}" for rank in one.missing]
            yield told("rank-missing", some_of(ranks), f"{one.place}: their dumps are missing")
        else:
            yield told("recorder", what, str(one.place))


def _collective(one: RecorderReport) -> str:
    fields = one.fields
    parts = [
        f"collective {fields['collective']}" if "collective" in fields else "",
        f"sequence number {one.number}" if one.number else "",
        f"of group {fields['group info']}" if "group info" in fields else "",
    ]
    return ", ".join(filter(None, parts)) or "a collective"


def _silent(report: LogReport) -> Iterator[Finding]:
    """Ranks of which nothing stands in a text where others wait."""
    torch = report.torch
    world = max([*torch.ranks, -1]) + 1
    world = max([world, *(one.nranks for one in report.communicators)])
    for group, ranks in torch.by_group():
        numbers = [one.number for one in ranks.values() if one.number is not None]
        is_one = group == UNNAMED and not torch.is_of_several(ranks)
        is_all = "default" in group or is_one or group.partition(" ")[0] == "0"
        if not numbers or not is_all:
            continue
        number = max(numbers)
        late = [rank for rank, one in ranks.items() if _reached(one) < number]
        silent = [f"rank {rank}" for rank in range(min(world, 1 << 16)) if rank not in torch.ranks]
        waiting = [f"rank {rank}" for rank, one in sorted(ranks.items()) if _reached(one) >= number]
        texts = {one.text for one in ranks.values() if one.number == number and one.text}
        what = f"operation {number}" + (f" ({some_of(sorted(texts))})" if texts else "")
        where = next((str(one.place) for one in ranks.values() if one.place), "")
        first = _FIRST if number <= 1 else ""
        # of a text that is cut or has few ranks nothing follows
        if silent and not late and not report.cut and len(silent) <= len(waiting):
            yield told(
                "rank-silent",
                some_of(silent),
                f"{where}: at {what} wait {some_of(waiting)}; of {some_of(silent)} there is no"
                " line",
                more=first,
            )
        elif len(waiting) > 1 and len(texts) < 2 and not (late or silent or report.ras.missing):
            yield told(
                "stuck-collective",
                some_of(waiting),
                f"{where}: all that speak came to {what}, and it did not end",
                more=first,
            )


def _reached(one: Timeout) -> int:
    return max(one.enqueued or 0, one.number or 0)


def _unknown_speeds(report: LogReport) -> Iterator[Finding]:
    assumed = [text for text in report.max_bw if float(text) <= _ASSUMED_GBS]
    has_nvlink = bool(report.links) or (bool(report.max_bw) and not assumed)
    if not report.pci_unknown.count or (has_nvlink and not report.is_between_hosts):
        return  # what goes by NVLink is told
    said = f", maxBw {assumed[0]}" if assumed else ""
    subject = some_of(sorted(report.pci_unknown.hosts)) or "the machine"
    yield told("pci-speed", subject, f"{places(report.pci_unknown)}: no max_link_speed{said}")


def _mixed_buffers(report: LogReport) -> Iterator[Finding]:
    is_told = any("/dev/shm/nccl- (size" in one.text for one in report.warnings.values())
    if len(report.host_buffers) > 1 and not is_told:
        where = "; ".join(f"{kind} {places(seen)}" for kind, seen in report.host_buffers.items())
        yield told("cumem-mixed", "host memory between ranks", where)


def _hosts_apart(report: LogReport) -> Iterator[Finding]:
    """Hosts that take other networks or plug-ins than the rest."""
    plugins = {
        name: seen
        for (what, name), seen in report.plugins.items()
        if name.split(" ")[0] == "NET" or what == "used"
    }
    for what, facts in (("network", report.networks), ("plug-in of the network", plugins)):
        groups = list(facts.items())
        alone = [
            (name, seen)
            for name, seen in groups
            if seen.hosts
            and not any(seen.hosts & other.hosts for _, other in groups if other is not seen)
        ]
        if len(groups) > 1 and len(alone) == len(groups):
            of_hosts = [
                f"{name}: {some_of(sorted(seen.hosts))}, {places(seen)}" for name, seen in alone
            ]
            severity: Severity = "fault" if what == "network" else "risk"
            yield told("hosts-differ", f"the {what}", "; ".join(of_hosts), severity)


def _run_together(report: LogReport) -> Iterator[Finding]:
    if report.run_together.count:
        yield told(
            "lines-joined",
            "what stands between messages of NCCL",
            f"{places(report.run_together)}: several messages in one line",
        )


def known_of(warning: LoggedWarning) -> KnownError | None:
    """What a warning means; of a program's own words without a place in NCCL."""
    known = known_error(f"{warning.where} {warning.text}".lstrip(), warning.reader)
    came = _CAME.search(warning.text)
    if known is None or not came:
        return known
    world, count = int(came["world"]), int(came["count"])
    if count <= world:
        return replace(known, why=f"Only {count} of {world} came to the store. {known.why}")
    words = told("store-shared", "", "")
    why = f"{count} came to the store of a group of {world}: {words.why}"
    return replace(known, name=words.check, why=why, change=words.change, is_general=False)


def is_bare(warning: LoggedWarning) -> bool:
    """Whether a warning says that something failed, and not what."""
    known = known_of(warning)
    return known is not None and known.is_general and not IB_COMPLETION.search(warning.text)


def _is_aside(warning: LoggedWarning) -> bool:
    """Whether NCCL says in passing what is no fault."""
    known = known_of(warning)
    return warning.is_info and known is not None and known.severity != "fault"


def _went_on(report: LogReport) -> bool:
    """Whether NCCL found a network behind the last call that failed, so that it tried another."""
    last = max(place for seen in report.returned.values() for place in seen.places)
    return any(place > last for seen in report.networks.values() for place in seen.places)


def _returned(report: LogReport) -> Iterator[Finding]:
    text, seen = next(iter(report.returned.items()))
    family = known_error(report.first_returned)
    family = None if family is not None and family.is_general else family
    yield told(
        "call-failed",
        some_of(sorted(seen.hosts)) or "a rank",
        f"{places(seen)}: a call of NCCL returned {text}, first at {report.first_returned}",
        more=f" {family.why}." if family else "",
        change=f"the whole log, or NCCL_DEBUG=WARN; {family.change}" if family else "",
        is_general=family is None,
    )


def unread_error(report: LogReport, others: Sequence[Finding]) -> Iterator[Finding]:
    """Lines that name an error, of which nothing is known. The first, or one near it that says why,
    leads before what only calls itself a warning. Where no other finding has a cause, and something
    failed behind it or just before, it is the fault.
    """
    unread = sorted(
        report.unread_errors.values(), key=lambda one: (is_mild(one[0]), one[1].places[0])
    )
    if not unread:
        return
    first = unread[0][1].places[0]
    near = LogPlace(first.file, first.line + _NEAR_LINES)
    told = (one for one in unread if first <= one[1].places[0] <= near and not is_mild(one[0]))
    text, seen = next((one for one in told if says_why(one[0])), unread[0])
    unread.sort(key=lambda one: one[1] is not seen)
    behind = _NEAR_LINES if says_why(text) else 0
    place = seen.places[0]  # of the line that names the error
    leads = not is_mild(text) and any(
        place.file == end.file and place.line <= end.line + behind
        for end in (one.seen.places[0] for one in report.warnings.values() if is_bare(one))
    )
    is_known = any(one.severity == "fault" and not one.is_general for one in others)
    texts = [
        f"{places(at)}: {shown(one, _MOST_SHOWN if at is not seen else 2 * _MOST_SHOWN)}"
        for one, at in unread[:3]
    ]
    more = f"; and {counted(len(unread) - 3, 'other text')}" if len(unread) > 3 else ""
    words, to_do = own_words(text, is_known=False)
    if is_mild(text):
        words = f" It calls itself a warning, which may do no harm.{words}"
    who = said(text)
    yield log_finding(
        "unread-error",
        whose(seen),
        "; ".join(texts) + more,
        (f"These are words {who}. " if who else "")
        + "No table here has this error: what else stands here may be its consequence."
        + (words or " It names what failed, and no reason."),
        "read it; the first one most often matters" + (f": {to_do}" if to_do else ""),
        "fault" if leads and not is_known else "remark",
    )
