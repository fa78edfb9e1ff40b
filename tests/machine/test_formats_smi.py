"""nvidia-smi's text: the classes told come back from the machine that is made up; P2P states;
speeds of NVLinks.
"""

import re
from itertools import combinations
from pathlib import Path

import pytest

from collbench.core.errors import UsageError
from collbench.machine import formats
from collbench.machine.formats import nvidia_smi
from collbench.machine.topology.paths import path
from collbench.machine.views.matrix import matrix as matrix_view
from collbench.machine.views.tables import links
from tests.support.topologies import OWN, REAL, count, labels, needs_real


def told(file: Path) -> list[list[str]]:
    """The cells of a file's matrix, read by the simplest means."""
    text = re.sub(r"\x1b\[\d*m", "", file.read_text())
    rows = [line.split() for line in text.splitlines() if re.match(r"(GPU|NIC|mlx5_)\d+\t", line)]
    return [row[1 : len(rows) + 1] for row in rows]


def test_dgx1v_by_hand() -> None:
    """The hybrid cube mesh: 6 NVLinks of each of 8 GPUs, 24 NVLinks in 16 bundles; 4 NICs by the
    names of old drivers.
    """
    topology = formats.read(OWN / "dgx1v-topo-m.txt")
    bundles = [link for link in topology.links if link.kind == "nvlink"]
    assert len(topology.gpus) == 8
    assert len(bundles) == 16
    assert sum(link.count for link in bundles) == 24
    assert all(
        sum(link.count for link in topology.links_of[gpu.id] if link.kind == "nvlink") == 6
        for gpu in topology.gpus
    )
    assert all(link.raw_gbs is None for link in topology.links) and not topology.of_kind("nvswitch")
    # Without a link, the way goes through a GPU that has one to both.
    assert labels(topology)[0] == "X NV1 NV1 NV2 NV2 NVB NVB NVB"
    assert (
        labels(topology, "nic0", "gpu0", "gpu2", "gpu4", "nic1", "nic2")[0]
        == "X PIX PHB SYS SYS PHB"
    )
    assert [nic.name for nic in topology.of_kind("nic")] == ["mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"]
    assert [(cpu.id, cpu.affinity, cpu.fact("hidden")) for cpu in topology.of_kind("cpu")] == [
        ("cpu0", "0-19,40-59", "yes"),
        ("cpu1", "20-39,60-79", "yes"),
    ]
    assert count(topology, "socket") == 1


def test_pcie_box_gives_back_every_class() -> None:
    topology = formats.read(OWN / "pcie-box-topo-m.txt")
    devices = ("gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "nic0", "nic1", "nic2")
    assert labels(topology, *devices) == [
        " ".join(row) for row in told(OWN / "pcie-box-topo-m.txt")
    ]
    assert [nic.name for nic in topology.of_kind("nic")] == ["mlx5_0", "mlx5_1", "mlx5_bond_0"]
    assert [(cpu.id, cpu.index, cpu.affinity) for cpu in topology.of_kind("cpu")] == [
        ("cpu0", 0, "0-31,64-95"),
        ("cpu1", 1, "32-63,96-127"),
    ]
    assert all(
        node.fact("hidden") == "yes" for node in topology.nodes if node.kind not in ("gpu", "nic")
    )
    assert topology.notes == ("nvidia-smi's matrix tells no widths and no speeds",)


def matrix(cells: str, behind: str = "") -> str:
    """Text of nvidia-smi for rows of cells, all devices GPUs."""
    rows = [row.split() for row in cells.split("/")]
    head = "\t" + "\t".join(f"GPU{n}" for n in range(len(rows)))
    return "\n".join(
        [
            f"{head}\tCPU Affinity\tNUMA Affinity",
            *("\t".join([f"GPU{n}", *row, behind]) for n, row in enumerate(rows)),
        ]
    )


@pytest.mark.parametrize(
    "cells",
    [
        *(f"X {one}/{one} X" for one in ("PIX", "PXB", "PHB", "NODE", "SYS")),
        "X PXB PXB/PXB X PXB/PXB PXB X",
        "X PIX NODE/PIX X NODE/NODE NODE X",
        "X PXB PHB/PXB X PHB/PHB PHB X",
        "X PIX PXB SYS/PIX X PXB SYS/PXB PXB X SYS/SYS SYS SYS X",
        "X NODE SYS/NODE X SYS/SYS SYS X",
    ],
)
def test_classes_come_back(cells: str) -> None:
    topology = nvidia_smi.read(matrix(cells), "m.txt")
    assert labels(topology) == cells.split("/") and len(topology.notes) == 1


def test_switch_or_bridges() -> None:
    """All pairs alike with more NVLinks than a GPU has: a switch, but not for two GPUs, and not
    for the 4 or 6 links that four A100 or H100 have directly.
    """

    def switches(cells: str) -> int:
        return len(nvidia_smi.read(matrix(cells), "m.txt").of_kind("nvswitch"))

    assert switches("X NV6 NV6/NV6 X NV6/NV6 NV6 X") == 0
    assert switches("X NV4 NV4/NV4 X NV4/NV4 NV4 X") == 0
    assert switches("X NV12/NV12 X") == 0
    assert switches("X NV12 SYS/NV12 X SYS/SYS SYS X") == 0
    switched = nvidia_smi.read(matrix("X NV12 NV12/NV12 X NV12/NV12 NV12 X"), "m.txt")
    assert labels(switched)[0] == "X NV12 NV12"
    assert count(switched, "nvlink") == 3
    assert "taken as an NVSwitch" in switched.notes[-1]


def test_gpus_of_one_affinity_share_a_processor_unless_sys_is_told() -> None:
    one = nvidia_smi.read(matrix("X NV2/NV2 X", "0-7\t0"), "m.txt")
    two = nvidia_smi.read(matrix("X SYS/SYS X", "0-7\t0"), "m.txt")
    assert len(one.of_kind("cpu")) == 1
    assert len(two.of_kind("cpu")) == 2
    assert labels(two) == ["X SYS", "SYS X"]


def test_a_matrix_of_no_tree_says_so() -> None:
    topology = nvidia_smi.read(matrix("X PIX PHB/PIX X PIX/PHB PIX X"), "m.txt")
    assert (
        "no tree: 1 pairs differ here, such as GPU0 to GPU2 is PHB, here PIX" in topology.notes[-1]
    )


def test_old_names_and_one_gpu() -> None:
    assert (
        labels(nvidia_smi.read(matrix("X SOC PSB/SOC X SOC/PSB SOC X"), "m.txt"))[0] == "X SYS PIX"
    )
    one = nvidia_smi.read(
        "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\tN/A\t\tN/A\n", "m.txt"
    )
    assert len(one.gpus) == 1
    assert one.gpus[0].affinity == "0-7"
    assert one.of_kind("cpu")[0].index == -1


@needs_real
def test_h200_by_hand() -> None:
    topology = formats.read(REAL / "h200x4-vm" / "nvidia-smi-topo-m.txt")
    assert labels(topology) == [
        " ".join(row) for row in told(REAL / "h200x4-vm" / "nvidia-smi-topo-m.txt")
    ]
    assert count(topology, "nvlink") == 4
    assert [link.count for link in topology.links_of["nvs0"]] == [18] * 4
    assert topology.of_kind("cpu")[0].affinity == "0-63" and topology.of_kind("cpu")[0].index == 0


@needs_real
@pytest.mark.parametrize(
    ("letter", "what"), [("r", "read"), ("w", "write"), ("a", "atomics"), ("n", "nvlink")]
)
def test_p2p_of_h200(letter: str, what: str) -> None:
    topology = formats.read(REAL / "h200x4-vm" / f"nvidia-smi-topo-p2p-{letter}.txt")
    assert topology.p2p == {
        (f"gpu{a}", f"gpu{b}", what): "OK" for a in range(4) for b in range(4) if a != b
    }


def test_p2p_codes() -> None:
    topology = formats.read(OWN / "pcie-box-p2p-r.txt")
    assert topology.p2p["gpu0", "gpu1", "read"] == "OK"
    assert topology.p2p["gpu2", "gpu0", "read"] == "CNS"
    assert topology.p2p["gpu1", "gpu2", "read"] == "TNS" and len(topology.p2p) == 6
    told = nvidia_smi.read("-p2p w\n\tGPU0\tGPU1\nGPU0\tX\tNS\nGPU1\tNS\tX", "x").p2p
    assert told["gpu0", "gpu1", "write"] == "NS"


def test_several_outputs_are_one_topology() -> None:
    states = "\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n"
    text = (
        f"$ nvidia-smi topo -m\n{matrix('X NV4/NV4 X')}\n$ nvidia-smi topo -p2p r\n{states}$"
        f" nvidia-smi topo -p2p n\n{states}"
    )
    speeds = (
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\nGPU 1: NVIDIA"
        " A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n"
    )
    topology = nvidia_smi.read(text + speeds, "pasted.txt")
    assert {what for _, _, what in topology.p2p} == {"read", "nvlink"}
    assert labels(topology) == ["X NV4", "NV4 X"]
    assert topology.gpus[0].name == "NVIDIA A100"
    assert topology.gpus[0].fact("nvlinks_inactive") == "1"
    # the generation is by the name
    assert path(topology, "gpu0", "gpu1").usable_gbs == pytest.approx(80.0)
    twice = nvidia_smi.read(text + matrix("X NV4/NV4 X"), "pasted.txt")
    assert "a further matrix of connections, which is the same" in twice.notes[-3]
    assert "peer access, read: OK (allowed) for 2 of 2 ordered pairs" in twice.notes[-2]


@needs_real
def test_speeds_of_h200() -> None:
    topology = formats.read(REAL / "h200x4-vm" / "nvidia-smi-nvlink-s.txt")
    assert len(topology.gpus) == 4 and not topology.links
    told = [
        (gpu.name, *(gpu.fact(key) for key in ("nvlinks", "nvlink_gbs", "nvlink_generation")))
        for gpu in topology.gpus
    ]
    assert told == [("NVIDIA H200", "18", "26.562", "4")] * 4


def test_many_devices_in_bounded_time() -> None:
    size, near = 64, ("SYS", "NODE", "PIX", "X")
    rows = [
        [near[(a // 32 == b // 32) + (a // 4 == b // 4) + (a == b)] for b in range(size)]
        for a in range(size)
    ]
    topology = nvidia_smi.read(matrix("/".join(map(" ".join, rows))), "m.txt")
    assert all(
        path(topology, f"gpu{a}", f"gpu{b}").label == rows[a][b]
        for a, b in combinations(range(size), 2)
    )


BOX = (OWN / "pcie-box-topo-m.txt").read_text()


def wrapped(text: str, columns: int) -> str:
    """Lines broken where a terminal of that width ends, without escapes, their tabs expanded."""
    lines = [line.expandtabs() for line in re.sub(r"\x1b\[\d*m", "", text).splitlines()]
    return "\n".join(
        line[first : first + columns]
        for line in lines
        for first in range(0, max(len(line), 1), columns)
    )


def tagged(text: str, tag: str) -> str:
    return "\n".join(tag + line for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        tagged(BOX, "> "),
        tagged(BOX, ">> > "),
        tagged(BOX, "[1,0]<stdout>:"),
        tagged(BOX, "[1,0]<stdout>: > "),
        tagged(BOX, "0: "),
        tagged(BOX, "node-1.cluster: "),
        tagged(BOX, "2025-07-01T12:34:56.789Z "),
        f"what I see:\n```\n{BOX}```\nthanks",
        *(wrapped(BOX, columns) for columns in (50, 60, 61, 62, 63, 70)),
        BOX.replace("SYS\tSYS", "SYSSYS"),
        BOX.replace("GPU1\tGPU2", "GPU1GPU2", 1),
        BOX.replace("\t", " \xa0"),
    ],
    ids=range(17),
)
def test_what_pasting_does_to_a_matrix_is_undone(text: str) -> None:
    plain = nvidia_smi.read(BOX, "m.txt")
    read = nvidia_smi.read(text, "m.txt")
    devices = [node.id for node in plain.nodes if node.kind in ("gpu", "nic")]
    assert labels(read, *devices) == labels(plain, *devices)
    assert [gpu.affinity for gpu in read.gpus] == [gpu.affinity for gpu in plain.gpus]


def test_lost_rows_are_filled_from_columns() -> None:
    """Rows of NICs are often cut off; what lies between two of them is inferred, and said."""
    plain = nvidia_smi.read(BOX, "m.txt")
    lines = [line for line in BOX.splitlines() if not line.startswith("NIC")]
    read = nvidia_smi.read("\n".join(lines), "m.txt")
    gpus = [gpu.id for gpu in plain.gpus]
    assert labels(read, *gpus, "nic0") == labels(plain, *gpus, "nic0")
    assert any("NIC0, NIC1, NIC2 are missing" in note for note in read.notes)


def test_a_cut_matrix_tells_no_more_than_it_has() -> None:
    """Two rows of four: the others are behind the switch, and nowhere on PCIe."""
    head = "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity"
    rows = "GPU0\t X \tNV18\tNV18\tNV18\tPIX\t0-7\t0\nGPU1\tNV18\t X \tNV18\tNV18\tNODE\t0-7\t0"
    topology = nvidia_smi.read(f"{head}\n{rows}\n", "m.txt")
    assert labels(topology)[3] == "NV18 NV18 NV18 X"
    assert labels(topology, "gpu0", "gpu1", "gpu3", "nic0")[3] == "PIX NODE DIS X"
    assert any("where on PCIe GPU2, GPU3 are" in note for note in topology.notes)
    assert "NV18?" in matrix_view(topology, 100)[3]


def test_rows_that_contradict_each_other_are_named() -> None:
    topology = nvidia_smi.read(matrix("X NV8 SYS/NV4 X SYS/SYS NODE X"), "m.txt")
    assert "the least is taken: GPU0 to GPU1 NV8, back NV4" in topology.notes[-2]
    assert "neither is taken: GPU1 to GPU2 SYS, back NODE" in topology.notes[-1]
    assert {"NV4?", "SYS?"} <= {*matrix_view(topology, 100)[2].split()}


def test_p2p_of_several_options_and_of_none() -> None:
    states = "\tGPU0\tGPU1\nGPU0\tX\tGNS\nGPU1\tGNS\tX\n"
    both = nvidia_smi.read(f"(topo -p2p rw)\n{states}", "x.txt")
    assert {what for _, _, what in both.p2p} == {"read", "write"}
    assert {what for _, _, what in nvidia_smi.read(f"-p2p p\n{states}", "x.txt").p2p} == {"prop"}
    assert nvidia_smi.read(states, "box-p2p-rw.txt").p2p == both.p2p
    beside = nvidia_smi.read(f"{matrix('X NV4/NV4 X')}\n\n{states}", "x.txt")
    assert not beside.p2p and "a P2P matrix that does not say" in beside.notes[-1]
    with pytest.raises(UsageError, match="does not say"):
        nvidia_smi.read(states, "x.txt")


def test_speeds_give_bundles_their_rates() -> None:
    """A model that nobody knows, by what nvidia-smi nvlink -s prints; one link is down."""
    speeds = "".join(
        f"GPU {n}: Graphics Device (UUID: GPU-{n})\n"
        + "".join(f"\t Link {k}: 26.562 GB/s\n" for k in range(18 - n))
        for n in range(3)
    )
    cells = "X NV18 NV18/NV18 X NV18/NV18 NV18 X"
    topology = nvidia_smi.read(f"{matrix(cells)}\n{speeds}", "x.txt")
    assert path(topology, "gpu0", "gpu1").usable_gbs == pytest.approx(364.5)
    assert "GPU1 has 17 active NVLinks, 18 in the matrix" in topology.notes


def test_prose_about_gpus_is_no_table() -> None:
    speeds = "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: 25 GB/s\n"
    listed = "GPU 0: NVIDIA A100 (UUID: GPU-0)\nGPU 1: NVIDIA A100 (UUID: GPU-1)\n"
    text = f"{matrix('X NV1/NV1 X')}\n\nGPU0 and GPU1 are slow.\n{speeds}{listed}GPU 0: slow\n"
    topology = nvidia_smi.read(text, "x.txt")
    assert [gpu.name for gpu in topology.gpus] == ["NVIDIA A100"] * 2
    assert topology.gpus[0].fact("nvlinks") == "1"


def test_xml_in_the_middle_of_a_paste(tmp_path: Path) -> None:
    """Tagged by a launcher, with text before and behind it: as the file alone."""
    plain = formats.read(OWN / "switch-by-peers-nccl.xml")
    text = (OWN / "switch-by-peers-nccl.xml").read_text()
    file = tmp_path / "switch-by-peers-nccl.xml"
    file.write_text(f"our file:\n{tagged(text, '[1,0]<stdout>:')}\nthank you\n")
    assert formats.read(file).nodes == plain.nodes


_PASTED = (
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity",
    "GPU0\t X \tNV18\tPIX\t0-3",
    "GPU1\tNV18\t X \tSYS\t4-7",
    "NIC0\tPIX\tSYS\t X \t\t",
)


@pytest.mark.parametrize(
    "paste",
    [
        "\n".join((f"[4m{_PASTED[0][1:]}[0m", *_PASTED[1:])),
        "\n".join((f"^[[4m{_PASTED[0][1:]}^[[0m", *_PASTED[1:])),
        "\n".join(f"worker-1  | {line}" for line in _PASTED),
        "\n".join(f"[pod/test-0/main] {line}" for line in _PASTED),
        "\n".join(f"{number:4}\t{line}" for number, line in enumerate(_PASTED)),
        "\n".join(f"INFO 05-12 10:11:12 env.py:100] {line}" for line in _PASTED),
        "\n".join(f"+{line}" for line in _PASTED),
        "\n".join(f"│ {line.expandtabs():99}│" for line in _PASTED),
        "\n|---|---|---|---|\n".join(f"|{line}|".replace("\t", " | ") for line in _PASTED),
        "<pre><code class='x'>" + "\n".join(_PASTED) + "</code></pre>",
        "<br>".join(_PASTED),
    ],
)
def test_a_matrix_is_read_whatever_shows_it(paste: str) -> None:
    """Escapes shown as text or lost, logs of containers, line numbers, boxes, Markdown, HTML."""
    topology = nvidia_smi.read(paste, "a")
    assert labels(topology, "gpu0", "gpu1", "nic0") == ["X NV18 PIX", "NV18 X SYS", "PIX SYS X"]


def test_a_text_that_ends_in_a_cell_is_cut_there() -> None:
    """NV1 at the end of the text may be of NV18: it counts as not there."""
    topology = nvidia_smi.read("\n".join(_PASTED)[: -len("\nNIC0\tPIX\tSYS\t X \t\t")], "a")
    assert labels(topology, "gpu0", "gpu1", "nic0") == ["X NV18 PIX", "NV18 X SYS", "PIX SYS X"]
    cut = nvidia_smi.read("\n".join((*_PASTED[:2], "GPU1\tNV1")), "a")
    assert labels(cut, "gpu0", "gpu1") == ["X NV18", "NV18 X"]
    assert any("GPU1, NIC0 are missing or cut" in note for note in cut.notes)


@pytest.mark.exhaustive
def test_a_header_of_endless_lines_is_refused() -> None:
    with pytest.raises(UsageError, match="more than 256 columns"):
        nvidia_smi.read("\tGPU0\tGPU1\n" * 100_000, "a")


def test_a_terminal_may_be_narrower_than_the_text_around_the_matrix() -> None:
    wrapped = "a long line of prose, which no terminal broke\n\tGPU0\tGPU1\tCPU Affi\nnity"
    topology = nvidia_smi.read(f"{wrapped}\nGPU0\t X \tSYS\t0-3\nGPU1\tSYS\t X \t4-7", "a")
    assert labels(topology, "gpu0", "gpu1") == ["X SYS", "SYS X"]


@pytest.mark.parametrize(("name", "links"), [("GeForce RTX 3090", 18), ("H100 PCIe", 36)])
def test_more_links_than_the_named_gpu_has_come_to_no_rate(name: str, links: int) -> None:
    named = "".join(f"GPU {gpu}: NVIDIA {name} (UUID: GPU-{gpu})\n" for gpu in range(2))
    text = f"{named}\tGPU0\tGPU1\nGPU0\t X \tNV{links}\nGPU1\tNV{links}\t X \n"
    topology = nvidia_smi.read(text, "a")
    assert path(topology, "gpu0", "gpu1").usable_gbs is None
    assert any(f"{links} NVLinks, more than the" in note for note in topology.notes)


def test_inactive_nvlinks_are_named() -> None:
    text = (
        "GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA H100 (UUID: GPU-2)\nNVML: Unable to retrieve NVLink information as all"
        " links are inActive\n"
    )
    topology = nvidia_smi.read(text, "x.txt")
    assert [gpu.fact("nvlinks_inactive") for gpu in topology.gpus] == ["1", "all"]
    assert [gpu.fact("nvlinks") for gpu in topology.gpus] == ["1", "0"]
    assert links(topology)[1].split()[:3] == ["GPU", "0", "1"]
    assert not any("not wired" in note for note in topology.notes)
    alike = (OWN / "two-nvlinks.txt").read_text()
    assert any("not wired in this product" in note for note in nvidia_smi.read(alike, "x").notes)


def test_a_matrix_without_heading_and_lines_of_peer_access() -> None:
    topology = formats.read(OWN / "cut-topo-m.txt")
    assert labels(topology, "gpu0", "gpu3", "nic0") == ["X NV4 PIX", "NV4 X SYS", "PIX SYS X"]
    assert any("the rows or columns of GPU0 are missing or cut" in note for note in topology.notes)
    narrow = nvidia_smi.read("GPU0 GPU1\nGPU0 X NV1\nGPU1 NV1 X\nGPU2 NV2 SYS\n", "m.txt")
    assert labels(narrow, "gpu0", "gpu1", "gpu2") == ["X NV1 NV2", "NV1 X NVB", "NV2 NVB X"]
    headless = nvidia_smi.read("GPU0 X NODE NV2 PIX SYS\nGPU1 NODE X NODE SYS\n", "m.txt")
    assert labels(headless) == ["X NODE NV2", "NODE X NODE", "NV2 NODE X"]
    assert any("GPU1: no link to a peer, which the other" in note for note in headless.notes)
    peers = formats.read(OWN / "peer-lines.txt")
    assert any("2 of 3 ordered pairs of GPUs here, not for GPU0 to GPU2" in x for x in peers.notes)
