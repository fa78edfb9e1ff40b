"""Views of topologies written by hand: what they print can be counted on paper (views.toml)."""

import re
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from collbench.core.errors import UsageError
from collbench.core.web.svg import Rect, width_of
from collbench.machine import formats
from collbench.machine.discovery import LinkRow
from collbench.machine.formats import nccl_xml
from collbench.machine.topology.hosts import part, without
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.rates import nvlink_link, pcie_link
from collbench.machine.views import matrix as matrix_module
from collbench.machine.views import tables
from collbench.machine.views.drawing import svg
from collbench.machine.views.labels import alike, labels
from collbench.machine.views.matrix import matrix
from collbench.machine.views.tree import tree
from tests.machine.test_reads import text_of
from tests.support import machines
from tests.support.machines import dgx1v, laptop, two_hosts, unknown_rates
from tests.support.tiers import tiered
from tests.support.topologies import OWN, WIRED, real_files


def of_catalogue(name: str) -> Callable[[], Topology]:
    """What makes a machine of the catalogue."""

    def make() -> Topology:
        return machine_topology(name)

    make.__name__ = name
    return make


hgx_h100, nvl, gn5 = map(of_catalogue, ("hgx-h100", "gb200-nvl72", "gn5-8xp100"))
ALL: list[Callable[[], Topology]] = [
    *(dgx1v, two_hosts, laptop, unknown_rates),
    *(hgx_h100, nvl, gn5),
    *map(of_catalogue, ("dgx-2", "dgx-a100", "mi250x-8")),
]
SVG = "{http://www.w3.org/2000/svg}"


def cells(lines: list[str]) -> dict[tuple[str, str], str]:
    """Cells by row and column, all blocks of columns together."""
    found: dict[tuple[str, str], str] = {}
    heads: list[str] = []
    for line in lines:
        words = line.split()
        if words and re.match(r" +[GN]", line):
            heads = [word for word in words if re.fullmatch(r"[GN]\w+\d+", word)]
        elif words and re.fullmatch(r"[GN]\w+\d+", words[0]) and heads:
            found |= {(words[0], head): cell for head, cell in zip(heads, words[1:], strict=False)}
        elif not words:
            heads = []
    return found


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
@tiered("columns", [80, 100, 200], 1)
def test_the_matrix_fits_and_says_the_same_at_every_width(
    make: Callable[[], Topology], columns: int
) -> None:
    lines = matrix(make(), columns)
    assert max(map(len, lines)) <= columns
    assert not any(line.endswith(" ") for line in lines)
    assert cells(lines) == cells(matrix(make(), 1000))


@pytest.mark.parametrize("columns", range(1, 8))
def test_a_screen_of_a_few_columns_gets_all_in_the_end(columns: int) -> None:
    assert "".join(matrix(dgx1v(), columns)).count("GPU7") >= 2


def test_links_may_leave_out_some() -> None:
    assert not any("NVLink" in line for line in tables.links(hgx_h100(), without=("nvlink",)))


def test_colour_changes_no_letter() -> None:
    seen: list[str] = []

    def paint(text: str, kind: str) -> str:
        seen.append(kind)
        return f"\x1b[1m{text}\x1b[0m"

    for make in (matrix_80, tree, tables.rates):
        assert [re.sub(r"\x1b\[\dm", "", line).rstrip() for line in make(dgx1v(), paint)] == [
            line.rstrip() for line in make(dgx1v())
        ]
    assert {"NVL", "NVB", "PIX", "SYS", "pcie", "nvlink"} <= set(seen)


def matrix_80(topology: Topology, *paint: Callable[[str, str], str]) -> list[str]:
    return matrix(topology, 80, *paint)


def test_equal_hosts_are_shown_once_and_others_apart() -> None:
    same, other = alike(two_hosts(hosts=3)), alike(two_hosts())[0].part
    assert [group.hosts for group in same] == [(0, 1, 2)]
    assert same[0].names == ("node1", "node2", "node3")
    whole = two_hosts()
    thin = nvlink_link("h1.gpu0", "h1.gpu1", 3, 11)
    links = (thin if (link.a, link.b) == (thin.a, thin.b) else link for link in whole.links)
    thinner = replace(whole, links=tuple(links))
    assert [group.hosts for group in alike(thinner)] == [(0,), (1,)]
    assert [line.split()[2] for line in matrix(thinner, 80) if line.startswith("GPU0")] == [
        "NV12",
        "NV11",
    ]
    assert {node.id for node in other.nodes} == {"net0", "cpu0", "root0", "gpu0", "gpu1", "nic0"}
    assert {node.host for node in part(whole, 1).nodes} == {0, -1}


def test_labels_say_the_host_only_where_two_have_the_same() -> None:
    names = labels(two_hosts())
    assert (names["gpu0"], names["h1.gpu0"], names["net0"]) == (
        "node1 GPU0",
        "node2 GPU0",
        "network",
    )
    assert labels(dgx1v())["gpu0"] == "GPU0"


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_the_tree_has_every_node_of_a_host_once(make: Callable[[], Topology]) -> None:
    for group in alike(make()):
        shown = [
            re.sub(r"^[│├└─ ]*", "", line)
            for line in tree(group.part)
            if re.match(r"^[│ ]*[├└]─ ", line)
        ]
        assert sorted(line.split(", ")[0] for line in shown) == sorted(labels(group.part).values())


def test_a_long_list_of_cpus_keeps_to_the_columns() -> None:
    affinity = ",".join(map(str, range(0, 176, 2)))
    nodes = tuple(Node(id=f"cpu{k}", kind="cpu", index=k, affinity=affinity) for k in range(2))
    lines = tree(Topology(name="two", nodes=nodes, links=()), columns=60)
    assert max(map(len, lines)) <= 60
    assert "".join(line.strip("│├└─ ") for line in lines[1:]).count(affinity) == 2


def test_a_deep_tree_and_a_loop_end() -> None:
    nodes = [
        Node(id="cpu0", kind="cpu", index=0),
        *[Node(id=f"pci{k}", kind="pci") for k in range(1500)],
        Node(id="gpu0", kind="gpu", index=0),
    ]
    chain = ["cpu0", *[f"pci{k}" for k in range(1500)], "gpu0"]
    links = [pcie_link(a, b, 3, 16) for a, b in pairwise(chain)] + [
        pcie_link("pci7", "pci900", 3, 16)
    ]
    deep = Topology(name="deep", nodes=tuple(nodes), links=tuple(links))
    assert len([line for line in tree(deep) if "─ " in line]) == 1502
    assert "PCIe switches are not drawn." in svg(deep)


def test_rates_of_a_link_without_a_switch() -> None:
    direct = Topology(
        name="direct",
        nodes=(Node(id="gpu2", kind="gpu", index=2), Node(id="gpu3", kind="gpu", index=3)),
        links=(pcie_link("gpu2", "gpu3", 4, 16),),
    )
    assert tables.rates(direct)[1].endswith("GPU2 -> GPU3, PCIe 4.0 x16")


def test_p2p_shows_codes_with_their_reasons() -> None:
    told = {
        (a, b, what): "OK"
        for a in ("gpu0", "gpu1")
        for b in ("gpu0", "gpu1")
        if a != b
        for what in ("read", "write")
    }
    told |= {("gpu0", "gpu1", "atomics"): "TNS", ("gpu1", "gpu0", "atomics"): "CNS"}
    lines = tables.p2p(replace(unknown_rates(), p2p=told))
    assert lines[:3] == ["read  GPU0  GPU1", "GPU0   X    OK", "GPU1  OK     X"]
    assert "nvlink: unknown" in lines
    assert "  TNS  the topology does not support it" in lines
    assert "  CNS  the chipset does not support it" in lines
    assert "GPU1     CNS    X" in lines
    half = tables.p2p(replace(unknown_rates(), p2p={("gpu0", "gpu1", "read"): "OK"}))
    assert "GPU1  ?      X" in half
    assert "  ?    unknown" in half


ACTIVE = LinkRow(
    gpu=0,
    link=0,
    is_active=True,
    version="4.0",
    generation=4,
    remote="NVSwitch",
    speed_gbs=26.562,
    replay=0,
    recovery=0,
    crc=0,
)


def test_nvlinks_one_by_one() -> None:
    rows = [
        ACTIVE,
        replace(ACTIVE, link=1, is_active=False, speed_gbs=None, replay=7),
        replace(ACTIVE, link=2, is_active=None, version=None, remote=None, crc=None),
    ]
    lines = tables.nvlinks(rows, lambda text, kind: f"<{text}>" if kind == "not OK" else text)
    assert [" ".join(line.split()) for line in lines] == [
        "GPU link active version to GB/s replay recovery CRC",
        "0 0 yes 4.0 NVSwitch 26.6 0 0 0",
        "<0> <1> <no> <4.0> <NVSwitch> <unknown> <7> <0> <0>",
        "0 2 unknown unknown unknown 26.6 0 0 unknown",
    ]
    assert tables.nvlinks([]) == ["No NVLink is known."]


@tiered("make", ALL, 3, ids=lambda make: make.__name__)
def test_links_fit_the_screen(make: Callable[[], Topology]) -> None:
    wide = max(map(len, tables.links(make(), columns=1000)))
    for columns in (80, 100, wide):
        lines = tables.links(make(), columns=columns)
        assert max(map(len, lines)) <= columns
        assert sorted(" ".join(lines).split()) == sorted(
            " ".join(tables.links(make(), columns=1000)).split()
        )


def test_ends_with_long_names_fold() -> None:
    switches = tuple(
        Node(id=f"pci{number}", kind="pci", address=f"0000:{number:02x}:00.0") for number in (1, 2)
    )
    link = pcie_link("pci1", "pci2", 4, 16)
    one = Topology(name="two switches", nodes=switches, links=(link,))
    whole, lines = (tables.links(one, columns=columns) for columns in (100, 80))
    assert "PCIe switch 0000:01:00.0 - PCIe switch 0000:02:00.0  PCIe 4.0 x16" in whole[1]
    assert sorted(" ".join(lines).split()) == sorted(" ".join(whole).split())
    assert lines[1].split()[-3:] == whole[1].split()[-3:]  # numbers stand in the first line
    assert max(map(len, lines)) <= 80


def test_rings_of_many_ranks_wrap() -> None:
    lines = tables.rings([tuple(range(72))], (), None, 80)
    assert lines[0] == "1 ring, rate unknown"
    assert max(map(len, lines)) <= 80
    assert " ".join(lines[1:]).split()[2:] == [str(rank) for rank in range(72)]
    assert tables.rings([(0,)], [], None) == ["No ring: there are fewer than two GPUs."]


def shapes_of(root: ElementTree.Element) -> Iterator[tuple[ElementTree.Element, float, float]]:
    """Shapes of a drawing, and how far the group that they are in is moved."""
    for element in root:
        if element.tag == f"{SVG}g":
            moved = re.findall(r"[\d.]+", element.attrib["transform"])
            yield from ((inner, float(moved[0]), float(moved[1])) for inner in element)
        else:
            yield element, 0.0, 0.0


def boxes_and_points(root: ElementTree.Element) -> tuple[list[Rect], list[tuple[float, float]]]:
    """The boxes of devices, and the points that lines and texts reach."""
    boxes, points = list[Rect](), list[tuple[float, float]]()
    for element, dx, dy in shapes_of(root):
        words = element.get("points") or element.get("d") or ""
        numbers = [float(word) for word in re.findall(r"-?[\d.]+", words)]
        points += [(x + dx, y + dy) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
        if element.tag == f"{SVG}text":
            x, y, size = (float(element.attrib[key]) for key in ("x", "y", "font-size"))
            wide = width_of("".join(element.itertext()), size)
            left = x + dx - (wide / 2 if element.get("text-anchor") == "middle" else 0)
            points += [(left, y + dy - size), (left + wide, y + dy)]
        elif element.tag == f"{SVG}rect" and dx:  # not the white behind all, and no frame
            x, y, w, h = (float(element.attrib[key]) for key in ("x", "y", "width", "height"))
            boxes.append(Rect(x=x + dx, y=y + dy, w=w, h=h))
    return boxes, points


DRAWABLE = [
    *(pytest.param(make, id=make.__name__) for make in ALL),
    *(pytest.param(of_catalogue(one), id=one) for one in WIRED),
    *(
        pytest.param(partial(formats.read, file), id=file.name)
        for file in (*sorted(OWN.iterdir()), *real_files())
    ),
]


@tiered("make", DRAWABLE, 28)
def test_the_drawing_is_plain_xml_with_every_device_in_its_own_place(
    make: Callable[[], Topology],
) -> None:
    try:
        topology = make()
    except UsageError:  # a file that is no topology
        return
    text = svg(topology)
    root = ElementTree.fromstring(text)
    assert text == svg(make())
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "g", "rect", "text", "polyline", "path"}
    shown = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    for group in alike(topology):
        for node in group.part.of_kind("gpu", "nic", "cpu"):
            assert labels(group.part)[node.id] in shown
    wide, high = (float(root.attrib[key]) for key in ("width", "height"))
    boxes, points = boxes_and_points(root)
    points += [point for box in boxes for point in ((box.x, box.y), (box.right, box.bottom))]
    assert all(0 <= x <= wide and 0 <= y <= high for x, y in points)
    for a, b in combinations(boxes, 2):
        assert a.right <= b.x or b.right <= a.x or a.bottom <= b.y or b.bottom <= a.y


def test_bundles_to_several_switches_are_one() -> None:
    plain = without(hgx_h100(), lambda node: node.kind == "nvswitch")
    halves = [nvlink_link(gpu.id, switch, 4, 9) for gpu in plain.gpus for switch in ("sw0", "sw1")]
    switches = [Node(id=name, kind="nvswitch") for name in ("sw0", "sw1")]
    text = svg(replace(plain, nodes=(*plain.nodes, *switches), links=(*plain.links, *halves)))
    assert text.count(">x18<") == 8
    assert "2 NVSwitches" in text
    assert "NVLink 4 x18, 364.5 GB/s" in text


def test_the_drawing_escapes_what_a_file_says() -> None:
    nasty = Topology(
        name='<script>&\x1b]]>"',
        nodes=(replace(unknown_rates().gpus[0], name="<b>\x00"),),
        links=(),
        notes=("a <note>",),
    )
    root = ElementTree.fromstring(svg(nasty))
    assert root.findtext(f"{SVG}title") == '<script>&\\x1b]]>"'
    assert "<script" not in svg(nasty)


def test_links_that_are_not_drawn_are_counted() -> None:
    twice = hgx_h100()
    more = Topology(
        name="more", nodes=twice.nodes, links=(*twice.links, Link(a="cpu1", b="gpu0", kind="c2c"))
    )
    assert "1 further link is not drawn." in svg(more)


def test_views_of_pairs_say_what_they_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (matrix_module, tables):
        monkeypatch.setattr(module, "MOST_DEVICES", 4)
    shown = "\n".join(matrix(dgx1v(), 200))
    assert "GPU3" in shown and "GPU4" not in shown
    assert "8 devices are left out: --json and --tree have all." in shown
    assert tables.rates(dgx1v())[-1] == "8 devices are left out: --json and --tree have all."


CASES = tomllib.loads(Path(__file__).with_name("views.toml").read_text())


def shown(case: dict[str, Any]) -> Topology:
    """A machine of tests.support.machines, of the catalogue, of a file, or of NCCL's dump of one
    CPU, without some nodes.
    """
    if "nccl" in case:
        whole = nccl_xml.read(text_of(case), "dump.xml")
    elif "file" in case:
        whole = formats.read(OWN / case["file"])
    elif "machine" in case:
        whole = machine_topology(case["machine"])
    else:
        whole = getattr(machines, case["own"])()
    return without(whole, lambda node: node.kind in case.get("without", ()))


def lines_of(view: str, topology: Topology) -> list[str]:
    """A view as `matrix 80`, its lines with single blanks between their words."""
    name, *columns = view.split()
    if name == "svg":
        lines = [svg(topology)]
    elif name == "matrix":
        lines = matrix(topology, int(*columns))
    else:
        lines = (tree if name == "tree" else getattr(tables, name))(topology)
    return [" ".join(line.split()) for line in lines]


def legend(lines: list[str]) -> str:
    return " ".join(line.split()[0] for line in lines if " = " in line)


@pytest.mark.parametrize("what", CASES)
def test_what_is_shown(what: str) -> None:
    case = CASES[what]
    lines = lines_of(case["view"], shown(case))
    text = "\n".join(lines)
    assert legend(lines) == case.get("legend", legend(lines))
    assert len(lines) == case.get("lines", len(lines))
    assert {place: lines[int(place)] for place in case.get("line", {})} == case.get("line", {})
    assert {words: text.count(words) for words in case.get("count", {})} == case.get("count", {})
    for words in (*case.get("says", ()), *case.get("silent", ())):
        assert (words in text) == (words in case.get("says", ())), text
