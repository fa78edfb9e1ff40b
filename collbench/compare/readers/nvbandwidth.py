"""The text of nvbandwidth: for each test a line "Running ...", and one matrix or several with their
descriptions. What they mean is in nvbandwidth_matrix. CUDA's sample bandwidthTest prints rates of
the same kinds: of one GPU, with the host and inside it.
"""

import re
from dataclasses import dataclass, field, replace

from collbench.compare.readers.foreign import ForeignRemarks
from collbench.compare.readers.log_lines import Line, log_lines
from collbench.compare.readers.nvbandwidth_matrix import WITH_ROWS, Host, Matrix, rows_of
from collbench.core.record import Record

TOOL = "nvbandwidth"
_TEST = r"(?:multinode_)?(?:host|device|all|one|multicast|bisect)_\w{1,80}"
_SAMPLE = re.compile(r"(Host to Device|Device to (?:Host|Device)) Bandwidth, \d{1,4} Device")
HEADING = re.compile(
    rf"nvbandwidth Version:|Running {_TEST}\.|\[CUDA Bandwidth Test|{_SAMPLE.pattern}"
)
is_mine = HEADING.search
_VERSION = re.compile(r"nvbandwidth Version:\s*v?(\S{1,30})")
_RUNNING = re.compile(rf"(?:Running|Waiving) ({_TEST})\.")
_DESCRIPTION = re.compile(r"(?:memcpy|memory latency|Device to Device|multicast|Bisect)\s.{0,150}")
_DRIVER = re.compile(r"Driver Version:\s*(\S{1,30})")
_DEVICE = re.compile(
    r"(?:Device (\d{1,5})|Process \d{1,5} \(\S{1,200}\): device \d{1,5}):\s*(.{1,99})"
)
_PCI = re.compile(r"\s*\([0-9a-fA-F]{8}:[0-9a-fA-F:.]{2,12}\)\s*\Z")
_SAMPLE_HEADING = re.compile(r"Transfer Size \(Bytes\)\s+Bandwidth\(([MG])B/s\)")
_SAMPLE_GBS = {"M": 2**20 / 1e9, "G": 1.0}
_SAMPLE_ROW = re.compile(r"(\d{1,15})\s+(\d{1,9}\.\d{1,6})\Z")
_LABELS = re.compile(r"\d{1,5}(?:\s+\d{1,5})*\Z")
_ROW = re.compile(r"(\d{1,5})((?:\s+(?:N/A|\d{1,9}\.\d{1,6}))+)\Z")
_BEGUN_ROW = re.compile(r"\d{1,5}\s+(?:N/A|\d)")
_END = re.compile(r"(?:SUM|&&&& PERF)\s+(\S{1,120})\s")
_NOT_RUN = re.compile(r"(Waived|Waiving|Error|ERROR|Not Found|Invalid value)\b")
_WAIVED = "waived: the machine lacks what it needs, between GPUs access to each other's memory"
_MEANING = {
    "waived": _WAIVED,
    "waiving": _WAIVED,
    "invalid value": "its own check met wrong data, and it ended",
}
_LOOK = "nvidia-smi topo -p2p r, ACS, IOMMU and Xid in dmesg: collbench doctor"
_PROGRAM = re.compile(r"(?:^|[\s/])nvbandwidth(?=\s|\Z)")


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    parser = _MatrixParser()
    for line in log_lines(text, HEADING):
        parser.take(line)
    remarks = ForeignRemarks("line")
    for test, place in parser.not_run:
        remarks.add(f"{test} ({{at}})", place)
    empty = f"the output ends before a matrix, in line {text.count(chr(10)) + 1}"
    return rows_of(parser.found, name, remarks, empty, _LOOK if parser.not_run else WITH_ROWS)


@dataclass(slots=True, kw_only=True)
class _MatrixParser:
    """The matrices in a text, from its lines one by one."""

    found: list[tuple[Matrix, Host]] = field(default_factory=list)
    not_run: list[tuple[str, int]] = field(default_factory=list)
    host: Host = field(default_factory=Host)
    test: str = ""
    current: Matrix | None = None
    sample_gbs: float = 0.0

    def take(self, line: Line) -> None:
        """The next line."""
        text = line.text
        if version := _VERSION.match(text):
            self.current = None  # with or without its end
            self.host = Host(versions=f"nvbandwidth {version[1]}", command=self.host.command)
        elif running := _RUNNING.match(text):
            self.current = None
            self.test = running[1]
            self._take_of_test(line)
        elif (driver := _DRIVER.match(text)) and self.host.versions:
            self.host = replace(self.host, versions=f"{self.host.versions}; driver {driver[1]}")
        elif device := _DEVICE.match(text):
            named = _PCI.sub("", device[2]).strip()
            self.host = replace(self.host, devices=(*self.host.devices, named))
        elif _PROGRAM.search(text) and not self.test:
            self.host = Host(command=text)
        elif _PROGRAM.search(text):
            self.current = None
            self.host, self.test = Host(command=text), ""
        elif sample := _SAMPLE.match(text):
            test = f"{sample[1].lower().replace(' ', '_')}_memcpy of bandwidthTest"
            self.current = Matrix(test=test, place=line.number, columns=("rate",))
            self.found.append((self.current, self.host))
        elif unit := _SAMPLE_HEADING.match(text):
            self.sample_gbs = _SAMPLE_GBS[unit[1]]
        elif self.sample_gbs and self.current and (row := _SAMPLE_ROW.match(text)):
            self.current.rows[row[1]] = (f"{float(row[2]) * self.sample_gbs:.4g}",)
        elif self.test or self.host.versions:
            self._take_of_test(line)

    def _take_of_test(self, line: Line) -> None:
        text, matrix = line.text, self.current
        if self.test and not (matrix and matrix.rows) and (not_run := _NOT_RUN.match(text)):
            word = not_run[1].lower()
            said = f"{self.test} did not run: {_MEANING.get(word, word)}"
            self.not_run.append((said, line.number))
        elif end := _END.match(text):
            if matrix is not None:
                # of a part of the output: the end names the test, too
                matrix.test, matrix.has_end = matrix.test or end[1], True
            self.current, self.test = None, ""
        elif matrix is not None and not matrix.columns and _LABELS.match(text):
            matrix.columns = tuple(text.split())
        elif matrix is not None and matrix.columns and _BEGUN_ROW.match(text):
            _add_row(matrix, line.number, text)
        elif _DESCRIPTION.match(text):
            self.current = Matrix(
                test=self.test, place=line.number, description=text, has_end=False
            )
            self.found.append((self.current, self.host))


def _add_row(matrix: Matrix, number: int, text: str) -> None:
    row = _ROW.match(text)
    if row is None or len(row[2].split()) != len(matrix.columns) or row[1] in matrix.rows:
        matrix.broken.append(number)
    else:
        matrix.rows[row[1]] = tuple(row[2].split())
