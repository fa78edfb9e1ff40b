"""Which rank did not come: from logs, from dumps of the flight recorder, and from RAS."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from collbench.core.errors import UsageError
from collbench.jobs.hang_findings import hang_findings
from collbench.jobs.nccl_log.model import LogReport
from collbench.jobs.nccl_log.progress import behind, groups_of, mismatches, watchdog_groups
from collbench.jobs.nccl_log.reader import LogReader
from collbench.jobs.nccl_log.recorder import Recorders, is_pickle

DATA = Path(__file__).parent.parent / "data" / "nccl-logs"


def fed(lines: Sequence[str], name: str = "job.log") -> LogReport:
    """What a log says."""
    reader = LogReader()
    reader.feed(name, lines)
    return reader.finish()


def checks(lines: Sequence[str]) -> list[str]:
    """The names of what is found of a hang."""
    return [one.check for one in hang_findings(groups_of(fed(lines)))]


def job(*calls: tuple[int, str, str], ranks: int = 3) -> LogReport:
    """A log: (rank, communicator, operation and count), as they come."""
    lines = [
        f"n:{rank}:9 [{rank}] NCCL INFO ncclCommInitRank comm 0x{comm}{rank} rank {rank} nranks"
        f" {ranks} cudaDev {rank} nvmlDev {rank} busId {rank}000 commId 0x{comm} - Init COMPLETE"
        for comm in dict.fromkeys(comm for _, comm, _ in calls)
        for rank in range(ranks)
    ]
    for rank, comm, text in calls:
        op, count, *root = text.split()
        lines.append(
            f"n:{rank}:{rank} [{rank}] NCCL INFO {op}: opCount 0 sendbuff 0x1 recvbuff 0x1 count"
            f" {count} datatype 7 op 0 root {root[0] if root else 0} comm 0x{comm}{rank}"
            f" [nranks={ranks}] stream 0x1"
        )
    return fed(lines)


def test_a_rank_that_did_not_come_and_one_with_another_count() -> None:
    groups = groups_of(fed((DATA / "hang.txt").read_text().splitlines(), "hang.txt"))
    (wrong,) = mismatches(groups)
    assert wrong.number == 1
    assert wrong.calls == {
        "AllGather of 2048 float32": ("rank 0", "rank 1", "rank 2"),
        "AllGather of 1024 float32": ("rank 3",),
    }
    assert wrong.places == ("hang.txt line 7", "hang.txt line 13")
    (late,) = behind(groups)
    assert (late.name, late.made, late.most, late.is_blocked) == ("rank 2", 2, 3, False)
    assert late.missed == "AllReduce of 4096 float32, sum"
    assert late.waiting == ("rank 0", "rank 1", "rank 3")
    assert [one.check for one in hang_findings(groups)] == ["mismatched-collective", "rank-behind"]


def test_ranks_that_keep_up_are_not_named() -> None:
    calls = [(rank, "a", "AllReduce 8") for rank in (2, 0, 1)]
    assert hang_findings(groups_of(job(*calls))) == []


def test_many_ranks_behind_are_few_findings() -> None:
    calls = [(0, name, "AllReduce 8") for name in "0123456789abc"]
    findings = hang_findings(groups_of(job(*calls)))
    assert [one.check for one in findings] == ["rank-behind"] * 9
    assert findings[0].subject.startswith("rank 1, rank 2 of 3 ranks")
    assert findings[-1].subject == "10 more ranks of 5 communicators"


def test_who_waits_in_another_communicator_is_not_to_blame() -> None:
    # rank 0 waits in a for 1 and 2; rank 1 waits in b for 2, which comes to nothing
    calls = [(0, "a", "AllReduce 8"), (0, "b", "AllReduce 4"), (1, "b", "AllReduce 4")]
    first, *others = behind(groups_of(job(*calls)))
    assert (first.name, first.is_blocked) == ("rank 2", False)
    assert first.missed == "AllReduce of 8 float32, sum"
    assert {(one.name, one.is_blocked) for one in others} == {("rank 1", True), ("rank 2", False)}


def test_roots_and_collectives_that_differ() -> None:
    calls = [(0, "a", "Broadcast 8 0"), (1, "a", "Broadcast 8 1"), (2, "a", "Reduce 8 0")]
    (wrong,) = mismatches(groups_of(job(*calls)))
    assert len(wrong.calls) == 3 and wrong.number == 0


def test_sends_that_nobody_receives() -> None:
    calls = [(0, "a", "Send 8 1"), (0, "a", "Send 8 1"), (1, "a", "Recv 8 0"), (2, "a", "Send 8 2")]
    groups = groups_of(job(*calls))
    assert groups[0].p2p_texts == (
        "rank 0 sent 2 times to rank 1, which received once from it",
        "rank 2 sent once to rank 2, which received 0 times from it",
    )
    assert mismatches(groups) == []


def test_a_send_and_a_receive_of_other_bytes() -> None:
    alike = [(1, "a", "Send 4 2"), (2, "a", "Recv 4 1")]
    (group,) = groups_of(job((0, "a", "Send 8 1"), (1, "a", "Recv 16 0"), *alike))
    assert group.p2p_texts == ("rank 0 sent 32 bytes to rank 1, which received 64 bytes from it",)


def test_ranks_whose_logs_are_missing() -> None:
    report = job((0, "a", "AllReduce 8"), (1, "a", "AllReduce 8"))
    del report.communicators[0].ranks[2]
    (one,) = hang_findings(groups_of(report))
    assert one.check == "rank-missing" and "rank 2" in one.seen


def test_what_the_watchdog_of_pytorch_says() -> None:
    head = "[rank{0}]:[E] [PG ID 0 PG GUID 0(default_pg) Rank {0}] "
    lines = [
        head.format(rank) + "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=27,"
        f" OpType=ALLREDUCE, NumelIn={numel}, NumelOut=8, Timeout(ms)=600000) ran for 600029 ms."
        for rank, numel in ((0, 8), (1, 8), (3, 16))
    ]
    lines.append(
        head.format(2) + "Timeout at NCCL work: 26, last enqueued NCCL work: 26, last completed"
        " NCCL work: 26."
    )
    groups = watchdog_groups(fed(lines))
    (late,) = behind(groups)
    assert (late.name, late.made, late.most) == ("rank 2", 26, 27)
    assert late.waiting == ("rank 0", "rank 1", "rank 3")
    (wrong,) = mismatches(groups)
    assert wrong.calls == {
        "ALLREDUCE of 8 elements": ("rank 0", "rank 1"),
        "ALLREDUCE of 16 elements": ("rank 3",),
    }


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


def test_ras() -> None:
    (late,) = behind(fed((DATA / "ras.txt").read_text().splitlines()).ras.groups())
    who = "rank 2 (GPU 2, process 77, node 10.0.0.1)"
    assert (late.name, late.made, late.most) == (who, 11, 12)
    assert late.waiting == ("3 ranks",)


def test_pickles_are_told_by_their_first_bytes() -> None:
    assert is_pickle(b"\x80\x04\x95") and not is_pickle(json.dumps({}).encode())


def excerpt(*calls: tuple[int, int, int]) -> list[str]:
    """Lines without the beginnings of communicators of two: (process, opCount, count)."""
    return [
        f"n:{rank}:{rank} [{rank}] NCCL INFO AllReduce: opCount {number:x} sendbuff 0x1 recvbuff"
        f" 0x1 count {count} datatype 7 op 0 root 0 comm 0x{rank + 10} [nranks=2] stream 0x1"
        for rank, number, count in calls
    ]


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        # 0 and 1 are a pair, 2 and 3 another, in whatever order their lines come
        ([(0, 40, 8), (2, 40, 9), (1, 40, 8), (3, 40, 9)], []),
        ([(0, 40, 8), (2, 40, 9), (1, 40, 8), (3, 40, 9), (0, 41, 8)], ["rank-behind"]),
        # all call the same: nobody can tell whose partner is whose
        ([(0, 40, 8), (2, 39, 8), (1, 40, 8), (3, 39, 8), (0, 41, 8), (1, 41, 8), (2, 40, 8)],
         ["hang-unaligned", "hang-unaligned"]),
        # a line is lost in the middle of what 1 has
        ([(0, 40, 8), (1, 40, 8), (0, 41, 9), (0, 42, 8), (1, 42, 8)], []),
        ([(0, 40, 8), (1, 40, 8), (0, 41, 9), (0, 42, 8), (1, 42, 8), (0, 43, 9)], ["rank-behind"]),
        # each ends before the next begins
        ([(0, 40, 8), (2, 41, 9), (1, 42, 8)], ["hang-unaligned"]),
    ],
)  # fmt: skip
def test_an_excerpt_of_several_communicators_of_one_size(
    calls: list[tuple[int, int, int]], found: list[str]
) -> None:
    assert checks(excerpt(*calls)) == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [  # (rank of the job, name of the group, rank in the group, last operation)
        ([(1, 9, 0, 78), (3, 9, 1, 78), (5, 9, 2, 77)], [("rank-behind", "rank 5")]),
        ([(0, 5, 0, 80), (1, 5, 1, 80), (2, 7, 0, 60), (3, 7, 1, 59)], [("rank-behind", "rank 3")]),
        # groups that were split off have one name
        ([(0, 5, 0, 80), (1, 5, 1, 80), (2, 5, 0, 60)], [("hang-unaligned", "process group 5")]),
    ],
)
def test_ranks_of_groups_of_a_mesh(
    lines: list[tuple[int, int, int, int]], found: list[tuple[str, str]]
) -> None:
    texts = [
        f"[rank{rank}]:[E1] [PG ID 2 PG GUID {name}(mesh_tp) Rank {local}] Exception detected"
        f" by watchdog at work: {number}, last enqueued NCCL work: {number}"
        for rank, name, local, number in lines
    ]
    said = hang_findings(watchdog_groups(fed(texts)))
    assert [
        (one.check, one.subject[: len(who)]) for one, (_, who) in zip(said, found, strict=True)
    ] == found


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


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [  # of the fourth of six calls of rank 1, or of its last
        ("root 0 comm 0x11 [nranks=2] stream 0x3", "root 1 comm 0x11 [nranks=2] stream 0x3", ""),
        ("comm 0x11 [nranks=2] stream 0x3", "comm 0x19 [nranks=2] stream 0x3", ""),
        ("count 11 datatype 7 op 0 root 0 comm 0x11", "count 17 datatype 7 op 0 root 0 comm 0x11",
         "mismatched-collective"),
        ("opCount 5 sendbuff 0x1 recvbuff 0x1 count 13 datatype 7 op 0 root 0 comm 0x11",
         "opCount 6 sendbuff 0x1 recvbuff 0x1 count 13 datatype 7 op 0 root 0 comm 0x11",
         "rank-behind"),
    ],
)  # fmt: skip
def test_a_damaged_digit_accuses_nobody_without_a_word(before: str, after: str, said: str) -> None:
    calls = [(rank, number, 8 + number) for number in range(6) for rank in (0, 1)]
    lines = [
        line.replace("stream 0x1", f"stream {number // 2:#x}")
        for number, line in enumerate(excerpt(*calls))
    ]
    text = "\n".join(lines)
    assert text.count(before) == 1
    found = hang_findings(groups_of(fed(text.replace(before, after).splitlines())))
    assert [one.check for one in found] == ([said] if said else [])
    assert all("One line of one rank makes the difference" in one.why for one in found)


def test_one_digit_moves_no_counter_that_stands_still() -> None:
    text = "\n".join(excerpt(*((rank, 0, 8) for _ in range(3) for rank in (0, 1))))
    assert checks((text + "\n" + excerpt((0, 7, 8))[0]).splitlines()) == ["hang-unaligned"]


def test_a_wrong_address_of_the_last_call_is_said() -> None:
    lines = excerpt(*((rank, number, 8) for number in range(3) for rank in (0, 1, 2)))
    lines[-1] = lines[-1].replace("comm 0x12", "comm 0x92")
    groups = groups_of(fed([line.replace("nranks=2", "nranks=3") for line in lines]))
    (late,) = (one for one in hang_findings(groups) if "behind" in one.check)
    assert "One line of one rank makes the difference" in late.why


def test_communicators_of_one_size_that_an_old_version_does_not_name() -> None:
    joins = [(0, "a", 0), (2, "b", 0), (3, "b", 1), (1, "a", 1)]
    lines = [
        f"n:{pid}:{pid} [{pid}] NCCL INFO comm 0x{pid + 10} rank {rank} nranks 2 cudaDev {pid}"
        f" busId {pid}000 - Init COMPLETE"
        for pid, _, rank in joins
    ]
    lines += excerpt((0, 0, 8), (2, 0, 9), (3, 0, 9), (1, 0, 8), (0, 1, 8))
    (late,) = behind(groups_of(fed(lines)))
    assert (late.name, late.waiting) == ("rank 1", ("rank 0",))
    assert late.place == "job.log line 8"


@pytest.mark.parametrize(
    ("end", "severity"),
    [
        (["step 7"], "fault"),
        (["n:1:1 [1] NCCL INFO AllReduce: opC"], "risk"),
        (["n:1:1 ["], "risk"),
    ],
)
def test_a_text_that_ends_in_a_line_accuses_nobody(end: list[str], severity: str) -> None:
    lines = [*excerpt((0, 40, 8), (1, 40, 8), (0, 41, 8)), *end]
    (late,) = hang_findings(groups_of(fed(lines)))
    assert (late.check, late.severity) == ("rank-behind", severity)


def test_the_second_part_of_a_log_is_named_where_it_says_something() -> None:
    reader = LogReader()
    reader.feed("a.log.1", excerpt((0, 1, 8), (1, 1, 8), (0, 2, 8), (1, 2, 8)))
    reader.feed("a.log", excerpt((0, 3, 8), (1, 3, 8), (0, 4, 8)))
    (late,) = behind(groups_of(reader.report))
    assert (late.name, late.place) == ("n:1 [1]", "a.log line 2")


@pytest.mark.parametrize(
    ("counts", "who", "severity"),
    [
        (("3 ranks have launched up to operation 9", "Rank 5 has launched up to operation 7 --"),
         "rank 5 (GPU 1, process 9, node a)", "fault"),
        # one that runs is behind by one most of the time
        (("3 ranks have launched up to operation 9", "2 ranks have launched up to operation 8",
          "Rank 5 --"), "2 ranks: rank 5 (GPU 1, process 9, node a)", "risk"),
    ],
)  # fmt: skip
def test_ranks_that_ras_names(counts: tuple[str, ...], who: str, severity: str) -> None:
    text = ["#0-0 (ab) MISMATCH", "  Communicator ranks have different AllReduce operation counts"]
    lines = [*text, *counts[:-1], f"  {counts[-1]} GPU 1 managed by process 9 on node a"]
    (late,) = hang_findings(fed(lines).ras.groups())
    assert late.subject == f"{who} of ab, AllReduce" and late.severity == severity
