"""The command line on the model backend, whose times are invented: tables, files and exit codes are
exact.
"""

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench.backends import FAMILY as BACKENDS
from collbench.cli import cli, run
from collbench.cli._presets import read_preset
from collbench.cli.sweep import command as sweep
from collbench.machine.host import has_nvidia_gpus
from collbench.results.record import read
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from collbench.spec.collectives import OPS
from collbench.util.catalog import names

MODEL = ["sweep", "--backend", "model", "--ranks", "4", "--repeats", "1"]


def invoke(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(list(args))
    out, err = capfd.readouterr()
    return code, out, err


def test_a_sweep_of_the_model_is_exact(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    code, out, err = invoke(
        capfd, *MODEL, "--sizes", "64K,1M", "--algo", "ring,twoshot", "--csv", str(file)
    )
    assert (code, err) == (0, "")
    again = invoke(capfd, *MODEL, "--sizes", "64K,1M", "--algo", "ring,twoshot")
    assert again[1] == out
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
    lines = out.splitlines()
    assert lines[0].split() == ["size", "algo", "time", "us", "busbw", "notes"]
    assert "best" in out


def test_a_price_is_not_the_best_of_what_was_measured(capfd: pytest.CaptureFixture[str]) -> None:
    args = [
        "sweep",
        "--backend",
        "cpu,model",
        "--machine",
        "cpu-2",
        "--ranks",
        "2",
        "--op",
        "allreduce",
        "--repeats",
        "2",
        "--sizes",
        "1K",
    ]
    code, out, _ = invoke(capfd, *args)
    assert code == 0
    lines = [line.split() for line in out.partition("  size  best")[2].splitlines()[1:3]]
    assert [(cells[0], cells[3]) for cells in lines] == [("1K", "cpu"), ("1K", "model")]


def test_resume_measures_only_what_is_missing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "out.csv"
    invoke(capfd, *MODEL, "--sizes", "64K", "--csv", str(file))
    before = read(file)
    code, _, err = invoke(capfd, *MODEL, "--sizes", "64K,128K", "--csv", str(file), "--resume")
    after = read(file)
    assert code == 0
    assert f"{len(before)} of {2 * len(before)} points" in err
    assert after[: len(before)] == before
    assert len(after) == 2 * len(before)
    assert len({row.key for row in after}) == len(after)


def test_resume_with_nothing_left_is_fine(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "out.csv"
    for _ in range(2):
        code, _, _ = invoke(capfd, *MODEL, "--sizes", "64K", "--csv", str(file), "--resume")
        assert code == 0
    assert len(read(file)) == len({row.key for row in read(file)})


def test_resume_prices_another_machine_again(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "out.csv"
    for machine, said in (
        ("dgx-1v", ""),
        ("hgx-h100", "# 0 of 1 points"),
        ("dgx-1v", "# 1 of 1 points"),
    ):
        code, _, err = invoke(
            capfd,
            *MODEL,
            "--machine",
            machine,
            "--sizes",
            "1M",
            "--algo",
            "ring",
            "--csv",
            str(file),
            "--resume",
        )
        assert code == 0
        assert err.startswith(said)
    assert [row.host for row in read(file)] == ["model of dgx-1v", "model of hgx-h100"]


def test_auto_on_a_described_machine_is_what_its_wires_price_lowest(tmp_path: Path) -> None:
    files = [tmp_path / "all.csv", tmp_path / "auto.csv"]
    for file, more in zip(files, ([], ["--algo", "auto"]), strict=True):
        assert (
            run(
                [
                    "sweep",
                    "--backend",
                    "model",
                    "--machine",
                    "dgx-1v",
                    "--op",
                    "all",
                    "--sizes",
                    "1K,1M,256M",
                    "--csv",
                    str(file),
                    *more,
                ]
            )
            == 0
        )
    every, auto = map(read, files)
    assert len(auto) == 9 * 3
    for row in auto:
        same = {
            other.algo: other.time_us or 0
            for other in every
            if (other.op, other.size_bytes) == (row.op, row.size_bytes)
        }
        assert row.time_us == same[row.algo] == min(same.values())
        assert "auto" in row.notes.split()
    assert {(row.op, row.algo, row.size_bytes) for row in every if "auto" in row.notes.split()} == {
        (row.op, row.algo, row.size_bytes) for row in auto
    }
    assert {row.algo for row in auto if row.op == "allreduce"} > {"oneshot"}


def test_csv_to_stdout_is_only_csv(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = invoke(capfd, *MODEL, "--sizes", "64K", "--algo", "ring", "--csv", "-")
    assert code == 0
    assert out.startswith("op,backend,")
    assert len(out.splitlines()) == 2
    assert "ring" in err


def test_dry_run_measures_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = invoke(
        capfd,
        "sweep",
        "--op",
        "alltoall",
        "--placement",
        "all",
        "--sizes",
        "1K,1M",
        "--dry-run",
        "--csv",
        str(tmp_path / "no.csv"),
    )
    assert code == 0
    assert "8 points, 4 waived; about" in out
    assert "has no meaning" in out
    assert not (tmp_path / "no.csv").exists()


def test_a_dry_run_tells_points_apart_by_their_road_and_protocol(
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = (
        "--backend",
        "cpu",
        "--ranks",
        "2",
        "--algo",
        "ring",
        "--sizes",
        "1K",
        "--proto",
        "simple,ll",
        "--transport",
        "shm",
        "--buffsize",
        "1M",
    )
    _, out, _ = invoke(capfd, "sweep", *words, "--dry-run")
    assert [re.findall(r"; (\w+), (\w+), ", line) for line in out.splitlines()] == [
        [("simple", "shm")],
        [("ll", "shm")],
        [],
    ]


def test_only_knobs_that_vary_have_columns(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = invoke(
        capfd,
        *MODEL,
        "--sizes",
        "64K",
        "--algo",
        "ring",
        "--slots",
        "2,4",
        "--dtype",
        "float32,int8",
    )
    assert out.splitlines()[0].split()[:4] == ["size", "algo", "dtype", "slots"]
    assert all(len(line) <= 80 for line in out.splitlines())


def test_waived_rows_say_why(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    code, _, err = invoke(
        capfd,
        *MODEL[:3],
        "--ranks",
        "1,2",
        "--algo",
        "oneshot",
        "--op",
        "allreduce,gather",
        "--root",
        "0,5",
        "--sizes",
        "4,64K",
        "--csv",
        str(file),
    )
    assert code == 0
    reasons = {row.reason for row in read(file) if row.status == "waived"}
    assert any("nothing travels" in reason for reason in reasons)
    assert any("does not serve gather" in reason for reason in reasons)
    assert any("root 5 is not one of 2" in reason for reason in reasons)
    assert any("less than one float32 element" in reason for reason in reasons)
    assert err == ""


def test_points_waived_for_one_reason_share_a_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "out.csv"
    code, out, _ = invoke(
        capfd,
        *MODEL,
        "--transport",
        "shm,ce",
        "--algo",
        "ring,tree",
        "--sizes",
        "1K,2K,4K",
        "--csv",
        str(file),
    )
    assert code == 0
    waived = [line for line in out.splitlines() if "waived" in line]
    assert [line.split()[:7] for line in waived] == [
        ["1K-4K", "*", "ce", "waived,", "6", "points:", "the"]
    ]
    assert len([row for row in read(file) if row.status == "waived"]) == 6
    _, out, _ = invoke(
        capfd,
        *MODEL,
        "--transport",
        "shm,ce",
        "--algo",
        "ring",
        "--sizes",
        "1K,16M",
        "--slots",
        "2,4",
    )
    assert [line.split()[:5] for line in out.splitlines() if "waived" in line] == [
        ["1K-16M", "ring", "ce", "*", "waived,"]
    ]


def test_all_waived_is_exit_3(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = invoke(capfd, "sweep", "--op", "alltoall", "--placement", "in", "--sizes", "1K")
    assert code == 3
    assert "every point was waived" in err


def test_sizes_are_rounded_to_blocks_once(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "out.csv"
    invoke(
        capfd,
        *MODEL[:3],
        "--ranks",
        "3",
        "--op",
        "allgather",
        "--sizes",
        "100,101,107",
        "--csv",
        str(file),
    )
    assert {row.size_bytes for row in read(file)} == {96}
    assert {row.count for row in read(file)} == {8}


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["--op", "allreduc"], "allreduc"),
        (["--algo", "rnig"], "rnig"),
        (["-b", "1X"], "1X"),
        (["-b", "1M", "-e", "1K"], "above the largest"),
        (["-b", "0"], "at least one byte"),
        (["-f", "1"], "factor"),
        (["--sizes", "1K", "-b", "8"], "--minbytes: --sizes gives the sizes as a list"),
        (["--dtype", "float8"], "float8"),
        (["--ranks", "two"], "two"),
        (["--channels", "0"], "0"),
        (["--resume"], "--resume: there is no CSV file to read"),
        (["--preset", "nope"], "nope"),
        (["--backend", "model", "--machine", "nope"], "nope"),
        (["--timeout", "0"], "0"),
        (["--wat"], "wat"),
    ],
)
def test_wrong_options_are_usage_errors(
    capfd: pytest.CaptureFixture[str], args: list[str], match: str
) -> None:
    code, out, err = invoke(capfd, "sweep", *args)
    assert code == 2
    assert match in err
    assert "Traceback" not in err + out


@pytest.mark.parametrize("name", names("sweeps"))
def test_shipped_presets_are_readable(capfd: pytest.CaptureFixture[str], name: str) -> None:
    assert read_preset(name, sweep.params)
    code, out, _ = invoke(capfd, "sweep", "--preset", name, "--backend", "model", "--dry-run")
    assert code == 0
    assert ", 0 waived" in out.splitlines()[-1]


def test_options_win_over_the_preset(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = invoke(
        capfd, "sweep", "--preset", "channels", "--channels", "3", "--sizes", "1M", "--dry-run"
    )
    assert out.splitlines()[-1].startswith("# 2 points")


@pytest.mark.parametrize(
    "text",
    [
        "[sweep]\nop = 'nope'\n",
        "[sweep]\nnope = 1\n",
        "[sweep\n",
        "",
        "algo = 'ring'\n",
        "sweep = 1\n",
    ],
)
def test_broken_presets_are_usage_errors(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    code, _, err = invoke(capfd, "sweep", "--preset", str(file))
    assert code == 2
    assert "Error" in err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[machine]\ncores = 2\n",
        (
            "[machine]\ncores = 0\nstep_us = 1\nhop_us = 1\nswitch_us = 1\nrank_gbs = 1\nmemory_gbs"
            " = 1\n"
        ),
    ],
)
def test_broken_machine_profiles_are_usage_errors(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    code, _, err = invoke(capfd, *MODEL, "--sizes", "1K", "--machine", str(file))
    assert code == 2
    assert "machine profile" in err


def test_algos_lists_every_pair(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = invoke(capfd, "algos")
    assert code == 0
    pairs = {tuple(line.split()[:2]) for line in out.splitlines()[1:]}
    assert pairs == {
        (op, algo)
        for op in OPS
        for algo in ALGORITHMS.names()
        if op in ALGORITHMS.load(algo).SERVES
    }


def test_algos_draws_a_ring(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = invoke(capfd, "algos", "ring", "--op", "allreduce", "--ranks", "4")
    assert code == 0
    assert "main 0  i3 >1" in out
    assert "<3 + i0 =o0 >1" in out
    assert "messages read in place       16 of 24, all ranks" in out
    assert "messages written in place    12 of 24, all ranks" in out
    assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize("algo", ALGORITHMS.names())
def test_algos_draws_everything(capfd: pytest.CaptureFixture[str], algo: str) -> None:
    for op in ALGORITHMS.load(algo).SERVES:
        code, out, _ = invoke(capfd, "algos", algo, "--op", op, "--ranks", "5")
        assert code == 0
        assert "checked" in out


@pytest.mark.parametrize(
    "args",
    [
        ["nope"],
        ["ring", "--op", "alltoall"],
        ["ring", "--op", "nope"],
        ["ring", "--op", "allreduce", "--ranks", "1"],
    ],
)
def test_algos_refuses(capfd: pytest.CaptureFixture[str], args: list[str]) -> None:
    code, _, err = invoke(capfd, "algos", *args)
    assert code == 2
    assert "Error" in err


@pytest.mark.parametrize("command", ["sweep", "topo", "compare", "algos", "overlap"])
def test_every_option_is_explained(command: str) -> None:
    found = cli.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    assert found.help
    assert [
        param.name
        for param in found.params
        if param.param_type_name == "option" and not getattr(param, "help", "")
    ] == []
    text = CliRunner().invoke(cli, [command, "--help"]).output
    assert "Examples" in text


def test_help_names_every_registered_part() -> None:
    text = " ".join(CliRunner().invoke(cli, ["sweep", "--help"]).output.split())
    for name in (*ALGORITHMS.names(), *BACKENDS.names(), *OPS[:1]):
        assert name in text


def test_one_gpu_has_nobody_to_talk_to(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.cli._run_sweep.has_nvidia_gpus", lambda: True)
    monkeypatch.setattr("collbench.cli._run_sweep.device_count", lambda: 1)
    code, out, err = invoke(capfd, "sweep", "--sizes", "1K")
    assert (code, err) == (0, "")
    assert "nothing travels" in out


def test_gpus_without_cupy_are_no_reason_to_measure_processors(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.cli._run_sweep.has_nvidia_gpus", lambda: True)
    monkeypatch.setitem(sys.modules, "cupy", None)
    code, out, err = invoke(capfd, "sweep", "--sizes", "1K")
    assert (code, out) == (3, "")
    assert "pip install 'collbench[cuda13]'" in err


@pytest.mark.skipif(has_nvidia_gpus(), reason="this host has GPUs")
def test_a_gpu_backend_without_gpus_is_waived(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = invoke(
        capfd, "sweep", "--backend", "cuda,nccl", "--sizes", "1K", "--algo", "ring"
    )
    assert code == 3
    assert out.count("waived, 5 points: this host has no NVIDIA GPU") == 1
    assert "every point was waived: this host has no NVIDIA GPU" in err


def test_a_soak_needs_the_gpu_engine(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = invoke(capfd, "sweep", "--backend", "cpu", "--sizes", "1K", "--soak", "5")
    assert code == 2
    assert "--soak needs the cuda backend" in err


def test_a_soak_without_gpus_ends_with_3_and_one_of_the_cpu_with_2(
    capfd: pytest.CaptureFixture[str],
) -> None:
    if not has_nvidia_gpus():
        code, _, err = invoke(
            capfd, "sweep", "--soak", "1", "--backend", "cuda", "--ranks", "2", "--sizes", "1K"
        )
        assert (code, err.splitlines()[0]) == (
            3,
            "Error: nothing to soak: this host has no NVIDIA GPU",
        )
    code, _, err = invoke(
        capfd, "sweep", "--soak", "1", "--backend", "cpu", "--ranks", "2", "--sizes", "1K"
    )
    assert code == 2
    assert "--soak needs the cuda backend" in err


def test_every_point_waived_when_the_gpus_are_opened_ends_a_soak(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from collbench.backends.cuda import backend as cuda
    from collbench.util.errors import UnavailableError

    def refuse(*args: object, **options: object) -> None:
        raise UnavailableError("8 ranks, 4 GPUs", "use fewer --ranks")

    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: 0)
    monkeypatch.setattr(cuda, "CudaSession", refuse)
    code, _, err = invoke(
        capfd,
        "sweep",
        "--soak",
        "600",
        "--backend",
        "cuda",
        "--ranks",
        "8",
        "--sizes",
        "1K",
        "--algo",
        "ring",
    )
    assert code == 3
    assert "8 ranks, 4 GPUs" in err


@pytest.mark.parametrize(
    ("option", "value", "match"),
    [
        (
            "--chunk",
            "0",
            "--chunk: '0' has no room for data Hint: give more bytes, or leave it out",
        ),
        ("--buffsize", "4K,0K", "'0K' has no room for data"),
        ("--chunk", "-5", "'-5' is not a size Hint: write bytes with an optional suffix"),
        ("--slots", "0", "'0' is not a whole number from 1 on"),
    ],
)
def test_what_is_no_knob_is_refused(
    capfd: pytest.CaptureFixture[str], option: str, value: str, match: str
) -> None:
    code, out, err = invoke(capfd, *MODEL, "--sizes", "1K", option, value)
    assert (code, out) == (2, "")
    assert match in " ".join(err.split())


@pytest.mark.parametrize("option", ["--timeout", "--soak", "-f"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_refused(
    capfd: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    code, out, err = invoke(
        capfd, *MODEL, "--sizes" if option != "-f" else "-b", "1K", option, value
    )
    assert (code, out) == (2, "")
    assert f"{'--stepfactor' if option == '-f' else option}: '{value}' is not a number from" in err


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (
            ["--isolate", "--launch", "stream"],
            "--isolate, --launch: no backend of this sweep runs on GPUs",
        ),
        (["--gpus", "0,1"], "--gpus: no backend"),
        (
            ["--backend", "cuda", "-z", "1"],
            "--blocking: launches on GPUs wait for no barrier of CPUs",
        ),
        (["--max-memory", "1M"], "--max-memory: no backend of this sweep has FIFOs in GPU memory"),
        (["--net-threads", "2"], "give --backend cuda and --transport net"),
        (
            ["--backend", "nccl", "--net-memory", "host"],
            "--net-memory: no point of this sweep has messages between GPUs",
        ),
        (
            [
                "--backend",
                "cuda",
                "--transport",
                "p2p",
                "--net-memory",
                "host",
                "--net-threads",
                "2",
            ],
            "--net-memory, --net-threads: no point of this sweep has",
        ),
        (
            ["--backend", "cuda", "--transport", "p2p,ce", "--net-memory", "device"],
            "--net-memory: no point of this sweep has messages between GPUs",
        ),
        (
            ["--backend", "cuda", "--isolate", "-m", "4"],
            "--isolate: it times each launch alone, -m 4 several",
        ),
        (["--soak", "1", "--csv", "-"], "--csv: --soak measures no times"),
    ],
)
def test_what_no_backend_heeds_is_refused(
    capfd: pytest.CaptureFixture[str], args: list[str], match: str
) -> None:
    code, out, err = invoke(
        capfd,
        "sweep",
        "--sizes",
        "1K",
        *([] if "--backend" in args else ["--backend", "cpu"]),
        *args,
    )
    assert (code, out) == (2, "")
    assert match in err


@pytest.mark.parametrize("size", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_one_rank_under_a_launcher_is_told_of_its_own(
    size: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where nobody asked for so many."""
    monkeypatch.setenv(size, "1")
    words = ("sweep", "--backend", "cpu", "--algo", "ring", "--sizes", "1K", "--dry-run")
    code, out, err = invoke(capfd, *words)
    (said,) = re.findall(r"^# One rank under a launcher: this process starts (\d+) of its own", err)
    assert (code, f", {said} ranks;" in out) == (0, True)
    assert "One rank" not in invoke(capfd, *words, "--ranks", "3")[2]


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--help"],
        ["--version"],
        ["algos"],
        ["algos", "nobody"],
        ["sweep", "--help"],
        ["compare", "nothing.csv"],
    ],
)
def test_under_a_launcher_one_rank_answers_what_needs_no_ranks(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "2")
    assert (run(args), *capfd.readouterr()) == (0, "", "")
    monkeypatch.setenv("PMI_RANK", "0")
    run(args)
    assert any(capfd.readouterr())
