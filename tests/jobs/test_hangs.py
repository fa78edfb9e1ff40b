"""Which rank did not come, and which called something else: from logs (hangs.toml), from dumps of
the flight recorder, and from RAS.
"""

import json
import tomllib
from pathlib import Path

import pytest

from collbench.core.errors import UsageError
from collbench.jobs.hang_findings import hang_findings
from collbench.jobs.nccl_log.progress import behind, groups_of, mismatches, watchdog_groups
from collbench.jobs.nccl_log.recorder import Recorders, is_pickle
from tests.jobs.test_nccl_log import DATA, report_of

CASES = tomllib.loads(Path(__file__).with_name("hangs.toml").read_text())


@pytest.mark.parametrize("what", CASES)
def test_who_is_found(what: str) -> None:
    case = CASES[what]
    text = case["text"] if "text" in case else (DATA / case["file"]).read_text()
    report = report_of(text)
    groups = {
        "calls": lambda: groups_of(report),
        "watchdog": lambda: watchdog_groups(report),
        "ras": report.ras.groups,
    }[case.get("by", "calls")]()
    found = hang_findings(groups)
    assert [f"{one.check} {one.severity}: {one.subject}" for one in found] == case["found"]
    for words in case.get("why", ()):
        assert any(words in one.why for one in found)
    late = [
        f"{one.name} made {one.made} of {one.most}{' and waits' * one.is_blocked}, not"
        f" {one.missed or 'known'}: {', '.join(one.waiting)} ({one.place})"
        for one in behind(groups)
    ]
    assert late == case["behind"]
    wrong = []
    for other in mismatches(groups):
        calls = [f"{call} by {', '.join(who)}" for call, who in other.calls.items()]
        wrong.append(f"{other.number}: {'; '.join(calls)} ({', '.join(other.places)})")
    assert wrong == case.get("wrong", [])
    messages = [text for group in groups for text in group.p2p_texts]
    assert messages == case.get("messages", [])


def test_dumps_of_the_flight_recorder() -> None:
    recorders = Recorders()
    for name in ("recorder_rank_0.json", "recorder_rank_1.json"):
        recorders.add(name, (DATA / name).read_text())
    groups = recorders.groups()
    assert mismatches(groups) == []
    (late,) = behind(groups)
    assert (late.name, late.waiting) == ("rank 1", ("rank 0",))
    assert (late.made, late.missed) == (5, "nccl:broadcast of 16 Float")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"entries": [1]}', '{"entries": [{"is_p2p": 0, "x": 1}],']
)
def test_what_is_no_dump_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="flight recorder"):
        Recorders().add("a.json", text)


def test_pickles_are_told_by_their_first_bytes() -> None:
    assert is_pickle(b"\x80\x04\x95") and not is_pickle(json.dumps({}).encode())


def excerpt(*calls: tuple[int, int, int]) -> list[str]:
    """Lines without the beginnings of communicators of two: (process, opCount, count)."""
    return [
        f"n:{rank}:{rank} [{rank}] NCCL INFO AllReduce: opCount {number:x} sendbuff 0x1 recvbuff"
        f" 0x1 count {count} datatype 7 op 0 root 0 comm 0x{rank + 10} [nranks=2] stream 0x1"
        for rank, number, count in calls
    ]


def test_dumps_of_groups_with_one_name() -> None:
    recorders = Recorders()
    for rank, calls in enumerate((3, 3, 2, 2)):
        ranks = [0, 1] if rank < 2 else [2, 3]
        entries = [
            {
                "collective_seq_id": at,
                "process_group": ["1", "mesh_tp"],
                "input_sizes": [[len(ranks) + rank // 2]],
            }
            for at in range(1, calls + 1)
        ]
        config = {"1": {"ranks": json.dumps(ranks)}}
        recorders.add(f"dump_{rank}", json.dumps({"entries": entries, "pg_config": config}))
    assert hang_findings(recorders.groups()) == []


def test_the_second_part_of_a_log_is_named_where_it_says_something() -> None:
    parts = ((0, 1, 8), (1, 1, 8), (0, 2, 8), (1, 2, 8)), ((0, 3, 8), (1, 3, 8), (0, 4, 8))
    (late,) = behind(groups_of(report_of(*("\n".join(excerpt(*part)) for part in parts))))
    assert (late.name, late.place) == ("n:1 [1]", "1.log line 2")
