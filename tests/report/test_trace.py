"""Files of traces: Chrome's trace events by their documented rules, and the page."""

import json
from html.parser import HTMLParser
from itertools import pairwise

from collbench.analysis.launch_graph import launch_graph
from collbench.analysis.trace_summary import ChainCosts, summary
from collbench.report.chrome_trace import chrome_trace
from collbench.report.page.trace import trace_page
from collbench.report.tables.trace import trace_json
from collbench.results.trace import Trace, Transfer
from tests.analysis.test_blame import Played, plan_of
from tests.analysis.test_critical_path import COSTS

CHAIN_COSTS = ChainCosts(kind=COSTS, launch_s=1e-6, hop_s=2e-6, price_s=1e-5, machine="m")


def played_trace() -> Trace:
    played = Played(plan_of("tree", 4), {})
    launch = launch_graph(played.plan, played.actors, played.launch())
    sent = Transfer(0, 1, 0, True, 3, launch.first_s + 1e-6, launch.first_s + 9e-6)
    launch = launch._replace(transfers=(sent,))
    return Trace(title="<b>", names=("a", "b", "c", "d"), launches=(launch,))


def test_chrome_trace_events_obey_their_rules() -> None:
    trace = played_trace()
    document = json.loads(chrome_trace([trace, trace]))
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
    assert len({pid for pid, _ in named}) == 2 * (4 + 1)
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


def test_the_page_draws_every_track_and_requests_nothing() -> None:
    trace = played_trace()
    text = trace_page(trace, summary(trace, CHAIN_COSTS), CHAIN_COSTS)
    seen: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append(tag)
            assert not {"src", "href"} & {name for name, value in attrs if value != "data:,"}

    Parser().feed(text)
    assert "script" not in seen
    assert "b" not in seen
    lanes = {(one.rank, one.track) for one in trace.launches[0].actions}
    assert text.count("<li>rank ") == len(lanes)
    assert seen.count("rect") > 3 * len(lanes)


def test_the_chain_is_a_document() -> None:
    trace = played_trace()
    found = summary(trace, CHAIN_COSTS)
    document = json.loads(trace_json(trace, found, CHAIN_COSTS))
    assert document["launch"] == found.number
    total = sum(one["us"] for one in document["path"])
    assert abs(total - document["total_us"]) < 1e-6
    assert abs(sum(one["us"] for one in document["causes"].values()) - total) < 1e-6
