"""`collbench predict`: NCCL before our own engine, machines that are listed, and pasted ones."""

import csv
import io
from pathlib import Path

import pytest

from collbench.cli import run
from tests.support.commands import Capture

MATRIX = Path(__file__).parent.parent / "data/topologies/dgx1v-topo-m.txt"


@pytest.mark.exhaustive
def test_nccl_comes_first_and_our_engine_where_it_can_run(capsys: Capture) -> None:
    options = ("--hosts", "1,2,64", "--sizes", "64M")
    assert run(["predict", "--machine", "hgx-h100", *options]) == 0
    shown = capsys.readouterr()
    nccl, _, own = shown.out.partition("Our own engine")
    assert [line.split()[:4] for line in nccl.splitlines() if line[:5].strip().isdigit()] == [
        ["1", "64M", "nvls", "simple"],
        ["2", "64M", "nvlstree", "simple"],
        ["64", "64M", "nvlstree", "simple"],
    ]
    assert [line.split()[0] for line in own.splitlines() if line[:5].strip().isdigit()] == ["1"]
    assert "reaches other hosts through CPUs alone" in shown.err


def test_documents_say_whose_price_it_is(capsys: Capture) -> None:
    options = ("--hosts", "1,4", "--sizes", "1M", "--set", "nic=half", "--csv", "-")
    assert run(["predict", "--machine", "hgx-h100", *options]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["engine"], row["hosts"]) for row in rows] == [
        ("nccl", "1"),
        ("nccl", "4"),
        ("collbench", "1"),
    ]
    for row in rows[:2]:
        assert float(row["low_us"]) <= float(row["time_us"]) <= float(row["high_us"])
        assert float(row["before_us"]) > 0


@pytest.mark.exhaustive
def test_a_pasted_matrix_with_what_it_cannot_know(capsys: Capture) -> None:
    asked = ["predict", "--topo", str(MATRIX), "--sizes", "1G", "--csv", "-"]
    assert run([*asked, "--hosts", "4", "--nic", "100G", "--links", "nvlink2,ib"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["ranks"] == "32"
    assert float(row["busbw_gbs"]) == pytest.approx(47, rel=0.1)  # as published of a DGX-1
    assert run([*asked, "--hosts", "1", "--links", "nvlink2"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert float(rows[0]["busbw_gbs"]) == pytest.approx(120, rel=0.1)
