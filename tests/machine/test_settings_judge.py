"""Settings: which lines and files NCCL reads, what wins, what is found in them, and what is not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.machine.settings.files import Setting, gather, parse, paths
from collbench.machine.settings.judge import SettingProblem, judge
from collbench.machine.settings.table import known
from collbench.machine.settings.values import is_same
from tests.support.runs import SHARED
from tests.support.tables import cells_of

LOGS = SHARED / "nccl-logs"
NAMES = sorted(known().by_name)
CLEAN = {row[0]: row[1] for row in cells_of(__file__, "clean-settings.tsv")}


def problems_of(text: str, version: str | None = None) -> list[SettingProblem]:
    """The problems of settings written as NAME=VALUE with blanks between them."""
    pairs = [part.partition("=") for part in text.split()]
    return judge([Setting(name, value) for name, _, value in pairs], version)


def test_a_clean_environment_has_no_problem() -> None:
    assert judge(gather(CLEAN), "2.28.9", ["several hosts"]) == []
    assert judge([], None) == []


@pytest.mark.parametrize("cells", cells_of(__file__, "settings.tsv"))
def test_what_is_said_of_settings(cells: list[str]) -> None:
    settings, version, kinds, *words = cells
    problems = problems_of(settings, None if version == "-" else version)
    found = (f"{one.kind} {one.severity}{'*' * one.may_cost}" for one in problems)
    assert (", ".join(found) or "-") == kinds
    said = (f"{' '.join(one.names)}: {one.seen} {one.why} {one.fix}" for one in problems)
    pattern = ".*".join(re.escape(one) for text in words for one in text.split(" ... "))
    assert re.search(pattern, " ".join(said))
    for one in problems:
        assert one.fix.endswith((".", "?"))
        if one.kind == "bad-value":
            assert one.seen in settings.split() and one.seen.endswith(f"={one.value}")
        if one.kind in ("costs", "leftover"):
            assert one.seen.startswith(tuple(settings.split())) and one.fix.startswith("Unset ")


@pytest.mark.parametrize("name", ["NCCL_FROBNICATE", "NCCL_", "NCCL_" + "X" * 500])
def test_a_name_like_no_other_is_a_remark(name: str) -> None:
    (problem,) = judge([Setting(name, "1")])
    assert (problem.kind, problem.severity, problem.names) == ("unknown", "remark", (name,))


def test_a_list_has_no_blanks() -> None:
    (blank,) = judge([Setting("NCCL_SOCKET_IFNAME", "eth0, eth1")])
    assert (blank.kind, blank.fix) == ("bad-value", "Write it without blanks.")


def test_facts_of_the_machine_decide() -> None:
    lo = [Setting("NCCL_SOCKET_IFNAME", "=lo")]
    assert [one.kind for one in judge(lo, facts=["several hosts"])] == ["contradiction", "costs"]
    excluded = [Setting("NCCL_SOCKET_IFNAME", "^lo,docker")]
    assert [one.kind for one in judge(excluded, facts=["several hosts"])] == ["costs"]
    visible = [Setting("CUDA_VISIBLE_DEVICES", "0")]
    assert [one.severity for one in judge(visible, facts=["mixed GPUs"])] == ["remark"]


def test_files_lose_against_the_environment_and_keep_blanks() -> None:
    text = (
        'NCCL_DEBUG=INFO\n NCCL_ALGO=Ring\ndeclare -x NCCL_PROTO=LL\nNCCL_NET="IB"\nNCCL_DEBUG=INFO'
    )
    problems = judge(gather({"NCCL_DEBUG": "WARN"}, [("/etc/nccl.conf", text)]))
    assert [(one.kind, one.source, one.names[0]) for one in problems] == [
        ("unknown", "/etc/nccl.conf line 2", " NCCL_ALGO"),
        ("unknown", "/etc/nccl.conf line 3", "declare -x NCCL_PROTO"),
        ("bad-value", "/etc/nccl.conf line 4", "NCCL_NET"),
        ("overridden", "/etc/nccl.conf line 1", "NCCL_DEBUG"),
        ("overridden", "/etc/nccl.conf line 5", "NCCL_DEBUG"),
    ]
    assert problems[0].fix == "Write NCCL_ALGO=Ring."
    assert problems[3].seen == "NCCL_DEBUG=INFO in /etc/nccl.conf line 1"
    assert problems[3].why == "It has no effect: 'WARN' of the environment wins."
    (costly,) = judge(gather({}, [("f", "NCCL_P2P_DISABLE=1\nNCCL_P2P_DISABLE=1")]))
    assert (costly.kind, costly.fix) == ("costs", "Remove it from f line 1.")


@pytest.mark.parametrize(
    ("name", "value", "source", "fix"), cells_of(__file__, "quoted-settings.tsv")
)
def test_quotation_marks_and_blanks_belong_to_a_value(
    name: str, value: str, source: str, fix: str
) -> None:
    (problem,) = judge([Setting(name, value, source)])
    assert (problem.kind, problem.fix) == ("bad-value", fix)
    assert [one.kind for one in judge([Setting("NCCL_P2P_DISABLE", "0 ", "f line 1")])] == []


def test_long_values_are_cut() -> None:
    kept, cut = (judge([Setting("NCCL_HOSTID", "h" * count)])[0] for count in (60, 61))
    assert kept.seen.endswith(f"={'h' * 60}") and cut.seen.endswith(f"={'h' * 60}...")
    assert cut.value == "h" * 61


@pytest.mark.parametrize(
    ("name", "one", "other", "expected"), cells_of(__file__, "same-settings.tsv")
)
def test_values_that_mean_the_same(name: str, one: str, other: str, expected: str) -> None:
    variable, is_expected = known().by_name[name], expected == "yes"
    assert is_same(variable, one, other) is is_same(variable, other, one) is is_expected


@pytest.mark.parametrize(("name", "value"), cells_of(__file__, "taken-settings.tsv"))
def test_what_a_reader_takes_is_no_bad_value(name: str, value: str) -> None:
    kinds = [one.kind for one in judge([Setting(name, value)], "2.28.9")]
    assert set(kinds) <= {"costs"}


VALUES = st.one_of(
    st.text(),
    st.text("0123456789xXeE+-.,;:^|=kKmMgG ~'\"\n"),
    st.sampled_from(["9" * 5000, "0x" + "f" * 99, "^", ";", ":", "ring;:", "=", "\x00", "٣", "²"]),
)
ANY_SETTING = st.builds(
    Setting,
    st.one_of(st.text(), st.sampled_from(NAMES), st.text().map("NCCL_".__add__)),
    VALUES,
    st.sampled_from(["environment", "f line 1"]),
)


@given(st.lists(ANY_SETTING, max_size=6), st.one_of(st.none(), st.text(), st.just("2.28.9")))
def test_any_text_is_judged(settings: list[Setting], version: str | None) -> None:
    names = {setting.name for setting in settings}
    for problem in judge(settings, version, ["several hosts", "mixed GPUs"]):
        assert problem.names[0] in names and problem.seen and problem.why and problem.fix


@pytest.mark.skipif(not LOGS.is_dir(), reason="needs shared/data/nccl-logs")
def test_settings_in_real_logs_are_known() -> None:
    found = {
        Setting(*match.groups())
        for file in LOGS.iterdir()
        for match in re.finditer(r"(\w+) set by environment to (.+?)\.?\n", file.read_text())
    }
    assert {setting.name for setting in found} == {
        "NCCL_NVLS_ENABLE",
        "NCCL_P2P_DISABLE",
        "NCCL_SHM_DISABLE",
    }
    for setting in found:
        assert {one.kind for one in judge([setting], "2.28.9")} == {"costs"}


def test_a_default_is_that_of_the_version() -> None:
    timeout = [Setting("NCCL_IB_TIMEOUT", "18")]
    assert judge(timeout, "2.21.5") == [] and judge(timeout, "2.28.9")
    newer = [Setting("NCCL_IB_TIMEOUT", "20")]
    assert judge(newer, "2.21.5") and judge(newer, "2.28.9") == judge(newer) == []


def test_lines_are_read_as_nccl_reads_them() -> None:
    text = "# NCCL_A=1\nNCCL_B=2\r\n\nNCCL_C\n NCCL_D=3 \nNCCL_E==eth0\nNCCL_F=\n=7\nNCCL_G=8"
    assert [(one.name, one.value, one.source) for one in parse(text, "f")] == [
        ("NCCL_B", "2", "f line 2"),
        (" NCCL_D", "3 ", "f line 5"),
        ("NCCL_E", "=eth0", "f line 6"),
        ("NCCL_F", "", "f line 7"),
        ("NCCL_G", "8", "f line 9"),
    ]


def test_the_named_file_replaces_the_one_at_home() -> None:
    assert paths({}) == ("/etc/nccl.conf",)
    assert paths({"HOME": "/h", "NCCL_CONF_FILE": ""}) == ("/h/.nccl.conf", "/etc/nccl.conf")
    assert paths({"HOME": "/h", "NCCL_CONF_FILE": "c"}) == ("c", "/etc/nccl.conf")


def test_what_wins_comes_first() -> None:
    files = [("user", "NCCL_DEBUG=WARN"), ("system", "NCCL_DEBUG=INFO")]
    assert gather({"NCCL_DEBUG": "TRACE"}, files) == (
        Setting("NCCL_DEBUG", "TRACE"),
        Setting("NCCL_DEBUG", "WARN", "user line 1"),
        Setting("NCCL_DEBUG", "INFO", "system line 1"),
    )


@given(st.text())
def test_any_text_is_a_file(text: str) -> None:
    for setting in parse(text, "f"):
        assert f"{setting.name}={setting.value}" in text
        assert setting.name and not setting.name.startswith("#")
