"""What rccl-tests writes with --output_file, in its three forms, becomes the same rows."""

import json
from pathlib import Path

import pandas as pd
import pytest

from collbench.compare.load import load
from collbench.core.errors import UsageError
from tests.support.results import DATA, check_form, written

OBJECTS = json.loads((DATA / "rccl_tests.json").read_text())
COLUMNS = (
    *("numCycle", "name", "nodes", "ranks", "ranksPerNode", "gpusPerRank", "size", "type"),
    *("redop", "inPlace", "time", "algBw", "busBw", "wrong"),
)


def _csv(columns: tuple[str, ...]) -> str:
    header = ",".join(columns).replace("name", "collective").replace("wrong", "#wrong")
    rows = [",".join(json.dumps(one[column]) for column in COLUMNS) for one in OBJECTS]
    return header + "\n" + "\n".join(rows) + "\n"


def test_objects_in_a_list_with_cycles() -> None:
    loaded = load(DATA / "rccl_tests.json")
    check_form(loaded.frame)
    assert loaded.remarks == ()
    assert set(loaded.frame["repeats"]) == {2}
    assert list(loaded.frame["placement"]) == ["out", "in", "out", "in"]
    assert list(loaded.frame["time_us"]) == [100.5, 105.5, 1000.5, 1005.5]
    row = loaded.frame.iloc[0]
    assert (row["op"], row["ranks"], row["hosts"], row["dtype"], row["wrong"]) == (
        *("allreduce", 8, 2, "float32", 0),
    )


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(json.dumps(one) for one in OBJECTS) + "\n",
        _csv(COLUMNS),
        _csv(tuple(column for column in COLUMNS if column != "nodes")),  # before May 2026
    ],
    ids=["lines", "csv", "csv without nodes"],
)
def test_other_forms_are_the_same(text: str, tmp_path: Path) -> None:
    frame = load(written(tmp_path, text)).frame
    pd.testing.assert_frame_equal(frame, load(DATA / "rccl_tests.json").frame)


def test_ranks_of_processes_with_several_gpus(tmp_path: Path) -> None:
    text = (DATA / "rccl_tests.json").read_text()
    several = text.replace('"ranks":8', '"ranks":2').replace('"gpusPerRank":1', '"gpusPerRank":4')
    assert set(load(written(tmp_path, several)).frame["ranks"]) == {8}
    loaded = load(written(tmp_path, text.replace('"ranks":8', '"ranks":4')))
    assert set(loaded.frame["ranks"]) == {8}
    assert "4 ranks named, but busbw / algbw is that of 8" in loaded.remarks[0]


def test_what_was_not_checked_and_what_is_wrong(tmp_path: Path) -> None:
    text = (DATA / "rccl_tests.json").read_text()
    frame = load(written(tmp_path, text.replace('"wrong":"0"', '"wrong":"N/A"'))).frame
    assert set(frame["notes"]) == {"unchecked"}
    frame = load(written(tmp_path, text.replace('"wrong":"0"', '"wrong":"3"', 1))).frame
    assert list(frame["status"]) == ["wrong", "ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"size":1048576', '"size":"x"'), "size is missing or no number"),
        (('"inPlace":0', '"inPlace":7'), "inPlace is neither 0 nor 1"),
        (('"AllReduce"', '"Hypercube"'), "is no collective of ours"),
        (("]\n", ""), ""),
        (("}\n]", ""), "not JSON"),
    ],
)
def test_files_that_are_not_as_they_should_be(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    text = (DATA / "rccl_tests.json").read_text().replace(*change)
    if not said:  # a list without its end has all rows that it has
        assert len(load(written(tmp_path, text)).frame) == 4
        return
    with pytest.raises(UsageError, match=said):
        load(written(tmp_path, text))
