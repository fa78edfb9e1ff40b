"""Files of other tools: which format a file has, what happens to a broken one, our own JSON, and
NCCL's XML, read and written.
"""

import gzip
import json
from dataclasses import fields
from operator import add
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.core import xml_tree
from collbench.core.errors import UsageError
from collbench.machine import formats
from collbench.machine.formats import _build, nccl_xml, nvidia_smi, topology_json
from collbench.machine.topology import rates
from collbench.machine.topology.model import Node, Topology
from collbench.machine.topology.rates import pcie_link
from tests.fuzz import mutate
from tests.support.tables import cells_of
from tests.support.tiers import tiered
from tests.support.topologies import OWN, count, labels, matrix, needs_real, real_files

SAMPLES = [file.read_text() for file in (*sorted(OWN.iterdir()), *real_files())]
SAMPLES.append(topology_json.write(formats.read(OWN / "nvlink-pairs-nccl.xml")))


@needs_real
@pytest.mark.parametrize("file", real_files(), ids=lambda file: file.name)
def test_real_files_read_or_say_what_is_wanted_instead(file: Path) -> None:
    wanted = {"nccl-graph.xml": "NCCL_TOPO_DUMP_FILE", "nvidia-smi-nvlink-e.txt": "topo -m"}
    if file.name in wanted:
        with pytest.raises(UsageError) as caught:
            formats.read(file)
        assert wanted[file.name] in caught.value.hint and str(file) in caught.value.message
    else:
        topology = formats.read(file)
        assert topology.name == file.name and topology.nodes


@pytest.mark.parametrize("file", sorted(OWN.iterdir()), ids=lambda file: file.name)
def test_topologies_survive_our_json(file: Path) -> None:
    topology = formats.read(file)
    text = topology_json.write(topology)
    again = topology_json.read(text, "again.json")
    assert parts(again) == parts(topology)
    assert topology_json.write(again) == text and formats.detect(text, "x") == "topology_json"


def test_a_recording_is_no_described_machine(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text('{\n "format" : "collbench-recording", "version": 1, "hosts": []}')
    with pytest.raises(formats.IsRecording):  # discovery reads it
        formats.read(file)
    with pytest.raises(UsageError, match="is a recording") as caught:
        formats.described(str(file))
    assert (
        caught.value.hint == f"write that with: collbench topo --from {file} --json > machine.json"
    )


BROKEN = [
    (b"\x7fELF\0\0\0", "byte 4: binary"),
    ("<s".encode("utf-16"), "line 1, column 1: not XML"),
    (gzip.compress(b"<system/>")[:-9], "it cannot be unpacked"),
    (b"<system a='\xe9'/>", "byte 11: not UTF-8"),
    *((text.encode(), what) for text, what in cells_of(__file__, "broken-topologies.tsv")),
]


@pytest.mark.parametrize(("data", "what"), BROKEN, ids=[what[:30] for _, what in BROKEN])
def test_broken_files_get_a_message_with_the_place(data: bytes, what: str, tmp_path: Path) -> None:
    file = tmp_path / "given.txt"
    file.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        formats.read(file)
    assert what in caught.value.message and str(file) in caught.value.message


def test_what_is_no_file(tmp_path: Path) -> None:
    for file, what in (
        (tmp_path, "is a directory"),
        (tmp_path / "none", "cannot read .*No such file"),
        ("a\0b", "cannot read"),
    ):
        with pytest.raises(UsageError, match=what):
            formats.read(file)


BOMB = (
    '<!DOCTYPE system [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><system'
    ' version="1"><cpu numaid="&b;"/></system>'
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        f'<?xml version="1.0"?>\n{BOMB}',
        BOMB.replace("DOCTYPE system", "DOCTYPE topology").replace("system", "topology"),
        '<!DOCTYPE topology SYSTEM "hwloc2.dtd" [<!ENTITY a "a">]><topology version="2.0"/>',
        '<!DOCTYPE topology SYSTEM "file:///etc/passwd"><topology version="2.0"/>',
        '<!DOCTYPE system SYSTEM "http://x/y.dtd"><system/>',
        '<!DOCTYPE topology PUBLIC "x" "hwloc2.dtd"><topology version="2.0"/>',
    ],
)
def test_document_types_that_could_define_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bomb.xml"
    file.write_text(text)
    with pytest.raises(UsageError, match="document type"):
        formats.read(file)


def test_huge_files_are_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "huge.xml"
    with file.open("wb") as stream:
        stream.truncate(formats.MAX_FILE_BYTES + 1)
    with pytest.raises(UsageError, match="more than 64 MiB"):
        formats.read(file)


@tiered(
    ("text", "what"),
    [
        ("<a>" * 1000, "nest more than 200 deep"),
        ("<a>" + "<b/>" * 500_001, "more than 500000 elements"),
        ("<a>" + "b " * 1_000_001, "words"),
        ("<a " + " ".join(f"a{n}=''" for n in range(100)) + "/>", "100 attributes"),
        ("<!--" + "x" * (2 << 20) + "--><a/>", "a tag or a comment of more than 1 MiB"),
        (f"<a b='{'x' * (2 << 20)}'/>", "a tag or a comment of more"),
    ],
    1,
)
def test_xml_is_bounded(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        xml_tree.parse(text, "big.xml")


def test_too_many_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_build, "MAX_NODES", 100)
    pci = "".join(f'<pci busid="0000:{n:02x}:00.0" class="0x030200"/>' for n in range(150))
    with pytest.raises(UsageError, match="more than 100 devices"):
        nccl_xml.read(f'<system><cpu numaid="0">{pci}</cpu></system>', "many.xml")


WHOLE = Path(__file__).with_name("everything.json").read_text()
EVERYTHING = topology_json.read(WHOLE, "everything.json")


def parts(topology: Topology) -> tuple[object, ...]:
    """All that a file must hold."""
    return (
        *(topology.name, topology.nodes, topology.links),
        *(topology.hosts, topology.notes, topology.p2p),
    )


def test_json_holds_every_field() -> None:
    """Each of them has a value in the file that is not the usual one."""
    assert topology_json.write(EVERYTHING) == WHOLE
    for some in ((EVERYTHING,), EVERYTHING.nodes, EVERYTHING.links):
        for field in fields(some[0]):
            assert any(getattr(one, field.name) != field.default for one in some), field.name


@pytest.mark.parametrize(("where", "value", "what"), cells_of(__file__, "broken-own.tsv"))
def test_json_errors_name_the_path(where: str, value: str, what: str) -> None:
    told = inner = json.loads(topology_json.write(EVERYTHING))
    *above, last = (int(key) if key.isdecimal() else key for key in where.split())
    for key in above:
        inner = inner[key]
    inner[last] = json.loads(value)
    with pytest.raises(UsageError) as caught:
        topology_json.read(json.dumps(told), "x.json")
    assert what in caught.value.message


def test_json_tells_line_and_column() -> None:
    with pytest.raises(UsageError, match=r"x\.json, line 2, column 10: not JSON"):
        topology_json.read('{"format": "collbench-topology",\n "name": oops}', "x.json")
    with pytest.raises(UsageError, match="NaN is no number"):
        topology_json.read('{"format": NaN}', "x.json")


def is_clean(text: str) -> None:
    """Nothing but a topology, a message or a hand-over comes out."""
    try:
        topology = formats.FAMILY.load(formats.detect(text, "mangled")).read(text, "mangled")
    except (UsageError, formats.IsRecording):
        return
    topology_json.read(topology_json.write(topology), "again")
    try:
        nccl_xml.read(nccl_xml.write(topology), "again")
    except UsageError:
        return


BEGINNINGS = (
    "",
    "<system>",
    "\tGPU0\tGPU1\n",
    '{"format": "collbench-topology", ',
    '<topology version="2.0">',
)
MANGLED = st.builds(mutate.text, st.randoms(use_true_random=False), st.sampled_from(SAMPLES))


@settings(max_examples=240)
@given(st.one_of(MANGLED, st.builds(add, st.sampled_from(BEGINNINGS), st.text(max_size=200))))
def test_any_text_gives_nothing_but_messages(text: str) -> None:
    is_clean(text)


def test_many_devices_in_bounded_time() -> None:
    size, near = 64, ("SYS", "NODE", "PIX", "X")
    rows = [
        " ".join(near[(a // 32 == b // 32) + (a // 4 == b // 4) + (a == b)] for b in range(size))
        for a in range(size)
    ]
    assert labels(nvidia_smi.read(matrix("/".join(rows)), "m.txt")) == rows


@pytest.mark.exhaustive
def test_a_header_of_endless_lines_is_refused() -> None:
    with pytest.raises(UsageError, match="more than 256 columns"):
        nvidia_smi.read("\tGPU0\tGPU1\n" * 100_000, "a")


DUMPS = [
    file
    for file in (*sorted(OWN.glob("*[nr]ccl.xml")), *real_files())
    if file.name.endswith("ccl.xml") or "-topo.xml" in file.name or file.parent.name == "rccl"
]


def plain(element: xml_tree.Element) -> tuple[object, ...]:
    """An element without links of GPUs, which are written one for each neighbour."""
    inner = [plain(child) for child in element.children if child.tag not in ("nvlink", "xgmi")]
    return element.tag, dict(element.attributes), inner


@pytest.mark.parametrize("file", DUMPS, ids=lambda file: file.name)
def test_what_was_read_is_written_again(file: Path) -> None:
    """Every element and attribute, in their order, and all links."""
    text = file.read_text()
    topology = nccl_xml.read(text, str(file))
    again = nccl_xml.write(topology)
    assert plain(xml_tree.parse(again, "again")) == plain(xml_tree.parse(text, "file"))
    second = nccl_xml.read(again, str(file))
    assert (second.nodes, second.links) == (topology.nodes, topology.links)


def test_a_discovered_machine_is_written() -> None:
    """Roots have no element; what a node does not tell is taken from its links, or left out."""
    topology = formats.read(Path(__file__).with_name("written.json"))
    assert nccl_xml.write(topology) == Path(__file__).with_name("written.xml").read_text()


def test_facts_that_are_no_attributes_are_not_written() -> None:
    facts = (("xml:a b", "1"), ("xml:kept", 'with "quotes" & <signs>'))
    nodes = (
        Node(id="cpu0", kind="cpu", index=0),
        Node(id="gpu0", kind="gpu", index=0, address="0000:01:00.0", facts=facts),
        Node(id="nvs0", kind="nvswitch"),
    )
    links = rates.pcie_link("cpu0", "gpu0", 4, 16), rates.nvlink_link("gpu0", "nvs0", 3, 4)
    again = nccl_xml.read(
        nccl_xml.write(Topology(name="x", nodes=nodes, links=links)), "again.xml"
    ).gpus[0]
    assert again.fact("xml:kept") == 'with "quotes" & <signs>'
    assert not again.fact("xml:a b")


@pytest.mark.parametrize(
    ("file", "what"),
    [("dgx1v-topo-m.txt", "no PCI address of gpu0"), ("pcie-box-p2p-r.txt", "no PCI address")],
)
def test_what_nccl_could_not_use_is_not_written(file: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        nccl_xml.write(formats.read(OWN / file))


def test_orphans_are_not_written() -> None:
    lonely = Node(id="gpu0", kind="gpu", address="0000:01:00.0")
    with pytest.raises(UsageError, match="gpu0 hang below no CPU"):
        nccl_xml.write(Topology(name="x", nodes=(lonely,), links=()))
    with pytest.raises(UsageError, match="of 2 hosts"):
        nccl_xml.write(
            Topology(
                name="x", nodes=(lonely, Node(id="cpu0", kind="cpu")), links=(), hosts=("a", "b")
            )
        )


def test_a_nic_without_a_known_link_hangs_at_the_processor() -> None:
    """As NCCL itself writes it: it refuses a PCI device whose width neither file nor kernel
    tells.
    """
    nodes = (
        Node(id="cpu0", kind="cpu", index=0),
        Node(id="gpu0", kind="gpu", index=0, address="0000:00:06.0"),
        Node(id="nic0", kind="nic", index=0, name="eth0", address="0000:00:03.0"),
    )
    links = (pcie_link("cpu0", "gpu0", 5, 16), pcie_link("cpu0", "nic0", 0, 0))
    text = nccl_xml.write(Topology(name="vm", nodes=nodes, links=links))
    assert '    <nic>\n      <net name="eth0"/>\n    </nic>\n  </cpu>' in text
    assert text.count("<pci ") == 1


def test_cpus_are_limited_on_each_host() -> None:
    """512 hosts of two CPUs are one NVLink domain's dump, not too many CPUs of one host."""
    cpus = "".join(
        f'<cpu host_hash="0x{number // 2:x}" numaid="{number % 2}"/>' for number in range(1024)
    )
    topology = nccl_xml.read(f'<system version="1">{cpus}</system>', "a.xml")
    assert len(topology.hosts) == 512 and count(topology, "socket") == 512


def test_a_name_with_a_line_end_is_written_to_json_and_read() -> None:
    net = '<cpu numaid="0"><nic><net name="a&#10;b" dev="0"/></nic></cpu>'
    topology = nccl_xml.read(f'<system version="1">{net}</system>', "a.xml")
    assert topology_json.read(topology_json.write(topology), "a.json").of_kind("nic")
