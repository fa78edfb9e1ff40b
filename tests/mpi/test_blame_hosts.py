"""Who is to blame for a collective between hosts that are network namespaces: a rank whose host
sends, or receives, slowly.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.support.runs import Run
from tests.support.two_hosts import two_hosts


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_sending", [True, False], ids=["sending", "receiving"])
def test_a_slow_host_is_named_with_its_direction(tmp_path: Path, is_sending: bool) -> None:
    with two_hosts(tmp_path, 4) as hosts:
        hosts.slow(2, "200mbit", is_sending=is_sending)
        asked = [sys.executable, "-m", "collbench", "hunt", "--blame", "--size", "1M"]
        command = hosts.command((1, 1, 1, 1), [*asked, "--json", "-"])
        with Run(tmp_path, command) as run:
            assert run.finish() == 1, run.stderr
            assert f"rank 2 {'sends' if is_sending else 'receives'} slowly" in run.stderr
            found = json.loads(run.stdout)
        ends = found["root"]["a"], found["root"]["b"]
        assert (found["is_confirmed"], ends) == (True, (2, 3) if is_sending else (1, 2))
