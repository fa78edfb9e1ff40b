"""What communication costs computation, without a GPU: rates from marks, rows, the advice, and the
command with stand-in sessions.
"""

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import split
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.backends import FAMILY
from collbench.backends.cuda import backend as cuda
from collbench.backends.gpu import copies
from collbench.backends.gpu.concurrent import EventTimes
from collbench.backends.nccl import backend as nccl
from collbench.bench import run_overlap as _run_overlap
from collbench.bench.overlap import OVERLAP_COLUMNS, compared, progress, times_of
from collbench.bench.tables.overlap import advice
from collbench.cli import run
from collbench.core.errors import HangError, ScheduleError, UnavailableError
from collbench.core.options import OverlapSettings
from collbench.core.pattern import Wrong
from collbench.core.record import COLUMNS as SWEEP
from collbench.core.record import KEY, TEXTS, Record
from collbench.core.text import NARROW_COLUMNS
from collbench.planning.limits import Limits
from tests.support.commands import Capture
from tests.support.overlap import Session, marks, repeat

SETTINGS = OverlapSettings()


def record(**more: Any) -> Record:
    knobs = dict.fromkeys(KEY, 0) | dict.fromkeys(TEXTS, "")
    of: dict[str, Any] = {
        "op": "allreduce",
        "ranks": 2,
        "size_bytes": 1 << 26,
        "status": "ok",
        "busbw_gbs": 100.0,
    }
    return Record(**{**knobs, **of, **more})


# Rates


def test_a_part_of_a_turn_counts_as_that_part() -> None:
    assert progress((0.0, 2.0, 4.0), 1.0, 4.0) == 1.5
    assert progress((1.0, 2.0), 3.0, 4.0) == 0.0


def test_rates_are_taken_while_both_run() -> None:
    """Launches end at 40 ms; what the products do afterwards, undisturbed, does not count."""
    both = EventTimes(
        computing=(*marks(0.0, 2e-3, 20), *marks(41e-3, 1e-3, 20)), launches=marks(0.0, 4e-3, 10)
    )
    times = times_of(replace(repeat(launches=2, ranks=1), both=(both,)))
    assert times.gemm_concurrent == pytest.approx(2e-3)
    assert times.launch_concurrent == pytest.approx(2e-3)
    assert times.gemm_alone == pytest.approx(1e-3)
    assert times.launch_alone == pytest.approx(1e-3)


def test_launches_that_wait_for_all_products_show_what_they_got() -> None:
    """The first replay ends long after the products: in their time it did a fifth of itself, and
    cost them nothing.
    """
    both = EventTimes(computing=marks(0.0, 1e-3, 60), launches=(0.0, 0.3))
    times = times_of(replace(repeat(launch=0.06, ranks=1), both=(both,)))
    assert times.launch_concurrent == pytest.approx(0.3)
    assert times.gemm_concurrent == pytest.approx(1e-3)


def test_the_slowest_rank_counts() -> None:
    slow, fast = repeat(gemm_slower=1.5), repeat(gemm_slower=1.1)
    one = replace(fast, both=(fast.both[0], slow.both[0]))
    assert times_of(one).gemm_concurrent == pytest.approx(1.5e-3)


def test_what_is_moved_for_lost_computing() -> None:
    """Products take 1.25 times as long: a fifth of the time is lost. 2^26 bytes in 2 ms are 33.6 MB
    a ms, 167.8 MB for a lost ms.
    """
    copying = [times_of(repeat(gemm_slower=2.0))] * 3
    row = compared(
        record(), SETTINGS, [times_of(repeat(gemm_slower=1.25, slower=2.0))] * 3, copying
    )
    assert row.gemm_slower == pytest.approx(1.25)
    assert row.memory_slower == pytest.approx(2.0)
    assert row.slower == pytest.approx(2.0)
    assert row.concurrent_us == pytest.approx(2000)
    assert row.mb_per_lost_ms == pytest.approx((1 << 26) / 1e6 / 2 / 0.2)
    assert row.concurrent_busbw_gbs == pytest.approx((1 << 26) / 2e-3 / 1e9)
    assert row.noise_percent == 0.0


def test_a_loss_within_the_noise_is_none() -> None:
    repeats = [repeat(product=product, gemm_slower=1.02) for product in (1e-3, 1.03e-3, 0.99e-3)]
    row = compared(record(), SETTINGS, list(map(times_of, repeats)), list(map(times_of, repeats)))
    assert row.noise_percent == pytest.approx(4.0)
    assert row.gemm_slower == pytest.approx(1.02)
    assert row.mb_per_lost_ms is None


# The command, with sessions that are made up


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Session]]:
    kept = Session.cost, Session.memory, Session.raises, Session.wrong
    Session.opened, Session.closed = [], 0
    for module, name in ((cuda, "CudaSession"), (nccl, "NcclSession"), (copies, "CopySession")):
        monkeypatch.setattr(module, name, Session)
    for opener in (cuda.BACKEND, nccl.BACKEND, copies):
        monkeypatch.setattr(opener, "why_not", lambda group: "")
    monkeypatch.setattr(cuda.BACKEND, "limits", lambda memory: Limits(memory_bytes=memory))
    monkeypatch.setattr(_run_overlap, "why_no_gpus", lambda: "")
    monkeypatch.setattr(_run_overlap, "load_cublas", lambda: None)
    monkeypatch.setattr(_run_overlap, "device_count", lambda: 2)
    yield Session
    Session.cost, Session.memory, Session.raises, Session.wrong = kept


def swept(folder: Path, *options: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code and the rows of the command."""
    file = folder / "rows.csv"
    code = run(["overlap", *options, "--csv", str(file)])
    return code, list(csv.DictReader(file.read_text().splitlines()))


def channels_of(job: Any) -> int:
    return int(job.channels)


def test_messages_are_no_road_beside_products(stand_in: type[Session], capfd: Capture) -> None:
    assert run(["overlap", "--backend", "cuda", "--transport", "all", "--channels", "8"]) == 0
    assert "waived" not in capfd.readouterr().out


def test_rows_table_and_advice(stand_in: type[Session], tmp_path: Path, capfd: Capture) -> None:
    """More channels cost more computing; with few the launches are slow. The advice is worked out
    from the rows.
    """
    cost = {4: (1.02, 2.0), 16: (1.10, 1.05), 64: (1.50, 1.0), 1: (1.04, 1.0), 0: (1.0, 1.0)}
    stand_in.cost = staticmethod(lambda job: cost[channels_of(job)])
    code, rows = swept(tmp_path, "--channels", "4,16,64")
    assert code == 0
    assert tuple(rows[0]) == OVERLAP_COLUMNS
    assert [(row["backend"], row["op"], row["algo"], row["channels"]) for row in rows] == [
        *(("cuda", "allreduce", "ring", channels) for channels in ("4", "16", "64")),
        ("cuda", "allreduce", "twoshot", "1"),
        ("nccl", "allreduce", "library", "0"),
        *(("copies", "sendrecv", "kernel", channels) for channels in ("4", "16", "64")),
        ("copies", "sendrecv", "engine", "0"),
        ("copies", "sendrecv", "host", "0"),
    ]
    assert {
        (row["status"], row["gemm"], row["priority"], row["wrong"], row["size_bytes"])
        for row in rows
    } == {("ok", "8192", "high", "0", str(1 << 26))}
    ctas = [row["ctas"] for row in rows if row["transport"] != "ce"]
    assert ctas == ["4", "16", "64", "0", "4", "16", "64", "0", "0"]
    assert [float(row["gemm_slower"]) for row in rows[:3]] == [1.02, 1.1, 1.5]
    # the noise is 2 %
    losing = [number for number, row in enumerate(rows) if row["mb_per_lost_ms"]]
    assert losing == [1, 2, 3, 6, 7]
    out = capfd.readouterr().out
    assert max(map(len, out.splitlines())) <= NARROW_COLUMNS
    assert "a stream of high priority" in out
    said = " ".join(out[out.rindex("\n64M: ") :].split())
    assert (
        said
        == "64M: 16 channels cost 9.1 % of computing and give 95 % of the bandwidth: 63.91 GB/s; 64"
        " channels cost 33.3 % of computing and give 67.11 GB/s; ce costs 3.8 % of computing and"
        " gives 67.11 GB/s; NCCL costs nothing measurable (noise 2.0 %) and gives 67.11 GB/s;"
        " the copy engine costs nothing measurable (noise 2.0 %) and gives 67.11 GB/s."
    )
    assert [backend for backend, _ in stand_in.opened] == ["cuda", "nccl", "copies"]
    assert stand_in.closed == 3
    assert all(options.is_urgent for _, options in stand_in.opened)


def test_one_gpu_copies(
    stand_in: type[Session], monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setattr(_run_overlap, "device_count", lambda: 1)
    assert run(["overlap", "--channels", "4,8", "--priority", "normal"]) == 0
    out, err = capfd.readouterr()
    assert "nothing travels" in err
    assert "copies on one GPU" in out
    assert [backend for backend, _ in stand_in.opened] == ["copies"]
    assert not stand_in.opened[0][1].is_urgent
    assert "\n64M: 4 channels" in out
    assert run(["overlap", "--backend", "cuda,nccl"]) == 3
    assert "nothing travels" in capfd.readouterr().err


@pytest.mark.parametrize("missing", ["why_no_gpus", "load_cublas"])
def test_no_gpu_and_no_cublas_are_an_environment_that_cannot(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture, missing: str
) -> None:
    def lacks() -> str:
        if missing == "load_cublas":
            raise UnavailableError("CuPy finds no cuBLAS", "it is missing")
        return "it is missing"

    monkeypatch.setattr(_run_overlap, missing, lacks)
    assert run(["overlap", "--backend", "cuda"]) == 3
    assert "it is missing" in capfd.readouterr().err


def test_what_copies_lose_is_said_beside_what_computing_loses(
    stand_in: type[Session], capfd: Capture
) -> None:
    stand_in.cost, stand_in.memory = staticmethod(lambda job: (1.1, 1.0)), 1.25
    assert run(["overlap", "--backend", "nccl,copies", "--channels", "4"]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "4 channels cost 9.1 % of computing and 20.0 % of copying and give" in said
    stand_in.cost = staticmethod(lambda job: (1.0, 1.0))
    assert run(["overlap", "--backend", "copies", "--channels", "4"]) == 0
    assert "4 channels cost 20.0 % of copying and give" in " ".join(capfd.readouterr().out.split())


@pytest.mark.exhaustive
def test_cpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Our collective beside real processes that compute and copy."""
    monkeypatch.setattr(_run_overlap, "why_no_gpus", lambda: "it is missing")
    code, (row,) = swept(tmp_path, *split("--backend cpu --sizes 64K --repeats 2"))
    assert code == 0
    assert (row["status"], row["backend"], row["gemm"], row["wrong"]) == ("ok", "cpu", "0", "0")
    assert min(float(row[name]) for name in ("gemm_us", "gemm_slower", "memory_slower")) > 0
    assert float(row["concurrent_us"]) > 0


def test_what_cannot_run_is_a_row(stand_in: type[Session], tmp_path: Path, capfd: Capture) -> None:
    stand_in.raises = staticmethod(
        lambda job: ScheduleError("too many CTAs") if channels_of(job) == 64 else None
    )
    code, rows = swept(tmp_path, "--backend", "cuda", "--transport", "p2p", "--channels", "8,64")
    assert code == 0
    assert [(row["status"], row["reason"], row["gemm_us"] != "") for row in rows] == [
        ("ok", "", True),
        ("waived", "too many CTAs", False),
    ]
    assert run(["overlap", "--backend", "cuda", "--transport", "p2p", "--channels", "64"]) == 3
    assert "too many CTAs" in capfd.readouterr().err


def test_a_session_that_does_not_open_waives_its_points(
    stand_in: type[Session], monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise UnavailableError("no memory", "use smaller sizes")

    monkeypatch.setattr(copies, "CopySession", refuse)
    assert run(["overlap", "--channels", "8"]) == 0
    assert capfd.readouterr().out.count("waived: no memory; use smaller sizes") == 3


@pytest.mark.parametrize(
    ("error", "code"), [(HangError("rank 1 waited"), 4), (KeyboardInterrupt(), 130)]
)
def test_what_ends_it_keeps_the_rows_before(
    stand_in: type[Session], tmp_path: Path, capfd: Capture, error: Any, code: int
) -> None:
    stand_in.raises = staticmethod(lambda job: error if channels_of(job) == 64 else None)
    ended, rows = swept(tmp_path, "--backend", "cuda", "--transport", "p2p", "--channels", "8,64")
    assert ended == code
    assert [row["status"] for row in rows] == (["ok", "error"] if code == 4 else ["ok"])
    assert "\n64M: 8 channels" in capfd.readouterr().out
    assert stand_in.closed == 1


def test_wrong_results_have_no_times(stand_in: type[Session], tmp_path: Path) -> None:
    stand_in.wrong = (Wrong(rank=1, count=3, index=7, got="0", wanted="1"),)
    code, (row,) = swept(tmp_path, "--backend", "nccl")
    assert code == 1
    assert (row["status"], row["wrong"], row["time_us"], row["gemm_us"]) == ("wrong", "3", "", "")
    assert "rank 1 element 7" in row["reason"]


def test_rows_are_appended_to_a_file_of_the_same_columns(tmp_path: Path, capfd: Capture) -> None:
    file = tmp_path / "rows.csv"
    for _ in range(2):
        assert run(["overlap", "--backend", "nccl", "--csv", str(file)]) == 0
    assert len(file.read_text().splitlines()) == 3
    file.write_text(",".join(SWEEP) + "\n")
    assert run(["overlap", "--backend", "nccl", "--csv", str(file)]) == 2
    assert "does not have the columns" in capfd.readouterr().err


def test_rows_on_stdout_stand_alone(capfd: Capture) -> None:
    assert run(["overlap", "--backend", "nccl", "--csv", "-"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[0] == ",".join(OVERLAP_COLUMNS)
    assert len(out.splitlines()) == 2
    assert "nccl" in err


def test_other_collectives_and_senseless_options(capfd: Capture) -> None:
    assert run([*split("overlap --op all_gather --backend cuda --sizes 1M,16M --channels 8")]) == 0
    out = capfd.readouterr().out
    assert "allgather of 2 ranks" in out
    assert "\n1M: 8 channels" in out
    assert "\n16M: 8 channels" in out
    for wrong in (
        ["--op", "gossip"],
        ["--sizes", "0"],
        ["--backend", "gloo"],
        ["--channels", "0"],
        ["--gemm", "12"],
        ["--repeats", "1"],
    ):
        assert run(["overlap", *wrong]) == 2, wrong
    assert "Traceback" not in capfd.readouterr().err


def test_transports_are_told_apart(stand_in: type[Session], capfd: Capture) -> None:
    stand_in.cost = staticmethod(lambda job: (1.1, 1.0) if job.transport == "p2p" else (1.2, 4.0))
    command = ["overlap", "--backend", "cuda", "--channels", "4,8", "--transport"]
    assert run([*command, "auto,shm"]) == 0
    out = capfd.readouterr().out
    assert out.count("ring simple shm") == 2
    assert "; shm costs 16.7 %" in " ".join(out[out.rindex("\n64M: ") :].split())
    assert run([*command, "ce"]) == 0
    assert "\n64M: ce costs 16.7 % of computing" in capfd.readouterr().out
    assert advice([]) == []


def test_copies_are_no_backend_of_the_sweep() -> None:
    assert not {"base", "gpu", "net", "copies"} & set(FAMILY.names())


def test_a_group_on_two_hosts_has_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert "2 hosts" in copies.why_not(SimpleNamespace(hosts=("a", "b")))
