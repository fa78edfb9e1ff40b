"""`collbench predict`: the table, its documents, and NCCL before our own engine."""

import csv
import io
from functools import partial
from pathlib import Path

import pytest

from tests.support.commands import Invoke, Said, Says, result_of
from tests.support.tiers import tiered

MATRIX = Path(__file__).parent.parent / "data/topologies/dgx1v-topo-m.txt"
SMALL = ("--machine", "hgx-h100", "--op", "sendrecv", "--set", "gpus=2")


@pytest.fixture
def invoke(invoke: Invoke) -> Invoke:
    return partial(invoke, "predict")


def table_of(said: Said) -> list[dict[str, str]]:
    """Rows of a CSV table."""
    return list(csv.DictReader(io.StringIO(said.out)))


@tiered("columns", [80, 160], 1)
def test_the_best_of_each_size_with_what_limits_it(columns: int, says: Says) -> None:
    options = ("--hosts", "1,64", "--sizes", "4K,64M", "--sensitivity")
    shown = says(0, *SMALL, *options, COLUMNS=str(columns))
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


def test_the_list_of_machines_is_a_document(says: Says) -> None:
    known = {one["machine"]: one for one in says(0, "--json").result}
    assert (known["dgx-1v"]["hosts"], known["dgx-1v"]["gpus"]) == (1, 8)


def test_documents_have_the_same_rows(tmp_path: Path, says: Says) -> None:
    file = tmp_path / "rows.json"
    options = ("--hosts", "2", "--sizes", "1K:64K:x8", "--all", "--set", "nic=half")
    rows = table_of(says(0, *SMALL, *options, "--csv", "-", "--json", file))
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
    machine: str, hosts: str, is_known: bool, says: Says
) -> None:
    words = ["--machine", machine, "--op", "sendrecv", "--hosts", hosts]
    words += ["--sizes", "8,1M,1G", "--set", "gpus=2"]
    every = says(0, *words, "--json", "-").result
    rows = [row for row in every if row["engine"] == "collbench"]
    known = [(row["low_us"], row["time_us"], row["high_us"]) for row in rows]
    assert rows
    if is_known:
        assert all(low < time < high for low, time, high in known)
    else:
        assert {ends for low, _, high in known for ends in (low, high)} == {None}
    assert ("nine of ten measured rows" in says(0, *words, COLUMNS="160").words) == is_known


def test_documents_say_whose_price_it_is(says: Says) -> None:
    options = ("--hosts", "1,4", "--sizes", "1M", "--set", "nic=half", "--csv", "-")
    rows = table_of(says(0, "--machine", "hgx-h100", *options))
    assert [(row["engine"], row["hosts"]) for row in rows] == [
        ("nccl", "1"),
        ("nccl", "4"),
        ("collbench", "1"),
    ]
    for row in rows[:2]:
        assert float(row["low_us"]) <= float(row["time_us"]) <= float(row["high_us"])
        assert float(row["before_us"]) > 0


@pytest.mark.exhaustive
def test_a_pasted_matrix_with_what_it_cannot_know(says: Says) -> None:
    asked = ["--topo", MATRIX, "--sizes", "1G", "--csv", "-"]
    (row,) = table_of(says(0, *asked, "--hosts", "4", "--nic", "100G", "--links", "nvlink2,ib"))
    assert row["ranks"] == "32"
    assert float(row["busbw_gbs"]) == pytest.approx(47, rel=0.1)  # as published of a DGX-1
    rows = table_of(says(0, *asked, "--hosts", "1", "--links", "nvlink2"))
    assert float(rows[0]["busbw_gbs"]) == pytest.approx(120, rel=0.1)
