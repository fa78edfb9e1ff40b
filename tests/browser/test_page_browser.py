"""The page in a real browser: nothing complains, nothing leaves, filters and pointers do what they
say. Skipped where there is no Chromium.
"""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from collbench.cli import run
from collbench.compare.load import ResultFile, load
from collbench.compare.page import page
from collbench.core import catalog
from collbench.core.text import escaped
from collbench.core.web.colors import FAMILIES, STEPS
from tests.compare.test_page import HOSTILE, hostile, of_rows
from tests.support.browser import CHROMIUM, Browser
from tests.support.frames import records, row
from tests.support.runs import ROOT
from tests.support.tiers import tiered

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

H200 = catalog.results()["h200x4"]
LINES = "$$('#chart path:not(.ceiling):not(.envelope)').length"
SHOWN = "document.getElementById('shown').textContent"
TIP = "document.getElementById('tip').innerText"
RGB = """(text => {
  const linear = k => k <= .03928 ? k / 12.92 : ((k + .055) / 1.055) ** 2.4;
  const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(k => k / 255).map(linear);
  return .2126 * r + .7152 * g + .0722 * b; })"""
CONTRAST = f"""((one, other) => {{
  const [a, b] = [{RGB}(one), {RGB}(other)].sort((x, y) => y - x);
  return (a + .05) / (b + .05);
}})"""


def side(scale: float) -> ResultFile:
    """A file of two configurations that takes so many times as long."""
    rows = [
        row(
            (scale * step, 1.01 * scale * step, 1.02 * scale * step),
            **{"algo": "twoshot", "proto": "ll128", "size_bytes": 1024 << step},
            **{"channels": count, "threads": 256 * count, "cluster": count},
        )
        for step, count in product(range(1, 11), (1, 2))
    ]
    return ResultFile(records=records(*rows), name="sides.csv", kind="collbench")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of pages by name."""
    home = tmp_path_factory.mktemp("pages")
    loaded = load(H200)
    many = [
        row((10.0 + k % 7, 11.0, 10.5), algo=algo, channels=k, threads=threads, size_bytes=size)
        for algo, k in product(("ring", "tree", "star", "chain"), range(1, 33))
        for threads, size in product(range(32, 544, 32), (1024 << step for step in range(10)))
    ]
    texts = {
        "slower": page(side(1.5), side(1.0)),
        "h200": page(loaded),
        "two": page(loaded, loaded),
        "hostile": of_rows(hostile(), "<i>x.csv"),
        "none": of_rows(records(row(status="waived"))),
        "one": of_rows(records(row((10.0,)))),
        "published": page(load(catalog.results()["h200x8-published"])),
        "many": of_rows(records(*many)),
    }
    for name, text in texts.items():
        (home / f"{name}.html").write_text(text)
    return {name: f"file://{home / name}.html" for name in texts}


NAMES = ("h200", "two", "hostile", "none", "one", "published", "many")
FRAGMENTS = (
    "",
    "#op=*&axis=time&x=linear&y=linear&lines=all",
    "#axis=algbw&y=log&color=protocol",
    "#op=%E0%A4%A&&=&x&axis=__proto__&algorithm=nothing",
)


@tiered(
    ("name", "fragment"),
    product(NAMES, FRAGMENTS),
    [*((name, "") for name in NAMES), *(("h200", fragment) for fragment in FRAGMENTS)],
)
def test_nothing_complains_and_nothing_leaves(
    browser: Browser, pages: dict[str, str], name: str, fragment: str
) -> None:
    browser.look(pages[name] + fragment)
    assert browser.run("$('#live').hidden") is (name == "none")
    assert browser.run("document.title") != "taken"
    assert "NaN" not in browser.run("document.body.innerText + $('#chart').outerHTML")
    assert browser.complaints() == []
    assert [
        url for url in browser.requests() if not url.startswith(pages[name]) and url != "data:,"
    ] == []


def test_the_policy_refuses_what_would_leave(browser: Browser, pages: dict[str, str]) -> None:
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        there = f"http://127.0.0.1:{server.server_port}/"
        browser.look(pages["h200"])
        image = (
            "new Promise(done => { const one = new Image(); one.onload = () => done('in');"
            " one.onerror = () => done('refused'); one.src = '%s'; })"
        )
        assert browser.run(image % there) == "refused"
        assert (
            browser.run(f"fetch('{there}', {{mode: 'no-cors'}}).then(() => 'in', () => 'refused')")
            == "refused"
        )
        assert (
            browser.run(
                "new Promise(done => { const one = document.createElement('script');"
                " one.textContent = 'window.ran = 1'; document.body.append(one); setTimeout(() =>"
                " done(window.ran === 1), 50); })"
            )
            is False
        )
    finally:
        server.shutdown()
        server.server_close()
    assert asked == []


def test_the_address_filters(browser: Browser, pages: dict[str, str]) -> None:
    browser.look(pages["h200"] + "#op=allreduce&axis=busbw")
    assert browser.run(SHOWN) == "22 of 111 curves, 286 points: allreduce"
    assert browser.run(LINES) == 22
    browser.look(pages["h200"] + "#axis=busbw&op=broadcast&algorithm=ring,tree&protocol=ll")
    # and NCCL's own choice
    assert (
        browser.run(SHOWN)
        == "3 of 111 curves, 39 points: broadcast; algorithm ring or tree; protocol ll"
    )
    shown = "$$('#best tbody tr').filter(row => row.checkVisibility())"
    assert browser.run(f"{shown}.every(row => row.dataset.op === 'broadcast')")
    browser.look(pages["h200"] + "#op=*")
    assert browser.run(SHOWN).endswith("all operations; the fastest at some size, and libraries")
    assert browser.run("$$('#best tbody tr').filter(row => !row.checkVisibility()).length") == 0
    browser.look(pages["h200"] + "#axis=busbw&op=*&lines=all")
    assert browser.run(SHOWN) == "111 of 111 curves, 1399 points: all operations"


def test_filters_work_and_stay_in_the_address(browser: Browser, pages: dict[str, str]) -> None:
    browser.look(pages["h200"] + "#op=allreduce&axis=busbw")
    find = "$$('#filters input').find(box => box.value === '%s')"
    click = f"(box => {{ box.focus(); box.click(); }})({find})"
    browser.run(click % "ring")
    assert browser.run("location.hash") == "#axis=busbw&algorithm=ring"
    assert browser.run(LINES) == 4
    assert browser.run("document.activeElement.value") == "ring"  # the keyboard stays where it was
    browser.run(click % "nccl")
    assert browser.run(LINES) == 1
    browser.run(
        "(list => { list.value = 'time'; list.dispatchEvent(new Event('change')); })($('#f-axis'))"
    )
    assert browser.run("location.hash") == "#axis=time&algorithm=ring&backend=nccl"
    assert browser.run("$('#chart').textContent").count("Time, us") == 1
    browser.run("$$('#filters button').find(one => one.textContent === 'Show all').click()")
    assert browser.run(LINES) == 22
    assert browser.run("location.hash") == "#axis=time"
    browser.run("location.hash = '#op=reduce'")
    assert browser.run(f"new Promise(done => setTimeout(() => done({SHOWN}), 50))").endswith(
        ": reduce"
    )
    assert browser.complaints() == []


def place_of_1g(browser: Browser) -> tuple[float, float]:
    """Where the last point of the first curve is on the screen."""
    browser.run("$('#plot').scrollIntoView()")
    x, y = browser.run(
        "(({x, y}) => [x + 2, y + 2])($$('#chart circle')[12].getBoundingClientRect())"
    )
    return x, y


def test_pointer_and_keyboard_tell_a_points_numbers(
    browser: Browser, pages: dict[str, str]
) -> None:
    browser.look(pages["h200"] + "#op=allreduce&axis=busbw&backend=nccl")
    assert browser.run(TIP) == ""
    x, y = place_of_1g(browser)
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    given = load(H200).frame
    one = given[
        (given["op"] == "allreduce")
        & (given["backend"] == "nccl")
        & (given["size_bytes"] == 1 << 30)
    ].iloc[0]
    said = browser.run(TIP)
    assert "nccl, 1G" in said
    assert f"{one['busbw_gbs']:.1f} GB/s" in said
    assert "% reached" in said
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    assert browser.run(TIP) == ""
    browser.run("$('#chart').focus()")
    for key in ("ArrowRight", "ArrowRight"):
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key=key)
    assert "nccl, 64\n" in browser.run(TIP)
    browser.ask("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    assert browser.run(TIP) == ""
    browser.look(
        pages["h200"] + "#op=allreduce&axis=busbw&backend=nccl", width=390, height=844, phone=True
    )
    x, y = place_of_1g(browser)
    browser.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    browser.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert "nccl, 1G" in browser.run(TIP)


def test_a_page_opens_on_what_matters_and_links_lead_to_curves(
    browser: Browser, pages: dict[str, str]
) -> None:
    browser.look(pages["slower"])
    axis = "document.getElementById('f-axis').value"
    value = "document.getElementById('f-y').value"
    assert browser.run(f"[{axis}, {value}]") == ["change", "log"]
    assert "Base" in browser.run(TIP)
    dots = "$$('#repeats circle').length"
    assert browser.run(dots) == 6  # three repeats of each file
    browser.look(pages["h200"])
    assert browser.run(f"[{axis}, {value}]") == ["peer", "log"]
    links = "[...document.querySelectorAll('#answers table a')]"
    for place in (0, -1):
        said = browser.run(
            f"new Promise(done => {{ {links}.at({place}).click();"
            f" setTimeout(() => done([{axis}, {TIP}]), 100); }})"
        )
        row = f"{links}.at({place}).closest('tr').cells[0].textContent"
        size = f"{links}.at({place}).textContent.split('at ')[1]"
        assert said[0] == ("wire" if place else "peer")
        assert browser.run(size) in said[1]
        assert browser.run(row) in said[1]
    assert browser.complaints() == []


def test_what_is_wider_than_a_phone_says_so(browser: Browser, pages: dict[str, str]) -> None:
    boxes = "$$('.scroll')"
    wide = f"{boxes}.filter(one => one.scrollWidth > one.clientWidth + 2)"
    for width in (390, 1280):
        browser.look(pages["slower"], width=width, height=844, phone=width < 600)
        hints = f"{wide}.map(one => one.nextElementSibling?.textContent ?? '')"
        told = browser.run(hints)
        assert all("scroll the table" in one for one in told)
        assert len(told) == browser.run("$$('.more').length")
        assert bool(told) is (width < 600)


def test_the_best_table_sorts(browser: Browser, pages: dict[str, str]) -> None:
    browser.look(pages["h200"] + "#op=*")
    sort = "$$('#best th button').find(one => one.textContent === '%s').click()"
    cells = "$$('#best tbody tr').map(row => Number(row.cells[%d].dataset.v))"
    for name, place in (("size", 1), ("time us", 3), ("busbw GB/s", 4)):
        browser.run(sort % name)
        numbers = browser.run(cells % place)
        assert numbers == sorted(numbers)
        browser.run(sort % name)
        numbers = browser.run(cells % place)
        assert numbers == sorted(numbers, reverse=True)
    assert browser.run("$$('#best th[aria-sort]').length") == 1


def test_hostile_texts_are_shown_as_they_are(browser: Browser, pages: dict[str, str]) -> None:
    browser.look(pages["hostile"] + "#op=*")
    chips = browser.run("$$('#filters input').map(box => box.value)")
    assert set(map(escaped, HOSTILE)) <= set(chips)
    assert browser.run("$$('img, i, b:not(#tip b), script').length") == 2
    browser.run("$('#chart').focus()")
    browser.ask("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    assert HOSTILE[0] in browser.run(TIP)
    assert browser.run("document.title") != "taken"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_read(browser: Browser, pages: dict[str, str], scheme: str) -> None:
    browser.look(pages["h200"] + "#lines=all", scheme=scheme)
    back = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(f"{RGB}({back}) > .5") is (scheme == "light")
    for what in ("h1", ".lead", ".hint", "#best td", "#best th", "#filters .chip span", "#shown"):
        assert browser.run(f"{CONTRAST}(getComputedStyle($('{what}')).color, {back})") >= 4.5, what
    for name in (*(f"f-{family}" for family in FAMILIES), *(f"s{k}" for k in range(len(STEPS)))):
        colour = (
            f"(one => {{ one.className = 'm-{name}'; one.style.display = 'none';"
            " document.body.append(one); return getComputedStyle(one).fill; })"
        )
        assert browser.run(f"{CONTRAST}({colour}(document.createElement('i')), {back})") >= 2.6, (
            name
        )


def test_a_phone_shows_all_without_sideways_scrolling(
    browser: Browser, pages: dict[str, str], tmp_path: Path
) -> None:
    for name in ("h200", "two", "hostile", "many"):
        browser.look(pages[name], width=390, height=844, phone=True)
        assert browser.run("document.documentElement.scrollWidth") <= 390, name
    log = tmp_path / "log.html"
    assert run(["log", str(ROOT / "docs/examples/job.log"), "--html", str(log)]) == 1
    browser.look(f"file://{log}", width=390, height=844, phone=True, script=False)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.look(pages["slower"], width=390, height=844, phone=True)
    # the change, and the bandwidth: what is asked for
    for head in ("#rows thead :nth-child(4)", "#best thead :nth-child(5)"):
        assert browser.run(f"$('{head}').getBoundingClientRect().right") <= 390, head


def test_paper_is_light_whole_and_without_controls(browser: Browser, pages: dict[str, str]) -> None:
    browser.look(pages["h200"], scheme="dark")
    browser.ask(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    try:
        assert (
            browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert browser.run("$('#filters').checkVisibility()") is False
        assert browser.run("$$('tbody tr, figure').every(one => one.checkVisibility())")
        assert browser.run("getComputedStyle($('.scroll')).overflowX") == "visible"
        browser.ask("Page.printToPDF")
        # as before it was drawn for paper
        assert browser.run("$('#chart').viewBox.baseVal.width") > 720
        assert browser.complaints() == []
    finally:
        browser.ask("Emulation.setEmulatedMedia", media="")


def test_without_script_the_tables_are_there(browser: Browser, pages: dict[str, str]) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.look(pages["h200"], script=False)
        seen = browser.run("document.body.innerText")
        assert "The curves need JavaScript" in seen
        assert seen.count("sendrecv, 4 ranks") > 13
        assert browser.run("$('#live').checkVisibility()") is False
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)
