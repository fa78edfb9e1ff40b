"""rocm-smi's and amd-smi's text: xGMI of direct pairs, and CPUs that nodes or hops imply."""

import pytest

from collbench.core.errors import UsageError
from collbench.machine import formats
from collbench.machine.formats import rocm_smi
from collbench.machine.topology.paths import path
from collbench.machine.topology.rings import ring_rate_gbs, rings
from tests.support.topologies import OWN, labels


def test_pairs_of_twice_the_weight_are_not_direct() -> None:
    topology = formats.read(OWN / "mi250x-showtopo.txt")
    assert labels(topology)[0] == "X XGMI XGMI NVB"
    assert [cpu.fact("hidden") for cpu in topology.of_kind("cpu")] == ["yes", "yes"]
    assert labels(topology, "gpu1", "cpu0", "cpu1")[0] == "X PHB SYS"
    assert path(topology, "gpu0", "gpu1").usable_gbs is None  # how many links there are is not told
    assert any("rates are unknown" in note for note in topology.notes)


def test_bandwidths_and_the_product_give_rates() -> None:
    text = (OWN / "mi300x-amd-smi.txt").read_text()
    topology = rocm_smi.read(text, "x.txt")
    assert topology.gpus[2].address == "0000:1e:00.0"
    assert topology.gpus[2].name == "AMD Instinct MI300X"
    assert ring_rate_gbs(topology, rings(topology)) == pytest.approx(336.0)
    four = rocm_smi.read(text.replace("MI300X", "MI250X").replace("-64000", "-200000"), "x.txt")
    assert path(four, "gpu0", "gpu1").links[0].count == 4
    assert path(four, "gpu0", "gpu1").usable_gbs == pytest.approx(144.0)
    for width in (80, 90, 100):  # of a terminal that broke the lines
        cut = "\n".join(
            row[at : at + width] for row in text.split("\n") for at in range(0, len(row), width)
        )
        assert rocm_smi.read(cut, "x.txt").links == topology.links
    unnamed = rocm_smi.read(text.replace("MI300X", "new"), "x.txt")
    assert path(unnamed, "gpu0", "gpu1").links[0].raw_gbs == 64.0
    assert path(unnamed, "gpu0", "gpu1").usable_gbs is None


@pytest.mark.parametrize(
    "text",
    ["Link Type between two GPUs", "LINK TYPE TABLE:\n hello world\n", "link type table\n\n"],
)
def test_tables_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"x\.txt"):
        rocm_smi.read(text, "x.txt")


def test_pcie_by_hops() -> None:
    """2 hops: one socket; 3: two."""
    hops = {(0, 1): "2", (2, 3): "2"}
    table = "\n".join(
        f"GPU{a} " + " ".join(str(hops.get((min(a, b), max(a, b)), "3")) for b in range(4))
        for a in range(4)
    )
    kinds = "\n".join(f"GPU{a} " + " ".join("PCIE" for _ in range(4)) for a in range(4))
    head = " GPU0 GPU1 GPU2 GPU3"
    text = (
        f"Hops between two GPUs\n{head}\n{table}\n\nLink Type between two GPUs\n{head}\n{kinds}\n"
    )
    assert labels(rocm_smi.read(text, "x.txt")) == [
        "X PHB SYS SYS",
        "PHB X SYS SYS",
        "SYS SYS X PHB",
        "SYS SYS PHB X",
    ]


def test_rows_that_are_cut_off_are_said() -> None:
    text = "Link Type between two GPUs\n GPU0 GPU1 GPU2\nGPU0 0 XGMI XGMI\nGPU1 XG"
    notes = rocm_smi.read(text, "x.txt").notes
    assert any("GPU1, GPU2 are missing or cut" in note for note in notes)


def test_access_that_is_disabled() -> None:
    names = "0000:11:00.0 0000:22:00.0"
    one, other = names.split()
    text = "".join(
        f"{title} TABLE:\n  {names}\n{one} {cells[0]}\n{other} {cells[1]}\n"
        for title, cells in (
            ("ACCESS", ("ENABLED DISABLED", "DISABLED ENABLED")),
            ("LINK TYPE", ("SELF PCIE", "PCIE SELF")),
        )
    )
    topology = rocm_smi.read(text, "x.txt")
    assert topology.p2p["gpu0", "gpu1", "read"] == topology.p2p["gpu1", "gpu0", "write"] == "NS"
    assert any("gpu0 and gpu1 both ways" in note for note in topology.notes)
