"""What people paste: tables without hashes, without headings, of other tools, and no results."""

import re
from itertools import chain
from pathlib import Path
from textwrap import wrap

import pytest

from collbench.compare.load import load
from collbench.core.errors import UsageError
from tests.support.nccl_tests_text import VERSIONS, output
from tests.support.results import DATA, SWEEP, written

TABLE = output(VERSIONS[-1], "allreduce", 4, [100.0, 3000.0])
UCX = """| | overhead (usec) | bandwidth (MB/s) |
[thread 0] 33 0.5 4.0 4.000 {0:.2f} {0:.2f} 2 2
[thread 0] 53 0.6 5.0 5.000 {1:.2f} {1:.2f} 3 3
"""
P2P = """[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, Card, pciBusID: 1, pciDeviceID: 0, pciDomainID:0
Device: 1, Card, pciBusID: 2, pciDeviceID: 0, pciDomainID:0
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 1500.00  40.00
     1  40.00 1500.00
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 1500.00  {there}
     1   {back} 1500.00
"""
OTHERS = P2P.partition("Unidir")[0].replace("1, Card", "1, Other")
SAMPLE = """ Host to Device Bandwidth, 1 Device(s)
   Transfer Size (Bytes)        Bandwidth(GB/s)
   32000000                     13.1
"""
PERFTEST = """                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             99.10              80.00              0.1526
"""


def test_hashes_that_were_lost_or_escaped(tmp_path: Path) -> None:
    whole = load(written(tmp_path, TABLE, "allreduce.txt")).records
    bare = "\n".join(line.lstrip("# ") for line in TABLE.splitlines())
    escaped = TABLE.replace("#", "\\#")
    tagged = "".join(f"[1,0]<stdout>: {line}\n" for line in bare.splitlines())
    for text in (bare, escaped, tagged):
        assert load(written(tmp_path, text, "allreduce.txt")).records == whole


@pytest.mark.parametrize("width", [80, 100, 110])
def test_a_terminal_broke_the_lines(tmp_path: Path, width: int) -> None:
    text = output(VERSIONS[-1], "allreduce", 4, [100.0 * 2**size for size in range(9)])
    lines = [f"[default0]:{line}" for line in text.splitlines()]
    broken = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
    whole = load(written(tmp_path, "\n".join(lines), "allreduce.txt")).records
    cut = map(str.rstrip, broken)
    by_words = (wrap(line, width, replace_whitespace=False) for line in text.splitlines())
    for pasted in (broken, cut, chain(*by_words)):
        assert load(written(tmp_path, "\n".join(pasted), "allreduce.txt")).records == whole


def test_rows_of_one_length_are_not_joined(tmp_path: Path) -> None:
    head = "# OSU MPI Allreduce Latency Test v7.3\n# Size  Avg Latency(us)  Min Latency(us)\n"
    rows = "".join(f"{2**size:<20}{size:>20}.00{size:>33}.00\n" for size in range(1, 20))
    loaded = load(written(tmp_path, f"mpirun -n 4 ./osu_allreduce\n{head}{rows}", "x.txt"))
    assert [row.time_us for row in loaded.records] == list(range(1, 20))


@pytest.mark.parametrize("file", [DATA / "nvbandwidth.json", SWEEP])
def test_a_document_behind_tags(tmp_path: Path, file: Path) -> None:
    text = file.read_text()
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines())
    whole, behind = (load(written(tmp_path, one, file.name)).records for one in (text, tagged))
    assert (len(behind), behind) == (len(whole), whole)


def test_rows_without_their_heading(tmp_path: Path) -> None:
    rows = [line for line in TABLE.splitlines() if line.strip() and not line.startswith("#")]
    loaded = load(written(tmp_path, "\n".join(rows) + "\n", "allreduce.txt"))
    whole = load(written(tmp_path, TABLE, "whole_allreduce.txt"))
    assert [row.busbw_gbs for row in loaded.records] == [row.busbw_gbs for row in whole.records]
    assert any("heading is missing" in text for text in loaded.remarks)


def test_labels_before_the_sizes_are_runs_of_their_own(tmp_path: Path) -> None:
    row = " {} 1048576 262144 float sum {} 10.49 {} 0 {} 10.49 {} 0\n"
    rows = row.format(1, 100, 10.49, 100, 10.49) + row.format(2, 100, 15.73, 100, 15.73)
    text = f"nodes  size count type redop time algbw busbw #wrong time algbw busbw #wrong\n{rows}"
    loaded = load(written(tmp_path, text, "allreduce.txt"))
    assert [record.ranks for record in loaded.records] == [2, 2, 4, 4]


def test_one_rank_sends_nothing(tmp_path: Path) -> None:
    text = output(VERSIONS[-1], "allreduce", 1, [100.0, 3000.0])
    with pytest.raises(UsageError, match="nothing travels") as caught:
        load(written(tmp_path, text, "x.txt"))
    assert "-g 8" in caught.value.hint


def test_a_first_time_without_warm_up_is_no_result(tmp_path: Path) -> None:
    cold = re.sub(r"warmup iters: \d+ iters: \d+", "warmup iters: 0 iters: 1", TABLE)
    lines = cold.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.strip()[:1].isdigit())
    cells = lines[at].split()
    cells[5:7] = [str(float(cells[5]) * 1000), "0.00"]
    lines[at] = "  ".join([*cells[:7], "0.00", *cells[8:]]) + "\n"
    loaded = load(written(tmp_path, "".join(lines), "allreduce.txt"))
    assert len(loaded.records) == 3
    assert any("-w 0" in text and "left out" in text for text in loaded.remarks)
    assert any("-n 1" in text for text in loaded.remarks)


def test_all_sizes_slower_in_one_way_are_no_disturbance(tmp_path: Path) -> None:
    lines = output(VERSIONS[-1], "allreduce", 4, [100.0, 3000.0, 9000.0]).splitlines()
    for at, line in enumerate(lines):
        if line.strip()[:1].isdigit():
            cells = line.split()
            rates = [f"{float(cell) / 20:.6f}" for cell in cells[10:12]]
            lines[at] = " ".join([*cells[:9], str(float(cells[9]) * 20), *rates, *cells[12:]])
    loaded = load(written(tmp_path, "\n".join(lines) + "\n", "allreduce.txt"))
    (said,) = (text for text in loaded.remarks if "times as long" in text)
    assert said.startswith("3 sizes took 15 times as long in place")


@pytest.mark.parametrize(
    ("there", "back", "said"),
    [("10.00", "9.00", "is slower than"), ("80.00", "79.00", "is not slower than"),
     ("80.00", "20.00", "differ by more than 2 times")],
)  # fmt: skip
def test_peer_access_that_does_harm(there: str, back: str, said: str, tmp_path: Path) -> None:
    loaded = load(written(tmp_path, P2P.format(there=there, back=back), "p2p.txt"))
    assert len(loaded.records) == 4
    assert any(said in text for text in loaded.remarks)


def test_peer_access_that_gains_both_ways_alone_goes_by_a_narrow_link(tmp_path: Path) -> None:
    text = P2P.format(there="41.00", back="41.00")
    both = text[text.index("Uni") :].replace("Uni", "Bi").replace("41.00", "80.00")
    said = " ".join(load(written(tmp_path, text + both, "p2p.txt")).remarks)
    assert "x16 of PCIe 4.0 gives 24, x8 half" in said and "goes through the host" not in said


def test_perftest_and_its_link(tmp_path: Path) -> None:
    alone = load(written(tmp_path, PERFTEST, "ib.txt"))
    (row,) = alone.records
    assert (row.size_bytes, row.ranks) == (65536, 2)
    assert row.busbw_gbs == pytest.approx(10.0)
    assert any("80 Gb/s" in text for text in alone.remarks)
    beside = load(written(tmp_path, f"{PERFTEST}\n  Rate: 100\n", "ib.txt"))
    assert any("80% of the link's 100 Gb/s" in text for text in beside.remarks)
    changed = load(written(tmp_path, PERFTEST.replace("80.00", "30.00"), "ib.txt"))
    assert any("do not fit" in text for text in changed.remarks)
    assert not any("do not fit" in text for text in alone.remarks)
    small = load(written(tmp_path, PERFTEST.replace(" 65536 ", " 8 "), "ib.txt"))
    assert any("not what the link carries" in text for text in small.remarks)
    fast = f"initializing CUDA\n{PERFTEST}".replace("80.00", "97.00")
    (said,) = (one for one in load(written(tmp_path, fast, "ib.txt")).remarks if "97 Gb/s" in one)
    assert "a port of 100 Gb/s" in said and "way to the GPU" in said


@pytest.mark.parametrize("text", [P2P.partition("Unidir")[0], PERFTEST.partition(" 65536")[0]])
def test_outputs_without_a_rate_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load(written(tmp_path, text, "x.txt"))


@pytest.mark.parametrize(
    ("name", "times", "said"),
    [
        ("ucx_perftest", [4.0], "tag_lat takes 4 us"),
        ("perftest_latency", [2.0], "clock was not at its highest"),
        ("osu_put", [2.0, 2.0, 3.0], "of 0 bytes left out (line 5): 0.50 us"),
        ("ucc_alltoall", [10.0, 20.0, 10.0], "those of 16 ranks (line 7)"),
    ],
)
def test_latencies_of_other_tools(name: str, times: list[float], said: str) -> None:
    loaded = load(DATA / f"{name}.txt")
    assert [row.time_us for row in loaded.records] == times
    assert any(said in text for text in loaded.remarks)


def test_what_is_read_is_no_match_of_what_is_written(tmp_path: Path) -> None:
    for what, note in (
        ("RDMA_Read", "one-way rma-get"),
        ("Atomic CMP_AND_SWAP", "one-way rma-atomic"),
    ):
        text = (DATA / "perftest_latency.txt").read_text().replace("Send", what)
        (tmp_path / "lat.txt").write_text(text)
        loaded = load(tmp_path / "lat.txt")
        assert [row.notes for row in loaded.records] == [f"unchecked {note}"]
        assert any("there and back" in remark for remark in loaded.remarks)


def test_what_no_reader_takes_is_named(tmp_path: Path) -> None:
    row = "{} {} float {} 10.49 9.18 0e+00 {} 10.49 9.18 0e+00\n"
    rows = "".join(row.format(n << 20, n << 15, 100 * n, 100 * n) for n in (1, 2, 4))
    for text, said in (
        ("# Initializing MSCCL++\n", "mscclpp-test"),
        ("HostBridge L#2 (buses=0)\n", "lstopo"),
        (rows, "allgather or alltoall by its rows, of 8 ranks, up to 9.18 GB/s"),
        (rows.replace("10.49 ", "5.24 "), "prints algbw 5.24 GB/s, but 1048576 bytes in 100"),
        (f"# size count type\n{rows}", "does not name the collective"),
        ("# size count type time | # size count type time\n", "two tables side by side"),
        ("nccom-test -r 2 allr\n", "collectives on AWS Neuron"),
        ("allr: 40.1 GB/s\n", "rates by a program that we do not know"),
        (
            f"{OTHERS}Device=0 CANNOT Access Peer Device=1\n",
            "Card and Other are of different kinds",
        ),
        (SAMPLE, "1 value left out .line 1.: 13.1, as PCIe 3.0 x16 or 4.0 x8 gives"),
        (UCX.format(2325.25, 21526.05), "unsteady: 2.44 to 22.6 GB/s within one test"),
        (UCX.format(9 * 10**5, 9 * 10**5), "more than links of a GPU carry"),
    ):
        with pytest.raises(UsageError, match=said):
            load(written(tmp_path, text, "x.txt"))
    loaded = load(written(tmp_path, f"AllToAll, 8 GPUs:\n{rows}", "x.txt"))
    assert {(row.op, row.ranks) for row in loaded.records} == {("alltoall", 8)}
