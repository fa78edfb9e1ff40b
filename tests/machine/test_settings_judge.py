"""What is found in settings, and what is not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.machine.settings.files import Setting, gather
from collbench.machine.settings.judge import SettingProblem, judge
from collbench.machine.settings.table import known
from collbench.machine.settings.values import is_same
from tests.support.runs import SHARED

LOGS = SHARED / "nccl-logs"
NAMES = sorted(known().by_name)
CLEAN = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/root",
    "LD_LIBRARY_PATH": "/usr/local/nccl/lib",
    "NCCL_VERSION": "2.28.9-1",
    "NCCL_DEBUG": "WARN",
    "NCCL_P2P_DISABLE": "0",
    "NCCL_NVLS_ENABLE": "1",
    "NCCL_IB_TIMEOUT": "0x14",
    "NCCL_IB_GID_INDEX": "-1",
    "NCCL_BUFFSIZE": "4194304",
    "NCCL_MIN_CTAS": "",
    "NCCL_DEBUG_SUBSYS": "env,init,bootstrap",
    "NCCL_FASTRAK_USE_SNAP": "1",
    "NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "CUDA_HOME": "/usr/local/cuda",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    "CUDA_CACHE_PATH": "/tmp/cache",
    "CUDA_LAUNCH_BLOCKING": "0",
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_MCA_orte_precondition_transports": "a-b",
    "PMIX_NAMESPACE": "job",
    "UCX_WARN_UNUSED_ENV_VARS": "yes",
    "SLURM_JOB_ID": "17",
    "HCCL_CONNECT_TIMEOUT": "600",
    "CCL_LOG_LEVEL": "info",
    "MPI4PY_RC_THREAD_LEVEL": "multiple",
}


def problems_of(text: str, version: str | None = None) -> list[SettingProblem]:
    """The problems of settings written as NAME=VALUE with blanks between them."""
    pairs = [part.partition("=") for part in text.split()]
    return judge([Setting(name, value) for name, _, value in pairs], version)


def test_a_clean_environment_has_no_problem() -> None:
    assert judge(gather(CLEAN), "2.28.9", ["several hosts"]) == []
    assert judge([], None) == []


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("NCCL_P2P_DISABLED=1", "NCCL_P2P_DISABLE"),
        ("NCCL_SOCKET_IFNAMES=eth0", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IB_HCAS=mlx5_0", "NCCL_IB_HCA"),
        ("NCCL_MAX_CHANNELS=4", "NCCL_MAX_NCHANNELS"),
        ("NCCL_BUFFER_SIZE=8388608", "NCCL_BUFFSIZE"),
        ("NCCL_ALGOS=Ring", "NCCL_ALGO"),
        ("NCLL_DEBUG=INFO", "NCCL_DEBUG"),
        ("nccl_debug=INFO", "NCCL_DEBUG"),
        ("CUDA_VISIBLE_DEVICE=0", "CUDA_VISIBLE_DEVICES"),
        ("CUDA_LAUNCH_BLOCKIN=1", "CUDA_LAUNCH_BLOCKING"),
    ],
)
def test_a_misspelt_name_is_an_error_with_the_name_that_was_meant(setting: str, hint: str) -> None:
    (problem,) = problems_of(setting)
    assert (problem.kind, problem.severity) == ("unknown", "error")
    assert f"did you mean {hint}?" in problem.seen and hint in problem.fix


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("NCCL_TIMEOUT=1800", "PyTorch's limit is the argument timeout of init_process_group."),
        ("NCCL_NVLS_DISABLE=1", "Write NCCL_NVLS_ENABLE=0."),
    ],
)
def test_a_name_that_scripts_set_and_nobody_reads_has_advice(setting: str, advice: str) -> None:
    (problem,) = problems_of(setting)
    assert (problem.kind, problem.severity, problem.fix) == ("unknown", "error", advice)
    assert problem.seen == f"NCCL does not read {setting.partition('=')[0]}"


@pytest.mark.parametrize("name", ["NCCL_FROBNICATE", "NCCL_", "NCCL_" + "X" * 500])
def test_a_name_like_no_other_is_a_remark(name: str) -> None:
    (problem,) = judge([Setting(name, "1")])
    assert (problem.kind, problem.severity, problem.names) == ("unknown", "remark", (name,))


@pytest.mark.parametrize(
    ("setting", "version", "text"),
    [
        ("NCCL_P2P_DISABLE=true", None, "is no number, and NCCL reads 0"),
        ("NCCL_P2P_DISABLE=2", None, "neither 0 nor 1"),
        ("NCCL_IB_DISABLE=1x", None, "has 'x' after the number, and NCCL reads 1"),
        ("NCCL_BUFFSIZE=8M", None, "NCCL reads 8"),
        ("NCCL_BUFFSIZE=0", None, "out of range"),
        ("NCCL_NTHREADS=100", None, "no multiple of 32"),
        ("NCCL_NTHREADS=1024", None, "out of range"),
        ("NCCL_MAX_CTAS=010", None, "octal number 8"),
        ("NCCL_MAX_CTAS=0", None, "out of range"),
        ("NCCL_MIN_CTAS=99999999999999999999999", None, "out of range"),
        ("NCCL_NVLS_ENABLE=3", None, "none of 0, 1, 2"),
        ("NCCL_P2P_LEVEL=nvl", None, "capitals matter"),
        ("NCCL_P2P_LEVEL=NVLINK", None, "none of LOC, NVL"),
        ("NCCL_DEBUG=ERROR", None, "none of VERSION, WARN"),
        ("NCCL_DEBUG_SUBSYS=INIT,^COLL", None, "^ inside"),
        ("NCCL_DEBUG_SUBSYS=INIT,GRPH", None, "'GRPH'"),
        ("NCCL_DEBUG_SUBSYS=RAS", "2.20.5", "knows from 2.24.3 on"),
        ("NCCL_ALGO=Rings", None, "'Rings'"),
        ("NCCL_ALGO=NVLSTree", "2.17.1", "knows from 2.18.1 on"),
        ("NCCL_ALGO=allreduce:Tree", "2.21.5", "by collective, known from 2.24.3"),
        ("NCCL_ALGO=allreduse:Tree", "2.28.9", "'allreduse'"),
        ("NCCL_ALGO=Ring;Tree", "2.28.9", "second list without a collective"),
        ("NCCL_PROTO=LL64", None, "none of LL, LL128, Simple"),
        ("NCCL_CTA_POLICY=ZERO|FAST", None, "'FAST'"),
        ("NCCL_SOCKET_FAMILY=IPv4", None, "none of AF_INET, AF_INET6"),
        ("NCCL_IB_RETRY_CNT=8", None, "out of range"),
        ("NCCL_TOPO_FILE=~/topology.xml", None, "does not expand"),
        ("CUDA_DEVICE_ORDER=pci_bus_id", None, "capitals matter"),
        ("CUDA_DEVICE_MAX_CONNECTIONS=64", None, "out of range"),
        ("UCX_RNDV_THRESH=8X", None, "is no size"),
        ("UCX_LOG_LEVEL=verbose", None, "none of fatal"),
        ("TORCH_NCCL_BLOCKING_WAIT=maybe", None, "neither yes nor no"),
    ],
)
def test_a_bad_value_is_named(setting: str, version: str | None, text: str) -> None:
    problem, *others = problems_of(setting, version)
    assert (problem.kind, problem.severity) == ("bad-value", "error")
    assert {other.kind for other in others} <= {"contradiction"}
    assert problem.seen == setting and text in problem.why
    assert problem.value == setting.partition("=")[2] and problem.fix.endswith(("?", "."))


def test_a_bad_value_may_cost_where_any_value_may() -> None:
    texts = ("NCCL_P2P_DISABLE=yes", "NCCL_IB_RETRY_CNT=8", "NCCL_DEBUG=ERROR")
    assert [problems_of(text)[0].may_cost for text in texts] == [True, False, False]


def test_a_bad_value_says_what_to_write() -> None:
    fixes = {
        "NCCL_BUFFSIZE=8M": "Write 8388608.",
        "NCCL_BUFFSIZE=0": "Write bytes from 1 on.",
        "NCCL_NTHREADS=100": "Write a number from 64 to 512 in steps of 32.",
        "NCCL_MAX_CTAS=99": "Write a number from 1 to 64.",
        "NCCL_IB_DISABLE=7": "Write 0 or 1.",
        "NCCL_ALGO=Rings": "Did you mean Ring?",
        "NCCL_ALGO=ALLREDUSE:Ring": "Did you mean allreduce?",
        "NCCL_DEBUG=ERROR": "Unset NCCL_DEBUG.",
        "NCCL_P2P_LEVEL=pix": "Write PIX.",
        "NCCL_SOCKET_IFNAME=ens3": "Unset NCCL_SOCKET_IFNAME, unless it is meant.",
    }
    assert {text: problems_of(text)[0].fix for text in fixes} == fixes
    (blank,) = judge([Setting("NCCL_SOCKET_IFNAME", "eth0, eth1")])
    assert (blank.kind, blank.fix) == ("bad-value", "Write it without blanks.")


@pytest.mark.parametrize(
    ("setting", "version", "kinds"),
    [
        ("NCCL_CHECK_MODE=DEBUG_LOCAL", "2.28.9", ["not-in-this-version"]),
        ("NCCL_CHECK_MODE=DEBUG_LOCAL", "2.29.7", ["leftover"]),
        ("NCCL_TREE_THRESHOLD=0", "2.28.9", ["not-in-this-version"]),
        ("NCCL_TREE_THRESHOLD=0", "2.4.8", []),
        ("NCCL_TREE_THRESHOLD=0", None, ["not-in-this-version"]),
        ("NCCL_SHM_USE_CUDA_MEMCPY=1", "2.30.4", ["costs"]),
        ("NCCL_SHM_USE_CUDA_MEMCPY=1", "2.30.7", ["not-in-this-version"]),
        ("NCCL_TREE_THRESHOLD=0", "no version", []),
        ("NCCL_TREE_THRESHOLD=0", "2.4", []),
        ("NCCL_CHECK_MODE=DEBUG_LOCAL", "2.29", ["leftover"]),
    ],
)
def test_a_setting_of_another_version_is_named(
    setting: str, version: str | None, kinds: list[str]
) -> None:
    problems = problems_of(setting, version)
    assert [problem.kind for problem in problems] == kinds
    if kinds == ["not-in-this-version"]:
        assert f"NCCL {version or 'newer than 2.4.8'} does not read" in problems[0].why


@pytest.mark.parametrize(
    ("setting", "kind", "severity", "may_cost"),
    [
        ("NCCL_DEBUG=TRACE", "leftover", "cost", True),
        ("NCCL_DEBUG=info", "leftover", "remark", False),
        ("NCCL_CHECK_POINTERS=1", "leftover", "cost", True),
        ("CUDA_LAUNCH_BLOCKING=1", "leftover", "cost", True),
        ("CUDA_DEVICE_WAITS_ON_EXCEPTION=1", "leftover", "remark", False),
        ("TORCH_NCCL_BLOCKING_WAIT=yes", "leftover", "cost", True),
        ("UCX_LOG_LEVEL=trace", "leftover", "cost", True),
        ("NCCL_TOPO_DUMP_FILE=/tmp/t.xml", "leftover", "remark", False),
        ("NCCL_P2P_DISABLE=1", "costs", "cost", True),
        ("NCCL_P2P_LEVEL=LOC", "costs", "cost", True),
        ("NCCL_P2P_LEVEL=0", "costs", "cost", True),
        ("NCCL_SHM_DISABLE=1", "costs", "cost", True),
        ("NCCL_IB_DISABLE=1", "costs", "cost", True),
        ("NCCL_ALGO=Ring", "costs", "cost", True),
        ("NCCL_PROTO=^LL128", "costs", "cost", True),
        ("NCCL_MAX_NCHANNELS=2", "costs", "cost", True),
        ("NCCL_BUFFSIZE=1048576", "costs", "cost", True),
        ("NCCL_NET=socket", "costs", "cost", True),
        ("NCCL_NVLS_ENABLE=0", "costs", "remark", True),
        ("NCCL_SOCKET_IFNAME=eth0", "costs", "remark", True),
        ("CUDA_DEVICE_MAX_CONNECTIONS=1", "costs", "remark", True),
        ("MPIR_CVAR_NOLOCAL=1", "leftover", "cost", True),
    ],
)
def test_what_is_for_debugging_or_may_cost_is_named(
    setting: str, kind: str, severity: str, may_cost: bool
) -> None:
    (problem,) = problems_of(setting)
    assert (problem.kind, problem.severity, problem.may_cost) == (kind, severity, may_cost)
    assert problem.seen.startswith(setting) and problem.fix.startswith("Unset ")


@pytest.mark.parametrize(
    "setting",
    ["NCCL_NET=IB", "NCCL_CROSS_NIC=2", "CUDA_DEVICE_MAX_CONNECTIONS=32", "NCCL_SHM_DISABLE=00"],
)
def test_what_costs_nothing_is_no_problem(setting: str) -> None:
    assert [one.kind for one in problems_of(setting)] == ["bad-value"] * setting.endswith("=00")


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ("NCCL_ALGO=allreduce:nvls NCCL_NVLS_ENABLE=0", ("NCCL_ALGO", "NCCL_NVLS_ENABLE")),
        ("NCCL_MIN_CTAS=9 NCCL_MAX_CTAS=0x8", ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS")),
        ("NCCL_IB_DISABLE=1 NCCL_IB_HCA=mlx5", ("NCCL_IB_DISABLE", "NCCL_IB_HCA")),
        ("NCCL_IB_AR_THRESHOLD=5000000", ("NCCL_IB_AR_THRESHOLD",)),
        ("NCCL_PROTO=LL,LL128", ("NCCL_PROTO",)),
    ],
)
def test_contradictions_name_all_who_take_part(settings: str, names: tuple[str, ...]) -> None:
    (problem,) = [one for one in problems_of(settings) if one.kind == "contradiction"]
    assert problem.names == names


@pytest.mark.parametrize(
    "settings",
    [
        "NCCL_ALGO=^NVLS NCCL_NVLS_ENABLE=0",
        "NCCL_MIN_CTAS=8 NCCL_MAX_CTAS=8",
        "NCCL_MIN_CTAS=many NCCL_MAX_CTAS=8",
        "NCCL_IB_DISABLE=0 NCCL_IB_HCA=mlx5",
        "NCCL_PROTO=^LL128",
        "NCCL_SOCKET_IFNAME=lo",  # on one host
        "NCCL_IB_AR_THRESHOLD=-2",
        "NCCL_MNNVL_ENABLE=1 NCCL_CUMEM_ENABLE=0",  # of a later version
    ],
)
def test_what_goes_together_is_no_contradiction(settings: str) -> None:
    kinds = [one.kind for one in problems_of(settings, "2.20.5")]
    assert "contradiction" not in kinds


def test_a_contradiction_may_cost_or_not() -> None:
    for text, may_cost in (
        ("NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1", True),
        ("NCCL_IB_DISABLE=1 NCCL_NET=ib", False),
    ):
        (problem,) = [one for one in problems_of(text) if one.kind == "contradiction"]
        assert problem.may_cost is may_cost


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
    ("name", "value", "source", "fix"),
    [
        ("NCCL_SOCKET_IFNAME", '"eth0"', "environment", "Write eth0."),
        ("NCCL_P2P_DISABLE", "'1'", "f line 1", "Write 1."),
        ("NCCL_ALGO", "Ring ", "f line 1", "Write Ring."),
        ("NCCL_P2P_LEVEL", " NVL", "f line 1", "Write NVL."),
        ("NCCL_PROTO", "LL, Simple", "environment", "Write it without blanks."),
    ],
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


def test_the_worst_comes_first() -> None:
    problems = problems_of("NCCL_NVLS_ENABLE=0 NCCL_P2P_DISABLE=1 NCCL_ALGO=x")
    assert [one.severity for one in problems] == ["error", "cost", "remark"]


@pytest.mark.parametrize(
    ("name", "one", "other", "expected"),
    [
        ("NCCL_BUFFSIZE", "4194304", " 0x400000 ", True),
        ("NCCL_BUFFSIZE", "4", "4M", False),
        ("NCCL_BUFFSIZE", "many", "more", False),
        ("NCCL_LAUNCH_MODE", "Parallel", "PARALLEL", True),
        ("NCCL_P2P_LEVEL", "nvl", "NVL", False),
        ("TORCH_NCCL_BLOCKING_WAIT", " No ", "F", True),
        ("TORCH_NCCL_BLOCKING_WAIT", "YES", "1", True),
        ("TORCH_NCCL_BLOCKING_WAIT", "yes", "no", False),
        ("TORCH_NCCL_BLOCKING_WAIT", "si", "si ", True),
        ("NCCL_DEBUG_SUBSYS", "env,INIT", "INIT,ENV", True),
        ("NCCL_DEBUG_SUBSYS", "^env,INIT", "INIT,^env", False),
        ("NCCL_ALGO", "ring:tree,x", "x,ring:tree", False),
        ("NCCL_CTA_POLICY", "zero|DEFAULT", "DEFAULT|ZERO", True),
        ("NCCL_HOSTID", "a", "A", False),
    ],
)
def test_values_that_mean_the_same(name: str, one: str, other: str, expected: bool) -> None:
    variable = known().by_name[name]
    assert is_same(variable, one, other) is is_same(variable, other, one) is expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_NCCL_BLOCKING_WAIT", " OFF "),
        ("UCX_RNDV_THRESH", " 8Kb "),
        ("NCCL_ALGO", "AllReduce:^ring;broadcast:tree"),
        ("NCCL_NVLS_ENABLE", " 0 "),
        ("NCCL_IB_GID_INDEX", " -1 "),
        ("NCCL_NET", " Socket "),
    ],
)
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
