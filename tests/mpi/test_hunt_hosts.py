"""`hunt` on several hosts, played by network namespaces, one of which has a slow link."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import result_of
from tests.support.runs import STUCK_LIMIT_S, STUCK_TIMEOUT_S, Run
from tests.support.two_hosts import two_hosts

HUNT = [sys.executable, "-m", "collbench", "hunt", "--json", "-", "--size"]
BUSY = 2.0  # times as slow as the others: a rank on cores that other tests have


def _worst(verdicts: Sequence[Mapping[str, Any]]) -> float:
    """The largest factor of some verdicts."""
    effects = [effect for one in verdicts for effect in one["effects"].values()]
    return max((effect["factor"] for effect in effects), default=1.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("ranks", "is_sending", "more"),
    [
        ((1, 1, 1, 1), False, ()),
        ((1, 1, 1, 1), False, ("--together",)),
        ((2, 2, 2), True, ("--alone", "--rails")),
        ((1, 2, 1), True, ("--alone", "--where", "network")),
        ((1, 1, 1), True, ("--alone", "--budget", "2")),
    ],
)
def test_a_slow_link_names_its_host_and_direction(
    tmp_path: Path, ranks: tuple[int, ...], is_sending: bool, more: tuple[str, ...]
) -> None:
    with two_hosts(tmp_path, len(ranks)) as hosts:
        for host in range(len(ranks)):
            rate = "60mbit" if host == 1 else "200mbit"
            hosts.slow(host, rate, is_sending=is_sending)
        with Run(tmp_path, hosts.command(ranks, [*HUNT, "128K", *more])) as run:
            assert run.finish() == 1, run.stderr
            result = result_of(run.stdout)
            verdict = result["verdicts"][0]
            assert (verdict["kind"], verdict["key"]) == ("host", [1]), run.stderr
            assert verdict["flow"] == ("out" if is_sending else "in")
            assert _worst(result["verdicts"][1:]) < BUSY, run.stderr
            assert f"SLOW  host {hosts.names[1]}, " in run.stderr


@pytest.mark.exhaustive
def test_equal_hosts_are_clean(tmp_path: Path) -> None:
    with two_hosts(tmp_path, 4) as hosts:
        for host in range(4):
            hosts.slow(host, "1gbit", is_sending=True)
        with Run(tmp_path, hosts.command((1, 1, 1, 1), [*HUNT, "256K", "--alone"])) as run:
            run.finish()
            assert _worst(result_of(run.stdout)["verdicts"]) < BUSY, run.stderr


@pytest.mark.exhaustive
def test_a_slow_path_acquits_its_ends(tmp_path: Path) -> None:
    with two_hosts(tmp_path, 4) as hosts:
        hosts.slow_path(1, 2, "200mbit", "1gbit")
        for host in (0, 2, 3):
            hosts.slow(host, "1gbit", is_sending=True)
        with Run(tmp_path, hosts.command((1, 1, 1, 1), [*HUNT, "256K", "--alone"])) as run:
            assert run.finish() == 1, run.stderr
            verdict, *others = result_of(run.stdout)["verdicts"]
            named = verdict["kind"], verdict["key"], verdict["flow"]
            assert named == ("path", [1, 2], "out"), run.stderr
            assert _worst(others) < BUSY, run.stderr


@pytest.mark.exhaustive
def test_a_host_that_is_cut_off_is_named_by_one_that_hears_others(tmp_path: Path) -> None:
    with two_hosts(tmp_path, 3) as hosts:
        command = [*HUNT, "128K", "--csv", str(tmp_path / "rows.csv")]
        command += ["--timeout", str(STUCK_TIMEOUT_S)]
        with Run(tmp_path, hosts.command((1, 1, 1), command)) as run:
            run.wait_for_rows()
            hosts.cut(1, ("data0",))
            assert run.finish(STUCK_LIMIT_S) == 4
            named = f"rank 1 on host {hosts.names[1]} sent host {hosts.names[0]} no heartbeat"
            assert any(named in line for line in run.errors()), run.stderr
