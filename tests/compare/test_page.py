"""compare --html: the page holds what the file holds, no text of a file becomes markup, and nothing
leaves it.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest

from collbench.compare.load import ResultFile, load
from collbench.compare.page import page
from collbench.core import catalog
from collbench.core.peers import PEERS
from collbench.core.record import Record
from collbench.core.text import escaped
from collbench.core.verdict import interval
from collbench.core.web.colors import FAMILIES, JUDGEMENTS, STEPS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from tests.benchmarks.gate import slower
from tests.support.commands import Says
from tests.support.frames import records, row, write

EXAMPLES = Path(__file__).parent.parent.parent / "docs/examples"
H200 = catalog.results()["h200x4"]
HOSTILE = (
    "</script><script>document.title = 'taken'</script>",
    "<img src=x onerror=\"document.title = 'taken'\">",
    "a\"b'c&lt;",
    "\u2028\u2029\u202e]]>-->",
)


class Parsed(HTMLParser):
    """Elements with their attributes, and the text of every element's own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.elements[-1][0] if self.elements else "", data))

    @property
    def data(self) -> dict[str, Any]:
        """What the script reads."""
        place = next(k for k, (_, given) in enumerate(self.elements) if given.get("id") == "data")
        found: dict[str, Any] = json.loads(self.inner(place))
        return found

    def inner(self, place: int) -> str:
        tags = [tag for tag, _ in self.elements]
        nth = tags[: place + 1].count(tags[place])
        return [text for tag, text in self.texts if tag == tags[place] and text.strip()][nth - 1]


def unpacked(data: dict[str, Any]) -> dict[str, Any]:
    """The data with points as size, time, low, high, bus and algorithm bandwidth, ceiling, and the
    place of the note, as the script makes them.
    """
    for curve in data["curves"]:
        points = []
        for size, ceiling, note, _, _, rates, *repeats in curve["p"]:
            size_bytes, bounds = data["sizes"][size], interval(repeats)
            time, alg = bounds.median, size_bytes / bounds.median / 1e3
            bus = alg * curve["f"]
            if rates:
                time, alg, bus = rates
            limit = data["ceilings"][ceiling] if ceiling >= 0 else None
            points.append([size_bytes, time, bounds.low, bounds.high, bus, alg, limit, note])
        curve["p"] = points
    return data


def of_rows(given: Sequence[Record], name: str = "given.csv") -> str:
    return page(ResultFile(records=given, name=name, kind="collbench"))


def hostile() -> list[Record]:
    bad = [
        row(
            (10.0 + k, 11.0 + k, 10.0 + k),
            algo=text,
            backend="cuda",
            size_bytes=size,
            host=text,
            device=text,
            versions=f"nccl {text}",
            notes=text,
            limit=text,
        )
        for k, text in enumerate(HOSTILE)
        for size in (1024, 4096)
    ]
    return records(*bad, row(algo=HOSTILE[0], op=HOSTILE[1], status="wrong", reason=HOSTILE[0]))


@pytest.fixture(scope="module")
def h200() -> str:
    return page(load(H200))


KEYS = ["op", "backend", "algo", "proto", "size_bytes"]
NUMBERS = ["time_us", "time_low_us", "time_high_us", "busbw_gbs", "algbw_gbs", "ceiling_gbs"]


def test_every_point_of_the_file_is_in_the_page_as_the_file_has_it(h200: str) -> None:
    data = unpacked(Parsed(h200).data)
    dims = [(dim["key"], dim["values"]) for dim in data["dims"]]
    rows = []
    for curve in data["curves"]:
        of = {key: values[k] for (key, values), k in zip(dims, curve["k"], strict=True) if k >= 0}
        names = (of["op"], of["backend"], of.get("algorithm", "library"), of.get("protocol", ""))
        rows += [(*names, *point[:-1], data["notes"][point[-1]]) for point in curve["p"]]
    columns = [*KEYS, *NUMBERS, "notes"]
    given = load(H200).frame
    wanted = given.loc[given["status"] == "ok", columns].sort_values(KEYS, ignore_index=True)
    told = pd.DataFrame(rows, columns=columns).sort_values(KEYS, ignore_index=True)
    pd.testing.assert_frame_equal(told, wanted, rtol=2e-5, check_dtype=False)
    assert len(told) == 1399


def test_hostile_texts_stay_texts() -> None:
    text = of_rows(hostile(), "<b>name</b>.csv")
    parsed = Parsed(text)
    tags = [tag for tag, _ in parsed.elements]
    plain = Parsed(of_rows(records(row((10.0,))))).elements
    assert set(tags) <= {tag for tag, _ in plain} | {"ul", "li", "figure", "figcaption"}
    assert tags.count("script") == 2
    assert "img" not in tags
    assert "b" not in tags
    assert not {
        name
        for _, given in parsed.elements
        for name in given
        if name.startswith("on") or name == "style"
    }
    body = text[text.index("<body>") : text.index('<script type="application/json"')]
    assert HOSTILE[0] not in body
    embedded = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL
    )
    assert embedded is not None
    assert not set("<>&\u2028\u2029") & set(embedded[1])
    algorithms = next(dim["values"] for dim in parsed.data["dims"] if dim["key"] == "algorithm")
    assert set(algorithms) == set(map(escaped, HOSTILE))


def test_nothing_in_the_page_leaves_it(h200: str) -> None:
    for text in (h200, of_rows(hostile())):
        parsed = Parsed(text)
        links = [
            given[name]
            for _, given in parsed.elements
            for name in ("src", "href", "action", "data", "poster", "srcset", "style")
            if name in given
        ]
        assert [one for one in links if not (one or "").startswith("#op=")] == ["data:,"]
        assert "http" not in re.sub(r"http-equiv", "", text)
        assert not re.search(
            r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import|eval|innerHTML|outerHTML|insertAdjacentHTML)\b",
            text,
        )
        assert not re.search(r"url\(|@import|@font-face", text)


def test_the_policy_names_exactly_the_style_and_the_script(h200: str) -> None:
    (policy,) = [
        given["content"]
        for _, given in Parsed(h200).elements
        if given.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (inner,) = re.findall(f"<{tag}>(.*?)</{tag}>", h200, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_tables_need_no_script(h200: str) -> None:
    parsed = Parsed(h200)
    assert "noscript" in [tag for tag, _ in parsed.elements]
    for name in ("glance", "best", "odd", "origin"):
        assert any(given.get("id") == name for _, given in parsed.elements), name
    of_allreduce = [given for tag, given in parsed.elements if given.get("data-op") == "allreduce"]
    assert len(of_allreduce) == 13
    assert not any(
        "hidden" in given
        for tag, given in parsed.elements
        if tag in ("tr", "figure", "section", "table")
    )


def test_what_is_not_known_is_not_told() -> None:
    text = of_rows(records(row((10.0,), ceiling_gbs=float("nan"))))
    seen = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL)
    assert "nan" not in seen.lower()
    assert [point[1] for curve in Parsed(text).data["curves"] for point in curve["p"]] == [-1]
    assert '"curves":[]' in of_rows(records(row(status="waived", reason="too small")))


@pytest.mark.exhaustive
def test_two_files_show_what_changed(tmp_path: Path, says: Says) -> None:
    base, target = tmp_path / "base.csv", tmp_path / "page.html"
    given = load(H200).frame
    slow = (given["op"] == "allreduce") & (given["algo"] == "ring") & (given["status"] == "ok")
    write(slower(given, np.where(slow, 1.5, 1.0)), base)
    said = says(0, "compare", H200, base, "--html", target)
    assert said.out == ""
    assert f"# wrote {target}" in said.err
    parsed = Parsed(target.read_text())
    better = '<th class="tight better" scope="row">better</th>'
    assert target.read_text().count(better) == int(slow.sum())
    (files,) = [dim["values"] for dim in parsed.data["dims"] if dim["key"] == "file"]
    assert files == ["new", "base"]
    assert "allreduce cuda ring: faster as a whole" in target.read_text()


def links_of(text: str) -> list[tuple[str, str, int, int]]:
    """Operation, axis, curve and size of every link of a page."""
    found = []
    for _, given in Parsed(text).elements:
        if given.get("href", "").startswith("#op="):  # type: ignore[union-attr]
            parts = dict(part.split("=") for part in str(given["href"])[1:].split("&"))
            curve, size = parts["at"].split(".")
            found.append((unquote(parts["op"]), parts["axis"], int(curve), int(size)))
    return found


@pytest.mark.parametrize("base", [None, "slower-run.csv"])
def test_every_link_leads_to_a_point_of_its_curve(base: str | None) -> None:
    sides = [load(EXAMPLES / name) for name in ("first-run.csv", base) if name]
    text = page(*sides)
    data, found = Parsed(text).data, links_of(text)
    ops = next(dim["values"] for dim in data["dims"] if dim["key"] == "op")
    place = [dim["key"] for dim in data["dims"]].index("op")
    assert {axis for _, axis, _, _ in found} == {"peer", "wire"} | ({"change"} if base else set())
    for op, _, curve, size in found:
        entry = data["curves"][curve]
        assert ops[entry["k"][place]] == op
        assert data["sizes"].index(size) in [point[0] for point in entry["p"]]
    names = {
        cell for tag, cell in Parsed(text).texts if tag == "a" and cell.startswith("allreduce cuda")
    }
    assert bool(names) is (base is not None)


def test_a_page_opens_on_the_worst_change_or_the_widest_gap() -> None:
    one = Parsed(page(load(EXAMPLES / "first-run.csv"))).data
    two = Parsed(page(*map(load, [EXAMPLES / "slower-run.csv", EXAMPLES / "first-run.csv"]))).data
    assert one["open"]["axis"] == "peer"
    text = page(load(H200))
    opened = Parsed(text).data["curves"][Parsed(text).data["open"]["curve"]]
    assert opened["title"].startswith("allreduce")
    assert "4 x NVIDIA H200; 2026-11-21; NCCL 2.28.9 on plain buffers with NVLS off" in text
    assert text.index('id="curves"') < text.index('id="answers"')
    curve = two["curves"][two["open"]["curve"]]
    assert (two["open"]["axis"], two["open"]["size"], curve["name"]) == (
        "change",
        32 << 20,
        "ring simple",
    )


def test_long_data_is_packed_and_the_same(monkeypatch: pytest.MonkeyPatch, h200: str) -> None:
    plain = Parsed(h200).data
    monkeypatch.setattr("collbench.compare.page.data.MOST_PLAIN_CHARS", 0)
    text = page(load(H200))
    [packed] = re.findall(r'id="data" data-packed="deflate">([^<]*)<', text)
    assert json.loads(zlib.decompress(base64.b64decode(packed))) == plain
    assert len(text) < len(h200) - 50_000


def test_no_line_has_the_colour_of_a_judgement() -> None:
    judged = {color for pair in JUDGEMENTS.values() for color in pair}
    drawn = [color for pair in (*FAMILIES.values(), *STEPS) for color in pair]
    assert not judged & set(drawn)
    for scheme in (0, 1):
        assert len({pair[scheme] for pair in FAMILIES.values()}) == len(FAMILIES)
    assert {*ALGORITHMS.names(), *PEERS} <= set(FAMILIES), "add it to core/web/colors.py"


def test_the_same_file_gives_the_same_page(h200: str) -> None:
    assert page(load(H200)) == h200


def test_a_page_is_of_two_files_at_most(says: Says) -> None:
    small = str(EXAMPLES / "first-run.csv")
    files = [str(file) for file in catalog.results().values()]
    assert "two files at most" in says(2, "compare", *files[:3], "--html", "x.html").err
    # unlike machines, without --force
    says(2, "compare", files[0], files[1], "--html", "x.html")
    assert says(0, "compare", small, "--html", "-").out.startswith("<!DOCTYPE html>")
