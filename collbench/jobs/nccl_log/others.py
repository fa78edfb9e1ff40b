"""Lines that are not NCCL's: of RAS, of PyTorch, of launchers and of the kernel. What names an
error and is known to nobody is kept, so that no log that has such a line passes for a good one.
"""

import functools
import re

from collbench.core import catalog
from collbench.jobs.log_errors import (
    IB_COMPLETION,
    NAMES_ERROR,
    XID,
    Reader,
    known_error,
    names_error,
    without_harmless,
    words_of,
)
from collbench.jobs.nccl_log.model import LoggedWarning, LogReport
from collbench.jobs.nccl_log.places import LogPlace, Seen, without_numbers
from collbench.jobs.nccl_log.ras import RAS_WORDS
from collbench.jobs.nccl_log.state import STATE_WORDS, StateReader
from collbench.jobs.nccl_log.torch_text import TORCH_WORDS

_MOST_KEPT = 10_000
_MOST_EXAMPLES = 200
_MOST_TEXT = 1500  # characters kept of a line
_MOST_CONTINUED = 8  # lines
_RULE = "-" * 74  # around what Open MPI and PRRTE say
_MOST_IN_BLOCK = 40  # lines
_MOST_SHAPES = 50_000  # of lines that say nothing
_MOST_LOOKED_AT = 2000  # characters of a line
_LONGEST_SHAPE = 500  # bytes
# with other numbers it says something else
_BY_NUMBER = re.compile(
    rb"signal|exit|code|status|error|fail|xid|(?<!de)fault|time.?out|edac", re.IGNORECASE
)
_DIGITS = b"0123456789"
_ZERO = re.compile(r"(?<![\w.])0(?![\w.])")
# one of these is in every line that a table, RAS, PyTorch or a tool may have
_WORDS = (
    "rror", "RROR", "ail", "FAIL", "bort", "atal", "annot", "nable", "imed out", "imeout",
    "illed", "xception", "Traceback", "efused", "nreach", "fault", "SIG", "exit", "CANCELL",
    "Evict", "oom", "OOM", "resol", "ot found", "No such", "denied", "Xid", "lost", "DUE TO",
    "slots", "fallen", "of memory", "openib", "as root", "process_group", "as device", "No dev",
    "ould", "WARN", "isabled for", "left on", "resses", "stuck", "tuck for", "Could", "open files",
    "ompletion", "ymbol", "returned", "MPI_", "ACSCtl", "disagrees", "neither AF_",
    "Unknown sym", "currently down", 'File "', "ontroller", "ridge", "ccelerator", "WC_SUCC",
    *TORCH_WORDS, *RAS_WORDS, *STATE_WORDS,
)  # fmt: skip
# names that only stand in errors
_NAMED = re.compile(
    r"cuda[A-Z]\w+ returned [1-9]|(?:cuda|hip)Error(?!NotReady)[A-Z]|"
    r"CUDA_ERROR_(?!NOT_READY)|undefined symbol|neither AF_INET"
)
# of NCCL before 2.4, whose name is not in the line
_WARNED = re.compile(
    r"[\w/]\.(?:cc|cu|h):\d+ WARN |Got completion .{0,60}(?:error|status)|== IBV_WC_SUCCESS"
)
_CAUSED_BY = re.compile(r"caused by previous Xid (?P<code>\d{1,5})\b")  # the first may be cut off
_GDR_OFF = re.compile(r"NET/(?P<net>\w+) ?: GPU Direct RDMA Disabled for HCA \d+ '(?P<name>\w+)'")
# a device of lspci, and what belongs to it
_LISTED = re.compile(
    r"\W*((?:[\da-f]{4,8}:)?[\da-f]{2}:[\da-f]{2}\.[0-7])"
    r" .{0,60}?(?:[Cc]ontroller|ccelerator|[Bb](ridge))"
)
_OF_LISTED = re.compile(r"\A\W*(?:LnkSta|ACSCtl):")
_OF_TRACE = re.compile(r"File \"[^\"]+\", line \d|Traceback \(most|\A\W*[\^~]{3,}\W*\Z")
_CRASH = re.compile(r"\bsignal\b|Segmentation|SIG(?:SEGV|ABRT|BUS|FPE|ILL)|==== backtrace", re.I)
_MOST_FRAMES = 40  # lines behind a crash in which its stack may begin
# a frame of a stack that has a name, in the forms of glibc, UCX, Open MPI, gdb, gfortran and Python
_NATIVE_FRAME = re.compile(
    r"(?P<library>[\w.+-]+\.so[\w.]*)\((?P<name>\w+)\+0x|"
    r"\b\d+ +0x[0-9a-f]+ (?:in )?(?P<bare>\w+)(?: ?\(|\s*\Z)|"
    r"File \"(?P<file>[^\"]+)\", line \d+ in (?P<call>\w+)"
)
# frames of what caught the signal, or sent it on the program's word
_OF_HANDLER = re.compile(
    r"lib(?:c|pthread|ucs|stdc\+\+)[.-]|\bucs_|handle|signal|funlockfile|nss_database|"
    r"\b_*(?:raise|abort|g?killpg|assert\w*)\b"
)
_FRAME = re.compile(r"File \"[^\"]+\", line \d+")
# of an error in a file that names none in stronger words
_WEAK = re.compile(
    r"\A(?!.*(?:ignor|optional)).*\b(?:(?<!no )invalid|is listening yet|mismatch|reject|missing|"
    r"unexpected|no such|not (?:found|match|supported|available|allowed|enough|valid)|does ?n.t|"
    r"does not|inactive|must be|WARN(?:ING)?)",
    re.IGNORECASE,
)
_MOST_WEAK = 3
_WEAK_LINES = 3  # from an error in which weaker words are of the same message
_WRAPPED = re.compile(r" ?[a-z]")  # the rest of a line that a terminal broke
_RETRIED = re.compile(r"(?:refused|timed out|o route to host|unreachable), retry")
_BENIGN = re.compile(
    r"Failed to find|Could not find:|dlv?sym|GPU Direct|plugin|conf\b", re.IGNORECASE
)


class OtherLines:
    """Feed it the lines in which no header of NCCL is."""

    def __init__(self, report: LogReport) -> None:
        self._report = report
        self._known: dict[str, Reader | None] = {}
        self.state = StateReader(report)
        self._open: tuple[str, int] | None = None  # an error that ends in a colon, and lines left
        self._source = 0  # the line that may be a source behind its place in a trace
        self._weak: list[tuple[str, LogPlace]] = []  # lines that may name an error
        self._block: list[tuple[str, LogPlace]] | None = None  # a message of Open MPI between rules
        self._quiet: set[bytes] = set()  # lines without digits that say nothing
        self._shape = b""
        self._device = "a device"  # of lspci, whose lines these are
        self._frames = 0  # lines left in which the stack of a crash may begin
        self._is_current = False  # of the stacks that Python prints, the crashed thread's

    def is_awake(self, raw: str) -> bool:
        """Whether a line may say something; keep it fast: logs repeat a few shapes of lines."""
        report = self._report
        if report.ras.is_reading or report.torch.is_reading or self.state.is_reading:
            return True
        if self._open is not None or self._block is not None or self._frames:
            return True
        shape = raw.encode("utf-8", "replace").translate(None, _DIGITS)
        if shape in self._quiet:
            return False
        if _RULE in raw[:100]:
            return True
        self._shape = shape
        is_rare = len(self._quiet) < _MOST_SHAPES
        small = raw[:_MOST_LOOKED_AT].lower() if is_rare else ""
        for text, words in ((raw, _WORDS), (small, words_of("programs"))):
            for word in words:
                if word in text:
                    return True
        self._silence()
        return False

    def _silence(self) -> None:
        """Never again look at a line as the last one, unless its numbers may say more."""
        is_short = len(self._quiet) < _MOST_SHAPES and len(self._shape) < _LONGEST_SHAPE
        if is_short and not _BY_NUMBER.search(self._shape):
            self._quiet.add(self._shape)

    def take(self, line: str, place: LogPlace) -> None:
        """Read a line, or at its end a block of them, which is one message."""
        is_rule, block = line.strip() == _RULE, self._block
        if not block and is_rule:
            self._block = []
        elif block is None:
            self._take(line, place)
        else:
            block.append((line, place))
            if is_rule:
                self._block = [(" ".join(text.strip() for text, _ in block[:-1]), block[0][1])]
            if is_rule or len(block) > _MOST_IN_BLOCK:
                self._end_block()

    def _end_block(self) -> None:
        block, self._block = self._block or [], None
        for line, place in block:
            self._take(line, place)

    def _take(self, line: str, place: LogPlace) -> None:
        report = self._report
        if self._frames:
            self._frames -= 1
            if "hread " in line:
                self._is_current = "Current thread" in line
            frame = _NATIVE_FRAME.search(line)
            is_other = frame and frame["call"] and not self._is_current
            if frame and not is_other and not _OF_HANDLER.search(frame[0]):
                name, where = frame["name"] or frame["call"], frame["library"] or frame["file"]
                name = f"{name} of {where}" if name else frame["bare"]
                report.crashed_in, self._frames = f"{name}, {place}", 0
        if self._continues(line, place):
            return
        if report.ras.is_awake(line) and report.ras.take(line, place):
            return
        is_known = report.torch.is_awake(line) and report.torch.take(line, place)
        is_known |= self.state.is_awake(line) and self.state.take(line, place)
        if "Xid" in line and (xid := XID.search(line)):
            text, cause = line[xid.start() :][:200], _CAUSED_BY.search(line)
            for code in [int(one["code"]) for one in (xid, cause) if one]:
                report.xids.setdefault(code, Seen()).add(
                    place, xid["bus"] or xid["device"] or "a GPU"
                )
                if "onfatal" in report.xid_texts.setdefault(code, text):
                    report.xid_texts[code] = text
            return
        if "GPU Direct" in line and (off := _GDR_OFF.search(line)):
            report.gdr.setdefault(("Disabled", f"{off['net']} {off['name']}"), Seen()).add(place)
            report.told += 1
            return
        if device := _LISTED.match(line):
            self._device = f"{'bridge' if device[2] else 'device'} {device[1]}"
            return
        if _FRAME.search(line):
            self._source = place.line + 1
            return
        line = _OF_LISTED.sub(rf"{self._device}: \g<0>", line)
        if self._is_program_error(line, place) or is_known or place.line == self._source:
            return
        if names_error(line):
            self.keep_unread(line, place)
            return
        if (
            not NAMES_ERROR.search(line)
            and len(self._weak) < _MOST_WEAK
            and _WEAK.search(without_harmless(line))
        ):
            self._weak.append((line, place))
        self._silence()

    def take_joined(self, text: str, place: LogPlace) -> None:
        """Read a message of NCCL behind which words of a program may stand."""
        if not _BENIGN.search(text):
            self._is_program_error(text, place)

    def end(self, *, is_empty: bool) -> None:
        """The end of a file. is_empty: nothing in it was of use, so that weaker words count."""
        self._end_block()
        if self._open is not None and self._open[1] == _MOST_CONTINUED:
            text, seen = self._report.unread_errors[self._open[0]]
            self._report.unread_errors[self._open[0]] = f"{text} [the text ends there]", seen
        self._open = None
        errors = [at for _, seen in self._report.unread_errors.values() for at in seen.places]
        for line, place in self._weak:
            near = (at for at in errors if at.file == place.file)
            if is_empty or any(abs(at.line - place.line) <= _WEAK_LINES for at in near):
                self.keep_unread(line, place)
        self._weak.clear()
        self._device = "a device"

    def _continues(self, line: str, place: LogPlace) -> bool:
        """Whether a line is of the list or the text that an error's last line announced."""
        if self._open is None:
            return False
        (key, left), self._open = self._open, None
        is_trace = place.line == self._source or _OF_TRACE.search(line)
        if left and (is_trace or not line.strip()):
            self._open = (key, left)
            return False
        if not left and not _WRAPPED.match(line):
            return False
        if names_error(line) or _reader_of(line) is not None:
            if left == _MOST_CONTINUED:  # it only announced this one
                del self._report.unread_errors[key]
            return False
        text, seen = self._report.unread_errors[key]
        self._report.unread_errors[key] = f"{text} {line.strip()}"[:_MOST_TEXT], seen
        self._open = (key, left - 1) if left > 1 else None
        return True

    def _is_program_error(self, line: str, place: LogPlace) -> bool:
        """Whether a program's or a launcher's words are known; kept as a warning."""
        key = without_numbers(_ZERO.sub("zero", line))[:160]  # 0 errors are another line than 3
        if key not in self._known and len(self._known) < _MOST_KEPT:
            self._known[key] = _reader_of(line)
        reader = self._known.get(key)
        if reader is None:
            return False
        warnings = self._report.warnings
        if key in warnings or len(warnings) < _MOST_KEPT:
            text = line.strip()[:_MOST_TEXT]
            warning = warnings.setdefault(key, LoggedWarning(text, "", reader=reader))
            warning.seen.add(place, line=line)
        if not self._report.crashed_in and _CRASH.search(line):
            self._frames = _MOST_FRAMES
        return True

    def keep_unread(self, line: str, place: LogPlace, host: str = "") -> None:
        """Keep a line that names an error and that nobody knows."""
        unread = self._report.unread_errors
        key = without_numbers(line)[:60]
        if key in unread or len(unread) < _MOST_EXAMPLES:
            seen = unread.setdefault(key, (line.strip()[:_MOST_TEXT], Seen()))[1]
            seen.add(place, host, line)
            if seen.count == 1:
                self._open = (key, _MOST_CONTINUED if line.rstrip().endswith(":") else 0)


@functools.cache
def _of_nccl() -> re.Pattern[str]:
    """NCCL's and CUDA's own words, in lines whose header is lost."""
    return re.compile("|".join(catalog.load("causes", "nccl")["marks"]))


def _reader_of(line: str) -> Reader | None:
    """In whose table a line is known; None if in none."""
    if known_error(line, "programs") is not None:
        return "programs"
    line = without_harmless(line)
    is_named = NAMES_ERROR.search(line) or _NAMED.search(line)
    is_told = _WARNED.search(line) or (_of_nccl().search(line) and is_named)
    is_known = IB_COMPLETION.search(line) or known_error(line) is not None
    return "nccl" if is_told and is_known else None


@functools.lru_cache(4096)  # ranks print the same
def is_info_error(text: str) -> bool:
    """Whether a line of NCCL at level INFO speaks of an error, other than of what is normal.

    >>> is_info_error("Call to ibv_reg_mr failed"), is_info_error("Failed to find symbol x")
    (True, False)
    """
    is_error = _RETRIED.search(text) is not None or names_error(text)
    return is_error and _BENIGN.search(text) is None
