"""nccl-tests' JSON becomes rows; what is not as it should be is refused."""

import json
import re
from pathlib import Path

import pytest

from collbench.compare.load import load
from collbench.core.errors import UsageError
from tests.support.results import check_form, sample_json, written
from tests.support.tables import cells_of


def test_json_keeps_no_secret_and_counts_ranks_by_the_rates(tmp_path: Path) -> None:
    whole = sample_json()
    row = load(written(tmp_path, json.dumps(whole))).frame.iloc[0]
    assert (row["ranks"], row["device"], row["versions"]) == (
        8,
        "8 x NVIDIA A100",
        "nccl-tests; nccl 2.23.4 with NCCL_ALGO=Ring",
    )
    assert not any("SECRET" in str(value) for value in row)


def test_json_of_several_processes_counts_ranks(tmp_path: Path) -> None:
    device = {"rank": 0, "hostname": "node1", "device_info": "NVIDIA A100"}
    config = {
        "nthreads": 1,
        "ngpus": 4,
        "devices": [device, device | {"rank": 4, "hostname": "node2"}],
    }
    whole = json.dumps(sample_json() | {"config": config, "args": ["broadcast_perf"]})
    row = load(written(tmp_path, whole.replace("73.40032", "41.94304"))).frame.iloc[0]
    assert (row["op"], row["ranks"], row["hosts"]) == ("broadcast", 8, 2)


def test_json_without_check_with_nan_and_wrong(tmp_path: Path) -> None:
    part = {"time": 100.0, "alg_bw": 41.94304, "bus_bw": 73.40032, "nwrong": None}
    rows = [
        {
            "size": size,
            "count": 1,
            "type": "float",
            "redop": "sum",
            "root": "-1",
            "out_of_place": part | {"time": size / 41943.04} | change,
        }
        for size, change in (
            (1 << 20, {}),
            (2 << 20, {"time": "nan", "alg_bw": "nan", "bus_bw": "nan"}),
            (4 << 20, {"nwrong": 3.0}),
        )
    ]
    frame = load(written(tmp_path, json.dumps(sample_json() | {"results": rows}))).frame
    check_form(frame)
    assert list(frame["status"]) == ["ok", "error", "wrong"]
    assert list(frame["notes"]) == ["unchecked", "unchecked", ""]


@pytest.mark.parametrize(("change", "said"), cells_of(__file__, "broken-json.tsv"))
def test_json_that_is_not_as_it_should_be(change: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        load(written(tmp_path, json.dumps(sample_json() | json.loads(change))))
