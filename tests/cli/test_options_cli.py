"""Options, presets and profiles: what is explained, and what is refused."""

import re
from pathlib import Path
from shlex import split

import pytest
from click.testing import CliRunner

from collbench.backends import FAMILY as BACKENDS
from collbench.cli import _COMMANDS, cli, run
from collbench.cli._declared import read_preset
from collbench.cli.sweep import command as sweep
from collbench.core.catalog import names
from collbench.core.collectives import OPS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from tests.support.commands import MODEL, Capture, Invoke

CPU_PROFILE = (Path(__file__).parents[2] / "profiles" / "machines" / "cpu-2.toml").read_text()


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
def test_wrong_options_are_usage_errors(invoke: Invoke, args: list[str], match: str) -> None:
    code, out, err = invoke("sweep", *args)
    assert code == 2
    assert match in err
    assert "Traceback" not in err + out


@pytest.mark.parametrize("name", names("sweeps"))
def test_shipped_presets_are_readable(invoke: Invoke, name: str) -> None:
    assert read_preset(name, sweep.params)
    code, out, _ = invoke("sweep", "--preset", name, "--backend", "model", "--dry-run")
    assert code == 0
    assert ", 0 waived" in out.splitlines()[-1]


def test_options_win_over_the_preset(invoke: Invoke) -> None:
    given = ("--channels", "3", "--sizes", "1M", "--backend", "cpu", "--dry-run")
    _, out, _ = invoke("sweep", "--preset", "channels", *given)
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
def test_broken_presets_are_usage_errors(invoke: Invoke, tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    code, _, err = invoke("sweep", "--preset", str(file))
    assert code == 2
    assert "Error" in err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[cpu]\ncores = 2\n",
        "[cpu]\ncores = 2\n[cpu.kinds.simple]\nstep_us = 1\n",
        CPU_PROFILE.replace("cores = 2", "cores = 0"),
        CPU_PROFILE.replace("hop_us = 0.1", "hop_us = true"),
        CPU_PROFILE.replace("hop_us = 0.1", "hops_us = 0.1"),
    ],
)
def test_broken_machine_profiles_are_usage_errors(
    invoke: Invoke, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    code, _, err = invoke(*MODEL, "--sizes", "1K", "--machine", str(file))
    assert code == 2
    assert "machine profile" in err


def test_help_groups_the_commands_by_what_they_are_for() -> None:
    text = CliRunner().invoke(cli, ["--help"]).output
    groups = re.findall(r"^(\w+):\n((?:  .*\n)+)", text, re.MULTILINE)
    assert {
        title: re.findall(r"^  (\w+) ", lines, re.MULTILINE) for title, lines in groups[1:]
    } == {
        "Measure": ["sweep", "topo", "overlap", "replay"],
        "Diagnose": ["check", "doctor", "hunt", "log", "trace"],
        "Results": ["compare", "runs"],
        "Plan": ["tune", "predict", "algos"],
    }


@pytest.mark.parametrize("command", _COMMANDS)
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
    assert not re.search(r"[a-z)][.;][A-Z]", text), "a space is missing between lines"


def test_help_names_every_registered_part() -> None:
    text = " ".join(CliRunner().invoke(cli, ["sweep", "--help"]).output.split())
    for name in (*ALGORITHMS.names(), *BACKENDS.names(), *OPS[:1]):
        assert name in text


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
        ("--slots", "0", "'0' is not a whole number from 1 to 1000000000"),
    ],
)
def test_what_is_no_knob_is_refused(invoke: Invoke, option: str, value: str, match: str) -> None:
    code, out, err = invoke(*MODEL, "--sizes", "1K", option, value)
    assert (code, out) == (2, "")
    assert match in " ".join(err.split())


@pytest.mark.parametrize("option", ["--timeout", "--soak", "-f"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_refused(invoke: Invoke, option: str, value: str) -> None:
    code, out, err = invoke(*MODEL, "--sizes" if option != "-f" else "-b", "1K", option, value)
    assert (code, out) == (2, "")
    assert f"{'--stepfactor' if option == '-f' else option}: '{value}' is not a number from" in err


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["--isolate", "--launch", "stream"], "--isolate: no backend of this sweep runs on GPUs"),
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
            [*split("--backend cuda --transport p2p --net-memory host --net-threads 2")],
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
def test_what_no_backend_heeds_is_refused(invoke: Invoke, args: list[str], match: str) -> None:
    code, out, err = invoke(
        "sweep", "--sizes", "1K", *([] if "--backend" in args else ["--backend", "cpu"]), *args
    )
    assert (code, out) == (2, "")
    assert match in err


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["algos"],
        ["algos", "nobody"],
        ["sweep", "--help"],
        ["compare", "nothing.csv"],
    ],
)
def test_under_a_launcher_one_rank_answers_what_needs_no_ranks(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "2")
    assert (run(args), *capfd.readouterr()) == (0, "", "")
    monkeypatch.setenv("PMI_RANK", "0")
    run(args)
    assert any(capfd.readouterr())
