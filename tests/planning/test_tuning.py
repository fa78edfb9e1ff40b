"""The tables of profiles/tuning: that they are read and checked, what they choose, and what is
chosen for a collective that has no row.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.bench.runner import plan_points
from collbench.launch.local import LocalGroup
from collbench.planning.limits import Limits
from collbench.planning.planner import resolve
from collbench.planning.selection import algorithms_of
from collbench.planning.tuning import BestTable, cpu_tuning, gpu_tuning
from collbench.schedules.algorithms import FAMILY
from collbench.spec import collectives
from collbench.spec.case import Case
from collbench.spec.collectives import OPS, OpName, collective
from collbench.util import catalog
from collbench.util.errors import ScheduleError, UsageError

PROFILES = Path(__file__).parents[2] / "profiles/tuning"
TENTH: OpName = "tenth"  # type: ignore[assignment]


def best_tables() -> dict[str, dict[str, BestTable]]:
    gpu, cpu = gpu_tuning(), cpu_tuning()
    return {
        "p2p": gpu.p2p.best,
        "shm": gpu.shm.best,
        "net": gpu.net.best,
        "ce": gpu.ce.best,
        "cpu shm": cpu.shm.best,
        "cpu net": cpu.net.best,
    }


def test_the_shipped_profiles_are_the_ones_that_are_read() -> None:
    assert catalog.names("tuning") == ("cpu", "h200")
    assert gpu_tuning() is gpu_tuning()
    assert cpu_tuning() is cpu_tuning()


@pytest.mark.parametrize("section", best_tables())
def test_every_row_names_an_algorithm_that_serves_its_collective(section: str) -> None:
    for op, table in best_tables()[section].items():
        assert {row.algo for row in table.rows} <= set(algorithms_of(op, has_hosts=False))


@pytest.mark.parametrize("section", ["p2p", "shm", "ce", "cpu shm"])
def test_every_collective_has_rows(section: str) -> None:
    assert set(best_tables()[section]) == set(OPS)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ('chunk = "32K"', 'chunk = "32Q"', "[p2p.ll] chunk: '32Q' is not a size"),
        ('chunk = "32K"', "chunk = -1", "[p2p.ll] chunk: -1 is not a positive whole number"),
        ('chunk = "32K"', "chunk = true", "[p2p.ll] chunk: True is not a positive whole number"),
        ('chunk = "32K"', "", "[p2p.ll] chunk: is missing"),
        ('chunk = "32K"', 'chunks = "32K"', "[p2p.ll] chunks: there is no such key"),
        ("hop_us = 2.4", 'hop_us = "2.4"', "[latency] hop_us: '2.4' is not a positive number"),
        ("[p2p.best.reduce]", "[p2p.best.redoce]", "[p2p.best] redoce: there is no collective"),
        ('algo = "oneshot", proto', 'algo = "two", proto', "algo: 'two' is none of chain, direct"),
        ('pdl = "early"', 'pdl = "soon"', "pdl: 'soon' is none of off, early, late"),
        ('proto = "ll128" }', 'proto = "ll64" }', "proto: 'll64' is none of ll, ll128, simple"),
        (
            '{ up_to = "512K", algo = "twoshot"',
            '{ up_to = "128K", algo = "twoshot"',
            "[p2p.best.allreduce] rows: the sizes of `up_to` must not fall",
        ),
        (
            '{ algo = "chain", proto = "simple" }',
            '{ up_to = "1G", algo = "chain", proto = "simple" }',
            "[p2p.best.broadcast] rows: the last row must hold for every size",
        ),
        ("sizes = [4, 8]", "sizes = 4", "[p2p.cluster] sizes: 4 is not a list"),
        ("[p2p.cluster]", "[p2p.clusters]", "[p2p] clusters: there is no such key"),
        ("[shm.shape.duplex]", "[shm.shape.duplix]", "[shm] shape: it must have exactly: ring,"),
        ('title = "4 x', 'titles = "4 x', "[titles]: there is no such key"),
    ],
)
def test_a_wrong_profile_is_refused_by_file_section_and_key(
    tmp_path: Path, old: str, new: str, wanted: str
) -> None:
    text = (PROFILES / "h200.toml").read_text()
    assert old in text
    file = tmp_path / "wrong.toml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as refused:
        gpu_tuning(str(file))
    assert str(file) in refused.value.message
    assert wanted in refused.value.message


def choices() -> str:
    """What auto takes for 4 ranks, a line for each collective, transport and size."""
    lines = []
    for op in OPS:
        for transport in ("p2p", "shm", "net", "ce", "cpu shm", "cpu net"):
            for size_bytes in (8 << 10, 1 << 20, 64 << 20):
                backend, _, name = transport.rpartition(" ")
                case = resolve(
                    Case(
                        op=op,
                        backend=backend or "cuda",
                        transport=name,
                        ranks=4,
                        size_bytes=size_bytes,
                    )
                ).case
                numbers = (
                    case.channels,
                    case.threads,
                    case.slots,
                    case.chunk,
                    case.slices,
                    case.unroll,
                    case.cluster,
                )
                lines.append(
                    f"{op} {transport} {size_bytes}: {case.algo} {case.proto} {case.direct}"
                    f" {' '.join(map(str, numbers))}\n"
                )
    return "".join(lines)


def test_auto_takes_what_it_took() -> None:
    """Who changes a table on purpose writes the text of choices() to the file."""
    assert choices() == (Path(__file__).parent / "choices.txt").read_text()


@pytest.fixture
def add_collective(monkeypatch: pytest.MonkeyPatch) -> Callable[[OpName, str], None]:
    """Registers a tenth collective for one test: a known one under a name that no table has, served
    by one algorithm.
    """

    def add(like: OpName, algo: str) -> None:
        monkeypatch.setattr(collectives, "OPS", (*OPS, TENTH))
        monkeypatch.setitem(collectives._BY_NAME, TENTH, replace(collective(like), name=TENTH))
        if algo:
            serves = FAMILY.load(algo).SERVES
            monkeypatch.setitem(serves, TENTH, serves[like])

    return add


@pytest.mark.parametrize("op", OPS)
def test_a_collective_without_rows_is_planned_by_what_serves_it(
    add_collective: Callable[[OpName, str], None], op: OpName
) -> None:
    algo = algorithms_of(op, has_hosts=False)[-1]
    add_collective(op, algo)
    for backend, transport in (
        ("reference", "auto"),
        *(("cpu", name) for name in ("auto", "shm", "net")),
        *(("cuda", name) for name in ("auto", "p2p", "shm", "net", "ce")),
    ):
        for asked, size_bytes in (("auto", 4096), ("auto", 16 << 20), (algo, 4096)):
            case = Case(
                op=TENTH,
                backend=backend,
                transport=transport,
                algo=asked,
                ranks=4,
                size_bytes=size_bytes,
            )
            for limits in (Limits(), Limits(hosts=(0, 0, 1, 1))):
                if limits.hosts and transport not in ("auto", "net"):
                    continue
                assert resolve(case, limits).case.algo == algo


def test_an_algorithm_that_does_not_serve_a_new_collective_waives_its_row(
    add_collective: Callable[[OpName, str], None],
) -> None:
    add_collective("sendrecv", "duplex")
    points = plan_points(
        [
            Case(op=TENTH, backend="reference", algo=algo, ranks=4, size_bytes=1 << 16)
            for algo in ("direct", "duplex")
        ],
        LocalGroup(),
    )
    assert [bool(point.waived) for point in points] == [True, False]
    assert "direct does not serve tenth" in points[0].waived


def test_a_collective_that_nothing_serves_is_refused(
    add_collective: Callable[[OpName, str], None],
) -> None:
    add_collective("sendrecv", "")
    for backend in ("cpu", "cuda"):
        with pytest.raises(ScheduleError, match="no algorithm serves tenth"):
            resolve(Case(op=TENTH, backend=backend, ranks=4, size_bytes=1 << 16))
