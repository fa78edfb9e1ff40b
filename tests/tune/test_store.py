"""What tuning has found: the file that the planner reads, and the state from which it is made."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from collbench.backends import FAMILY
from collbench.backends.base import Backend
from collbench.bench.ranks import ranks_of
from collbench.core.case import Case
from collbench.core.errors import UsageError
from collbench.launch.local import LocalGroup
from collbench.machine.topology.machines import machine_topology
from collbench.planning.chooser import cheapest, choose, priced_by, row_of
from collbench.planning.limits import Limits
from collbench.planning.planner import resolve
from collbench.planning.tuning import Machine, Value, tuning_without
from collbench.tune.candidates import Field
from collbench.tune.store import (
    Store,
    TunedPoint,
    all_stored,
    document,
    forget,
    set_aside,
    stored,
)  # fmt: skip
from tests.support.commands import forget_tuning, keep_tuned
from tests.support.machines import two_hosts
from tests.support.tables import values_of
from tests.support.tiers import tiered

GPU = Machine("gpu", "NVIDIA A100-SXM4-80GB", "NVLink")
LIMITS = {
    "cuda": Limits(model=GPU.model, joined=GPU.joined),
    "cpu": Limits(model="A CPU (2 cores)"),
}
MACHINES = {"cuda": GPU, "cpu": Machine("cpu", "A CPU (2 cores)", "memory")}


pytestmark = pytest.mark.usefixtures("home")


def point(size: int, values: Mapping[str, Value], **others: object) -> TunedPoint:
    facts: dict[str, Any] = values_of(
        "op=allreduce ranks=4 asked=auto carrier=p2p choice=a former=b"
    )
    facts |= {"hosts": 1, "gain": 1.5, "gain_low": 1.4, "gain_high": 1.6, "pairs": 6, "tried": 9}
    facts |= {"day": "2026-11-23", "source": '`collbench tune`, "vm"\t, collbench 1'}
    return TunedPoint(size=size, values=values, **{**facts, **others})


def algorithm(size: int, **knobs: object) -> str:
    case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=size, **knobs)  # type: ignore[arg-type]
    return resolve(case, LIMITS["cuda"]).case.algo


def test_rows_hold_for_the_sizes_around_a_point_and_not_beyond() -> None:
    ring: dict[str, Value] = {"algo": "ring", "proto": "simple"}
    tree: dict[str, Value] = {"algo": "tree", "proto": "simple"}
    before = {size: algorithm(size) for size in (512, 64 << 10, 1 << 20, 2 << 20)}
    store = keep_tuned(GPU, point(1 << 10, ring), point(4 << 10, ring), point(16 << 10, tree),
                       point(64 << 10, {}), point(1 << 20, ring))  # fmt: skip
    chosen = {size: algorithm(size) for size in (1 << 10, 8 << 10, (8 << 10) + 4, 16 << 10)}
    assert list(chosen.values()) == ["ring", "ring", "tree", "tree"]
    assert algorithm(32 << 10) == "tree"
    assert algorithm(64 << 10) == before[64 << 10]
    assert (algorithm(1 << 20), algorithm(2 << 20)) == ("ring", before[2 << 20])
    assert algorithm(512) == before[512]
    assert algorithm(1 << 10, transport="shm") != "ring"  # measured over p2p
    rows = [line for line in document(store).splitlines() if ", algo =" in line]
    assert len(rows) == 3


def test_the_state_is_read_back_and_forgotten() -> None:
    store = keep_tuned(GPU, point(64, {"cluster": (2,), "gpcs": 1, "channels": 3}), point(8, {}))
    assert stored(GPU) == store
    assert all_stored() == ([store], [])
    assert stored(GPU._replace(model="another")).points == ()
    assert forget(store) == [store.tuning_file, store.state_file]
    assert (stored(GPU).points, forget(store)) == ((), [])


def test_a_point_is_replaced_and_a_file_without_rows_is_none() -> None:
    store = keep_tuned(GPU, point(64, {"channels": 3}))
    assert store.tuning_file.exists()
    store = store.with_point(point(64, {}))
    store.save(None)
    assert (len(stored(GPU).points), store.tuning_file.exists()) == (1, False)


def test_a_broken_state_is_said_with_its_field_and_set_aside() -> None:
    store = keep_tuned(GPU, point(64, {"channels": 3}))
    file = store.state_file
    sound = file.read_text()
    for text, told in [
        ("", ", line 1, column 1: not JSON"),
        (sound[:-4], ", line 28, column 2: not JSON"),
        ("[]", " is a list, not an object"),
        ('{"machine": ["gpu"]}', " lacks the key 'points'"),
        ('{"machine": ["gpu"], "points": [3]}', ".points[0] is 3, not an object"),
        (sound.replace('"gain"', '"grain"'), ".points[0] has an unknown key 'grain'"),
        (sound.replace("1.5,", "1e999,"), ".points[0].gain is inf, not a finite number"),
        (
            sound.replace('"size": 64', '"size": "64"'),
            ".points[0].size is '64', not a whole number",
        ),
        (sound.replace(GPU.model, "another"), ": machine: it is of Machine("),
    ]:
        file.write_text(text)
        with pytest.raises(UsageError, match=re.escape(f"{file}{told}")):
            stored(GPU)
        if "another" not in text:
            stores, (broken,) = all_stored()
            assert stores == [] and broken.startswith(f"{file}{told}")
    assert set_aside(GPU).read_text() == text
    assert (stored(GPU).points, all_stored()) == ((), ([], []))


@tiered(("name", "op", "size"), [("cuda", "allreduce", 1 << 20),
                                                  ("cpu", "broadcast", 1 << 16)], 1)  # fmt: skip
def test_what_is_written_is_planned_as_it_was_measured(name: str, op: str, size: int) -> None:
    backend = FAMILY.load(name)
    assert not backend.is_peer
    case = Case(op=op, backend=name, ranks=4, size_bytes=size)  # type: ignore[arg-type]
    field = field_of(case, backend)
    assert field.today is not None
    ways = field.ways()
    near = field.neighbours(field.today)
    knobs = {knob for one in near for knob in one.values}
    assert {"chunk", "slots", "channels"} <= knobs
    assert len({one.point.case.algo for one in ways}) > 3
    for one in [*ways[::16], *near[::6]]:
        written = point(size, one.values, op=op, carrier=one.point.case.transport)
        keep_tuned(MACHINES[name], written)
        chosen = resolve(case, LIMITS[name])
        assert chosen.case == one.point.case
        assert one.point.plan is not None
        assert chosen.plan.digest == one.point.plan.digest
        # and a search that begins anew leaves it out
    again = field_of(case, backend)
    assert again.today is not None
    assert again.today.point.case == field.today.point.case


def field_of(case: Case, backend: Backend) -> Field:
    own = Store(machine=MACHINES[case.backend], points=()).tuning_file
    return Field(case, backend, LocalGroup(), LIMITS[case.backend], str(own))


def test_the_model_decides_what_no_fitting_file_does_while_others_are_tuned() -> None:
    """On two A100: its choice is today's, before anything is tuned and when it is tuned again; a
    row of what was tuned replaces it for that size of that collective alone.
    """
    backend = FAMILY.load("cuda")
    assert not backend.is_peer
    where = ranks_of(("cuda",), None, LocalGroup(), (0, 1), machine_topology("dgx-a100"))
    small = Case(op="allreduce", backend="cuda", ranks=2, size_bytes=1 << 14)
    large, other = replace(small, size_bytes=1 << 26), replace(small, op="alltoall")
    limits = LIMITS["cuda"]
    own, links = Store(machine=GPU, points=()).tuning_file, where.of(small)
    assert links is not None
    for case in (small, large, other):
        way = row_of(case, limits, links)
        today = Field(case, backend, LocalGroup(), limits, str(own), way).today
        assert today is not None
        assert today.point.case == resolve(cheapest(case, limits, links), limits).case
    way = row_of(small, limits, links)
    assert set(way) == {"algo", "proto"}
    row: dict[str, Value] = {"algo": "chain", "proto": "simple"}
    keep_tuned(GPU, point(1 << 14, row, ranks=2))
    assert [bool(priced_by(case, limits, links)) for case in (small, large, other)] == [
        False,
        True,
        True,
    ]
    assert row_of(small, limits, links) == {}
    assert choose(small, limits, links).how == "tuned"
    assert resolve(small, limits).case.algo == "chain"
    assert row_of(small, limits, links, str(own)) == way
    assert row_of(large, limits, links) == row_of(large, limits, links, str(own)) != {}
    given = replace(other, algo="direct")  # of which the file says nothing either
    assert priced_by(given, limits, links)
    assert priced_by(replace(given, op="gather"), limits, links)


def test_a_row_of_an_algorithm_that_does_not_serve_the_collective_leaves_it_to_the_model() -> None:
    where = ranks_of(("cuda",), None, LocalGroup(), (0, 1), machine_topology("dgx-a100"))
    own = Store(machine=GPU, points=()).tuning_file
    own.parent.mkdir(parents=True)
    own.write_text(
        'title = "mine"\n[machine]\nkind = "gpu"\nmodels = ["A100"]\njoined = "NVLink"\n'
        'ranks = [2]\n[all]\nsource = "a sweep"\nrows = [{ algo = "halving", proto = "simple" }]\n'
    )
    forget_tuning()
    case = Case(op="allreduce", backend="cuda", ranks=2, size_bytes=1 << 16)
    assert not priced_by(case, LIMITS["cuda"], where.of(case))
    assert priced_by(replace(case, op="alltoall"), LIMITS["cuda"], where.of(case))


def test_over_hosts_today_has_the_channels_that_a_sweep_takes() -> None:
    group = LocalGroup()
    group.kind, group.hosts = "mpi", ("a", "a", "b", "b")
    where = ranks_of(("cuda",), None, group, (), two_hosts())
    case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=16 << 20)
    limits = replace(LIMITS["cuda"], joined="network", hosts=(0, 0, 1, 1))
    links = where.of(case)
    assert links is not None
    way = row_of(case, limits, links)
    assert {"algo", "proto", "channels", "channel_bytes", "chunk"} == set(way)
    found = resolve(case, limits, tuning_without(GPU, 4, "", way)).case
    wanted = resolve(cheapest(case, limits, links), limits).case
    assert (found.algo, found.channels, found.chunk) == (wanted.algo, wanted.channels, wanted.chunk)


@pytest.mark.exhaustive
def test_candidates_are_each_planned_once_and_say_what_they_set() -> None:
    backend = FAMILY.load("cuda")
    assert not backend.is_peer
    case = Case(op="allgather", backend="cuda", ranks=2, size_bytes=1 << 20)
    field = field_of(case, backend)
    assert field.today is not None
    assert (field.today.values, field.today.knobs) == ({}, 0)
    known: dict[str, Value] = {"algo": "ring", "proto": "simple", "channels": 4, "channel_bytes": 1}
    ways = field.ways([known])
    assert (ways[0].knobs, ways[0].text) == (3, "ring simple, channels 4")
    plans = [one.point.plan.digest for one in [field.today, *ways] if one.point.plan is not None]
    assert len(set(plans)) == len(ways) + 1
    assert {one.point.case.transport for one in ways} == {"p2p", "shm", "ce"}
    assert any("ll128" in reason for reason in field.waived)  # over host memory


def test_points_of_other_numbers_of_ranks_and_transports_do_not_mix() -> None:
    ring: dict[str, Value] = {"algo": "ring", "proto": "simple"}
    keep_tuned(GPU, point(1 << 10, ring, ranks=2), point(1 << 10, ring, asked="shm", carrier="shm"))
    assert algorithm(1 << 10) != "ring"
    assert algorithm(1 << 10, transport="shm") == "ring"
    two = Case(op="allreduce", backend="cuda", ranks=2, size_bytes=1 << 10)
    assert resolve(two, LIMITS["cuda"]).case.algo == "ring"
    three = replace(two, ranks=3)
    assert resolve(three, replace(LIMITS["cuda"], joined="PCIe")).case.algo
