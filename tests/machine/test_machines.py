"""Machine profiles: what each says of its links, by hand, and what a wrong one is told."""

import copy
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.core import catalog
from collbench.core.errors import UsageError
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path
from collbench.planning.price.constants import cpu_costs
from tests.fuzz import mutate
from tests.support.runs import SHARED
from tests.support.tables import cells_of
from tests.support.topologies import WIRED

FACTS = {name: [int(one) for one in facts] for name, *facts in cells_of(__file__, "machines.tsv")}


def nvlinks(topology: Topology, gpu: str) -> int:
    return sum(link.count for link in topology.bundles(gpu))


def test_every_wired_profile_is_in_the_table() -> None:
    assert set(WIRED) == set(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_counts(name: str) -> None:
    gpus, links, nvlink, pcie, hosts, cpus = FACTS[name]
    topology = machine_topology(name)
    assert [gpu.id for gpu in topology.gpus] == [f"gpu{number}" for number in range(gpus)]
    assert {nvlinks(topology, gpu.id) for gpu in topology.gpus} == {links}
    assert {link.generation for link in topology.links if link.kind == "nvlink"} == (
        {nvlink} if nvlink else set()
    )
    generations = {link.generation for link in topology.links if link.kind == "pcie"}
    assert pcie in generations <= {pcie, pcie + 1}  # NICs of some are newer
    assert (len(topology.hosts), len(topology.of_kind("cpu"))) == (hosts, cpus)


@pytest.mark.parametrize(("name", "gpu", "gpus", "nics"), cells_of(__file__, "topo-rows.tsv"))
def test_labels(name: str, gpu: str, gpus: str, nics: str) -> None:
    topology = machine_topology(name)
    assert [path(topology, gpu, there.id).label for there in topology.gpus] == gpus.split()
    assert [
        path(topology, gpu, there.id).label for there in topology.of_kind("nic")
    ] == nics.split()


@pytest.mark.parametrize("name", FACTS)
def test_every_pair_of_gpus_has_a_rate_and_every_rate_a_source(name: str) -> None:
    topology = machine_topology(name)
    for gpu in topology.gpus[1:]:
        assert (path(topology, "gpu0", gpu.id).usable_gbs or 0) > 0
    for link in topology.links:
        assert link.source or link.usable_gbs is None
        assert link.usable_gbs is None or link.raw_gbs is None or link.usable_gbs <= link.raw_gbs


@pytest.mark.parametrize("name", FACTS)
def test_profiles_hold_no_figure_that_they_are_judged_by(name: str) -> None:
    """Rates of collectives are what the links are judged by; here are links, and every table says
    where it is from.
    """
    found = catalog.load("machines", name)["topology"]
    assert "busbw" not in str(found) and "allreduce" not in str(found).lower()
    assert all(
        table["source"]
        for table in (found, *(value for key, value in found.items() if isinstance(value, dict)))
    )
    assert not any(
        re.search(r"_gbs", key)
        for value in found.values()
        if isinstance(value, dict)
        for key in value
    )


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("azure_ndv2-topo.xml", "dgx-1v"),
        ("azure_ndv4-topo.xml", "dgx-a100"),
        ("aws_p4d-24xl-topo.xml", "dgx-a100"),
    ],
)
def test_sockets_hold_as_many_gpus_as_in_real_files(file: str, name: str) -> None:
    """The files tell no NVLinks, only which GPUs share a NUMA node."""
    source = SHARED / "topologies" / file
    if not source.is_file():
        pytest.skip("no shared data here")
    cpus = ElementTree.parse(source).getroot().findall("cpu")
    real = sorted(
        len([pci for pci in cpu.iter("pci") if pci.get("class") == "0x030200"]) for cpu in cpus
    )
    topology = machine_topology(name)
    ours = sorted(
        sum(path(topology, gpu.id, cpu.id).kind == "PHB" for gpu in topology.gpus)
        for cpu in topology.of_kind("cpu")
    )
    assert sum(real) == sum(ours) == 8
    assert real == ours or file.startswith("aws")  # AWS shows one NUMA node a socket, the DGX four


# ---- Wrong profiles ----


def write(folder: Path, topology: Any) -> str:
    file = folder / "made-up.toml"
    text = json.dumps(topology).replace('": ', '" = ')  # numbers and texts are those of TOML
    file.write_text(f"topology = {text.replace('NaN', 'nan').replace('Infinity', 'inf')}\n")
    return str(file)


@pytest.mark.parametrize(
    ("name", "keys", "value", "told"), cells_of(__file__, "broken-profiles.tsv")
)
def test_a_broken_profile_is_refused_by_its_key(
    name: str, keys: str, value: str, told: str, tmp_path: Path
) -> None:
    profile = place = copy.deepcopy(catalog.load("machines", name)["topology"])
    *above, last = keys.split()
    for key in above:
        place = place[key]
    place[last] = json.loads(value)
    if place[last] is None:
        del place[last]
    with pytest.raises(UsageError) as caught:
        machine_topology(write(tmp_path, profile))
    assert told in caught.value.message and "made-up" in caught.value.message


WRONG = (
    *("", "x", "cpu0 > gpu0", "0-1", "cpu0-cpu1", "root0 > gpu0", "gpu0-cpu0", "9999-9999x9"),
    "cpu0 > root0 > pci0 > pci1 > nic0",
)


@given(
    name=st.sampled_from(["dgx-1", "dgx-2", "gb200-nvl72", "rtx4090x8"]),
    random=st.randoms(use_true_random=False),
)
def test_any_value_anywhere_is_read_or_refused(tmp_path: Path, name: str, random: Random) -> None:
    """No profile, however wrong, gets anything but a topology or an answer that says what is
    wrong.
    """
    profile = catalog.load("machines", name)["topology"]
    profile = mutate.structure(random, profile) if random.random() < 0.7 else copy.deepcopy(profile)
    holder, key = random.choice([*mutate.parts(profile)])
    holder[key] = random.choice(WRONG)
    try:
        topology = machine_topology(write(tmp_path, profile))
    except UsageError as error:
        assert error.message
    else:
        assert topology.gpus


def test_a_link_may_be_narrower_than_the_others(tmp_path: Path) -> None:
    profile = copy.deepcopy(catalog.load("machines", "pcie-4")["topology"])
    profile["pcie"]["tree"] = ["cpu0 > pci0:4x16 > gpu0 gpu1:3x8", "cpu0 > pci0 > gpu2 gpu3:1x1"]
    links = {
        link.a: (link.generation, link.count)
        for link in machine_topology(write(tmp_path, profile)).links
    }
    assert links == {
        "pci0": (4, 16),
        "gpu0": (3, 16),
        "gpu1": (3, 8),
        "gpu2": (3, 16),
        "gpu3": (1, 1),
    }


def test_sockets_of_unknown_processors_have_no_rate(tmp_path: Path) -> None:
    profile = copy.deepcopy(catalog.load("machines", "pcie-2x2")["topology"])
    del profile["cpu"]["model"]
    topology = machine_topology(write(tmp_path, profile))
    assert path(topology, "gpu0", "gpu3").kind == "SYS"
    assert path(topology, "gpu0", "gpu3").usable_gbs is None
    profile["socket"]["usable_gbs"] = 9
    assert path(machine_topology(write(tmp_path, profile)), "gpu0", "gpu3").usable_gbs == 9


def test_what_a_profile_is_for_is_said() -> None:
    with pytest.raises(UsageError, match=r"cpu-2 has no \[topology\]"):
        machine_topology("cpu-2")
    with pytest.raises(UsageError, match=r"dgx-1v has no \[cpu\]: it describes the links"):
        cpu_costs("dgx-1v")
    with pytest.raises(UsageError, match="there is no file or machine profile 'dgx-9'"):
        machine_topology("dgx-9")
    assert cpu_costs("cpu-2").cores == 2


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('xgmi]\npairs = ["0-1"]\nmesh = true', "either pairs or mesh"),
        ('xgmi]\npairs = ["0-9"]', "of a machine with 2 GPUs"),
        ('socket]\npairs = ["cpu0-cpu\u0663"]', "does not join a cpu and a cpu"),  # an Arabic 3
        ('nvlink]\ngeneration = 1\npairs = ["0-1"]\ncpu_pairs = ["gpu0-cpu7"]', "cpu7 is no CPU"),
    ],
)
def test_wrong_links_are_told(table: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text(
        '[topology]\ntitle = "t"\nsource = "s"\n[topology.gpu]\ncount = 2\nname = "g"\n'
        'gfx = "gfx942"\nsource = "s"\n[topology.pcie]\ngeneration = 5\n'
        f'tree = ["cpu0 > gpu0 gpu1"]\nsource = "s"\n[topology.{table}\nsource = "s"\n'
    )
    with pytest.raises(UsageError, match=message):
        machine_topology(str(file))
