"""`collbench predict`: the table, its documents, and what is refused."""

import csv
import io
from pathlib import Path

import pytest

from collbench.cli import run
from tests.support.commands import Capture, result_of
from tests.support.tiers import tiered

SMALL = ("predict", "--machine", "hgx-h100", "--op", "sendrecv", "--set", "gpus=2")


@tiered("columns", [80, 160], 1)
def test_the_best_of_each_size_with_what_limits_it(
    columns: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*SMALL, "--hosts", "1,64", "--sizes", "4K,64M", "--sensitivity"]) == 0
    shown = capsys.readouterr()
    assert "predicted, not measured" in shown.err
    head, *rows = shown.out.splitlines()[:5]
    ranks = [["ranks"], ["2"], ["128"]] if columns > 80 else [[]] * 3  # there is no room for them
    assert head.split()[:5] == ["hosts", *ranks[0], "size", "algo", "proto", "time"][:5]
    assert [row.split()[: 2 + len(ranks[0])] for row in rows] == [
        ["1", *ranks[1], "4K"],
        ["1", *ranks[1], "64M"],
        ["64", *ranks[2], "4K"],
        ["64", *ranks[2], "64M"],
    ]
    assert "NVLink" in rows[1]
    assert "PCIe" in rows[3]
    assert "percent of the time for one percent more of a constant" in shown.out
    above, _, constants = shown.out.partition("percent of the time")
    assert max(map(len, above.splitlines())) <= columns
    assert max(map(len, constants.splitlines())) <= 120


def test_the_list_of_machines_is_a_document(capsys: Capture) -> None:
    assert run(["predict", "--json"]) == 0
    known = {one["machine"]: one for one in result_of(capsys.readouterr().out)}
    assert (known["dgx-1v"]["hosts"], known["dgx-1v"]["gpus"]) == (1, 8)


def test_documents_have_the_same_rows(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "rows.json"
    options = ("--hosts", "2", "--sizes", "1K:64K:x8", "--all", "--set", "nic=half")
    assert run([*SMALL, *options, "--csv", "-", "--json", str(file)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["algo"] for row in rows} == {"direct", "duplex"}
    assert [row["size_bytes"] for row in rows] == ["1024", "1024", "8192", "8192", "65536", "65536"]
    assert [str(row["time_us"]) for row in result_of(file.read_text())] == [
        row["time_us"] for row in rows
    ]
    assert all(float(row["before_us"]) > 0 for row in rows)


@tiered(
    ("machine", "hosts", "is_known"),
    [
        ("h200x4-vm", "1", True),
        ("hgx-h100", "1", True),
        ("dgx-1", "1", False),  # no row of such GPUs was measured
        ("hgx-h200", "2", False),  # nor of our engine on several hosts
    ],
    1,
)
def test_our_engine_has_an_interval_where_rows_were_measured(
    machine: str, hosts: str, is_known: bool, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    words = ["predict", "--machine", machine, "--op", "sendrecv", "--hosts", hosts]
    words += ["--sizes", "8,1M,1G", "--set", "gpus=2"]
    assert run([*words, "--json", "-"]) == 0
    rows = [row for row in result_of(capsys.readouterr().out) if row["engine"] == "collbench"]
    known = [(row["low_us"], row["time_us"], row["high_us"]) for row in rows]
    assert rows
    if is_known:
        assert all(low < time < high for low, time, high in known)
    else:
        assert {ends for low, _, high in known for ends in (low, high)} == {None}
    assert run(words) == 0
    assert ("nine of ten measured rows" in " ".join(capsys.readouterr().out.split())) == is_known
