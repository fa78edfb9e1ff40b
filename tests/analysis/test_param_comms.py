"""What PARAM's comms.py prints becomes rows; times are the slowest rank's."""

from pathlib import Path

import pytest

from collbench.analysis.load import load
from collbench.util.errors import UsageError
from tests.support.results import DATA, check_form, written

MIB = 1 << 20
TEXT = (DATA / "param_comms.txt").read_text()


def test_collectives_and_point_to_point() -> None:
    loaded = load(DATA / "param_comms.txt")
    check_form(loaded.frame)
    assert loaded.kind == "PARAM's comms.py"
    rows = loaded.frame[["op", "ranks", "size_bytes", "time_us", "notes", "dtype"]]
    assert rows.to_numpy().tolist() == [
        ["allreduce", 4, MIB, 50.0, "unchecked", "float32"],
        ["allreduce", 4, 2 * MIB, 80.0, "unchecked", "float32"],
        ["allgather", 4, MIB, 50.0, "unchecked", "bfloat16"],
        # two pairs: half a round trip, one direction, half of the sum of both
        ["sendrecv", 4, MIB, 25.0, "unchecked one-way", "float32"],
        ["sendrecv", 4, MIB, pytest.approx(10.48576), "unchecked one-way window-32", "float32"],
        ["sendrecv", 4, MIB, pytest.approx(13.1072), "unchecked window-32", "float32"],
    ]
    assert set(loaded.frame["backend"]) == {"nccl"} and set(loaded.frame["hosts"]) == {1}
    assert loaded.frame["busbw_gbs"].iloc[0] == pytest.approx(MIB / 50e3 * 1.5)
    assert loaded.frame["count"].tolist()[:3] == [MIB // 4, MIB // 2, MIB // 8]
    assert "all_to_allv (line 20) is not comparable: 1 lines left out" in loaded.remarks


def test_older_versions_and_tags(tmp_path: Path) -> None:
    old = TEXT.replace("total-size (B)", "      size (B)").replace("   Time(us)", "Latency(us)")
    old = old.replace("all_reduce-float32", "all_reduce        ")
    lines = [line for line in old.splitlines() if "world_size" not in line]
    for tag in ("", "0: ", "2026-01-05T12:00:01.5Z stdout F "):
        text = "".join(f"{tag}{line}\n" for line in lines)
        loaded = load(written(tmp_path, text))
        allreduce = loaded.frame[loaded.frame["op"] == "allreduce"]
        assert allreduce["time_us"].tolist() == [50.0, 80.0]
        assert set(allreduce["ranks"]) == {4}
        assert any("how many ranks: 4, by busbw / algbw" in text for text in loaded.remarks)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\tCOMMS-RES-all_reduce-float32   1048576  262144\n", "follow no header"),
        (TEXT[: TEXT.index("\tCOMMS-RES-all")], "line 7: no row"),
        (TEXT.replace("       Max  ", "   Largest  "), "line 7: no column 'Max'"),
        (
            "\tCOMMS-RES-QUANT   size (B)  nElementsPerRank\n"
            "\tCOMMS-RES-QUANT-all_reduce-float16   1024  256  1.0\n",
            "quantised all_reduce .* is not comparable: 1 lines left out",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        load(written(tmp_path, text))


def test_cut_lines_are_counted(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, TEXT.replace("34.953", "")))
    assert any("1 lines cut or mixed" in text for text in loaded.remarks)
    assert len(loaded.frame) == 5


def test_one_log_of_all_tools(tmp_path: Path) -> None:
    names = (
        *("osu_point_to_point", "imb", "nvbandwidth", "mscclpp_test", "param_comms"),
        *("mscclpp_bench", "mpirun-tagged"),
    )
    text = "".join((DATA / f"{name}.txt").read_text() for name in names)
    alone = [load(DATA / f"{name}.txt").frame for name in names]
    together = load(written(tmp_path, text)).frame
    assert sorted(together["time_us"].dropna()) == pytest.approx(
        sorted(time for frame in alone for time in frame["time_us"].dropna())
    )
