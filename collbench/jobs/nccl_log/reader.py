"""Reads a log once, line by line, and keeps what it says; memory grows with the job, and by
eight bytes for every operation that is logged.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial

from collbench.core.pasted import entry_of, plain, unparted
from collbench.jobs.log_errors import names_error
from collbench.jobs.nccl_log.communicators import Communicators
from collbench.jobs.nccl_log.facts import FACTS
from collbench.jobs.nccl_log.kinds import LineKind, kinds, match_of
from collbench.jobs.nccl_log.lines import (
    LONGEST,
    Headers,
    LogMessage,
    LogSource,
    is_joined,
    is_run_together,
    parts_of,
)
from collbench.jobs.nccl_log.model import (
    REDUCTIONS,
    ROOTED,
    LoggedCalls,
    LoggedWarning,
    LogReport,
    Signature,
)
from collbench.jobs.nccl_log.others import OtherLines, is_info_error
from collbench.jobs.nccl_log.packing import numbered
from collbench.jobs.nccl_log.places import LogPlace, Seen, without_numbers

_INFO = " NCCL INFO "
_MOST = 50_000  # of links of a communicator, of warnings, of settings: a log has far fewer
_MOST_SIGNATURES = 1_000_000
_MOST_EXAMPLES = 40
_P2P = ("Send", "Recv")
_ONE_TREE = re.compile(r"\[(\d+)\] [-\d/]+->(-?\d+)->(-?\d+)")
_CELL = re.compile(r"(-?[\d.]+)/ *(-?[\d.]+) \|")
# of a transfer that failed; warnings with another one are another warning
_STATUS = re.compile(r"(?:error |status=\D{0,40}?)(\d{1,3})\b")
_FOREIGN_VERSION = re.compile(r"\b([NR]CCL) version ?:? ?(\d[\w.+-]*)")
_ASSIGNED = re.compile(
    r"(?:\++ |export |declare -x |- )*(NCCL_[A-Z0-9_]{2,60})=[\"']?([^\s\"']{0,200})[\"']?\s*\Z"
)
_LAST_ERROR = "Last error:"  # of PyTorch, with NCCL's last warning in the next line
_LISTED = re.compile(r"\[\d{1,3}\]\S+:")  # one of NCCL's list of NICs
_PREFIX = re.compile(r"\A\s*(?:\[[^\]]{1,40}\]:? ?|\([^)]{1,60}\) )*")  # of torchrun, Ray
# what programs that use NCCL say when it fails
_FOREIGN_ERROR = re.compile(
    r"NCCL WARN |(?<!\b[nN]o )NCCL [eE]rror(?!s| (?:handling|check))|ncclUnhandledCudaError|"
    r"ncclSystemError|ncclInternalError|ncclInvalidUsage|"
    r"ncclInvalidArgument|ncclRemoteError|Watchdog caught collective operation timeout|"
    r"Test NCCL failure|NCCL communicator was aborted"
)
_WATCHDOG_CUT = re.compile(r"\[(?:E\w{0,20}|rank\d*\]?:?(?:\[E?\w{0,20})?)\s*\Z")
# kinds that say nothing by themselves, in which an error may stand
_SILENT = frozenset(
    ("ib_more", "ofi", "net_more", "memory", "init_more", "proxy", "p2p_more", "amd", "nvls",
     "bootstrap_more", "aborting", "diagnostics")
)  # fmt: skip
_WARNINGS = ("WARN", "ATTN", "DIAG")
_BAD_DIAGNOSIS = re.compile(
    r"\A(?!\[OK\]|===).*(?:mismatch|off median|only \d|fail|cannot|unable|timed out|missing|error|"
    r"differ|unavailable|returned [1-9])|\A\[(?:WARN|FAIL|ERROR)",
    re.IGNORECASE,
)


class LogReader:
    """Feed it the lines of one file after another; `report` is what was learned so far.

    >>> reader = LogReader()
    >>> reader.feed("a.log", ["n1:7:7 [0] NCCL INFO Using network IB", "step 1"])
    >>> list(reader.report.networks), reader.report.counters.nccl
    (['IB'], 1)
    """

    def __init__(self) -> None:
        self.report = LogReport()
        self._counters = self.report.counters
        self._communicators = Communicators(self.report.communicators)
        self._headers = Headers()
        self._others = OtherLines(self.report)
        self._file = ""
        self._line, self._last = 0, ""
        # operations whose lines differ from an earlier one in counter, buffers, count and stream
        self._alike: dict[tuple[str, str, str], tuple[LoggedCalls, tuple[int, int, int], bool]] = {}
        self._alike_key: tuple[str, str, str] | None = None
        self._cut: LogMessage | None = None  # the last message, if no kind said it
        self._is_last_error = self._is_announced = False  # NCCL's last warning may follow
        # numbers of signatures by their counts, by all else that they are
        self._numbers: dict[tuple[str | int, ...], dict[int, int]] = {}
        self._node: dict[LogSource, str] = {}
        self._table: dict[LogSource, list[str]] = {}
        self._handlers: dict[str, Callable[[LogMessage, re.Match[str], LogPlace], None]] = {
            name: partial(fact, self.report) for name, fact in FACTS.items()
        } | {
            name.removeprefix("_on_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("_on_")
        }
        teaches = {*self._handlers, *_SILENT, "error_at_info"}
        self._mute = {kind.name for kind in kinds()} - teaches

    def feed(self, name: str, lines: Iterable[str]) -> None:
        """Read one file."""
        self.report.files.append(name)
        self._file, self._cut = name, None
        self._alike.clear()  # of another file
        counters, size = self._counters, self.report.size
        before = counters.lines
        self._line, self._last = 0, ""
        try:
            self._take(unparted(numbered(lines)))
        finally:  # of a damaged archive what comes before is kept
            counters.lines = before + self._line
        is_cut = self._headers.is_beginning(self._last) or _WATCHDOG_CUT.match(self._last)
        if self._cut is not None or is_cut:
            self.report.cut.add(name)
        self._others.end(is_empty=size == self.report.size and not self.report.unread_errors)

    def _take(self, lines: Iterable[tuple[int, str]]) -> None:
        """Read lines with their numbers; keep it fast for those of programs and of operations."""
        repeated, counters, mute = self._headers.repeated, self._counters, self._mute
        for number, line in lines:
            self._line, self._last = number, line
            if '{"' in line and (entry := entry_of(line)) is not None:
                self._take([(number, part) for part in entry.splitlines()])
            elif "\0" in line or ("\r" in line and line.find("\r", 0, -2) >= 0):
                self._take_apart(line)
            elif "CCL" not in line and "nccl" not in line:  # NCCL, RCCL
                is_other = self._others.is_awake(line)
                if self._cut is not None or self._is_last_error or is_other:
                    text = plain(line[:LONGEST])
                    is_taken = self._is_announced or _is_last_error(text)
                    if self._cut is not None or self._is_last_error:
                        self._continue(text)
                    if is_other and not is_taken:
                        self._others.take(text, LogPlace(self._file, number))
            elif " opCount " in line and self._is_alike(line):
                continue
            elif (one := repeated(line)) is not None:
                head, text = one
                found = match_of(text)
                if found is None:
                    self._hear(LogMessage(*head, text))
                    continue
                self._cut = None
                counters.nccl += 1
                counters.understood += 1
                if found[0].name not in mute:
                    self._learn(LogMessage(*head, text), *found)
            elif is_joined(line):
                self._take_apart(line)
            else:
                self._read(plain(line[:LONGEST]))

    def _take_apart(self, line: str) -> None:
        """Read a line that may be several."""
        parts = parts_of(line)
        if parts != [line]:
            self._take([(self._line, part) for part in parts])
        elif is_run_together(line):
            self._alike_key = None
            self.report.run_together.add(LogPlace(self._file, self._line))
            self._read(plain(line), is_followed=True)
        else:
            self._read(plain(line[:LONGEST]))

    def _is_alike(self, raw: str) -> bool:
        """Whether a line is of an operation like an earlier one, and was counted: logs have
        millions of them.
        """
        at = raw.find(_INFO)
        left, _, right = raw[at + len(_INFO) :].partition(" count ")
        op, _, rest = left.partition(": opCount ")
        count, _, right = right.partition(" ")
        what, _, stream = right.partition(" stream ")
        if at < 0 or not stream.startswith("0x") or raw.find(" NCCL ", at + 1) >= 0:
            self._alike_key = None
            return False
        key = self._alike_key = (raw[:at], op, what)
        found = self._alike.get(key)
        if found is None:
            return False
        calls, how, is_p2p = found
        try:
            opcount = int(rest[: rest.index(" ")][-8:], 16)
            elements = int(count) if len(count) < 19 and count.isdecimal() else -1
        except ValueError:
            return False
        if elements < 0:
            return False
        self._cut = None
        self._counters.nccl += 1
        self._counters.understood += 1
        number = self._number_of(op, elements, *how)
        if number is not None:
            calls.add(number, self._line, opcount, is_p2p=is_p2p)
        return True

    def _number_of(self, op: str, count: int, *how: int) -> int | None:
        """The number of a signature; None if there are too many."""
        numbers, signatures = self._numbers.setdefault((op, *how), {}), self.report.signatures
        number = numbers.get(count)
        if number is None and len(signatures) < _MOST_SIGNATURES:
            number = numbers[count] = len(signatures)
            signatures.append(Signature(op, count, *how))
        return number

    def finish(self) -> LogReport:
        """All that was learned."""
        self._communicators.finish()
        self.report.ras.finish()
        self._others.state.finish()
        return self.report

    def _read(self, line: str, *, is_followed: bool = False) -> None:
        """Read a line that may be NCCL's. is_followed: others may stand behind its messages."""
        is_any = False
        for message in self._headers.messages(line):
            is_any = True
            self._hear(message)
            if is_followed and message.level not in _WARNINGS:
                self._others.take_joined(message.text, LogPlace(self._file, self._line))
        if not is_any:
            is_taken = self._is_announced
            if is_taken or (self._cut is not None and " NCCL " not in line):
                self._continue(line)
            if not is_taken:
                self._foreign(line)

    def _hear(self, message: LogMessage) -> None:
        self._counters.nccl += 1
        self._cut = None
        if not self._understand(message):
            self._cut = message
            self._keep_unknown(message)

    def _continue(self, line: str) -> None:
        """A line without a header, behind a message that no kind said, perhaps its end; or behind
        an error of a program, whose next lines may have NCCL's last warning.
        """
        if self._is_last_error:
            self._is_last_error = _is_last_error(line)
            if not self._is_last_error and self._is_announced:
                self._add_warning(_PREFIX.sub("", line).strip(), line=line)
            self._is_announced = self._is_last_error
            return
        cut, self._cut = self._cut, None
        if cut is None or not line or cut.level == "WARN":
            return
        is_listed, is_known = _LISTED.match(line) is not None, match_of(cut.text) is not None
        if is_known and not is_listed:
            return
        for joint in (" ",) if is_listed else ("", " "):
            whole = cut._replace(text=cut.text + joint + line)
            if self._understand(whole):
                self._counters.joined += not is_known
                self._counters.understood -= is_known
                self._forget_unknown(cut)
                self._cut = whole if is_listed else None  # more of the list may come
                return

    def _understand(self, message: LogMessage) -> bool:
        # a line of NCCL's own diagnostics may say that all is well, or how they went
        is_bad = message.level != "DIAG" or _BAD_DIAGNOSIS.search(message.text)
        if message.level in _WARNINGS and is_bad:
            text = f"NCCL DIAG {message.text}" if message.level == "DIAG" else message.text
            self._add_warning(text, message.where, message.source.host)
            self._counters.understood += 1
            return True
        found = match_of(message.text)
        if found is None:
            # at level TRACE there are formats of developers, which only they need
            is_skipped = not message.text.strip() or message.level == "TRACE"
            self._counters.understood += is_skipped
            return is_skipped
        self._counters.understood += 1
        self._learn(message, *found)
        return True

    def _learn(self, message: LogMessage, kind: LineKind, match: re.Match[str]) -> None:
        """What a message of a kind says."""
        name = kind.name
        if name == "error_at_info" or (name in _SILENT and is_info_error(message.text)):
            self._add_warning(message.text, "", message.source.host, is_info=True)
        handler = self._handlers.get(name)
        if handler is not None:
            handler(message, match, LogPlace(self._file, self._line))

    def _keep_unknown(self, message: LogMessage) -> None:
        unknown = self._counters.unknown
        key = without_numbers(message.text[:40])
        if key in unknown or len(unknown) < _MOST_EXAMPLES:
            _, seen = unknown.setdefault(key, (message.text[:200], Seen()))
            seen.add(LogPlace(self._file, self._line), message.source.host)
        if names_error(message.text):
            place = LogPlace(self._file, self._line)
            self._others.keep_unread(message.text, place, message.source.host)

    def _forget_unknown(self, message: LogMessage) -> None:
        unknown = self._counters.unknown
        key = without_numbers(message.text[:40])
        if key in unknown:
            unknown[key][1].count -= 1
            if not unknown[key][1].count:
                del unknown[key]

    def _add_warning(
        self, text: str, where: str = "", host: str = "", *, is_info: bool = False, line: str = ""
    ) -> None:
        warnings = self.report.warnings
        status = _STATUS.search(text)
        key = without_numbers(text) + (status[1] if status else "")
        if key in warnings or len(warnings) < _MOST:
            warning = warnings.setdefault(key, LoggedWarning(text[:500], where, is_info=is_info))
            warning.is_info &= is_info
            warning.seen.add(LogPlace(self._file, self._line), host, line)

    def _foreign(self, line: str) -> None:
        """A line of the program that uses NCCL, or NCCL's own without a header."""
        if match := _FOREIGN_VERSION.search(line):
            self._version(match[1], match[2], "")
        place = LogPlace(self._file, self._line)
        if match := _ASSIGNED.match(line):  # by a script, or in a list of the environment
            self.report.settings.setdefault((match[1], match[2]), Seen()).add(place)
            self.report.told += 1
            return
        ras = self.report.ras
        if ras.is_awake(line) and ras.take(line, place):
            return
        if (match := _FOREIGN_ERROR.search(line)) and not line.lstrip().startswith("raise "):
            self.report.torch.take(line, place)
            self._add_warning(line[max(0, match.start() - 100) :].strip(), line=line)
            self._is_last_error = True
        elif self._others.is_awake(line):
            self._others.take(line, place)

    def _version(self, library: str, version: str, host: str) -> None:
        name = f"{library} {version.rstrip('.-+')}"
        if not host:  # programs say it without what NCCL says of CUDA
            name = next((one for one in self.report.versions if one.startswith(f"{name}+")), name)
        seen = self.report.versions.setdefault(name, Seen())
        seen.add(LogPlace(self._file, self._line), host)

    def _on_init_start(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        self._alike.clear()
        self._communicators.start(message, match, place)

    def _on_init_complete(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        self._alike.clear()
        self._communicators.complete(message, match, place)

    def _on_destroyed(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        self._alike.clear()
        self._communicators.drop(message.source, match["comm"])
        self.report.is_ended |= "Destroy" in message.text

    def _on_nodes(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        known = self._communicators.of_pointer(message.source, match["comm"])
        if known is not None:
            known.nodes = int(match["nodes"])
        else:
            self.report.nodes = max(self.report.nodes, int(match["nodes"]))

    def _on_channels(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        known = self._communicators.joining(message.source)
        known.channels, known.p2p_channels = int(match["coll"]), int(match["p2p"])

    def _on_transport(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        source, pointer, of = message.source, match["comm"], self._communicators
        known = (of.of_pointer(source, pointer) if pointer else None) or of.joining(source)
        src, dst, via, channel = match.group("src", "dst", "via", "channel")
        key = (int(src), int(dst), via)
        if key in known.links or len(known.links) < _MOST:
            known.links[key] = known.links.get(key, 0) | 1 << min(int(channel), 1023)
        if (seen := known.link_places.get(via)) is None:  # setdefault makes one for every line
            seen = known.link_places[via] = Seen()
        seen.add(place, source.host)

    def _on_channel_ring(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        known = self._communicators.joining(message.source)
        known.rings[int(match["channel"])] = tuple(map(int, match["ring"].split()))

    def _on_trees(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        known = self._communicators.joining(message.source)
        for channel, rank, up in _ONE_TREE.findall(match["trees"]):
            known.trees.setdefault(int(channel), {})[int(rank)] = int(up)

    def _on_numa(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        self._node[message.source] = match["numa"]

    def _on_device(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        if match["what"] == "GPU" and match["more"] == ")" and message.source in self._node:
            key = (message.source.host, match["id"].lower())
            self.report.numa[key] = self._node[message.source]
        elif match["link"] == "NVL" or match["link"].startswith("XGMI"):
            link = f"{match['link']} {match['bw']}"
            self.report.links.setdefault(link, Seen()).add(place, message.source.host)

    def _on_version(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        if match["version"]:
            self._version(match["library"], match["version"], message.source.host)

    def _on_tuning_head(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        cells = [cell.strip() for cell in match["cells"].split("|") if cell.strip()]
        title = message.text.strip()
        if title.startswith("Latency"):
            self._table[message.source] = [
                cell.replace("/ ", "/").replace(" ", "") for cell in cells
            ]
        elif title.startswith("Algorithm"):
            self._table[message.source] = [
                f"{algo}/{proto}" for algo in cells for proto in ("LL", "LL128", "Simple")
            ]

    def _on_tuning_row(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        heads = self._table.get(message.source, ())
        for head, (latency, rate) in zip(heads, _CELL.findall(match["cells"]), strict=False):
            algo, _, proto = head.partition("/")
            values = (_number(latency), _number(rate))
            if values[1] > 0:
                self.report.tuning.setdefault((match["op"], algo, proto), values)

    def _on_operation(self, message: LogMessage, match: re.Match[str], place: LogPlace) -> None:
        op, opcount, count, dtype, redop, root, pointer, nranks = match.groups()
        known, member = self._communicators.calling(message.source, pointer, int(nranks), place)
        calls = known.calls.get(member)
        if calls is None:
            calls = known.calls[member] = LoggedCalls()
        if not calls.files or calls.files[-1][1] != place.file:
            calls.files.append((len(calls.lines), place.file))
        how = (
            int(dtype[:9]),
            int(redop[:9]) if op in REDUCTIONS else 0,
            int(root[:9]) if op in ROOTED else 0,  # of others it means nothing
        )
        number = self._number_of(op, int(count[:18]), *how)
        if number is None:
            return
        calls.add(number, place.line, int(opcount[-8:], 16), is_p2p=op in _P2P)
        if self._alike_key is not None:
            if len(self._alike) >= _MOST:
                self._alike.clear()
            self._alike[self._alike_key] = calls, how, op in _P2P
            self._alike_key = None


def _is_last_error(line: str) -> bool:
    return line.rstrip().endswith(_LAST_ERROR)


def _number(text: str) -> float:
    """A number of a table, 0 if it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0
