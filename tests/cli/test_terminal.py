"""Nothing of a file, of the environment or of a command line reaches the terminal raw: what a
terminal would obey is put into every reader and every option, and no command may print it.
"""

import json
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from collbench.cli import _COMMANDS, run
from collbench.core.record import COLUMNS, header, named, read, to_line
from collbench.core.screen import document_on_stdout, is_coloured, say
from collbench.machine.formats import topology_json
from tests.support.commands import MODEL, Capture, options
from tests.support.machines import dgx1v
from tests.support.tiers import tiered
from tests.support.topologies import OWN

DATA = OWN.parent / "results"
PROFILES = Path(__file__).parent.parent.parent / "profiles"
# What XML may hold: new lines of 8 bits, marks of direction, separators.
IN_XML = "\x9b2J\x85\x7f\u202e\u2066\u2028\u2029"
NASTY = f"\x1b[2J\x1b[31m\x1b]0;title\x07\x08\r\x0b{IN_XML}"
OBEYED = re.compile("[^\n\t -\x7e\xa0-\u2027\u202f-\u2065\u2070-\U0010ffff]|[\ud800-\udfff]")
VIEWS = ("--tree", "--rates", "--p2p", "--links", "--rings")
Shown = Callable[..., str]


@pytest.fixture
def shown(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What a command prints on both streams, of which a terminal obeys nothing."""
    monkeypatch.chdir(tmp_path)

    def shown(*args: str) -> str:
        run(list(args))
        text = "".join(capsys.readouterr())
        assert not (found := OBEYED.search(text)), (args, text[found.start() - 60 :][:120])
        return text

    return shown


@pytest.mark.exhaustive
def test_values_of_options(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bench.run_sweep", "doctor.run_check", "tune.run", "doctor.hunt.run"):
        monkeypatch.setattr(f"collbench.{name}.drive_on_rank0", lambda *_: 0)
    monkeypatch.setattr("collbench.bench.run_overlap.run_overlap", lambda *_: 0)
    results = str(PROFILES / "results" / "h200x8-published.csv")
    shown(NASTY)
    for name in _COMMANDS:
        shown(name, NASTY)
        shown(name, f"--{NASTY}")
    for name, param in options():
        option = max(param.opts, key=len)
        needed = {"compare": [results], "topo": ["--machine", "dgx-1v"]}.get(name, [])
        for value in (NASTY, f"a,{NASTY}"):
            if not param.is_flag:
                shown(name, *(needed if option != "--machine" else []), f"{option}={value}")


@pytest.mark.exhaustive
def test_names_of_files(shown: Shown) -> None:
    """Also with bytes that are no text."""
    for name in (f"a{NASTY}", "no\udcfftext"):
        Path(f"{name}.csv").write_bytes((PROFILES / "results" / "h200x4.csv").read_bytes()[:20000])
        for more in ([], ["--html", f"{name}.html"], ["--plot", f"{name}.svg"]):
            assert "cut and left out" in shown("compare", f"{name}.csv", *more)
        shown("compare", f"{name}.csv", str(PROFILES / "results" / "h200x4.csv"))
        shown(*MODEL, "--sizes", "1K", "--csv", f"{name}.csv", "--resume")
        ElementTree.parse(f"{name}.svg")
        shown("topo", "--svg", f"{name}.svg", "--record", f"{name}.json")
        ElementTree.parse(f"{name}.svg")


CHECKED = ("op", "dtype", "redop", "status", "schema", "ranks", "time_us", "repeat_times_us")


@pytest.mark.exhaustive
def test_cells_of_our_csv(shown: Shown) -> None:
    """Those that are checked, each in a file of its own, which is refused; then all others."""
    words = [*MODEL, "--sizes", "1K", "--algo", "ring", "--csv", "rows.csv"]
    file = Path("rows.csv")
    shown(*words)
    (row,) = read(file)

    def line(name: str, text: str) -> str:
        cells = dict(zip(COLUMNS, to_line(row).rstrip("\n").split(","), strict=True))
        return ",".join({**cells, name: cells[name] + text}.values()) + "\n"

    for name in CHECKED:
        file.write_text(header() + line(name, NASTY.replace("\r", "")))
        assert "\\x1b" in shown(*words, "--resume")
        shown("compare", "rows.csv")
    others = [name for name in named("text") if name not in CHECKED]
    for text in (NASTY.replace("\r", ""), NASTY.replace("\r", "").replace("\x07\x08", "")):
        file.write_text(header() + to_line(row) + "".join(line(name, text) for name in others))
        shown(*words, "--resume", "--dry-run")
        shown(*words, "--resume")
        for more in ([], ["--env"], ["--all"], ["--against", "h200x4"]):
            shown("compare", "rows.csv", *more)
    Path("other.csv").write_text(file.read_text() + to_line(row))
    for base in ([], ["other.csv"]):
        assert "x1b" in shown("compare", "rows.csv", *base, "--all")
        shown("compare", "rows.csv", *base, "--html", "page.html")
        assert not OBEYED.search(Path("page.html").read_text())
    shown("compare", "rows.csv", "--plot", "plot.svg")
    ElementTree.parse("plot.svg")
    file.write_text(NASTY)
    for command in (["compare", "rows.csv"], words):
        assert "Error: " in shown(*command)
    assert file.read_bytes() == NASTY.encode()


@tiered("file", sorted(DATA.glob("*.txt")), 2, ids=lambda file: str(file.name))
def test_results_of_other_tools(shown: Shown, file: Path) -> None:
    for text in nasty_texts(file.read_text(), 12):
        Path("result.txt").write_text(text)
        shown("compare", "result.txt")
        shown("compare", "result.txt", str(file))


def nasty_texts(text: str, count: int) -> Iterator[str]:
    """A text with what a terminal obeys at some places, one at a time."""
    ends = [match.end() for match in re.finditer(r"\w+", text)]
    for place in ends[:: max(1, len(ends) // count)]:
        yield text[:place] + NASTY.replace("\r", "").replace("\x0b", "") + text[place:]


@tiered("file", sorted(OWN.iterdir()), 1, ids=lambda file: str(file.name))
def test_topologies_of_other_tools(shown: Shown, file: Path) -> None:
    """XML keeps out most of it; what it lets through is put into the values of some names."""
    text = file.read_text()
    if file.suffix == ".xml":
        values = {match[1]: match.end(2) for match in re.finditer(r'([\w:]+)="([^"]*)"', text)}
        ends = list(values.values())
        ends = ends[:: max(1, len(ends) // 12)]
        texts = [text[:place] + IN_XML + text[place:] for place in ends]
    else:
        texts = list(nasty_texts(text, 6))
    for changed in texts:
        Path("machine").write_text(changed)
        shown("topo", "--from", "machine", *VIEWS)
        shown("topo", "--from", "machine", "--svg", "machine.svg")
        shown("topo", "--from", "machine", "--xml")
        if Path("machine.svg").exists():
            ElementTree.parse("machine.svg")


def changed_strings(value: object, seen: set[str], key: str = "") -> Iterator[object]:
    """A document of JSON with one of its strings changed, and one for each key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            for other in changed_strings(inner, seen, f"{key} {name}"):
                yield {**value, name: other}
            if key + name not in seen:
                seen.add(key + name)
                yield {**value, name + NASTY: inner}
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            for other in changed_strings(inner, seen, key):
                yield [*value[:place], other, *value[place + 1 :]]
    elif key not in seen:
        seen.add(key)
        yield f"{value if isinstance(value, str) else ''}{NASTY}"


@pytest.mark.exhaustive
def test_json_of_machines_and_recordings(shown: Shown) -> None:
    shown("topo", "--record", "recording.json")
    for text in (topology_json.write(dgx1v()), Path("recording.json").read_text()):
        for document in changed_strings(json.loads(text), set()):
            Path("machine.json").write_text(json.dumps(document))
            shown("topo", "--from", "machine.json", *VIEWS)
            shown("topo", "--from", "machine.json", "--svg", "machine.svg")
            ElementTree.parse("machine.svg") if Path("machine.svg").exists() else None


@pytest.mark.exhaustive
def test_toml_of_machines_and_presets(shown: Shown) -> None:
    spelled = json.dumps(NASTY)[1:-1].replace("\x7f", "\\u007f")
    for kind, name in (("machines", "dgx-1v"), ("machines", "cpu-2"), ("sweeps", "quick")):
        text = (PROFILES / kind / f"{name}.toml").read_text()
        places = [match.end(1) for match in re.finditer(r'"([^"\n]*)"', text)]
        changes = [
            text[:place] + spelled + text[place:] for place in places[:: len(places) // 12 or 1]
        ]
        changes += [text + f'\n["{spelled}"]\nx = 1\n', text + f'\n"{spelled}" = 1\n', text + NASTY]
        for changed in changes:
            Path("file.toml").write_text(changed)
            if kind == "machines":
                shown("topo", "--machine", "file.toml", "--tree", "--rates")
                shown(*MODEL, "--machine", "file.toml", "--sizes", "1K", "--algo", "ring")
            else:
                shown("sweep", "--preset", "file.toml", "--backend", "model", "--dry-run")


def test_names_of_hosts_and_the_environment(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: f"host{NASTY}")
    for name in ("FI_PROVIDER", "NCCL_ALGO", "OMPI_COMM_WORLD_RANK", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, NASTY)
    shown("sweep", "--backend", "cpu", "--ranks", "2", "--sizes", "1K", "--algo", "ring,star")
    shown("topo", *VIEWS)


def test_documents_are_spelled_out_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda is_terminal=is_terminal: is_terminal)
        document_on_stdout().write("a\x1b[2J\u202e\n")
        assert capsys.readouterr().out == (
            "a\\x1b[2J\\u202e\n" if is_terminal else "a\x1b[2J\u202e\n"
        )


def test_our_colours_stay(capsys: Capture) -> None:
    """And nothing else does beside them; colours of a matrix: test_topo_cli."""
    say(click.style("a\x1b[2J\x1b[8mb", fg="red", bold=True), color=True)
    assert capsys.readouterr().out == "\x1b[31m\x1b[1ma\\x1b[2J\\x1b[8mb\x1b[0m\n"


@pytest.mark.parametrize(
    ("color", "variable", "has_colours"),
    [("auto", "", True), ("auto", "1", False), ("always", "1", True), ("never", "", False)],
)
def test_no_color_is_heard(
    color: str, variable: str, has_colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty NO_COLOR counts as none (no-color.org)."""
    monkeypatch.setenv("NO_COLOR", variable)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert is_coloured(color, sys.stdout) == has_colours
