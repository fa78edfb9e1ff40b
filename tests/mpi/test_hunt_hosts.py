"""`hunt` on several hosts, played by network namespaces, one of which has a slow link."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.runs import Run
from tests.support.tiers import tiered
from tests.support.two_hosts import two_hosts


@pytest.mark.parametrize(
    ("ranks", "is_sending", "more"),
    tiered(
        [
            ((1, 1, 1, 1), True, ("--alone",)),
            ((1, 1, 1, 1), False, ("--alone",)),
            ((1, 1, 1, 1), True, ()),
            ((1, 1, 1, 1), False, ("--together",)),
            ((2, 2, 2, 2), True, ("--alone", "--rails")),
            ((1, 1, 1), True, ("--alone",)),
        ],
        [((1, 1, 1), True, ("--alone",))],
    ),
)
def test_a_slow_link_names_its_host_and_direction(
    tmp_path: Path, ranks: tuple[int, ...], is_sending: bool, more: tuple[str, ...]
) -> None:
    with two_hosts(tmp_path, len(ranks)) as hosts:
        for host in range(len(ranks)):
            rate = "300mbit" if host == 1 else "1gbit"
            hosts.slow(host, rate, is_sending=is_sending)
        command = [sys.executable, "-m", "collbench", "hunt", "--size", "256K", *more]
        with Run(tmp_path, hosts.command(ranks, [*command, "--json", "-"])) as run:
            assert run.finish() == 1, run.stderr
            result = json.loads(run.stdout)
            named = [(one["kind"], one["key"], one["flow"]) for one in result["verdicts"]]
            assert named == [("host", [1], "out" if is_sending else "in")]
            assert f"SLOW  host {hosts.names[1]}, " in run.stderr


@pytest.mark.exhaustive
def test_equal_hosts_are_clean(tmp_path: Path) -> None:
    with two_hosts(tmp_path, 4) as hosts:
        for host in range(4):
            hosts.slow(host, "1gbit", is_sending=True)
        command = [sys.executable, "-m", "collbench", "hunt", "--size", "256K", "--alone"]
        with Run(tmp_path, hosts.command((1, 1, 1, 1), command)) as run:
            assert run.finish() == 0, run.stdout
