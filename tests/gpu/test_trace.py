"""`trace` on the machine itself: a launch has all of its ranks, channels,
tracks and rounds, its causes add up to it, and a rank that is late is named. By hand:

    python3 -m collbench trace --backend cuda --size 1M --launches 20

Check that the trace costs little, and that the clocks are known to less than a hop takes.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu._running import MODELS, Ended, run, started
from tests.support.commands import result_of

LIMIT_S = 280.0
CLOCK_ERROR_US = 0.2
DELAY_S, DELAY_ERROR = 0.03, 0.1
# (collective, algorithm, protocol, size, more options)
CASES = [
    ("allreduce", "ring", "simple", "1M", ()),
    ("allreduce", "ring", "simple", "64M", ()),
    ("allreduce", "twoshot", "simple", "256K", ("--channels", "4")),
    ("allreduce", "oneshot", "ll", "4K", ()),
    ("allreduce", "ring", "ll", "64K", ("--channels", "2")),
    ("allreduce", "twoshot", "ll128", "1M", ()),
    ("allreduce", "ring", "ll128", "256K", ()),
    ("allreduce", "ring", "simple", "1M", ("--transport", "shm")),
    ("broadcast", "chain", "simple", "4M", ()),
    ("broadcast", "direct", "ll", "16K", ()),
    ("alltoall", "direct", "simple", "1M", ()),
]
# Prints, of traced launches with a late rank, who is named as late, and by how many seconds.
LATE = """
import json, sys
from collbench.bench.trace.critical_path import critical_path, late_rank, sums
from collbench.bench.trace.traces import traced
from collbench.bench.points import plan_points
from collbench.launch.local import LocalGroup
from collbench.core.case import Case

if __name__ == "__main__":
    algo, proto, ranks, late, delay_s = sys.argv[1:]
    case = Case(
        op="allreduce", backend="cuda", algo=algo, proto=proto, ranks=int(ranks), size_bytes=65536
    )
    group = LocalGroup(10.0)
    (point,) = plan_points([case], group)
    delays_s = [0.0] * int(ranks)
    delays_s[int(late)] = float(delay_s)
    trace = traced(point.plan, point.case, group, 5, 10.0, delays_s=tuple(delays_s))
    paths = [critical_path(launch) for launch in trace.launches]
    found = [
        (*(late_rank(launch, path) or (-1, 0.0)), launch.total_s, sums(path).get("late", 0.0))
        for launch, path in zip(trace.launches, paths)
    ]
    print("LATE", json.dumps(found))
"""


def collbench(*args: str, model: str = "local", ranks: int = 0) -> Ended:
    """Run a command to its end, which is good, and print what it says."""
    ended = run(started(model, ranks, ["-m", "collbench", *args]), LIMIT_S)
    print(f"\n{model} {' '.join(args)}\n{ended.stdout}{ended.stderr}")
    assert "Traceback" not in ended.stderr
    assert ended.code == 0, ended.stderr[-2000:]
    return ended


def events_of(file: Path) -> list[dict[str, Any]]:
    """The events of a file of Chrome's trace events."""
    found: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    return found


def channels_of(events: list[dict[str, Any]], ranks: int) -> set[tuple[int, str]]:
    """Each rank, channel and track that has a thread."""
    return {
        (event["pid"], event["args"]["name"])
        for event in events
        if event["name"] == "thread_name"
        and event["pid"] < ranks
        and event["args"]["name"].startswith("channel ")
    }


@pytest.mark.parametrize(("op", "algo", "proto", "size", "more"), CASES)
def test_a_launch_is_whole_and_its_causes_add_up(
    op: str, algo: str, proto: str, size: str, more: tuple[str, ...], tmp_path: Path, gpus: int
) -> None:
    chain, timeline = tmp_path / "chain.json", tmp_path / "trace.json"
    case = ("--op", op, "--algo", algo, "--proto", proto, "--size", size, *more)
    files = ("--json", str(chain), "--out", str(timeline))
    ended = collbench("trace", "--backend", "cuda", *case, "--launches", "3", *files)
    assert "result compared" in ended.stderr
    found = result_of(chain.read_text())
    assert f"{op} {size} by {algo} {proto} " in found["title"]
    assert len(found["ranks"]) == gpus
    assert len(found["launches_us"]) == 3
    assert sum(one["us"] for one in found["path"]) == pytest.approx(found["total_us"], abs=0.01)
    causes = [cause["us"] for cause in found["causes"].values()]
    assert sum(causes) == pytest.approx(found["total_us"], abs=0.01)
    assert found["causes"]["core"]["us"] == 0.0
    assert 0.0 < found["total_us"] < 1e6
    assert found["clock_error_us"] <= CLOCK_ERROR_US
    whole(events_of(timeline), found["title"], gpus)


def whole(events: list[dict[str, Any]], title: str, ranks: int) -> None:
    """Every launch of every rank has the same actions on all channels, and they are in order."""
    (channels,) = re.findall(r"(\d+) channels?$", title)
    threads = channels_of(events, ranks)
    numbers = {(rank, int(name.split()[1])) for rank, name in threads}
    wanted = {(rank, channel) for rank in range(ranks) for channel in range(int(channels))}
    assert numbers == wanted
    by_launch: dict[int, set[tuple[int, int, int, int]]] = {}
    for event in events:
        if event["ph"] == "X" and event["pid"] < ranks:
            assert event["dur"] >= 0.0
            args = event["args"]
            if event["tid"]:
                place = event["pid"], event["tid"], args["round"], args["slice"]
                by_launch.setdefault(args["launch"], set()).add(place)
    assert len(by_launch) == 3
    first, *others = by_launch.values()
    assert all(other == first for other in others)
    for rank in range(ranks):  # from the first round on, without a gap, and to the end of the track
        rounds = {at[2] for at in first if at[0] == rank}
        assert rounds == {-1, *range(max(rounds) + 1)}


@pytest.mark.parametrize(
    ("algo", "proto"),
    [("ring", "simple"), ("twoshot", "simple"), ("ring", "ll"), ("twoshot", "ll128")],
)
@pytest.mark.parametrize("late", [0, 1])
def test_a_late_rank_is_the_cause(algo: str, proto: str, late: int, gpus: int) -> None:
    """The other ranks wait for it on their GPUs; its host sleeps before it queues its launch."""
    args = (algo, proto, str(gpus), str(late), str(DELAY_S))
    ended = run([sys.executable, "-c", LATE, *args], LIMIT_S)
    print(ended.stdout, ended.stderr[-2000:])
    assert ended.code == 0
    (text,) = ended.lines("LATE ")
    launches = json.loads(text)
    assert len(launches) == 5
    for rank, delay_s, total_s, late_s in launches:
        assert rank == late
        assert delay_s == pytest.approx(DELAY_S, rel=DELAY_ERROR)
        assert late_s == pytest.approx(DELAY_S, rel=DELAY_ERROR)
        assert late_s > 0.5 * total_s


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("op", "size"), [("allreduce", "1M"), ("broadcast", "64K")])
def test_the_choice_and_its_least_time_come_first(
    model: str, op: str, size: str, gpus: int
) -> None:
    case = ("--backend", "cuda", "--op", op, "--size", size)
    out = " ".join(collbench("trace", *case, model=model, ranks=gpus).stdout.split())
    assert out.startswith("Chosen: ")
    assert "Least by the model of " in out
    assert "over the fullest link (" in out
