"""Files of traces: Chrome's trace events by their documented rules, and the page."""

import json
from dataclasses import replace
from itertools import pairwise

from collbench.bench.trace.chrome import chrome_trace
from collbench.bench.trace.graph import launch_graph
from collbench.bench.trace.least_time import LeastTime
from collbench.bench.trace.summary import summary
from collbench.bench.trace.table import choice_lines, trace_json
from collbench.core.case import Case
from collbench.core.trace import Trace, Transfer
from collbench.planning.tuning import Origin
from tests.bench.test_critical_path import CHAIN_COSTS
from tests.support.commands import result_of
from tests.support.played import Played, plan_of


def played_trace() -> Trace:
    played = Played(plan_of("tree", 4), {})
    launch = launch_graph(played.plan, played.actors, played.launch())
    sent = Transfer(0, 1, 0, True, 3, launch.first_s + 1e-6, launch.first_s + 9e-6)
    launch = launch._replace(transfers=(sent,))
    return Trace(title="<b>", names=("a", "b", "c", "d"), launches=(launch,))


def test_chrome_trace_events_obey_their_rules() -> None:
    trace = played_trace()
    document = json.loads(chrome_trace(trace))
    events = document["traceEvents"]
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert {event["ph"] for event in events} == set("MXsfbe")
    assert all(isinstance(event["pid"], int) and "name" in event for event in events)
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            at = threads.setdefault((event["pid"], event["tid"]), [])
            at.append((event["ts"], event["ts"] + event["dur"]))
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    assert named >= set(threads)
    assert len({pid for pid, _ in named}) == 4 + 1
    for spans_here in threads.values():  # complete events of a thread nest; ours only follow
        ordered = sorted(spans_here)
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(ordered))
    for first, last in ("sf", "be"):  # a flow leaves a span and enters one
        opened = {one["id"]: one for one in events if one["ph"] == first}
        closed = {one["id"]: one for one in events if one["ph"] == last}
        assert opened
        assert opened.keys() == closed.keys()
        for key, one in opened.items():
            assert one["ts"] <= closed[key]["ts"]
    for one in events:
        if one["ph"] in "sf":
            spans_here = threads[one["pid"], one["tid"]]
            assert any(start - 1e-6 <= one["ts"] <= end + 1e-6 for start, end in spans_here)


def test_the_chain_is_a_document() -> None:
    trace = played_trace()
    found = summary(trace, CHAIN_COSTS)
    document = result_of(trace_json(trace, found, CHAIN_COSTS, "a machine"))
    assert document["launch"] == found.number
    total = sum(one["us"] for one in document["path"])
    assert abs(total - document["total_us"]) < 1e-6
    assert abs(sum(one["us"] for one in document["causes"].values()) - total) < 1e-6


def test_the_first_lines_say_what_was_chosen_and_its_least_time() -> None:
    least = LeastTime(machine="m", hops=4, hops_s=1e-6, bytes_s=49e-6, what="3/2 S sent")
    case = Case(op="allreduce", backend="cpu", ranks=4, size_bytes=1 << 20, algo="ring")

    def told(origin: Origin, least: LeastTime, total_us: float) -> str:
        lines = choice_lines(case, origin, least, total_us * 1e-6, 80)
        assert max(map(len, lines)) <= 80
        return " ".join(" ".join(lines).split())

    mine, by_model = Origin(True, (("mine", "my machine"),)), Origin(True, (), "h200x4-vm")
    text = told(mine, least, 100.0)
    assert text.startswith("Chosen: ring ")
    assert "by tuning file mine, which fits this machine" in text
    assert "4 hops 1.00 us, and 3/2 S sent 49.0 us: 50% of the launch." in text
    assert "by the model (constants of h200x4-vm)" in told(by_model, least, 100.0)
    assert "more than it takes. These constants do not hold here" in told(mine, least, 45.0)
    borrowed = told(mine, replace(least, is_borrowed=True), 100.0)
    assert "No least time: the model of m was fitted to other processors" in borrowed
    unknown = replace(least, bytes_s=None, what="its links are not known")
    assert told(mine, unknown, 100.0).endswith("4 hops 1.00 us; its links are not known.")
