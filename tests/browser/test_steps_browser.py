"""A schedule that plays, in a real browser: keys move the step, nothing complains, nothing leaves.
Skipped where there is no Chromium.
"""

import pytest

from collbench.core.world import World
from collbench.planning.cut import cut, playback_of
from collbench.planning.layout import registered
from collbench.schedules.drawings.page import page
from collbench.schedules.playback import play
from tests.support.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

STEP = "Number(document.getElementById('stage').dataset.step)"
HEADING = "document.getElementById('heading').textContent"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of pages by algorithm."""
    home = tmp_path_factory.mktemp("pages")
    schedules = [
        registered("allreduce", "ring", World(n=4)),
        registered("broadcast", "tree", World(n=4)),
        registered("alltoall", "direct", World(n=16)),
    ]
    for schedule in schedules:
        (home / f"{schedule.name}.html").write_text(page(play(schedule)))
    steps, slots = playback_of(cut("allreduce", "ring", 4, 0, 1 << 20, "ll128", 2, 4))
    (home / "loops.html").write_text(page(steps, slots=slots))
    return {file.stem: f"file://{file}" for file in home.iterdir()}


def press(browser: Browser, key: str, text: str = "") -> None:
    browser.ask("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
    browser.ask("Input.dispatchKeyEvent", type="keyUp", key=key)


def settled(browser: Browser) -> None:
    """Wait until what flies has arrived."""
    browser.run(
        "new Promise(done => { let last = -1; const look = () => { const now ="
        " document.getElementById('time').value; if (now === last) done(); else { last = now;"
        " setTimeout(look, 120); } }; look(); })"
    )


def test_keys_move_the_step(browser: Browser, pages: dict[str, str]) -> None:
    browser.look(pages["ring"])
    assert (browser.run(STEP), browser.run(HEADING)) == (0, "Start")
    press(browser, "ArrowRight")
    press(browser, "ArrowRight")
    assert browser.run(STEP) == 2
    settled(browser)
    assert browser.run("$$('#stage .pill').length") == 4
    assert "Rank 1 sends chunk 3" in browser.run("$('#now').innerText")
    assert browser.run("location.hash") == "#step=2"
    slots = "$('#slots div').innerText.split(/\\s+/).join(' ')"
    assert browser.run(slots) == "0 → 1 1 head 1, tail 2"  # message 1 waits in the second slot
    assert browser.run("$$('#slots .full').length") == 4
    press(browser, "ArrowLeft")
    assert browser.run(STEP) == 1
    press(browser, "End")
    assert browser.run(HEADING) == "Step 6 of 6: ring"
    assert browser.run("$$('#stage .cell.done').length") == 16
    press(browser, "Home")
    assert browser.run(STEP) == 0
    assert browser.run("$$('#stage .cell.done, #stage .pill').length") == 0
    press(browser, " ", " ")
    assert browser.run("$('#play').getAttribute('aria-label')") == "Pause (space)"
    browser.run(
        f"new Promise(done => {{ const look = () => {STEP} ? done() : setTimeout(look, 20);"
        " look(); })"
    )
    press(browser, " ", " ")
    assert browser.run("$('#play').className") == ""
    assert browser.complaints() == []


def test_loops_go_through_slots(browser: Browser, pages: dict[str, str]) -> None:
    browser.look(pages["loops"] + "#step=6")
    assert "loop\n3 of a channel, of 240K each" in browser.run("$('#cut').innerText")
    slots = "$('#slots div').innerText.split(/\\s+/).join(' ')"
    done = "$$('#stage .cell.done').length"
    assert (browser.run(slots), browser.run(done)) == ("0 → 1 head 6, tail 6", 16)
    press(browser, "ArrowRight")
    settled(browser)
    assert browser.run("$('#stage .pill').textContent").endswith("1.3: 0")
    assert browser.run(slots) == "0 → 1 6 head 6, tail 7"  # the third slot, which is taken again
    press(browser, "ArrowRight")
    settled(browser)
    assert browser.run(slots) == "0 → 1 7 head 6, tail 8"  # a head moves on by two
    press(browser, "End")
    assert (browser.run(slots), browser.run(done)) == ("0 → 1 head 18, tail 18", 48)
    assert browser.complaints() == []


def test_reduced_motion_has_no_way_between_steps(browser: Browser, pages: dict[str, str]) -> None:
    browser.look(pages["tree"])
    browser.ask(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-reduced-motion", "value": "reduce"}],
    )
    press(browser, "ArrowRight")
    assert browser.run("$('#time').value") == "1"
    browser.ask("Emulation.setEmulatedMedia", features=[])


@pytest.mark.parametrize("algo", ["ring", "tree", "direct", "loops"])
def test_a_phone_shows_it_whole(browser: Browser, pages: dict[str, str], algo: str) -> None:
    browser.look(pages[algo] + "#step=1", width=390, height=844, phone=True)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.run(STEP) == 1
    browser.run("$('#back').click()")
    assert browser.run(STEP) == 0
    assert browser.run(
        "$$('#controls button').every(one => one.getBoundingClientRect().height >= 44)"
    )
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:,"))] == []


def test_without_script_all_steps_are_there(browser: Browser, pages: dict[str, str]) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.look(pages["ring"], script=False)
        seen = browser.run("document.body.innerText")
        assert "needs JavaScript" in seen
        assert seen.count("Rank 3 ") == 6
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)
