"""Recordings as files from anyone: what is broken is refused with its place, and nothing else is
raised.
"""

import json
import random
import re

import pytest

from collbench.core.errors import UsageError
from collbench.machine.discovery import dumps, links_table, loads, topology_of
from tests.fuzz import mutate
from tests.support import fake_hosts as hosts
from tests.support.fake_hosts import asked
from tests.support.tables import cells_of


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of a box with everything but NVLinks to switches."""
    root = tmp_path_factory.mktemp("box")
    return dumps([asked(root, hosts.dgx1v(root))])


@pytest.mark.parametrize(("keys", "value", "words"), cells_of(__file__, "broken-recordings.tsv"))
def test_a_broken_recording_is_refused_with_the_place(
    saved: str, keys: str, value: str, words: str
) -> None:
    data = place = json.loads(saved)
    *above, last = (int(key) if key.isdecimal() else key for key in keys.split())
    for key in above:
        place = place[key]
    place[last] = json.loads(value)
    with pytest.raises(UsageError, match=re.escape(words)) as refused:
        loads(json.dumps(data), "bug.json")
    assert refused.value.message.startswith("bug.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        "{}",
        "null",
        '{"format": NaN}',
        "[" * 100_000,
        "1" * 10_000,
        '"\\ud800"',
        '{"format": "collbench-recording",',
    ],
)
def test_what_is_no_recording(text: str) -> None:
    with pytest.raises(UsageError, match=r"bug\.json"):
        loads(text, "bug.json")


def test_links_of_split_switches_of_an_earlier_version_are_passed_over(saved: str) -> None:
    data = json.loads(saved)
    data["hosts"][0]["switch_links"] = [{"a": "0000:11:00.0", "b": "0000:21:00.0"}]
    assert loads(json.dumps(data), "bug.json") == loads(saved, "bug.json")


def test_a_cut_file_says_where(saved: str) -> None:
    with pytest.raises(UsageError, match=r"bug\.json, line \d+, column \d+: not JSON"):
        loads(saved[: len(saved) // 2], "bug.json")


def test_a_host_has_no_thousand_gpus(saved: str) -> None:
    data = json.loads(saved)
    data["hosts"][0]["gpus"] = [data["hosts"][0]["gpus"][0] | {"index": k} for k in range(1000)]
    with pytest.raises(UsageError, match=r"gpus: 1000 are more than a host has \(256\)"):
        loads(json.dumps(data), "bug.json")


def test_many_hosts(saved: str) -> None:
    topology = topology_of(loads(saved, "file") * 50)
    assert len(topology.gpus) == 400 and len(topology.hosts) == 50


WEIRD = json.loads(
    f"[null, -1, 0, 1, 2, 255, {1 << 40}, {1 << 80}, true,"
    '"", "x", "0000:06:00.0", "nan Gb/sec", "0-", "4: ACTIVE", [], {}, 1.5]'
)


@pytest.mark.exhaustive
def test_whatever_a_file_says_it_is_a_graph_or_a_usage_error(saved: str) -> None:
    """300 files, each with a few values overwritten, of the same type more often than not."""
    dice, graphs = random.Random(7), 0
    for _ in range(300):
        data = json.loads(saved)
        for holder, key in dice.sample([*mutate.parts(data["hosts"][0])], dice.randint(1, 4)):
            same = [one for one in WEIRD if type(one) is type(holder[key])]
            holder[key] = dice.choice(same if same and dice.random() < 0.9 else WEIRD)
        try:
            (recording,) = loads(json.dumps(data), "bug.json")
        except UsageError:
            continue
        topology_of([recording])
        links_table(recording)
        graphs += 1
    assert graphs > 100
