"""What launchers, loggers, drivers and forums do to a text is undone, for every reader."""

import json
from collections.abc import Callable
from html import escape
from pathlib import Path

import pytest

from collbench.core.pasted import plain_text, without_prefix
from tests.support.commands import Invoke

TEXTS = {
    "log": "h1:7:9 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0\n\n"
    "h1:7:9 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-1 to 9 bytes,"
    " error: No space left on device (28)\n",
    "compare": " nThread 1 nGpus 2 minBytes 8 maxBytes 16\n\n"
    "  Rank  0 Pid  1 on  n1 device  0 [0x07] A100\n  Rank  1 Pid  1 on  n1 device  1 [0x0f] A100\n"
    "       size   count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
    "          8       2 float    sum    -1  10.0   0.00   0.00      0  10.0   0.00   0.00      0\n"
    "  16777216 4194304 float    sum    -1 100.0 167.77 167.77     0 100.0 167.77 167.77     0\n",
    "topo": "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n"
    "\t Link 1: <inactive>\n\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n"
    "\t Link 1: 26.562 GB/s\n",
}


def each(change: Callable[[int, str], str]) -> Callable[[str], str]:
    """What changes every line of a text, by its number."""
    return lambda text: "".join(f"{change(*one)}\n" for one in enumerate(text.splitlines()))


CHANGES: dict[str, Callable[[str], str]] = {
    "a mark at the beginning": lambda text: f"\ufeff{text}",
    "carriage returns": lambda text: text.replace("\n", "\r\r\n"),
    "hard blanks": lambda text: text.replace("  ", "\u00a0 "),
    "blanks at the end": each(lambda n, line: f"{line}  "),
    "colours": each(lambda n, line: f"\x1b[33m{line}\x1b[0m"),
    "quotes": each(lambda n, line: f"> {line}"),
    "entities": lambda text: escape(text, quote=False),
    "Markdown": lambda text: text.replace("_", r"\_"),
    "Docker's JSON": each(
        lambda n, line: json.dumps({"log": line + "\n", "time": "2026"}, separators=(",", ":"))
    ),
    "journalctl's JSON": each(lambda n, line: json.dumps({"_PID": "1", "MESSAGE": line})),
    "JSON": each(lambda n, line: json.dumps({"ts": n, "pod": {"line": "a"}, "message": line})),
    "Kubernetes": each(lambda n, line: f"2026-11-28T10:00:0{n}.123456789Z stdout F {line}"),
    "Compose": each(lambda n, line: f"worker-1  | {line}"),
    "journald": each(lambda n, line: f"Nov 28 10:00:0{n} node7 run.sh[4711]: {line}"),
    "Ray": each(lambda n, line: f"(RayTrainWorker pid=4242, ip=10.0.0.7) {line}"),
    "timestamps": each(lambda n, line: f"2026-11-28T10:00:0{n}.00Z {line}"),
}


@pytest.mark.parametrize("command", TEXTS)
@pytest.mark.parametrize("name", CHANGES)
def test_what_was_done_to_a_text_changes_no_answer(
    tmp_path: Path, invoke: Invoke, command: str, name: str
) -> None:
    before, after, words = tmp_path / "before.txt", tmp_path / "after.txt", [command, "--from"]
    before.write_text(TEXTS[command])
    after.write_text(CHANGES[name](TEXTS[command]))
    answers = []
    for file in (before, after):
        code, out, err = invoke(*words[: 1 + (command == "topo")], str(file))
        said = [line.split(" NCCL ")[-1] for line in (out + err).splitlines()]
        answers.append((code, [line.replace(file.name, "") for line in said if "seen" not in line]))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "text",
    [
        "0000:05:00.0  X  XGMI\n0000:26:00.0  XGMI  X\n0000:46:00.0  XGMI  XGMI\n",
        "GPU[0]\t: (Topology) Numa Node: 0\nGPU[1]\t: (Topology) Numa Node: 1\n" * 2,
        "| 8 | 2 |\n",
    ],
)
def test_what_rows_begin_with_is_no_prefix(text: str) -> None:
    lines = plain_text(text).split("\n")
    assert without_prefix(lines) == lines
