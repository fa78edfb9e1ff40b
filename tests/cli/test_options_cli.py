"""Options, presets and profiles: what is explained, and what is refused."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench.backends import FAMILY as BACKENDS
from collbench.cli import _COMMANDS, cli, run
from collbench.cli._declared import read_preset
from collbench.cli.sweep import command as sweep
from collbench.core.catalog import names
from collbench.core.collectives import OPS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from tests.support.commands import MODEL, Capture, Says

CPU_PROFILE = (Path(__file__).parents[2] / "profiles" / "machines" / "cpu-2.toml").read_text()


@pytest.mark.parametrize("name", names("sweeps"))
def test_shipped_presets_are_readable(says: Says, name: str) -> None:
    assert read_preset(name, sweep.params)
    out = says(0, "sweep", "--preset", name, "--backend", "model", "--dry-run").out
    assert ", 0 waived" in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--preset", "[sweep]\nop = 'nope'\n"),
        ("--preset", "[sweep]\nnope = 1\n"),
        ("--preset", "[sweep\n"),
        ("--preset", ""),
        ("--preset", "algo = 'ring'\n"),
        ("--preset", "sweep = 1\n"),
        ("--machine", ""),
        ("--machine", "[cpu]\ncores = 2\n"),
        ("--machine", "[cpu]\ncores = 2\n[cpu.kinds.simple]\nstep_us = 1\n"),
        ("--machine", CPU_PROFILE.replace("cores = 2", "cores = 0")),
        ("--machine", CPU_PROFILE.replace("hop_us = 0.1", "hop_us = true")),
        ("--machine", CPU_PROFILE.replace("hop_us = 0.1", "hops_us = 0.1")),
    ],
)
def test_broken_presets_and_profiles_are_usage_errors(
    says: Says, tmp_path: Path, option: str, text: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    err = says(2, *MODEL, "--sizes", "1K", option, file).err
    assert ("machine profile" if option == "--machine" else "Error") in err


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
    "args",
    [
        ["--help"],
        ["--version"],
        ["algos"],
        ["algos", "nobody"],
        ["topo", "--machine", "dgx-1v"],
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
