"""sweep --wire on the machine itself: the NVLink counters agree with what every protocol must move,
to 1 % from 16 MiB on, and a copy between two other GPUs is found at their links. By hand:

    python3 -m collbench sweep --backend cuda,nccl --algo ring,twoshot --proto all
        --sizes 1M,16M,256M --wire

Check that the lines of all GPUs agree, and that nccl's bytes are called those of a ring, or of sums
in the switch where NCCL_NVLS_ENABLE is not 0.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from collbench.core.record import Record, read
from tests.gpu._running import run, started

LIMIT_S = 280.0
AGREE, FROM_BYTES = 0.01, 16 << 20
# Copies from one GPU to another until its input is closed.
COPIES = """
import sys, threading, cupy
a, b, size = int(sys.argv[1]), int(sys.argv[2]), 256 << 20
with cupy.cuda.Device(b):
    target = cupy.zeros(size, cupy.uint8)
with cupy.cuda.Device(a):
    source = cupy.ones(size, cupy.uint8)
    cupy.cuda.runtime.deviceEnablePeerAccess(b)  # else copies go through the host
    print("ready", flush=True)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set())).start()
    while not over.is_set():
        cupy.cuda.runtime.memcpyPeer(target.data.ptr, b, source.data.ptr, a, size)
        cupy.cuda.runtime.deviceSynchronize()
"""


def sweep(folder: Path, gpus: Sequence[int], *more: str) -> tuple[list[Record], str]:
    """The rows of a sweep that are not waived, and what it printed."""
    csv = folder / "rows.csv"
    command = ["-m", "collbench", "sweep", "--op", "allreduce", "--wire", "--csv", str(csv)]
    command += ["--gpus", ",".join(map(str, gpus))]
    ended = run(started("local", len(gpus), [*command, *more]), LIMIT_S)
    print(ended.stdout)
    assert ended.code == 0, ended.stderr[-2000:]
    found = [row for row in read(csv) if row.status != "waived"]
    assert {row.status for row in found} == {"ok"}
    if re.search(r"No counter of nvlink\b", " ".join(ended.stdout.split())):
        pytest.skip("no NVLink of this machine has a counter")
    return found, ended.stdout


def test_links_carry_what_each_protocol_must_move(tmp_path: Path, gpus: int) -> None:
    options = ("--backend", "cuda", "--algo", "ring,twoshot", "--proto", "simple,ll,ll128")
    rows, _ = sweep(tmp_path, range(gpus), *options, "--sizes", "16M,64M,256M")
    assert {row.proto for row in rows} >= {"simple", "ll"}
    for row in rows:
        assert row.wire_expected
        assert row.size_bytes >= FROM_BYTES
        assert row.wire_bytes == pytest.approx(row.wire_expected, rel=AGREE)
        assert abs(row.wire_foreign or 0) <= AGREE * row.wire_expected


def test_a_ring_of_nccl_is_called_one(
    tmp_path: Path, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    options = ("--backend", "nccl", "--algo", "ring", "--proto", "simple", "--sizes", "64M")
    _, text = sweep(tmp_path, range(gpus), *options)
    assert f"moved {2 * (gpus - 1) / gpus:.2f} S a GPU: as much as ring" in " ".join(text.split())


@pytest.mark.parametrize(
    ("ranks_on", "copied"), [((0, 0), (0, 1)), ((0, 1), (2, 3))], ids=["shared", "others"]
)
def test_a_copy_between_two_other_gpus_is_found_at_their_links(
    tmp_path: Path, gpus: int, ranks_on: tuple[int, int], copied: tuple[int, int]
) -> None:
    """Of two GPUs, where both ranks are on one, and load no link."""
    if gpus <= max(copied):
        pytest.skip("two GPUs for the ranks, and two for the copy")
    with subprocess.Popen(
        [sys.executable, "-c", COPIES, *map(str, copied)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as copies:
        assert copies.stdout is not None
        assert copies.stdin is not None
        assert copies.stdout.readline() == "ready\n"
        way = ("--backend", "cuda", "--algo", "ring", "--proto", "simple", "--sizes", "64M")
        rows, text = sweep(tmp_path, ranks_on, *way)
        copies.stdin.close()
    for row in rows:
        assert row.wire_foreign is not None
        assert row.wire_foreign > row.size_bytes // 10
    text = " ".join(text.split())
    source, target = copied
    assert f"out by GPU {source} NVLink, links" in text
    assert f"in by GPU {target} NVLink, links" in text
    assert (f"GPU {ranks_on[0]} NVLink, links" in text) == (ranks_on[0] in copied)
