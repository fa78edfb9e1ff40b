"""The wire ledger of rows on GPUs that a driver of data counts: what was expected, what passed, and
what is not ours.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from collbench.bench.tables.wire import ledger_lines
from collbench.bench.wire import Ledger, ledger_of, likenesses
from collbench.core.case import Case
from collbench.machine.discovery import counters
from collbench.machine.discovery.counters import Moved, moved, read
from collbench.planning.limits import Limits
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from tests.support.fake_hosts import h200_vm
from tests.support.fake_nvml import FakeNvml, driver

# whole lines of ll128 in every slot
SIZE, LAUNCHES, RANKS = 48 * 4 * 61440 * 2, 8, 4
CASE = Case(op="allreduce", backend="cuda", algo="ring", ranks=RANKS, size_bytes=SIZE)
LIMITS = Limits(memory_bytes=1 << 28, ctas=132, is_gpu=True, joined="NVLink")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Four H200 whose links have counted something before."""
    monkeypatch.setattr(counters, "has_nvidia_gpus", lambda: True)
    one = h200_vm(tmp_path)
    for gpu in one.gpus:
        for link in gpu.links:
            link.data = link.raw = (1000, 1000)
    return one


def passes(library: FakeNvml, gpu: int, out: Fraction | float, into: Fraction | float) -> None:
    """Let bytes pass the links of a GPU, an equal part each."""
    links = library.gpus[gpu].links
    kib = [round(number / 1024 / len(links)) for number in (out, into)]
    for link in links:
        assert link.data is not None
        link.data = (link.data[0] + kib[0], link.data[1] + kib[1])


def counted(library: FakeNvml, ranks: int, launch: Callable[[], None]) -> Moved:
    """What the counters say of a launch that is done LAUNCHES times."""
    with driver(library):
        before = [read(Path("/nowhere"))] * ranks
        for _ in range(LAUNCHES):
            launch()
        after = [read(Path("/nowhere"))] * ranks
    return moved(before, after, LAUNCHES, [gpu.uuid for gpu in library.gpus[:ranks]])


def plan_of(case: Case) -> Plan:
    plan = resolve(case, LIMITS).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(("proto", "wire"), [("simple", 1), ("ll", 2), ("ll128", 128 / 120)])
def test_a_ring_moves_what_is_expected_by_each_protocol(
    library: FakeNvml, proto: str, wire: float
) -> None:
    each = 1.5 * SIZE * wire

    def launch() -> None:
        for gpu in range(RANKS):
            passes(library, gpu, each, each)

    ledger = ledger_of(
        counted(library, RANKS, launch), plan_of(replace(CASE, proto=proto)), is_gpu=True
    )
    assert ledger.wire_expected == pytest.approx(RANKS * each, rel=0.002)
    assert ledger.wire_bytes == pytest.approx(ledger.wire_expected, rel=0.002)
    assert abs(ledger.wire_foreign or 0) < 0.002 * ledger.wire_bytes
    assert [entry.label for entry in ledger.entries] == [f"GPU {k} NVLink" for k in range(RANKS)]
    assert "of this row" not in " ".join(ledger_lines([(CASE, ledger)], 80))


def test_a_copy_between_two_other_gpus_is_foreign_and_at_its_links(library: FakeNvml) -> None:
    copied = 18 << 20
    case = replace(CASE, ranks=2, proto="simple")

    def launch() -> None:
        for gpu in range(2):
            passes(library, gpu, SIZE, SIZE)
        link = library.gpus[2].links[5], library.gpus[3].links[7]
        for way, one in enumerate(link):
            data = list(one.data or ())
            data[way] += copied >> 10
            one.data = (data[0], data[1])

    ledger = ledger_of(counted(library, 2, launch), plan_of(case), is_gpu=True)
    assert ledger.wire_foreign == pytest.approx(copied, rel=0.01)
    text = " ".join(" ".join(ledger_lines([(case, ledger)], 400)).split())
    assert "18.874 MB a launch out by GPU 2 NVLink, links 5 is not of this row" in text
    assert "18.874 MB a launch in by GPU 3 NVLink, links 7 is not of this row" in text
    assert text.count("not of this row") == 2


def test_ranks_that_share_a_gpu_load_no_link(library: FakeNvml) -> None:
    case = replace(CASE, ranks=2, proto="simple")
    seen = counted(library, 2, lambda: passes(library, 0, SIZE, 0))
    seen = replace(seen, ranks=(seen.ranks[0],) * 2)
    ledger = ledger_of(seen, plan_of(case), is_gpu=True)
    assert ledger.wire_expected == 0
    assert ledger.wire_foreign == ledger.wire_bytes > 0


def of_library(library: FakeNvml, *shares: float) -> Ledger:
    """What a library moved, as parts of S by rank."""

    def launch() -> None:
        for gpu, share in enumerate(shares):
            passes(library, gpu, share * SIZE, share * SIZE)

    return ledger_of(counted(library, len(shares), launch), None, is_gpu=True)


def test_where_nothing_passes_a_link_there_is_no_table(library: FakeNvml) -> None:
    ledger = ledger_of(counted(library, 2, lambda: None), None, is_gpu=True)
    lines = ledger_lines([(CASE, ledger)], 80)
    assert lines[0] == "Wire ledger: no link that is counted carried anything."


def test_a_library_is_likened_to_what_moves_as_much(library: FakeNvml) -> None:
    nccl = replace(CASE, backend="nccl", algo="library", proto="")
    ring = of_library(library, 1.5, 1.5, 1.5, 1.5)
    assert (ring.wire_expected, ring.wire_foreign) == (None, None)
    assert ring.wire_bytes == pytest.approx(6 * SIZE, rel=0.001)
    assert likenesses(nccl, ring)[0] == "ring"
    text = "\n".join(ledger_lines([(nccl, ring)], 200))
    assert "\nnccl plain at 23040K moved 1.50 S a GPU: as much as ring" in text
    torch = replace(CASE, backend="torch", algo="oneshot", proto="")
    assert "\ntorch oneshot at" in "\n".join(ledger_lines([(torch, ring)], 200))
    assert "tree" not in likenesses(nccl, ring)
    assert likenesses(nccl, of_library(library, 1, 2, 1, 2)) == ["chain", "tree"]
    assert likenesses(nccl, of_library(library, 0.9, 0.9, 0.9, 0.9)) == []
    assert "oneshot" in likenesses(nccl, of_library(library, 3, 3, 3, 3))
    assert likenesses(nccl, of_library(library, *[1.25] * 4)) == ["sums in the switch (NVLS)"]
    assert "ring by ll128" in likenesses(nccl, of_library(library, *[1.6] * 4))


def test_messages_of_one_host_pass_its_loopback_if_sockets_carry_them() -> None:
    case = Case(
        op="allreduce", backend="cpu", algo="ring", ranks=2, size_bytes=SIZE, transport="net"
    )
    plan = resolve(case, Limits(memory_bytes=1 << 28)).plan
    assert plan is not None
    with driver(None):
        before = [read()] * 2
    after = [replace(one, acked=one.acked + LAUNCHES * SIZE) for one in before]
    by_sockets = ledger_of(moved(before, after, LAUNCHES), plan, is_gpu=False)
    # segments have headers
    assert 2 * SIZE < (by_sockets.wire_expected or 0) < 2.004 * SIZE
    in_memory = ledger_of(moved(before, before, LAUNCHES), plan, is_gpu=False)
    assert (in_memory.wire_bytes, in_memory.wire_expected, in_memory.wire_foreign) == (0, 0, 0)
