"""`collbench sweep` on the model backend, whose times are invented: tables, files and exit codes
are exact.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path
from shlex import split

import pytest

from collbench.backends.cpu.interpreter import Runner
from collbench.bench.tables.run import tail_lines
from collbench.bench.tables.sizes import size_lines
from collbench.compare.tables.summary import summary_lines
from collbench.core.host import has_nvidia_gpus
from collbench.core.record import Record, header, read, to_line
from tests.support import frames
from tests.support.algorithm_files import pairs
from tests.support.commands import MODEL, ONE_REPEAT, Says, forget_tuning
from tests.support.corrupt import late
from tests.support.runs import needs_mpi
from tests.support.tiers import tiered


def table_of(out: str) -> list[str]:
    """The rows that a sweep prints, below the lines that say what is measured, and its closing
    table.
    """
    head, _, rest = out.partition("  size")
    assert all(line.startswith("# ") for line in head.splitlines())
    table, _, _ = f"  size{rest}".partition(" rows, ")
    return table.splitlines()[:-1]


def test_a_sweep_of_the_model_is_exact(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    out, err = says(0, *MODEL, "--sizes", "64K,1M", "--algo", "ring,twoshot", "--csv", file)
    assert err == ""
    again = says(0, *MODEL, "--sizes", "64K,1M", "--algo", "ring,twoshot").out
    assert table_of(again) == table_of(out)
    rows = read(file)
    assert [(row.algo, row.size_bytes) for row in rows] == [
        ("ring", 65536),
        ("twoshot", 65536),
        ("ring", 1 << 20),
        ("twoshot", 1 << 20),
    ]
    for row in rows:
        assert row.status == "ok"
        # the tool's own choice of a MiB
        assert row.notes == (
            "modelled auto" if (row.algo, row.size_bytes) == ("twoshot", 1 << 20) else "modelled"
        )
        assert row.wrong is None
        assert row.time_us is not None
        assert row.algbw_gbs == pytest.approx(row.size_bytes / row.time_us / 1000, rel=1e-4)
        assert row.busbw_gbs == pytest.approx(1.5 * row.size_bytes / row.time_us / 1000, rel=1e-4)
    assert table_of(out)[0].split() == ["size", "algo", "time", "us", "busbw", "GB/s", "notes"]
    assert "best" in out


def test_the_model_prices_a_launch_alone_and_says_what_decided(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "alone.csv"
    knobs = ("--algo", "chain", "--proto", "simple", "--channels", "16", "--chunk", "256K")
    on = ("--backend", "model", "--machine", "pcie-4", "--op", "broadcast", "--sizes", "64M")
    for more in (knobs, (*knobs, "--isolate"), ("--algo", "auto")):
        says(0, "sweep", *on, *more, "--csv", file)
    behind, alone, opened = read(file)
    assert "isolated" in alone.notes.split() and alone.point != behind.point
    assert behind.time_us is not None and alone.time_us is not None
    formula = (16 + 4 - 2) / 16  # S = 16 chunks along K = 4 ranks
    assert alone.time_us / behind.time_us == pytest.approx(formula, rel=0.02)
    assert (behind.chosen, alone.chosen, opened.chosen) == ("asked", "asked", "priced")


def test_a_sweep_says_first_whether_a_tuning_file_decided(says: Says, home: Path) -> None:
    sweep = ("sweep", "--backend", "reference", "--algo", "ring", "--sizes", "64", "--ranks", "2")
    file = home / "collbench/tuning/mine.toml"
    file.parent.mkdir(parents=True)
    machine = '[machine]\nkind = "cpu"\nmodels = []\njoined = "memory"\nranks = [2]\n'
    rows = '[mine]\nsource = "a sweep"\nrows = [{ slots = 8 }]\n'
    before = says(0, *sweep).out
    file.write_text(f'title = "my cores"\n{machine}{rows}')
    forget_tuning()
    out = says(0, *sweep).out
    file.write_text(f'title = "my cores"\n{machine}{rows.replace("8", "0")}')
    forget_tuning()
    err = says(2, *sweep).err
    told = "# auto: no tuning file fits this machine; by cpu (2 cores of an AMD EPYC)"
    assert before.splitlines()[1] == told
    joined = re.sub(r"\n#  |\s", "", out)  # the name of the file is cut where the line ends
    assert f"#auto:bytuningfile{file}(mycores),whichfitsthismachine#" in joined
    assert f"tuning file {file}: [mine.rows[0]] slots: 0 is too small" in " ".join(err.split())


def test_a_prediction_is_no_result_beside_what_was_measured(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    says(0, *MODEL, "--algo", "ring", "--sizes", "1M", "--csv", file)
    (predicted,) = read(file)
    measured = replace(predicted, backend="cpu", notes="", wrong=0, busbw_gbs=1.0, time_us=1000.0)
    lines = tail_lines([predicted, measured], 1, 2.0, "", 80)
    assert lines[0] == "2 rows, every element of 1 compared, 0 wrong, 2 s."
    assert lines[1:] == [
        "Highest bus bandwidth: 1.00 GB/s, ring at 1M.",
        "Lowest time: 1000 us, ring at 1M.",
    ]


def test_columns_are_as_wide_as_their_values(says: Says) -> None:
    given = ("--algo", "ring", "--sizes", "1K,1000003", "--dtype", "int8,float8_e4m3fn")
    out = says(0, "sweep", "--backend", "model", *given).out
    heads, *rows = [line for line in out.splitlines() if line[:1] == " "][:5]
    assert {row.index("ring") for row in rows} == {heads.index("algo")}
    assert {len(row) for row in rows} == {heads.index("notes") + len("modelled")}


@tiered(
    ("settings", "said"),
    [((), "every element compared, 0 wrong"), (("--check", "0"), "no element compared")],
    1,
)
def test_a_sweep_says_how_it_measures(says: Says, settings: tuple[str, ...], said: str) -> None:
    given = (
        "sweep --backend cpu --ranks 2 --algo ring --sizes 1K --dtype int8 --repeats 2 --iters 3"
    )
    out = says(0, *given.split(), *settings).out
    text = " ".join(line.removeprefix("#").strip() for line in out.splitlines())
    assert "allreduce: sum of int8; 2 ranks on 1 host: " in text
    assert "size 1K, carried by shared memory" in text
    assert "2 repeats of 3 launches, the median, of the slowest rank" in text
    assert "versions: collbench " in text
    assert f"1 row, {said}, " in text


@tiered("columns", ["80", "160"], 1)
def test_single_launches_have_columns_and_the_jitter_is_said(
    says: Says, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    file, few = tmp_path / "out.csv", ("--sizes", "1K,2K", "--distribution", "100")
    out = says(0, *ONE_REPEAT, *few, "--csv", file).out
    heading, *lines = table_of(out)[:3]
    assert " time us     p50     p99   p99.9     max  " in heading
    assert ("busbw" in heading) == (columns == "160")
    assert max(map(len, lines)) <= int(columns)
    rows = read(file)
    for row, line in zip(rows, lines, strict=True):
        assert row.p50_us is not None
        assert row.p99_us is not None
        assert row.max_us is not None
        assert row.p50_us <= row.p99_us <= row.max_us
        assert row.p999_us is None
        assert line.split()[5] == "-"
        assert sum(dict(row.histogram).values()) == 100
    text = " ".join(" ".join(line.lstrip("# ") for line in out.splitlines()).split())
    assert "then 100 launches of each point one by one" in text
    assert re.search(r"Jitter: 1 launch in 100 takes \S+ us more than the median launch", text)
    assert "p99.9 is not known of 2 of 2 rows: it needs 1,000 launches of a row" in text
    shown = says(0, "compare", file).out
    assert len(re.findall(r"^ +[12]K  cpu ring simple +\S+ +\S+ +- +\S+$", shown, re.M)) == 2
    pair = says(0, "compare", file, _slower(rows, tmp_path / "base.csv")).out
    assert "p50 x 0.50, p99 x 0.50, max x 0.50 (medians of 2 rows" in " ".join(pair.split())


def _slower(rows: list[Record], file: Path) -> str:
    """The rows with single launches of twice the time, as a file."""
    changed = [
        replace(
            row,
            p50_us=2 * (row.p50_us or 0.0),
            p99_us=2 * (row.p99_us or 0.0),
            max_us=2 * (row.max_us or 0.0),
        )
        for row in rows
    ]
    file.write_text(header() + "".join(map(to_line, changed)))
    return str(file)


@pytest.mark.exhaustive
def test_a_price_is_not_the_best_of_what_was_measured(says: Says) -> None:
    args = [
        *split("sweep --backend cpu,model --machine cpu-2 --ranks 2 --op allreduce --repeats 2"),
        *split("--sizes 1K --algo all --all"),
    ]
    # several tied ones stand in one line
    out = says(0, *args).out
    measured, priced = out.split("  size  best")[1:]  # a table each
    assert all(table.splitlines()[1].split()[0] == "1K" for table in (measured, priced))
    assert "allreduce, 2 ranks, modelled" in measured and "modelled" not in priced


@pytest.mark.exhaustive
def test_auto_on_a_described_machine_is_what_its_wires_price_lowest(
    says: Says, tmp_path: Path
) -> None:
    files = [tmp_path / "all.csv", tmp_path / "auto.csv"]
    for file, more in zip(files, (["--algo", "all"], []), strict=True):
        words = "sweep --backend model --machine dgx-1v --op allreduce,broadcast,alltoall"
        says(0, *split(f"{words} --sizes 1K,1M,256M --csv"), file, *more)
    every, auto = map(read, files)
    assert len(auto) == 3 * 3
    for row in auto:
        same = {
            other.algo: other.time_us
            for other in every
            if (other.op, other.size_bytes) == (row.op, row.size_bytes) and other.time_us
        }
        assert row.time_us == same[row.algo] == min(same.values())
        assert "auto" in row.notes.split()
    assert {(row.op, row.algo, row.size_bytes) for row in every if "auto" in row.notes.split()} == {
        (row.op, row.algo, row.size_bytes) for row in auto
    }
    assert {row.algo for row in auto if row.op == "allreduce"} > {"oneshot"}


def test_csv_to_stdout_is_only_csv(says: Says) -> None:
    out, err = says(0, *MODEL, "--sizes", "64K", "--algo", "ring", "--csv", "-")
    assert out.startswith("op,backend,")
    assert len(out.splitlines()) == 2
    assert "ring" in err


@needs_mpi
@pytest.mark.skipif(has_nvidia_gpus(), reason="this host has GPUs")
def test_mpi_stands_beside_ours_without_being_asked_for(says: Says) -> None:
    out, err = says(0, "sweep", "--sizes", "1K", "--algo", "ring", "--dry-run")
    assert err == ""
    assert [line.split()[2] for line in out.splitlines()[2:-1]] == ["backend", "cpu", "mpi"]


def test_without_mpi_ours_are_alone(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sweep_rules", "run_sweep"):
        monkeypatch.setattr(f"collbench.bench.{module}.has_nvidia_gpus", lambda: False)
    monkeypatch.setattr("collbench.bench.sweep_rules.find_spec", lambda name: None)
    out = says(0, "sweep", "--sizes", "1K", "--algo", "ring", "--dry-run").out
    assert "carried by shared memory\n" in out and " backend " not in out


def test_waived_rows_say_why(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    err = says(
        0,
        *MODEL[:3],
        *split("--ranks 1,2 --algo oneshot --op allreduce,gather --root 0,5 --sizes 4,64K"),
        "--csv",
        file,
    ).err
    reasons = {row.reason for row in read(file) if row.status == "waived"}
    assert any("nothing travels" in reason for reason in reasons)
    assert any("does not serve gather" in reason for reason in reasons)
    assert any("root 5 is not one of 2" in reason for reason in reasons)
    assert any("less than one float32 element" in reason for reason in reasons)
    assert err == ""


def test_sizes_are_rounded_to_blocks_once(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    says(0, *MODEL[:3], *split("--ranks 3 --op allgather --sizes 100,101,107 --csv"), file)
    assert {row.size_bytes for row in read(file)} == {96}
    assert {row.count for row in read(file)} == {8}


def test_one_gpu_has_nobody_to_talk_to(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sweep_rules", "run_sweep"):
        monkeypatch.setattr(f"collbench.bench.{module}.has_nvidia_gpus", lambda: True)
    monkeypatch.setattr("collbench.bench.sweep_rules.gpus_here", lambda: 1)
    out, err = says(0, "sweep", "--sizes", "1K")
    assert err == ""
    assert "nothing travels" in out


@pytest.mark.parametrize("more", [(), ("--groups", "0,1"), ("--mix", "allreduce:1K", "-g", "2")])
def test_gpus_without_cupy_are_no_reason_to_measure_processors(
    says: Says, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    for module in ("ranks", "sweep_rules", "run_sweep"):
        monkeypatch.setattr(f"collbench.bench.{module}.has_nvidia_gpus", lambda: True)
    monkeypatch.setitem(sys.modules, "cupy", None)
    out, err = says(3, "sweep", *(more or ("--sizes", "1K")))
    assert out == ""
    assert "pip install 'collbench[cuda13]'" in err


@pytest.mark.skipif(has_nvidia_gpus(), reason="this host has GPUs")
def test_a_gpu_backend_without_gpus_is_waived(says: Says) -> None:
    out, err = says(3, "sweep", "--backend", "cuda,nccl", "--sizes", "1K", "--algo", "ring")
    assert len(re.findall(r"waived, \d+ points: this host has no NVIDIA GPU\n", out)) == 1
    assert "every point was waived: this host has no NVIDIA GPU" in err
    assert "Hint: give --backend cpu to measure the CPUs" in err


def test_points_of_a_dry_run_keep_to_the_screen(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("sweep", "--backend", "cpu", "-g", "2", "--op", "reduce", "--sizes", "1M", "--dry-run")
    whole = says(0, *words).out
    assert max(map(len, whole.splitlines())) > 80
    monkeypatch.setattr("collbench.bench.run_sweep.is_terminal", lambda stream: True)
    shown = says(0, *words, COLUMNS="80").out
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.split() == whole.split()


@pytest.mark.skipif(has_nvidia_gpus(), reason="says that there are no GPUs")
def test_a_soak_without_gpus_ends_with_3(says: Says) -> None:
    err = says(3, "sweep", "--soak", "1", "--backend", "cuda", "--ranks", "2", "--sizes", "1K").err
    assert err.splitlines()[0] == "Error: nothing to soak: this host has no NVIDIA GPU"


@pytest.mark.exhaustive
@pytest.mark.parametrize("placement", ["out", "in"])
def test_a_soak_of_cpus_compares_every_launch(
    says: Says, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    soak = ("sweep", "--soak", "1", "--backend", "cpu", "--ranks", "2", "--sizes", "4K")
    more = ("--op", "allreduce", "--proto", "simple", "--placement", placement)
    out, err = says(0, *soak, *more)
    assert err == ""
    assert out.endswith("; 0 bursts wrong\n")
    monkeypatch.setattr(Runner, "launch", late)
    assert "wrong: allreduce" in says(1, *soak, *more).out


def test_every_point_waived_when_the_gpus_are_opened_ends_a_soak(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collbench.backends.cuda import backend as cuda
    from collbench.core.errors import UnavailableError

    def refuse(*args: object, **options: object) -> None:
        raise UnavailableError("8 ranks, 4 GPUs", "use fewer --ranks")

    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: 0)
    monkeypatch.setattr(cuda, "CudaSession", refuse)
    err = says(3, *split("sweep --soak 600 --backend cuda --ranks 8 --sizes 1K --algo ring")).err
    assert "8 ranks, 4 GPUs" in err


@pytest.mark.parametrize("size", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_one_rank_under_a_launcher_is_told_of_its_own(
    says: Says, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where nobody asked for so many."""
    monkeypatch.setenv(size, "1")
    words = ("sweep", "--backend", "cpu", "--algo", "ring", "--sizes", "1K", "--dry-run")
    out, err = says(0, *words)
    (said,) = re.findall(r"^# One rank under a launcher: this process starts (\d+) of its own", err)
    assert f"; {said} ranks on" in out
    assert "One rank" not in says(0, *words, "--ranks", "3").err


def test_a_file_is_an_algorithm(says: Says, tmp_path: Path) -> None:
    """Its ranks and collective are those of the sweep, and rows name it with a digest."""
    file, csv = tmp_path / "Mine.xml", tmp_path / "out.csv"
    file.write_text(pairs())
    args = ["sweep", "--algo", f"{file},ring", "--backend", "reference,model", "--repeats", "1"]
    args += ["--sizes", "1K,100", "--placement", "in,out", "--csv", str(csv)]
    out = says(0, *args).out
    rows = read(csv)
    assert {(row.op, row.ranks, row.status) for row in rows} == {("allreduce", 2, "ok")}
    (name,) = {row.algo for row in rows} - {"ring"}
    assert name.startswith("Mine@")
    assert name in out
    assert "16 of 16 points are in" in says(0, *args, "--resume").err
    assert "16 rows: 16 ok" in says(0, "compare", csv).out
    err = says(3, *MODEL[:3], "--ranks", "3", "--sizes", "1K", "--algo", file).err
    assert f"{name} is allreduce over 2 ranks" in err


def test_a_sweep_is_short_and_shown_by_its_sizes(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    out = says(0, *MODEL, "--machine", "hgx-h100", "--csv", file).out
    assert len(read(file)) == 8 and len(out.splitlines()) <= 40
    assert {row.notes for row in read(file)} == {"modelled auto"}
    names = re.findall(r"^ +(?:1K|16M) +(\S+) (\S+)", out, re.MULTILINE)
    assert names == [(row.algo, row.proto) for row in (read(file)[0], read(file)[-1])]


def test_a_grid_is_folded_and_all_shows_every_row(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    grid = (*MODEL, "--algo", "all", "--sizes", "1M")
    out = says(0, *grid, "--csv", file).out
    rows = sorted(read(file), key=lambda row: row.time_us or 0)
    (line,) = re.findall(r"^ +1M .*$", out, re.MULTILINE)
    assert len(rows) > 4
    assert [word for word in line.split() if word in {row.algo for row in rows}] == [
        row.algo for row in rows[:2]
    ]
    every = says(0, *grid, "--all").out
    assert len(re.findall(r"^ +1M .*modelled", every, re.MULTILINE)) == len(rows)


def test_a_budget_ends_a_sweep_and_says_what_it_left(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    words = ("--sizes", "1K,16M,64M", "--budget", "0.001", "--csv", file)
    assert "2 points of 3 not reached in --budget" in says(0, *ONE_REPEAT, *words).err
    assert len(read(file)) == 1


def test_noise_has_bounds_in_the_place_of_times() -> None:
    (calm,) = [row for row in read(frames.H200) if (row.op, row.size_bytes) == ("allreduce", 8)][:1]
    noisy = replace(calm, notes="noisy other-processes:5.0", repeat_times_us=(9.0, 6.0, 20.0))
    text = "\n".join(size_lines([noisy]))
    assert "<6.00" in text and "busy:5.0" in text and "0.000" not in text
    assert "<6.00" in summary_lines([noisy], 80, show_all=False)[-1]


def test_names_are_whole_beside_kernels_of_a_user() -> None:
    ours = [
        frames.row((9.0, 9.1, 9.2), backend="cpu", algo=algo, notes="in-cache")
        for algo in ("ring", "twoshot")
    ]
    theirs = [
        frames.row((15.0, 15.1, 15.2), backend=name, algo="library", proto="")
        for name in ("a", "b", "my_allreduce_v2")
    ]
    assert "twoshot simple (1 of 2)" in "\n".join(size_lines(frames.records(*ours, *theirs), 80))
    assert "a library" in "\n".join(size_lines(frames.records(*theirs), 80))
