"""The text and the JSON of nvbandwidth become the same rows: one for each pair of GPUs."""

import json
from pathlib import Path

import pytest

from collbench.compare.load import load
from collbench.compare.tables.summary import summary_lines
from collbench.core.errors import UsageError
from tests.support.results import DATA, check_form, written

TEXT = (DATA / "nvbandwidth.txt").read_text()
JSON = (DATA / "nvbandwidth.json").read_text()
SIZE = 64 << 20


def _rate(frame: object, notes: str) -> float:
    return float(frame[frame["notes"] == notes]["busbw_gbs"].iloc[0])  # type: ignore[index]


def test_text_and_json_are_the_same_rates() -> None:
    text, document = load(DATA / "nvbandwidth.txt"), load(DATA / "nvbandwidth.json")
    for loaded in (text, document):
        check_form(loaded.frame)
        assert loaded.kind == "nvbandwidth"
        assert len(loaded.frame) == 3 * 4 * 3
        assert _rate(loaded.frame, "one-way copy-read-ce gpus-0-3") == pytest.approx(200)
        assert _rate(loaded.frame, "one-way copy-write-ce gpus-2-1") == pytest.approx(410)
        # half of the sum of both directions
        assert _rate(loaded.frame, "copy-write-ce gpus-2-1") == pytest.approx(375)
        assert set(loaded.frame["op"]) == {"sendrecv"} and set(loaded.frame["ranks"]) == {2}
        assert set(loaded.frame["device"]) == {"4 x NVIDIA H200"}
        said = " | ".join(loaded.remarks)
        for name, values in (
            ("host_to_device_memcpy_ce", 4),
            ("device_local_copy", 4),
            ("device_to_device_latency_sm", 12),
        ):
            assert f"not comparable: {name}, {values} values left out" in said
        assert "multinode_device_to_device_memcpy_read_ce did not run: waived" in said
    assert text.frame["busbw_gbs"].tolist() == pytest.approx(document.frame["busbw_gbs"].tolist())
    assert set(text.frame["size_bytes"]) == {SIZE}  # nvbandwidth -b 64
    assert set(document.frame["size_bytes"]) == {512 << 20}
    assert any("512 MiB, nvbandwidth's usual buffer" in one for one in document.remarks)


def test_behind_a_prefix_and_with_a_row_that_is_cut(tmp_path: Path) -> None:
    tagged = "".join(f"[1,0]<stdout>: {line}\n" for line in TEXT.splitlines()[1:])
    frame = load(written(tmp_path, TEXT.splitlines()[0] + "\n" + tagged)).frame
    assert frame["time_us"].tolist() == load(DATA / "nvbandwidth.txt").frame["time_us"].tolist()
    cut = TEXT[: TEXT.index("SUM device_to_device_memcpy_write_ce") - 22]
    loaded = load(written(tmp_path, cut + "\nWaived:\n"))
    said = " | ".join(loaded.remarks)
    assert "1 row of matrices cut or mixed with others left out (line 38)" in said
    assert "the matrix of line 33 has no end" in said and "did not run" not in said
    assert len(loaded.frame) == 12 + 9


def test_one_matrix_for_both_directions_before_version_0_6(tmp_path: Path) -> None:
    matrix = "      0      1\n 0   N/A  60.00\n 1 60.00   N/A\n\nSUM x 120.00\n"
    for kind, rate in (("ce", 60), ("sm", 30)):
        text = (
            f"Running device_to_device_bidirectional_memcpy_read_{kind}.\nmemcpy {kind.upper()}"
            f" GPU(row) <-> GPU(column) bandwidth (GB/s)\n{matrix}"
        )
        frame = load(written(tmp_path, text)).frame
        assert frame["busbw_gbs"].tolist() == pytest.approx([rate, rate])


def test_a_part_of_the_output_is_named_by_the_sum_under_it(tmp_path: Path) -> None:
    head, _, rest = TEXT.partition("Running host_to_device_memcpy_ce.\n")
    whole = load(DATA / "nvbandwidth.txt").frame
    matrix = rest[
        rest.index("memcpy CE GPU(row) -> GPU(column)") : rest.index(
            "Running device_to_device_memcpy_w"
        )
    ]
    frame = load(written(tmp_path, head + "...\n\n" + matrix)).frame
    assert frame["notes"].tolist() == whole["notes"].tolist()[:12]
    assert frame["time_us"].tolist() == whole["time_us"].tolist()[:12]


def test_the_screen_names_the_slowest_pair_and_all_shows_each() -> None:
    rows = load(DATA / "nvbandwidth.txt").records
    few, every = (summary_lines(rows, 80, show_all) for show_all in (False, True))
    place = few.index("sendrecv, 2 ranks, copy-read-ce one-way, 12 pairs of GPUs")
    assert few[place + 1] == "  slowest pair    200.0 GB/s by gpus-0-3"
    assert len([line for line in every if line.endswith("gpus-0-3 one-way")]) > 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Running device_local_copy.\n", "no row: the output ends before a matrix, in line 2"),
        (
            "Running device_local_copy.\nmemcpy local GPU(column) bandwidth (GB/s)\n  0\n 0 9.00\n",
            "not comparable: device_local_copy, 1 value left out",
        ),
        ('{"nvbandwidth": {"error": "no driver"}}', "no list 'testcases': no driver"),
        (JSON[:900], r"line 45, column 7"),
        (JSON.replace('"N/A"', "[]", 1), "test 2: bandwidth_matrix is no matrix of numbers"),
        (json.dumps({"nvbandwidth": {"testcases": [3]}}), "no row"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        load(written(tmp_path, text))
