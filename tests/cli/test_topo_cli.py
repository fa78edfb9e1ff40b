"""`collbench topo`: what goes to stdout and what to stderr, which options go together, and what
happens to files that cannot be written.
"""

import io
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collbench.bench import measure_pairs as _measure_pairs
from collbench.bench import show_topology as _show_topology
from collbench.bench.pairs import RankPair
from collbench.cli import run
from collbench.core.errors import HangError
from collbench.machine import formats
from collbench.machine.discovery import dumps
from collbench.machine.topology.model import Topology
from collbench.machine.views.drawing import svg
from collbench.machine.views.matrix import matrix
from tests.support import fake_hosts
from tests.support.commands import Capture, Invoke, Says
from tests.support.machines import dgx1v, laptop, two_hosts, unknown_rates
from tests.support.runs import ROOT, needs_mpi, said_by, under_mpirun

TOPOLOGIES = ROOT / "tests" / "data" / "topologies"


@pytest.fixture
def dgx(monkeypatch: pytest.MonkeyPatch) -> Topology:
    """The machine that the command finds."""
    topology = dgx1v()
    finds(monkeypatch, topology)
    return topology


def finds(monkeypatch: pytest.MonkeyPatch, topology: Topology, *recordings: Any) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(
        _show_topology,
        "_find",
        lambda *_, **__: _show_topology.ShownTopology(topology=topology, recordings=recordings),
    )


@pytest.fixture
def invoke(invoke: Invoke) -> Invoke:
    return partial(invoke, "topo")


def test_the_matrix_goes_to_stdout_and_talk_to_stderr(says: Says, dgx: Topology) -> None:
    out, err = says(0)
    assert out.splitlines() == matrix(dgx, 80)
    assert err == "# dgx: 8 x Tesla V100-SXM2-16GB, driver 535.54\n"


def test_a_pipe_gets_no_colour_unless_told(says: Says, dgx: Topology) -> None:
    assert "\x1b" not in says(0).out
    assert "\x1b" not in says(0, "--tree", "--rates", "--color", "never").out
    assert "\x1b[92mNV1\x1b[0m " in says(0, "--color", "always").out


def test_a_wide_screen_has_one_block(says: Says, dgx: Topology) -> None:
    assert "NUMA Affinity" in says(0, COLUMNS="160").out.splitlines()[0]


def test_no_gpu_is_no_error(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, laptop())
    out, err = says(0)
    assert "CPU0  Intel Core i7-1260P  0-15" in out
    assert "enp0s31f6" in out
    assert err == "# laptop: no GPU\n# no NVIDIA driver was found\n"
    for view in ("--tree", "--rates", "--p2p", "--links", "--rings"):
        says(0, view)


def test_a_machine_without_gpus_has_no_rates_to_save(
    says: Says, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finds(monkeypatch, laptop())
    out, err = says(3, "--measure", "--save", tmp_path / "machine.json")
    assert out == ""
    assert "--save keeps rates between GPUs" in err
    assert not list(tmp_path.iterdir())


def test_what_only_permissions_are_known_of_shows_them(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {(a, b, "read"): "OK" for a in ("gpu0", "gpu1") for b in ("gpu0", "gpu1") if a != b}
    finds(monkeypatch, Topology(name="p2p.txt", nodes=unknown_rates().gpus, links=(), p2p=told))
    assert says(0).out.startswith("read  GPU0  GPU1")


def test_views_stand_below_each_other_under_titles(says: Says, dgx: Topology) -> None:
    out = says(0, "--p2p", "--tree", "--rates").out.splitlines()
    titles = [
        "Tree",
        "GB/s that can be used, in one direction",
        "What GPUs may do with each other's memory",
    ]
    assert [line for line in out if line in titles] == titles
    assert says(0, "--tree").out.splitlines()[0].startswith("dgx: ")


def test_several_hosts_are_named_once(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, two_hosts())
    out, err = says(0)
    assert err == ""
    assert out.count("2 hosts alike") == 1


def test_a_drawing_goes_to_a_file_or_alone_to_stdout(
    says: Says, invoke: Invoke, dgx: Topology, tmp_path: Path
) -> None:
    file = tmp_path / "dgx.svg"
    assert invoke("--svg", str(file)) == (0, "", f"# wrote {file}\n")
    assert file.read_text() == svg(dgx)
    assert invoke("--svg", "-") == (0, svg(dgx), "")
    assert says(0, "--svg", file, "--rates").out.split()[0] == "pair"


def test_what_cannot_be_written_is_an_error_of_the_environment(
    says: Says, dgx: Topology, tmp_path: Path
) -> None:
    out, err = says(3, "--svg", str(tmp_path / "no" / "dgx.svg"))
    assert out == ""
    assert (
        err == f"Error: cannot write {tmp_path}/no/dgx.svg: No such file or directory\nHint: give"
        " another file with --svg\n"
    )
    assert "cannot write /dev/full: No space left on device" in says(3, "--svg", "/dev/full").err


def test_a_file_to_save_is_tried_before_anything_is_measured(
    says: Says, dgx: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object) -> None:
        raise HangError("measured")

    monkeypatch.setattr(_measure_pairs, "measure_pairs", measured)
    for bad in (tmp_path / "no" / "a.json", tmp_path / ("x" * 300)):
        out, err = says(3, "--measure", "--save", bad)
        assert out == ""
        assert f"cannot write {bad}: " in err
        assert "give another file with --save" in err
    kept = tmp_path / "kept.json"
    kept.write_text(old := '{"format": "collbench-topology"}')
    (tmp_path / "link.json").symlink_to("new.json")
    for good in ("kept.json", "link.json", "new.json"):
        says(4, "--measure", "--save", str(tmp_path / good))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["kept.json", "link.json"]
    assert kept.read_text() == old


def test_pairs_measured_before_an_interrupt_are_shown(
    says: Says, dgx: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(*_: object) -> Iterator[RankPair]:
        yield RankPair(a=0, b=1, way="stores", value=19.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(_measure_pairs, "measure", some)
    monkeypatch.setattr(_measure_pairs, "gpus_here", lambda: 8)
    out, err = says(130, "--measure", "--save", tmp_path / "machine.json")
    assert out.splitlines()[2].split()[:4] == ["GPU0", "X", "19.00", "-"]
    assert "# 1 measurements in" in err
    assert err.endswith("Interrupted.\n")
    assert not list(tmp_path.iterdir())


def test_json_has_the_measured_pairs_and_the_screen_is_on_stderr(
    invoke: Invoke, dgx: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        RankPair(a=0, b=1, way="stores", value=19.0),
        RankPair(a=0, b=1, way="latency", is_both=True, value=2.5),
        RankPair(a=1, b=0, way="host", reason="no room"),
    ]
    monkeypatch.setattr(_measure_pairs, "measure", lambda *_: iter(found))
    monkeypatch.setattr(_measure_pairs, "gpus_here", lambda: 8)
    code, out, err = invoke("--measure", "--json", "--rings")
    assert code == 0 and "stores by the sender's kernel" in err and "ring" in err
    data = json.loads(out)["data"]
    assert [(row["from"], row["way"], row["gbs"], row["time_us"]) for row in data["pairs"]] == [
        ("GPU0", "stores", 19.0, None),
        ("GPU0", "latency", None, 2.5),
        ("GPU1", "host", None, None),
    ]
    (tmp_path / "measured.json").write_text(out)
    again = formats.read(tmp_path / "measured.json")
    assert 19.0 in {link.usable_gbs for link in again.links}


@needs_mpi
def test_ranks_on_cpus_measure_to_json(tmp_path: Path) -> None:
    topo = [sys.executable, "-m", "collbench", "topo", "--measure", "--json", "-"]
    for command, way in ((topo, "loads"), (under_mpirun(2, topo), "messages")):
        done = said_by(command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        pairs = json.loads(done.stdout)["data"]["pairs"]
        assert all(row["gbs"] or row["time_us"] for row in pairs)
        assert sorted((row["from"], row["to"], row["way"], row["is_both"]) for row in pairs) == [
            ("rank0", "rank1", "latency", True),
            *(("rank0", "rank1", way, is_both) for is_both in (False, True)),
            ("rank1", "rank0", way, False),
        ]


def test_links_of_a_recording_have_their_counters(says: Says, tmp_path: Path) -> None:
    nvml = fake_hosts.dgx1v(tmp_path)
    link = nvml.gpus[0].links[1]
    link.is_active, link.replay, link.crc = False, 1, 2
    (tmp_path / "dgx.json").write_text(dumps([fake_hosts.asked(tmp_path, nvml)]))
    lines = says(0, "--from", tmp_path / "dgx.json", "--links").out.splitlines()
    assert lines[2].split() == ["0", "1", "no", "2.0", "unknown", "unknown", "1", "0", "2"]
    assert any("PCIe switch" in line and "- GPU0" in line for line in lines)
    assert not any("NVLink 2" in line for line in lines)


def test_a_screen_without_branches_gets_letters() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    _show_topology.echo(["├─ a", "│  └─ b\u2603"], out, has_colours=False)
    assert raw.getvalue() == b"|- a\n|  `- b?\n"


def test_json_and_xml_are_read_back(says: Says, tmp_path: Path, dgx: Topology) -> None:
    for option, name in (("--json", "dgx.json"), ("--xml", "dgx.xml")):
        out = says(0, option).out
        file = tmp_path / name
        file.write_text(out)
        again = formats.read(file)
        # GPUs: NCCL has no host bridges
        assert [line[:53] for line in matrix(again, 200)[:9]] == [
            line[:53] for line in matrix(dgx, 200)[:9]
        ]


def test_a_recording_shows_what_the_machine_shows(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    out, err = says(0, "--record", file)
    assert out == ""
    assert f"# wrote {file}" in err
    assert says(0, "--from", file).out == says(0).out
    assert json.loads(says(0, "--record", "-").out)
    says(3, "--record", "/dev/full")


@needs_mpi
def test_under_a_launcher_one_rank_speaks(tmp_path: Path, capfd: Capture) -> None:
    topo = [sys.executable, "-m", "collbench", "topo", "--tree"]
    done = said_by(under_mpirun(2, topo), cwd=tmp_path)
    assert (done.returncode, run(["topo", "--tree"])) == (0, 0)
    assert done.stdout == capfd.readouterr().out


def test_a_paste_from_stdin() -> None:
    text = (TOPOLOGIES / "pcie-box-topo-m.txt").read_text()
    quoted = "".join(f"> {line}\n" for line in text.splitlines())
    done = said_by([sys.executable, "-m", "collbench", "topo", "--from", "-"], input=quoted)
    assert done.returncode == 0 and "GPU1  PIX    X    PXB   SYS   SYS   PIX" in done.stdout
    assert done.stderr.startswith("# stdin: 5 x GPU of unknown model\n")
