"""The options of `doctor`: recordings, what makes it fail, lists, explanations, and mistakes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from collbench.core.errors import UNJUDGED_CODE
from collbench.doctor import checks
from collbench.doctor import run as _run_doctor
from collbench.doctor.check import identifiers, wants_measurements
from collbench.machine.discovery import dumps
from tests.support.commands import Invoke, Says, result_of, stdin_of
from tests.support.evidence import machine, with_gpu, with_ranks, with_system
from tests.support.runs import library, needs_mpi


@pytest.fixture
def ill(tmp_path: Path) -> str:
    """A recording with a fault, a risk and a remark."""
    host = with_system(
        with_ranks(machine("hgx_h100"), 8, open_files=64), shm_huge="never", shm_free_bytes=0
    )
    file = tmp_path / "ill.json"
    file.write_text(dumps([with_gpu(host, 2, pcie_width=8)]))
    return str(file)


@pytest.fixture
def well(tmp_path: Path) -> str:
    file = tmp_path / "well.json"
    file.write_text(dumps([with_ranks(machine("hgx_h100"), 8)]))
    return str(file)


def test_only_some_checks_need_the_gpus_to_be_loaded() -> None:
    """Those are all that read what a recording at rest does not have."""
    folder = Path(checks.__file__).parent
    measured = re.compile(r"evidence\.(loaded|after|alone|together|pairs|left_out)\b")
    assert [one for one in identifiers() if wants_measurements(one)] == [
        one
        for one in identifiers()
        if measured.search((folder / f"{one.replace('-', '_')}.py").read_text())
    ]


def test_a_recording_is_looked_at(says: Says, ill: str, well: str, tmp_path: Path) -> None:
    file = tmp_path / "doctor.json"
    out = says(1, "doctor", "--from", ill, "--json", file).out
    document = result_of(file.read_text())
    marks = [(one["mark"], one["check"]) for one in document["findings"]]
    assert marks[:2] == [("COST", "pcie-link"), ("COST", "shm-size")]
    assert set(marks[2:]) == {("RISK", "limits"), ("NOTE", "huge-pages")}
    assert document["verdict"] == "FAIL"
    assert "COST  pcie-link: GPU 2" in out
    reasons = {one["id"]: one["reason"] for one in document["checks"]}
    assert set(reasons) == set(identifiers())
    assert says(0, "doctor", "--from", well).out.startswith("Nothing was found.")


def test_stdin_and_the_list_of_the_same_recording(says: Says, well: str) -> None:
    with stdin_of(Path(well)):
        words = says(0, "doctor", "--from", "-").words
    assert "(collbench doctor --list --from - says why)" in words
    words = says(0, "doctor", "--from", well).words
    assert f"(collbench doctor --list --from {well} says why)" in words


def test_a_recording_in_which_most_cannot_be_seen_is_not_clean(
    says: Says, well: str, tmp_path: Path
) -> None:
    """Nothing is found in it, and the exit code is that of what could not be judged."""
    document = says(0, "doctor", "--from", well, "--json", "-").result
    looked = sum(one["looked"] for one in document["checks"])
    assert document["looked"] == looked
    others = document["not_here"] + document["could_not"]
    assert looked + others == len(document["checks"])
    assert document["verdict"] == "PASS"
    host = with_ranks(machine("hgx_h100"), 8)
    gpus = tuple(replace(gpu, condition=None) for gpu in host.gpus)
    file = tmp_path / "hidden.json"
    file.write_text(dumps([replace(host, gpus=gpus, system=None, processes=())]))
    document = says(UNJUDGED_CODE, "doctor", "--from", file, "--json", "-").result
    assert document["verdict"] == "UNKNOWN"
    assert document["looked"] < document["could_not"]


def test_what_was_found_until_the_users_end_is_shown(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setattr(_run_doctor, "measure", interrupted)
    args = ("--only", "mpi-transport", "--json", "-")
    told = says(130, "doctor", *args)
    err = told.err
    (finding,) = told.result["findings"]
    assert finding["unmeasured"] == "interrupted"
    assert "costs   not measured: interrupted" in err
    assert err.endswith("\nInterrupted.\n")


@needs_mpi
@pytest.mark.parametrize("check", ["cross-memory-attach", "mpi-transport"])
def test_variables_of_another_mpi_library_are_left_out(says: Says, check: str) -> None:
    variables = {
        "OMPI_MCA_smsc": "^cma",
        "MPIR_CVAR_CH4_CMA_ENABLE": "0",
        "OMPI_MCA_btl": "tcp",
        "MPIR_CVAR_NOLOCAL": "1",
    }
    out = says(0, "doctor", "--quick", "--only", check, "--json", "-", **variables).out
    own, other = ("OMPI_", "MPIR_") if library() == "Open MPI" else ("MPIR_", "OMPI_")
    changes = [one["change"] for one in result_of(out)["findings"]]
    assert any(f"unset {own}" in one for one in changes)
    assert not any(f"unset {other}" in one for one in changes)


def test_what_is_seen_of_a_setting_is_not_repeated(says: Says) -> None:
    variables = {"NCCL_BUFFSIZE": "abc", "NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "NVL"}
    out = says(0, "doctor", "--quick", "--only", "settings", "--json", "-", **variables).out
    said = {one["subject"]: (one["seen"], one["why"]) for one in result_of(out)["findings"]}
    assert said["NCCL_BUFFSIZE"] == (
        "NCCL_BUFFSIZE=abc",
        "The value is no number, and NCCL reads 0.",
    )
    seen, why = said["NCCL_P2P_DISABLE and NCCL_P2P_LEVEL"]
    assert seen == "NCCL_P2P_DISABLE=1 and NCCL_P2P_LEVEL=NVL"
    assert why.startswith("NCCL_P2P_LEVEL allows direct access")


@pytest.mark.parametrize(
    ("fail_on", "only", "expected", "verdict"),
    [
        ("cost", "shm-size", 1, "FAIL"),
        ("cost:10%", "shm-size", 1, "FAIL"),
        ("cost:10", "limits", 0, "WARN"),
        ("risk", "limits", 1, "WARN"),
        ("never", "limits", 0, "WARN"),
        ("risk", "huge-pages", 0, "PASS"),
        ("cost", "limits,huge-pages", 0, "WARN"),
        ("never", "shm-size", 0, "FAIL"),
    ],
)
def test_what_makes_it_fail(
    says: Says, tmp_path: Path, ill: str, fail_on: str, only: str, expected: int, verdict: str
) -> None:
    """A fault and a risk are in the verdict, whatever fails."""
    file = tmp_path / "doctor.json"
    asked = ("--from", ill, "--fail-on", fail_on, "--only", only, "--json", str(file))
    out = says(expected, "doctor", *asked).out
    assert result_of(file.read_text())["verdict"] == verdict
    marked = [line for line in out.splitlines() if line.startswith(("COST", "RISK", "NOTE"))]
    assert {line.split()[1].rstrip(":") for line in marked} == set(only.split(","))


def test_every_check_is_listed_and_explained(says: Says, well: str) -> None:
    out = says(0, "doctor", "--from", well, "--list").out
    for identifier in identifiers():
        assert identifier in out
        text = says(0, "doctor", "--explain", identifier).out
        assert text.startswith(f"{identifier}: ")
        assert max(map(len, text.splitlines())) <= 100


def test_any_text_as_a_recording_is_refused_or_read(invoke: Invoke, tmp_path: Path) -> None:
    """Each line of a recording left out in turn."""
    lines = dumps([with_ranks(machine("h200_vm"), 2)]).splitlines(keepends=True)
    for number in range(0, len(lines), max(1, len(lines) // 12)):
        file = tmp_path / "cut.json"
        file.write_text("".join(lines[:number] + lines[number + 1 :]))
        code, _, err = invoke("doctor", "--from", str(file))
        assert code in (0, 2), err
        assert "Traceback" not in err
