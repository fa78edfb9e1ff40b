"""`hunt --from`: files of pairs, what is shown of them at several widths, documents and exit codes;
and options that contradict each other.
"""

from functools import partial
from pathlib import Path

import pytest

from collbench.bench.pairwise import Pairs
from collbench.core.errors import RankLostError
from collbench.core.pairwise import COLUMNS, PairSample, csv_line, sample_line
from collbench.doctor.hunt.read import read
from collbench.doctor.hunt.search import Search
from collbench.doctor.hunt.verdicts import analyse
from collbench.doctor.tables.hunt import lines
from tests.support.commands import Invoke, Said, Says, result_of, stdin_of
from tests.support.slow_pairs import world
from tests.support.tables import cells_of

JSON = ("--json", "-")
NCCL_TESTS = """# nccl-tests version 2.19.6
#  Rank  0 Group  0 Pid  71 on {a} device  0 [0000:1b:00] NVIDIA H100
#  Rank  1 Group  0 Pid  72 on {b} device  0 [0000:1b:00] NVIDIA H100
   8388608  2097152  float  sum  -1  250.1  33.54  {gbs}  0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {gbs}
"""


@pytest.fixture
def invoke(invoke: Invoke) -> Invoke:
    return partial(invoke, "hunt")


@pytest.fixture
def judge(says: Says, tmp_path: Path) -> Says:
    """Writes a file of that text: what is said of it."""

    def judge(code: int, text: str, *args: str, **variables: str) -> Said:
        (tmp_path / "rates").write_text(text)
        return says(code, "--from", tmp_path / "rates", *args, **variables)

    return judge


def _pairs(hosts: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(hosts) for b in range(hosts) if a != b]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Eight hosts, of which node5 sends at half of the rate; in a CSV of somebody's."""
    file = tmp_path / "pairs.csv"
    rows = [
        f"node{a + 1},node{b + 1},b->a,{(5.0 if b == 4 else 10.0) + k / 20}"
        for k in range(3)
        for a, b in _pairs(8)
    ]
    file.write_text("\n".join(["src,dst,direction,busbw", *rows, ""]))
    return file


@pytest.mark.parametrize(
    ("fault", "code"), [(RankLostError("rank 1 is gone"), 4), (KeyboardInterrupt(), 130)]
)
@pytest.mark.parametrize("is_slow", [False, True])
def test_a_hunt_that_ends_early_calls_nothing_good(
    says: Says,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
    code: int,
    is_slow: bool,
) -> None:
    """Even after measurements that would be enough; a rank that is slow for sure stays so."""

    def end_early(search: Search) -> None:
        search.samples += [
            PairSample(a=a, b=b, gbs=(5.0 if is_slow and a == 2 else 10.0) + k / 20, waits="h1")
            for k in range(12)
            for a, b in _pairs(3)
        ]
        raise fault

    monkeypatch.setattr(Search, "run", end_early)
    monkeypatch.setattr(Pairs, "busy_hosts", lambda _: {"h1": "h1 (load 9.0 on 2 cores)"})
    files = {name: tmp_path / name for name in ("json", "junit", "prometheus", "bad")}
    words = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    out = says(code, "--backend", "cpu", "--ranks", "3", "--size", "1K", *words).out
    assert "The hunt ended early, after 3 pairs." in out
    assert "Nothing is slow" not in out
    document = result_of(files["json"].read_text())
    assert document["verdict"] == ("FAIL" if is_slow else "UNKNOWN")
    assert document["waits"] == ["h1"]
    grade = "bad" if is_slow else "unknown"
    assert f'grade="{grade}"}} 1' in files["prometheus"].read_text()
    assert ('<error message="cannot tell" />' in files["junit"].read_text()) != is_slow
    assert files["bad"].exists() == is_slow


def test_a_csv_of_anybody_is_judged(says: Says, pairs: Path) -> None:
    out = says(1, "--from", pairs).out
    assert out.splitlines()[1].split() == [f"node{host}" for host in range(1, 9)]
    assert "SLOW  host node5, sending: slow by 1.99x" in out
    assert "7 of 7 partners slow" in out
    assert "\x1b" not in out
    assert "\x1b[31m" in says(1, "--from", pairs, "--color", "always").out


def test_names_of_hosts_are_cut_only_where_there_is_no_room(judge: Says) -> None:
    text = "".join(f"node{a + 1} node{b + 1} 9.9\n" for a, b in _pairs(10))
    for columns, last in (("80", "node10"), ("62", "de10")):
        heads = judge(0, text, COLUMNS=columns).out.splitlines()[1]
        assert heads.split()[-1] == last


def test_the_result_is_a_document(says: Says, pairs: Path) -> None:
    told = says(1, "--from", pairs, *JSON)
    document = told.result
    assert (document["verdict"], len(document["samples"])) == ("FAIL", 3 * 56)
    (verdict,) = document["verdicts"]
    assert (verdict["kind"], verdict["key"], verdict["flow"]) == ("host", [4], "out")
    assert "SLOW  host node5" in told.err


def test_outputs_of_nccl_tests_on_pairs(judge: Says) -> None:
    text = "".join(
        NCCL_TESTS.format(a=f"n{a}", b=f"n{b}", gbs=20.0 if 3 in (a, b) else 40.0 + k / 10)
        for k in range(3)
        for a, b in _pairs(6)
    )
    out = judge(1, text).out
    assert "SLOW  host n3 as a host: slow by 2.0" in out


def test_rates_of_nccl_tests_may_have_exponents(tmp_path: Path) -> None:
    file = tmp_path / "runs.txt"
    file.write_text("".join(NCCL_TESTS.format(a="x", b="y", gbs=gbs) for gbs in ("1e5", "9.5e-05")))
    assert [one.gbs for one in read([file])[1]] == [1e5, 9.5e-5]


def test_a_run_of_nccl_tests_with_wrong_data_has_no_rate(judge: Says) -> None:
    good = NCCL_TESTS.format(a="x", b="y", gbs=20)
    bad = good.replace("20  0", "20  7").replace("0 OK", "7 FAILED")
    err = judge(1, good + bad + good).err
    assert "1 measurement failed, the first of ranks 0 and 1: wrong data" in err
    assert "Error: no pair has a rate" in judge(3, bad).err


def test_each_of_several_files_must_have_a_pair(says: Says, tmp_path: Path) -> None:
    good, empty = tmp_path / "good.csv", tmp_path / "empty.csv"
    good.write_text("a,b,gbs\nx,y,1\n")
    empty.write_text("a,b,gbs\n")
    assert f"{empty}: no rate of any pair" in says(2, "--from", good, "--from", empty).err


def test_stdin(says: Says, pairs: Path) -> None:
    expected = says(1, "--from", pairs)
    with stdin_of(pairs):
        assert says(1, "--from", "-") == expected
    with stdin_of(pairs):
        assert says(1, "--from", "-", *JSON).result["verdict"] == "FAIL"


def test_our_own_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    ranks = world(2, 2)
    samples = [
        PairSample(a=3, b=0, gbs=1.5, mode="together", sharing=2, size_bytes=8),
        PairSample(a=0, b=1, gbs=2.5, is_both=True),
        PairSample(a=1, b=2, gbs=None, reason="3 bytes came out wrong", where="network"),
    ]
    file = tmp_path / "own.csv"
    file.write_text(csv_line(COLUMNS) + "".join(sample_line(one, ranks) for one in samples))
    assert read([file]) == (ranks, samples)


def test_a_clean_file_says_so(judge: Says) -> None:
    rows = [f"n{a},n{b},{10 + k / 20}" for k in range(3) for a, b in _pairs(4)]
    out = judge(0, "\n".join(["a,b,gbs", *rows])).out
    assert "Nothing is slow: " in out


def test_what_is_too_little_to_name_is_not_called_clean(judge: Says) -> None:
    rows = [f"n{a},n{b},{1 if (a, b) == (0, 2) else 10}" for a, b in _pairs(4)]
    out = judge(5, "\n".join(["a,b,gbs", *rows])).out
    assert out.count("UNKNOWN  ") == 1
    assert "but 1 pair is below 80 % of the median, the slowest n0 - n2." in " ".join(out.split())
    assert "Nothing is slow" not in out


@pytest.mark.parametrize("form", ["{a} {b} {rate}", "{b},{a},{rate}", "{a}\t{b} {rate} GB/s # 1"])
def test_plain_lines_in_any_order(judge: Says, form: str) -> None:
    lines = [
        form.format(a=f"n{a}", b=f"n{b}", rate=(24.0 if 2 in (a, b) else 48.0) + (a * b) / 50)
        for a, b in _pairs(5)[::-1]
        if a < b
    ]
    found = judge(1, "\n".join(["# hosts, GB/s", "", *lines, ""]), *JSON).result
    (verdict,) = found["verdicts"]
    assert (found["verdict"], verdict["kind"], verdict["key"]) == ("FAIL", "host", [2])
    assert verdict["effects"]["alone"]["of"] == 4


def test_too_few_pairs_are_unknown_unless_the_rate_of_a_good_one_is_given(judge: Says) -> None:
    found = judge(5, "n1 n2 49.3\n", *JSON).result
    assert (found["verdict"], found["verdicts"]) == ("UNKNOWN", [])
    found = judge(1, "n1 n2 49.3\n", *JSON, "--rate", "98.6").result
    (verdict,) = found["verdicts"]
    assert verdict["kind"] == "all"
    assert verdict["effects"]["alone"]["factor"] == pytest.approx(2)


def test_a_host_without_a_rate_is_not_called_good(judge: Says) -> None:
    rows = [
        f"n{a},n{b},{10 + k / 20},{'error' if 3 in (a, b) else 'ok'}"
        for k in range(3)
        for a, b in _pairs(4)
    ]
    found = judge(1, "\n".join(["a,b,gbs,status", *rows]), *JSON).result
    assert (found["verdict"], found["answer"]) == ("FAIL", "cannot tell")
    assert found["unjudged"] == ["n3"]


def test_a_direction_without_a_rate_is_not_called_good(judge: Says) -> None:
    ways = [f"n{a + 1},n{b + 1},a->b,24.{a}" for a, b in _pairs(8) if b != 4]
    text = "\n".join(["a,b,direction,gbs", *ways])
    found = judge(5, text, *JSON).result
    assert found["verdict"] == "UNKNOWN"
    assert found["unmeasured"] == "not tested: host n5 receiving"
    out = judge(1, text.replace("n3,n4,a->b,24", "n3,n4,a->b,6")).out
    assert "Not tested: host n5 receiving." in out
    many = "\n".join(f"m{k},n{k},a->b,24" for k in range(9))
    found = judge(5, f"a,b,direction,gbs\n{many}", *JSON).result
    assert found["unmeasured"].endswith("host m3 receiving and 14 more")


def test_a_host_that_all_readings_name_is_bad(judge: Says) -> None:
    """Only its direction is open, or whether it is all of it or its one rail that was measured."""
    text = "a,b,direction,gbs\nn1,n2,a->b,24\nn1,n3,a->b,12\nn2,n3,a->b,12\n"
    found = judge(1, text, *JSON).result
    (verdict,) = found["verdicts"]
    assert not verdict["is_certain"]
    assert "bad: n3\n" in judge(1, text, "--bad", "-").out
    lines = [
        f"n{a},n{b},{gpu},{gpu},{5 if 2 in (a, b) else 10}"
        for a, b in _pairs(4)
        for gpu in (0, 1)
        if gpu == 0 or 2 not in (a, b)
    ]
    text = "\n".join(["a,b,gpu_a,gpu_b,gbs", *lines])
    found = judge(1, text, *JSON).result
    assert {name.split()[0] for one in found["verdicts"] for name in one["same"]} == {"rail"}
    assert "bad: n2\n" in judge(1, text, "--bad", "-").out


def test_two_equal_hosts_are_unknown_unless_the_rate_of_a_good_pair_is_given(judge: Says) -> None:
    text = "a,b,direction,gbs\n" + 3 * "n1,n2,a->b,12\nn1,n2,b->a,12\n"
    assert "Nothing tells n1 and n2 apart" in judge(5, text).out
    found = judge(0, text, *JSON, "--rate", "12").result
    assert (found["verdict"], found["least_factor"]) == ("PASS", 1.25)


def test_a_pair_that_was_given_in_both_orders_has_both_rates(judge: Says) -> None:
    out = judge(5, "a,b,gbs\nn1,n2,24.1\nn2,n1,10\n").out
    assert [line.split() for line in out.splitlines()[2:4]] == [
        ["n1", "X", "24.10"],
        ["n2", "10.00", "X"],
    ]
    assert "1 pair is below 80 % of the median" in " ".join(out.split())


@pytest.mark.parametrize(("text", "match"), cells_of(__file__, "broken-pairs.tsv"))
def test_broken_files_are_usage_errors(judge: Says, text: str, match: str) -> None:
    """@: an output of nccl-tests of two hosts and a rate, and so much of a second one."""
    if text[:1] == "@":
        x, y, gbs, *cut = text[1:].split()
        text = NCCL_TESTS.format(a=x, b=y, gbs=gbs) + NCCL_TESTS[: int(*cut)]
    out, err = judge(2, text)
    assert out == ""
    assert match in err
    assert "Hint: " in err


def test_of_many_hosts_the_slower_direction_is_shown() -> None:
    ranks = world(40, 1)
    samples = [PairSample(a=a, b=b, gbs=5.0 if a == 7 else 10.0) for a, b in _pairs(40)]
    shown = lines(analyse(samples, ranks), ranks, samples, 40)
    start = next(place for place, line in enumerate(shown) if line.startswith("The slowest of 40"))
    rows = [line.split() for line in shown[start:] if line.startswith(ranks.hosts[7])]
    assert rows[0] == [ranks.hosts[7], "sends", "5.00", "50%"]
    both = [PairSample(a=a, b=b, gbs=10.0, is_both=True) for a, b in _pairs(40) if a < b]
    shown = lines(analyse(both, ranks), ranks, both, 40)
    assert any(line.split()[1:] == ["both", "10.00", "100%"] for line in shown)


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("shape", [(2, 1), (16, 1), (24, 1), (4, 8), (64, 1), (300, 2)])
def test_lines_fit_the_screen(columns: int, shape: tuple[int, int]) -> None:
    ranks = world(*shape)
    some = range(0, ranks.n, max(1, ranks.n // 24))
    samples = [
        PairSample(a=a, b=b, gbs=12.345 if a else 1.0, mode="together")
        for a in some
        for b in some
        if a != b
        for _ in range(12 if ranks.n == 2 else 3)
    ]
    shown = lines(analyse(samples, ranks), ranks, samples, columns)
    assert max(map(len, shown)) <= columns
    assert any(line.startswith("SLOW  ") for line in shown)
