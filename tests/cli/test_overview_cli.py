"""`collbench` without a command, and the envelope that the results of all commands share."""

import json
import re
from pathlib import Path

import pytest

from collbench.doctor.check_verdict import CheckLine
from collbench.doctor.run_overview import Overview, _fields, numbers
from tests.support.commands import MODEL, Invoke, Says
from tests.support.frames import records, row
from tests.support.json_shape import SCHEMA, check_shape

HERE = Path(__file__).parent.parent.parent
EXAMPLES = HERE / "docs" / "examples"


def line(verdict: str, **more: object) -> CheckLine:
    return CheckLine(name="allreduce 4M", verdict=verdict, unit="GB/s", **more)  # type: ignore[arg-type]


def test_it_says_what_this_machine_is_and_what_to_do_next(invoke: Invoke) -> None:
    code, out, _ = invoke()
    titles = [text.split()[0] for text in out.splitlines() if text[0] != " "]
    assert (titles[0], titles[-1]) == ("machine", "next")
    assert code == (5 if "UNKNOWN" in titles else 0)
    assert set(titles) & {"PASS", "WARN", "UNKNOWN"}
    assert set(titles) & {"latency", "measured"}  # the latter where a busy machine left no time
    assert out.splitlines()[-1].split()[1] == "collbench"


@pytest.mark.exhaustive
def test_it_is_json_too(invoke: Invoke) -> None:
    code, out, _ = invoke("--json")
    document = json.loads(out)
    check_shape(document)
    assert document["command"] == "collbench --json"
    assert document["verdict"] in ("PASS", "WARN", "UNKNOWN") and document["data"]["reason"]
    assert code == (5 if document["verdict"] == "UNKNOWN" else 0)
    assert all(row["op"] == "allreduce" for row in document["data"]["rows"])


@pytest.mark.parametrize(
    ("lines", "busy", "told"),
    [
        ([line("PASS", value=9.0, source="h200x4")], "", ("PASS", "as fast as h200x4")),
        ([line("PASS", value=9.0, source="h200x4")], "by cc", ("PASS", "as fast as h200x4")),
        (
            [line("FAIL", value=1.0, expected=9.0, source="h200x4", detail="11%")],
            "",
            ("FAIL", "allreduce 4M: 11% of what h200x4 has"),
        ),
        ([line("FAIL", detail="wrong: rank 1")], "", ("FAIL", "allreduce 4M: wrong: rank 1")),
        ([line("WARN", value=1.0)], "by cc", ("UNKNOWN", "busy. by cc")),
        (
            [line("UNKNOWN", value=1.0)],
            "",
            ("UNKNOWN", "nothing is known that these numbers could be held against"),
        ),
        (
            [line("UNKNOWN", value=1.0, expected=9.0, detail="~11%")],
            "",
            ("UNKNOWN", "repeats differ too much to judge by"),
        ),
    ],
)
def test_the_verdict_has_its_reason(
    lines: list[CheckLine], busy: str, told: tuple[str, str]
) -> None:
    found = Overview(machine="cores", rows=[], lines=lines, busy=busy)
    assert (found.verdict, found.reason) == told
    assert found.next.startswith("collbench")


def test_it_says_how_near_the_bounds_are() -> None:
    quick = row((10.0,), size_bytes=1024, of_floor=40.0)
    large = row((90.0,), size_bytes=1 << 22, of_floor=20.0, percent=80.0)
    rows = records(quick, large)
    assert numbers(rows)[2] == ("of max", "40% of the floor at 1K; 80% of the ceiling at 4M")
    unknown = records(quick, row((90.0,), size_bytes=1 << 22))
    assert numbers(unknown)[2][1].endswith("not known at 4M")


def test_the_json_has_the_bounds_of_noise_that_the_screen_has() -> None:
    (noise,) = records(row((60.0, 100.0, 190.0), size_bytes=1024, notes="noisy"))
    found = _fields(noise)
    assert (found["is_noise"], found["time_us"]) == (True, 60.0)
    assert found["busbw_gbs"] == pytest.approx((noise.busbw_gbs or 0) * 100 / 60)


@pytest.mark.parametrize(
    "args",
    [
        ("algos", "--op", "broadcast"),
        (*MODEL, "--sizes", "1K"),
        ("runs",),
        ("tune", "--show"),
        ("topo", "--machine", "dgx-1v"),
        ("predict", "--machine", "hgx-h100", "--hosts", "2", "--sizes", "1M"),
        ("compare", str(HERE / "profiles/results/h100x2.csv")),
    ],
)
def test_every_result_is_json_in_one_envelope(
    says: Says, args: tuple[str, ...], home: Path
) -> None:
    document = json.loads(says(0, *args, "--json").out)
    check_shape(document)
    assert document["command"].startswith(f"collbench {args[0]}")
    assert isinstance(document["data"], list | dict)


@pytest.mark.parametrize(
    "args",
    [
        ("doctor", "--only", "shm-size"),  # a check is in test_check_cli.py
        ("hunt", "--from", str(EXAMPLES / "pairs.csv")),
        ("compare", str(EXAMPLES / "first-run.csv"), str(EXAMPLES / "slower-run.csv")),
    ],
)
def test_what_judges_has_the_form_that_is_documented(args: tuple[str, ...], invoke: Invoke) -> None:
    check_shape(json.loads(invoke(*args, "--json")[1]))
    judges = {rule["if"]["properties"]["command"]["pattern"] for rule in SCHEMA["allOf"]}
    assert sum(bool(re.search(one, f"collbench {' '.join(args)}")) for one in judges) == 1
