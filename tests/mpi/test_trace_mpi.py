"""`trace` under mpirun: messages of the network are in the file, with what moved them."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.runs import Run, needs_mpi, under_mpirun

pytestmark = needs_mpi
TRACE = [sys.executable, "-m", "collbench", "trace", "--size", "4K", "--algo", "ring"]


@pytest.mark.exhaustive
def test_messages_of_proxies_are_traced(tmp_path: Path) -> None:
    file = tmp_path / "ours" / "t.json"  # a run must leave no file of its own
    file.parent.mkdir()
    command = [*TRACE, "--transport", "net", "--launches", "2", "--out", str(file)]
    with Run(tmp_path, under_mpirun(3, command)) as run:
        assert run.finish() == 0, run.stderr
    events = json.loads(file.read_text())["traceEvents"]
    # each of three ranks sends and receives four messages in a launch of a ring
    begun = Counter(one["name"].split(" rank")[0] for one in events if one["ph"] == "b")
    assert begun == {"proxy: send to": 24, "proxy: receive from": 24}
