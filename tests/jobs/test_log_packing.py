"""Lines that were put into a column, or broken at a width, say what they said before."""

import csv
import io
import textwrap
from collections.abc import Callable

import pytest

from collbench.jobs.log_findings import log_findings
from collbench.jobs.nccl_log.packing import numbered
from tests.jobs.test_nccl_log import report_of

LINES = [
    *(f'epoch {step} of the run named "first": loss 0.{step}, no error' for step in range(4)),
    "[rank3]: Traceback (most recent call last), as the program's own handler of errors writes it:",
    "n7:41:88 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB e0:10.0.0.7<0>",
    "n7:41:88 [1] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer"
    " 10.9.8.7<4242> with status=12 opcode=129 len=4096 vendor err 129 (Send) hca mlx5_0",
    "[rank5]:[E101 10:00:00 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024,"
    " Timeout(ms)=600000) ran for 600010 milliseconds before timing out.",
    "n8:5:6 [0] NCCL INFO ncclCommInitRank comm 0xa624cf0 rank 0 nranks 8 cudaDev 0 busId 8000"
    " commId 0x551d06754c6bacf2 - Init COMPLETE",
]


def _table(*names: str, most: int = 1) -> list[str]:
    text = io.StringIO()
    rows = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    rows.writerow(names)
    for at in range(0, len(LINES), most):
        rows.writerow(
            "\n".join(LINES[at : at + most]) if name.lower() in ("@message", "line") else "x 7"
            for name in names
        )
    return text.getvalue().splitlines(keepends=True)


def _at_width(width: int) -> list[str]:
    return [line[at : at + width] + "\n" for line in LINES for at in range(0, len(line), width)]


def _at_words(width: int) -> list[str]:
    return [f"{part}\n" for line in LINES for part in textwrap.wrap(line, width)]


PACKED: dict[str, Callable[[], list[str]]] = {
    "CloudWatch": lambda: _table("@timestamp", "@message"),
    "Loki": lambda: _table("Time", "Line", "tsNs", "labels"),
    "events of several lines": lambda: _table("timestamp", "@message", most=3),
    "80 columns": lambda: _at_width(80),
    "100 columns": lambda: _at_width(100),
    "a mail": lambda: _at_words(72),
}


def _found(lines: list[str]) -> list[tuple[str, str, str]]:
    findings = log_findings(report_of("".join(lines)))
    return [(one.check, one.severity, one.subject) for one in findings]


@pytest.mark.parametrize("how", PACKED)
def test_packed_lines_say_what_they_said(how: str) -> None:
    assert [text for _, text in numbered(PACKED[how]())] == LINES
    assert _found(PACKED[how]()) == _found([f"{line}\n" for line in LINES])


def test_numbers_are_those_of_the_file() -> None:
    packed = PACKED["80 columns"]()
    for number, text in numbered(packed):
        assert text.startswith(packed[number - 1].rstrip("\n"))


@pytest.mark.parametrize(
    "lines",
    [
        [f"worker {step}: {'=' * 62} done, waiting\n" for step in range(40)],  # all as wide
        ["".join(f"{step * place:7}" for place in range(12)) + "\n" for step in range(9)],
        [  # a table of nvidia-smi
            f"{text:79}\n"
            for gpu in range(8)
            for text in (
                f"|  {gpu}  Frob GPU  On |",
                "| N/A  48C  P0 |",
                f"+{'-' * 30}+",
                f"|{gpu}",
            )
        ],
        ["message, and more\n", *("a plain text, with commas\n" for _ in range(9))],
        ["x" * 5000 + "\n", "y\n"],
        [],
    ],
)
def test_whole_lines_stay(lines: list[str]) -> None:
    assert list(numbered(lines)) == list(enumerate(lines, 1))
