"""The nccl backend without a GPU: what is forced and how, what is waived, rows and processes of a
sweep. Stand-ins take NCCL's place.
"""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shlex import split
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from collbench.backends.base import Batch, GpuOptions, Samples, Session
from collbench.backends.nccl import backend as nccl
from collbench.backends.nccl import release
from collbench.backends.repeat import RankTiming
from collbench.bench.sweep import Sweep, cases
from collbench.cli import run
from collbench.core.case import Case
from collbench.core.collectives import UNEVEN_OPS, OpName, collective
from collbench.core.errors import HangError, RefusedError, UnavailableError
from collbench.core.options import LaunchMode
from collbench.core.peers import PEERS, Variables, forced_by
from collbench.core.record import read
from collbench.launch.local import LocalGroup
from tests.support.commands import Capture
from tests.support.gpus_in_threads import Machine, run_on
from tests.support.nccl_in_threads import nccl_on

SWEEP = ["sweep", "--backend", "model,nccl", "--ranks", "2", "--repeats", "2", "--nccl", "plain"]
Forced = tuple[str, str, int, int]


def case(**more: Any) -> Case:
    given: dict[str, Any] = {
        "op": "allreduce",
        "backend": "nccl",
        "algo": "library",
        "proto": "",
        "ranks": 4,
    }
    return Case(**{**given, "size_bytes": 4096, **more})


def asked(*backends: str, **knobs: Any) -> list[Case]:
    """The cases of a sweep whose knobs the user asked for."""
    of: dict[str, Any] = {"sizes": (4096,), "ranks": (4,), "backend": backends, "knobs": knobs}
    return cases(Sweep(**of, asked=frozenset(knobs)), PEERS)


def ways(**knobs: Any) -> list[Forced]:
    return [(c.algo, c.proto, c.channels, c.buffsize) for c in asked("nccl", **knobs)]


def test_its_own_choice_comes_first_and_once() -> None:
    own = ("library", "", 0, 0)
    assert ways() == [own]
    assert ways(algo=("auto",), proto=("auto",)) == [own]
    assert ways(algo=("ring", "twoshot", "chain"), proto=("ll",)) == [
        own,
        ("ring", "ll", 0, 0),
        ("chain", "ll", 0, 0),
    ]
    assert ways(algo=("oneshot",), channels=(1, 2)) == [own]
    assert ways(proto=("auto", "simple"), channels=(2,)) == [
        own,
        ("library", "", 2, 0),
        ("library", "simple", 2, 0),
    ]
    assert ways(slots=(2, 4), chunk=(4096,), buffsize=(65536,)) == [own, ("library", "", 0, 65536)]


def test_values_that_nobody_asked_for_force_nothing() -> None:
    knobs = {"proto": ("simple", "ll"), "channels": (2,)}
    found = cases(Sweep(sizes=(4096,), backend=("nccl", "mpi"), knobs=knobs), PEERS)
    assert [(c.backend, c.algo, c.proto, c.channels) for c in found] == [
        ("nccl", "library", "", 0),
        ("mpi", "library", "", 0),
    ]


class StandIn(Session[Case]):
    """In place of NcclSession: a clock that is never read, and a log of who was open when."""

    open: ClassVar[list[Variables]] = []
    log: ClassVar[list[tuple[str, Variables]]] = []
    refused: ClassVar[tuple[str, str] | None] = None
    device, version = "stand-in", "stand-in"

    def __init__(self, group: Any, cases: Sequence[Case], *, hot: bool, options: Any) -> None:
        (self.variables,) = {forced_by(case) for case in cases}
        if ("NCCL_PROTO", "LL128") in self.variables:
            raise RefusedError("NCCL does not make a communicator: nothing", "ask why")
        self.open.append(self.variables)
        self.log.append(("open", self.variables))

    def run(self, case: Case, batch: Batch) -> Samples:
        assert forced_by(case) == self.variables
        assert len(self.open) <= 2  # one set of processes beside the library's own choice
        if self.refused in self.variables:
            raise RefusedError("NCCL does not do allreduce: invalid usage")
        return Samples(seconds=(1e-6, 1e-6), notes=("in-cache",))

    def close(self) -> None:
        self.open.remove(self.variables)
        self.log.append(("close", self.variables))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    monkeypatch.setattr(nccl, "NcclSession", StandIn)
    monkeypatch.setattr(nccl.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(StandIn, "open", [])
    monkeypatch.setattr(StandIn, "log", [])
    return StandIn


def test_each_set_of_variables_has_processes_once_one_after_the_other(
    stand_in: type[StandIn], tmp_path: Path
) -> None:
    file = tmp_path / "out.csv"
    options = split("--algo ring,twoshot --channels 1,2 --sizes 1K,64K,1M --csv")
    assert run([*SWEEP, *options, str(file)]) == 0
    assert [(what, len(variables)) for what, variables in stand_in.log] == [
        ("open", 0),
        *[("open", 5), ("close", 5)] * 2,
        ("close", 0),
    ]
    rows = [row for row in read(file) if row.backend == "nccl"]
    assert [(row.algo, row.channels, row.ctas, row.size_bytes) for row in rows] == [
        (algo, channels, channels, size)
        for algo, channels in (("library", 0), ("ring", 1), ("ring", 2))
        for size in (1024, 65536, 1 << 20)
    ]
    assert {(row.status, row.notes, row.proto, row.buffsize) for row in rows} == {
        ("ok", "in-cache", "", 0)
    }
    assert len({row.key for row in rows}) == 9


class Release(StandIn):
    """In place of the session of a release in a file: the one called newer takes a fifth longer."""

    def __init__(self, *_: Any, variables: Variables, **__: Any) -> None:
        self.name = Path(dict(variables)["LD_PRELOAD"]).name
        self.version = {"older": "nccl 2.98.1", "newer": "nccl 2.99.0", "other": "nccl 2.1.1"}[
            self.name
        ]
        self.log.append((self.name, ()))

    def run(self, case: Case, batch: Batch) -> Samples:
        self.log.append((self.name, ()))
        return Samples(seconds=(1.2e-3 if self.name == "newer" else 1e-3,))

    def close(self) -> None:
        self.log.append((f"{self.name} closed", ()))


def test_releases_take_turns_and_are_held_against_the_first(
    stand_in: type[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setattr(release, "NcclSession", Release)
    monkeypatch.setattr(release, "RELEASES", {})
    monkeypatch.setattr(release.NcclRelease, "why_not", lambda self, group: "")
    for name, version in (("older", "2.98.1"), ("newer", "2.99.0"), ("other", "2.97.0")):
        (tmp_path / name).write_text(f"libnccl\0NCCL version {version}+cuda13.0\0")
    line = split("sweep --backend model,nccl --ranks 2 --repeats 5 --nccl plain --sizes 8K,1M,4M")
    both = ["--nccl-library", str(tmp_path / "older"), "--nccl-library", str(tmp_path / "newer")]
    assert run([*line, *both, "--csv", str(tmp_path / "rows.csv")]) == 0
    names = [name for name, _ in stand_in.log]
    assert names[:2] == ["older", "newer"]  # both are open while either is measured
    assert names[-2:] == ["older closed", "newer closed"]
    runs = names[2:-2]
    assert runs.index("newer") < len(runs) - 1 - runs[::-1].index("older")
    assert {row.backend for row in read(tmp_path / "rows.csv")} == {
        "model",
        "nccl-2.98.1",
        "nccl-2.99.0",
    }
    said = " ".join(capfd.readouterr().out.split())
    assert "new nccl-2.99.0, base nccl-2.98.1" in said
    assert "3 rows compared: 0 better, 3 worse" in said
    assert run([*line, "--nccl-library", str(tmp_path / "other")]) == 0
    assert "was not loaded: ranks have nccl 2.1.1" in capfd.readouterr().out
    for text, problem in (("none", "is no library of NCCL"), ("", "cannot be read")):
        (tmp_path / "none").write_text(text)
        assert run([*line, "--nccl-library", str(tmp_path / "none")]) == 2
        assert problem in capfd.readouterr().err


def test_resume_tells_what_was_forced_from_what_was_not(
    stand_in: type[StandIn], tmp_path: Path, capfd: Capture
) -> None:
    file = tmp_path / "out.csv"
    command = [*SWEEP, "--sizes", "1K", "--csv", str(file), "--algo"]
    assert run([*command, "ring"]) == 0
    assert run([*command, "ring,chain", "--resume"]) == 0
    assert "3 of 5 points" in capfd.readouterr().err
    assert [row.algo for row in read(file) if row.backend == "nccl"] == ["library", "ring", "chain"]


def test_a_refusal_waives_what_was_forced_and_nothing_else(
    stand_in: type[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.csv"
    monkeypatch.setattr(StandIn, "refused", ("NCCL_ALGO", "Tree"))
    command = split("sweep --backend nccl --nccl plain --ranks 2 --algo ring,chain")
    assert run([*command, *split("--proto auto,ll128 --sizes 1K,1M --csv"), str(file)]) == 0
    rows = {(row.algo, row.proto): (row.status, row.reason) for row in read(file)}
    assert rows == {
        ("library", ""): ("ok", ""),
        ("ring", ""): ("ok", ""),
        ("ring", "ll128"): ("waived", "NCCL does not make a communicator: nothing; ask why"),
        ("chain", ""): ("waived", "NCCL does not do allreduce: invalid usage"),
        ("chain", "ll128"): ("waived", "NCCL does not make a communicator: nothing; ask why"),
    }
    assert len(read(file)) == 10


def test_the_table_compares_with_its_own_choice_alone(
    stand_in: type[StandIn], capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what is forced is faster than anything; prices all, because they are compared with nothing
    # measured
    seconds = {(): 8e-3}
    monkeypatch.setattr(
        StandIn,
        "run",
        lambda self, case, batch: Samples(
            seconds=(seconds.get(self.variables, 1e-9),), notes=("modelled",)
        ),
    )
    monkeypatch.setenv("COLUMNS", "120")
    assert run([*SWEEP, "--algo", "ring,twoshot", "--channels", "1,2", "--sizes", "1M"]) == 0
    out = capfd.readouterr().out
    told, best, *_ = [part.splitlines() for part in out.split("\n\n")]
    table = [line for line in told if not line.startswith("#")]
    assert table[0].split()[:5] == ["size", "algo", "backend", "ch", "time"]
    assert [line.split()[1:4] for line in table[1:] if "nccl" in line] == [
        ["library", "nccl", "8000"],
        ["ring", "nccl", "1"],
        ["ring", "nccl", "2"],
    ]
    *_, heading, row = best
    assert "auto" in heading and heading.split()[-1] == "nccl"
    time_us = float(re.search(r" ([\d.]+) +[\d.]+  ", row)[1])  # type: ignore[index]
    assert float(row.split()[-1]) == pytest.approx(8e3 / time_us, rel=0.01)


def test_it_says_what_reaches_the_library(stand_in: type[StandIn], capfd: Capture) -> None:
    assert run([*SWEEP, *split("--algo ring,twoshot --channels 1,2 --slots 4 --sizes 1K,1M")]) == 0
    said = capfd.readouterr().err.splitlines()[0]
    assert "2 sets of processes" in said and "--slots, --algo twoshot do not reach it" in said
    assert run([*SWEEP, "--algo", "auto", "--sizes", "1K"]) == 0
    assert capfd.readouterr().err == ""
    assert run(["sweep", "--backend", "cpu", "--nccl", "window"]) == 2
    assert "--nccl: no point of this sweep is of NCCL" in capfd.readouterr().err


def test_a_dry_run_shows_the_variables(stand_in: type[StandIn], capfd: Capture) -> None:
    assert run([*SWEEP, "--algo", "chain", "--sizes", "1K", "--dry-run"]) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if " nccl  " in line]
    assert [line.rpartition("  ")[2] for line in lines] == [
        "its own choice, plain buffers",
        "NCCL_ALGO=Tree, plain buffers",
    ]


def test_every_kind_of_user_buffers_is_measured_and_the_fastest_compared_with(
    stand_in: type[StandIn], capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"plain": 8e-3, "registered": 4e-3, "window": 2e-3}
    monkeypatch.setattr(
        StandIn,
        "run",
        lambda self, case, batch: Samples(seconds=(seconds[case.buffers],), notes=("modelled",)),
    )
    assert run([*SWEEP[:-2], "--algo", "ring", "--sizes", "1M"]) == 0
    told, _, *_ = out = capfd.readouterr().out.split("\n\n")
    lines = [line for line in told.splitlines() if not line.startswith("#")]
    rows = [line.split() for line in lines if " nccl " in line]
    # what is forced has plain buffers, if nobody asked for others
    assert [(row[1], "registered" in row, "window" in row) for row in rows] == [
        ("library", False, False),
        ("library", True, False),
        ("library", False, True),
        ("ring", False, False),
    ]
    assert "Speedup over the fastest library: " in out[-1] and "(nccl window at 1M)" in out[-1]
    assert "on the buffers that it is fastest with" in " ".join(" ".join(out).split())
    *_, heads, best = next(part for part in out if "  size  best" in part).splitlines()
    assert heads.split()[-2:] == ["nccl", "buffers"]
    time_us = re.search(r"ring \w+ +([\d.]+)", best)[1]  # type: ignore[index]
    *_, nccl_us, ratio, buffers = best.split()
    assert (nccl_us, buffers) == ("2000", "window")
    assert float(ratio) == pytest.approx(2e3 / float(time_us), rel=0.01)


def test_buffers_that_are_asked_for_are_those_of_what_is_forced_too() -> None:
    found = asked("cuda", "nccl", "mpi", algo=("ring",), buffers=("registered", "window"))
    assert [(c.backend, c.algo, c.buffers) for c in found] == [
        ("cuda", "ring", "plain"),
        ("nccl", "library", "registered"),
        ("nccl", "library", "window"),
        ("nccl", "ring", "registered"),
        ("nccl", "ring", "window"),
        ("mpi", "library", "gpu"),
    ]


def test_sends_and_receives_have_other_registered_buffers_than_collectives() -> None:
    found = {
        (buffers, op): nccl.memory_of(case(op=op, buffers=buffers))
        for buffers in ("plain", "window")
        for op in ("alltoall", "sendrecv", "allreduce", "broadcast")
    }
    assert set(found.values()) == {("plain", False), ("window", True), ("window", False)}
    assert {op for (_, op), memory in found.items() if memory[1]} == {"alltoall", "sendrecv"}


@pytest.mark.parametrize("launch", ["graph", "stream"])
def test_ranks_that_hang_give_everything_back(
    launch: LaunchMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 keeps silent once all is right, where graphs hold launches of the communicator."""
    pretended = nccl_on(Machine(1, hangs_s=0.5), monkeypatch)
    run_on(pretended.machine, 2, monkeypatch)
    options = GpuOptions(launch=launch)
    one = case(op="alltoall", ranks=2, buffers="window")
    timed = nccl.NcclRank.timed

    def silent(rank: nccl.NcclRank, *args: Any) -> RankTiming:
        rank.options = replace(rank.options, inject="drop")
        rank.graphs.clear()
        return timed(rank, *args)

    with closing(nccl.NcclSession(LocalGroup(), [one], hot=True, options=options)) as session:
        assert session.run(one, Batch(iterations=3)).wrong == ()
        monkeypatch.setattr(nccl.NcclRank, "timed", silent)
        with pytest.raises(HangError):
            session.run(one, Batch(iterations=3))
    assert (pretended.faults, pretended.left()) == ([], [])
    assert {comm.state for comm in pretended.comms if comm.rank} == {"aborted"}


@pytest.mark.parametrize("op", UNEVEN_OPS)
def test_groups_of_calls_move_unequal_blocks(op: OpName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty ones among them."""
    pretended = nccl_on(Machine(2), monkeypatch)
    run_on(pretended.machine, 5, monkeypatch)
    given = [
        case(op=op, ranks=5, skew=skew, placement="in" if in_place else "out").rounded()
        for skew in ("zipf:1", "hot:1")
        for in_place in (False, True)[: 1 + collective(op).has_in_place]
    ]
    with closing(nccl.NcclSession(LocalGroup(), given, hot=True, options=GpuOptions())) as session:
        assert not any(session.run(one, Batch(iterations=3)).wrong for one in given)
    assert (pretended.faults, pretended.left()) == ([], [])


def test_a_missing_nccl_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UnavailableError("there is no NCCL", "install it")

    monkeypatch.setattr(nccl, "why_no_gpus", lambda: "")
    monkeypatch.setattr(nccl, "load_nccl", missing)
    assert nccl.BACKEND.why_not(SimpleNamespace(hosts=("a",))) == "there is no NCCL"


def test_the_binding_has_the_functions_and_numbers_that_are_used() -> None:
    binding = pytest.importorskip("nccl.bindings.nccl")
    numbers = {kind.name.lower(): int(kind) for kind in binding.DataType}
    for name in ("uint8", "float16", "bfloat16", "float8_e5m2"):
        assert numbers[name.replace("8_", "8")] == nccl.NCCL_TYPES[name]
    assert {op.name.lower(): int(op) for op in binding.RedOp}.items() >= nccl.NCCL_REDOPS.items()
