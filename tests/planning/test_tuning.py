"""The files of profiles/tuning and the user's own: that they are read and checked, for which
machine they decide, what they choose, and what is chosen for a collective that has no row.
"""

import ast
import re
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from collbench.bench.points import plan_points
from collbench.core import catalog, collectives
from collbench.core.case import Case
from collbench.core.collectives import OPS, OpName, collective
from collbench.core.errors import ScheduleError, UsageError
from collbench.core.knobs import KNOBS
from collbench.launch.local import LocalGroup
from collbench.planning.limits import Limits
from collbench.planning.planner import resolve, tuning_for
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.selection import algorithms_of
from collbench.planning.transports import FAMILY as TRANSPORTS
from collbench.planning.tuning import STAGES, Machine, Origin, read, tuning_of
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from docs.blocks import blocks
from tests.support.commands import forget_tuning
from tests.support.tables import cells_of

ROOT = Path(__file__).parents[2]
PACKAGE, PROFILES = ROOT / "collbench", ROOT / "profiles/tuning"
TENTH: OpName = "tenth"  # type: ignore[assignment]
HEAD = """
title = "mine"
[machine]
kind = "gpu"
models = ["A100"]
joined = "PCIe"
ranks = [2, 4]
"""
ROWS = """
[mine]
source = "a sweep"
when = { op = "allreduce" }
rows = [
    { up_to = "1M", transport = "p2p", algo = "tree", proto = "ll", channels = 3 },
    { from = "1M", ranks = "< 4", algo = "ring", proto = "simple", channels = 5 },
]
"""


def test_a_file_is_read_once() -> None:
    assert catalog.names("tuning") == ("cpu", "h200")
    assert read("h200") is read("h200")
    assert tuning_of(Machine("gpu"), 4) is tuning_of(Machine("gpu"), 4)


@pytest.mark.parametrize("module", ["tuning", "selection", "gpu_knobs"])
def test_no_line_of_the_choice_knows_a_protocol_a_transport_or_an_algorithm(module: str) -> None:
    code = ast.parse((PACKAGE / f"planning/{module}.py").read_text())
    texts = {node.value for node in ast.walk(code) if isinstance(node, ast.Constant)}
    knobs = {knob.name for knob in KNOBS}  # two of which are named as a transport and an algorithm
    assert not texts & {*PROTOCOLS, *TRANSPORTS, *ALGORITHMS} - knobs


def test_the_page_has_every_fact_and_value_and_an_example_that_is_read(tmp_path: Path) -> None:
    text = (ROOT / "docs/explanation/choices.md").read_text()
    lines = re.findall(r"^\| (`.*`) \| (`.*`) \|$", text, re.MULTILINE)
    told = [tuple(cell.replace("`", "").replace(",", "") for cell in line) for line in lines]
    assert tuple(told) == STAGES
    (example,) = (block.body for block in blocks(text) if block.language == "toml")
    (tmp_path / "example.toml").write_text(example)
    assert len(read(str(tmp_path / "example.toml")).tables) == 2


@pytest.mark.parametrize("name", catalog.names("tuning"))
def test_every_row_names_an_algorithm_that_serves_its_collective(name: str) -> None:
    found = 0
    for table in read(name).tables:
        served = [dict(table.conditions).get("op", ())]
        for row in table.rows:
            for op in (op for op in OPS if "algo" in row.values and op in served[0]):
                assert row.values["algo"] in algorithms_of(op)
                found += 1
    assert found > len(OPS)


@pytest.mark.parametrize(("old", "new", "wanted"), cells_of(__file__, "wrong-tuning.tsv"))
def test_a_wrong_file_is_refused_by_file_section_and_key(
    tmp_path: Path, old: str, new: str, wanted: str
) -> None:
    text = (PROFILES / "h200.toml").read_text()
    assert old in text
    file = tmp_path / "wrong.toml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as refused:
        read(str(file))
    assert str(file) in refused.value.message
    assert wanted in refused.value.message


@pytest.fixture
def own_file(home: Path) -> Callable[[str], Path]:
    """Writes a tuning file of the user for one test."""

    def write(text: str) -> Path:
        file = home / "collbench/tuning/mine.toml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
        forget_tuning()
        return file

    return write


def test_the_users_file_decides_on_its_machine_and_the_shipped_one_where_it_is_silent(
    own_file: Callable[[str], Path],
) -> None:
    case = Case(op="allreduce", backend="cuda", proto="auto", ranks=2, size_bytes=1 << 16)
    mine = Limits(model="NVIDIA A100-SXM4-80GB", joined="PCIe")
    before = {limits: resolve(case, limits).case for limits in (Limits(), mine)}
    file = own_file(HEAD + ROWS)

    taken = resolve(case, mine).case
    large = resolve(replace(case, size_bytes=4 << 20), mine).case
    assert (taken.algo, taken.proto, taken.channels) == ("tree", "ll", 3)
    assert (large.algo, large.proto, large.channels) == ("ring", "simple", 5)
    # the row is one choice: its channels are not those of another algorithm
    other = resolve(replace(case, algo="ring"), mine).case
    assert other == resolve(replace(case, algo="ring"), Limits()).case
    for limits in (Limits(), replace(mine, joined="NVLink"), replace(mine, model="H100")):
        assert resolve(case, limits).case == before[Limits()]
    gather = replace(case, op="gather")
    assert resolve(gather, mine).case == resolve(gather, Limits()).case

    assert tuning_for(case, mine).origin == Origin(True, ((str(file), "mine"),))
    assert not tuning_for(replace(case, ranks=3), mine).origin.is_fitting


def test_a_mistake_in_the_users_file_is_told_whatever_is_planned(
    own_file: Callable[[str], Path],
) -> None:
    file = own_file(HEAD + ROWS.replace("channels = 3", "channels = 0"))
    with pytest.raises(UsageError) as refused:
        resolve(Case(op="allgather", backend="cpu", ranks=2, size_bytes=1 << 16))
    assert not isinstance(refused.value, ScheduleError)
    assert refused.value.message == (f"tuning file {file}: [mine.rows[0]] channels: 0 is too small")


@pytest.mark.parametrize(
    ("kind", "model", "joined", "ranks", "fits"), cells_of(__file__, "fitting.tsv")
)
def test_a_file_says_on_which_machine_it_was_measured(
    kind: Literal["cpu", "gpu"], model: str, joined: str, ranks: str, fits: str
) -> None:
    origin = tuning_of(Machine(kind, model, joined), int(ranks)).origin
    assert origin.is_fitting == (fits == "yes")
    assert [name for name, _ in origin.files] == ["h200" if kind == "gpu" else "cpu"]


TAKEN = (
    *("algo", "proto", "direct", "channels", "threads", "slots"),
    *("chunk", "slices", "unroll", "cluster"),
)


def choices() -> str:
    """What auto takes for 4 ranks, a line for each collective, transport and size."""
    lines = []
    for op in OPS:
        for transport in ("p2p", "shm", "net", "ce", "cpu shm", "cpu net"):
            for size_bytes in (8 << 10, 1 << 20, 64 << 20):
                backend, _, name = transport.rpartition(" ")
                asked: dict[str, Any] = {"op": op, "transport": name, "size_bytes": size_bytes}
                case = resolve(Case(**asked, backend=backend or "cuda", ranks=4)).case
                taken = " ".join(str(getattr(case, knob)) for knob in TAKEN)
                lines.append(f"{op} {transport} {size_bytes}: {taken}\n")
    return "".join(lines)


def test_auto_takes_what_it_took() -> None:
    """Who changes a table on purpose writes the text of choices() to the file."""
    assert choices() == (Path(__file__).parent / "choices.txt").read_text()


def _set_fields(case: Case) -> str:
    """The fields of a case that are not at their defaults, so that a new field changes no sum."""
    values = [(field, getattr(case, field.name)) for field in fields(case)]
    return repr([(field.name, value) for field, value in values if value != field.default])


def sums() -> str:
    """A checksum of what auto takes for each collective, backend and number of ranks, over sizes,
    transports and GPUs.
    """
    lines = []
    gpus = (Limits(), Limits(has_peers=False), Limits(has_clusters=False), Limits(ctas=58))
    sizes = [(8 << power) + odd for power in range(28) for odd in (0, 4)]
    for op in OPS:
        for backend, numbers, transports in (
            ("cuda", (2, 3, 4, 8), ("auto", "p2p", "shm", "net", "ce")),
            ("cpu", range(2, 9), ("auto", "shm", "net")),
        ):
            for ranks in numbers:
                total = 0
                for transport in transports:
                    for size_bytes in sizes:
                        case = Case(
                            op=op,
                            backend=backend,
                            transport=transport,
                            ranks=ranks,
                            size_bytes=size_bytes,
                        )
                        if case.why_senseless():
                            continue
                        for limits in gpus if transport == "auto" else gpus[:1]:
                            taken = _set_fields(resolve(case.rounded(), limits).case)
                            total = zlib.crc32(taken.encode(), total)
                lines.append(f"{op} {backend} {ranks} {total:08x}\n")
    return "".join(lines)


@pytest.mark.exhaustive
def test_auto_takes_what_it_took_whatever_the_case() -> None:
    """Who changes a table on purpose writes the text of sums() to the file."""
    assert sums() == (Path(__file__).parent / "choices-sums.txt").read_text()


@pytest.fixture
def add_collective(monkeypatch: pytest.MonkeyPatch) -> Callable[[OpName, str], None]:
    """Registers a tenth collective for one test: a known one under a name that no table has, served
    by one algorithm.
    """

    def add(like: OpName, algo: str) -> None:
        monkeypatch.setattr(collectives, "OPS", (*OPS, TENTH))
        monkeypatch.setitem(collectives._BY_NAME, TENTH, replace(collective(like), name=TENTH))
        if algo:
            serves = ALGORITHMS.load(algo).SERVES
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
