"""What stands in a log beside NCCL's own lines: several sources add up, and none passes unseen."""

import pickle
import re
from pathlib import Path

import pytest

from collbench.core import catalog
from collbench.core.errors import UsageError
from collbench.doctor.check import SEVERITIES, Finding
from collbench.jobs.causes_in import with_cause
from collbench.jobs.hang_findings import hang_findings
from collbench.jobs.literals import literals
from collbench.jobs.log_errors import Reader, names_error, numbered, words_of
from collbench.jobs.log_findings import log_findings
from collbench.jobs.nccl_log.progress import behind, groups_of, watchdog_groups
from collbench.jobs.nccl_log.reader import LogReader
from collbench.jobs.nccl_log.recorder import Recorders
from collbench.jobs.run_log import refuse_others
from tests.support.commands import Capture
from tests.support.tables import cells_of

DATA = Path(__file__).parent.parent / "data" / "nccl-logs"
HEAD = "n7:41:88 [1] "


def findings_of(text: str) -> list[Finding]:
    """What a text says, as `log` puts it together."""
    reader = LogReader()
    reader.feed("x.log", text.splitlines())
    report = reader.finish()
    groups = [*watchdog_groups(report), *report.ras.groups()]
    return [*hang_findings(groups), *log_findings(report)]


def severities(text: str) -> dict[str, str]:
    """The severity of each finding, by its name."""
    return {one.check: one.severity for one in findings_of(text)}


def test_no_source_discards_another() -> None:
    text = (DATA / "mixed-sources.txt").read_text()
    found = severities(text)
    faults = "timeout killed xid gpu-pcie gpu-fabric ras-missing ras-dead ras-error rank-behind"
    others = {"port-down": "risk", "ras-states": "risk", "unread-error": "remark"}
    assert found == dict.fromkeys(faults.split(), "fault") | others
    (killed,) = (one for one in findings_of(text) if one.check == "killed")
    assert "line 37, and may follow from it" in killed.why  # the Xid, not the time-out before it


@pytest.mark.parametrize("tag", ["", "[1,7]<stdout>:"])
def test_ras_says_who_is_missing_and_the_watchdog_that_the_others_wait(tag: str) -> None:
    text = (
        "Errors\nINCOMPLETE\n  Missing communicator data from 1 job process\n"
        "  Process 9 on node a managing GPU 3\n#0-0 (ab) INCOMPLETE\n  The missing rank: 3\n"
    )
    for rank in range(3):
        text += f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
        text += "OpType=ALLREDUCE, NumelIn=8)\n"
    tagged = "".join(f"{tag}{line}\n" for line in text.splitlines())
    found = {one.check: one for one in findings_of(tagged)}
    assert found.keys() == {"ras-missing", "timeout"}
    assert found["ras-missing"].subject == "rank 3; process 9 on node a (GPU 3)"


def test_ras_in_json() -> None:
    findings = {one.check: one for one in findings_of((DATA / "ras.json").read_text())}
    assert findings.keys() == {"rank-behind", "ras-missing", "ras-error"}
    assert "rank 2 (GPU 0, process 9, node 10.0.0.2)" in findings["ras-missing"].subject
    assert "ncclRemoteError" in findings["ras-error"].subject
    # a report is of a moment: being behind in it may be nothing
    behind_ = findings["rank-behind"]
    assert "rank 1 (GPU 1, process 8, node 10.0.0.1)" in behind_.subject
    assert "ask again" in behind_.why


@pytest.mark.parametrize("cut", range(60, 900, 61))
def test_a_cut_document_of_ras_is_told(cut: int) -> None:
    found = severities((DATA / "ras.json").read_text()[:cut])
    assert found.get("ras-error") == "fault"


@pytest.mark.parametrize(("text", "names", "found"), cells_of(str(DATA / "x"), "lines.tsv"))
def test_a_line_or_a_few_say_it_all(text: str, names: str, found: str) -> None:
    """Also by where they stand, and that nothing is wrong."""
    assert severities(text) == dict(zip(names.split(), found.split(), strict=True))
    assert names or not names_error(text)


def test_a_step_that_never_ran_and_what_info_says_in_passing_explain_nothing() -> None:
    for first in ("srun: error: Unable to create step for job 4: frob", "STEP 4.0 CANCELLED AT 0"):
        found = findings_of(f"{first}\nsrun: error: StepId=5.0 task 3: Killed")
        assert len(found) == 2 and not any("stands behind" in one.why for one in found)
    text = (
        "NCCL INFO Failed to open libibverbs.so[.1]\n" + HEAD + "NCCL INFO transport/p2p.cc:3 -> 1"
    )
    (failed, _) = findings_of(HEAD + text)
    assert failed.check == "call-failed" and "sees its own GPU alone" in failed.why


def test_an_unknown_error_says_whose_words_it_is_in() -> None:
    (one,) = findings_of("E x.cc:7 tcp_transport Session failed. Error: Bad address")
    assert one.check == "unread-error" and one.severity == "remark"
    assert "of Mooncake" in one.why and "EFAULT" in one.why and "GPU memory" in one.why


def test_a_row_that_proves_no_cause_says_what_the_line_says() -> None:
    for line, words in (
        ("nvshmem frob.cpp:9: non-zero status: 7: Connection timed out", "says Connection timed"),
        ("frob: cma_copy():5<warn> CMA error 14", "(EFAULT): perhaps a call"),
        ("[1.0] [n1:7:0] frob.c:4 UCX  ERROR frob(): Bad address", "(EFAULT): perhaps a call"),
        ("Worker frob died, exit code: -11", "ended by signal 11 (SIGSEGV)"),
        ("frob.py: RuntimeError: the frob is not supported", "does not have it"),
        ("OSError: [Errno 26] Text file busy: '/frob'", "another process still writes"),
        ("PMIX ERROR: NO-PERMISSIONS in file frob.c at line 7", "a right is missing"),
    ):
        assert words in findings_of(line)[0].why, line
    assert findings_of("RuntimeError: no. Try a smaller frob.")[0].change.endswith(
        'the text itself says "Try a smaller frob"'
    )


@pytest.mark.parametrize(
    ("text", "lead"),
    [
        ("frob.cpp:9 unhandled cuda error\nFrob failed: no such device", "unread-error"),
        (HEAD + "x.cc:7 NCCL WARN frob is frobbed\nunhandled system error", "warning"),
        ("frob init failed\nfrob: worker does not support frobs", "unread-error"),
        ("frob init failed\nFrobError: Permission denied\nMPI_INIT failed", "unread-error"),
        ("libfabric:frob:x():7<warn> frob: Permission denied\nMPI_INIT failed", "libfabric"),
        ("libfabric:frob:y():7<warn> no\nreceived signal SIGABRT\n#1 0x4f in y\n", "libfabric"),
        ("Active: failed (Result: 7)\n\n\n\nfrob: fatal: it isn't able to find x", "unread-error"),
    ],
)
def test_what_says_why_leads_before_what_only_failed(text: str, lead: str) -> None:
    found = findings_of(text)
    assert found[0].check == lead
    if lead == "unread-error":
        assert "By its words" in found[0].why


def test_a_list_of_interfaces_may_have_a_line_for_each() -> None:
    names = [f"[{number}]br-{number}:172.19.0.{number}<0>\n" for number in range(7)]
    text = HEAD + "NCCL INFO NET/Socket : Using\n" + "".join(names) + "frob [1]br-9:1\n"
    reader = LogReader()
    reader.feed("a.log", text.splitlines())
    assert [*reader.finish().nics] == [("Socket", " ".join(f"[{n}]br-{n}" for n in range(7)))]
    assert [one.subject for one in findings_of(text)] == ["br-0, br-1, br-2, br-3 and 3 more"]


def test_an_error_without_a_reason_says_so() -> None:
    (one,) = findings_of("worker_frob.cpp:9] frob failed for slice")
    assert one.why.endswith("It names what failed, and no reason.")
    (one,) = findings_of("Warning: frob failed to frobnicate")
    assert "calls itself a warning" in one.why


@pytest.mark.parametrize(
    ("frames", "where"),
    [
        (" 0  /x/libucs.so.0(ucs_handle_error+0x2e4) [0x7f]\n 1 0x00ff frob()  ???:0", "frob, "),
        ("[n1:7] [ 0] /x/libc.so.6(+0x42)[0x7f]\n[n1:7] [ 1] /x/libfrob.so.4(frob+0x5)[0x7f]",
         "frob of libfrob.so.4, x.log line 3"),
        ("#0  0x1 in ???\n#3  0x14 in frob_cb", "frob_cb, x.log line 3"),
        ('Thread 0x7f:\n  File "x.py", line 8 in wait\nCurrent thread 0x7e:\n  File "f/_api.py",'
         " line 8 in frob", "frob of f/_api.py, x.log line 5"),
    ],
)  # fmt: skip
def test_a_crash_says_where_its_stack_begins(frames: str, where: str) -> None:
    crash = "[n1:7] Signal: Segmentation fault (11)"
    found = findings_of(f"{crash}\n{frames}")
    assert found[0].check == "crashed" and f"The stack begins in {where}" in found[0].why
    assert "these lines lack its cause" in findings_of(crash)[0].why


def test_a_text_of_cuda_has_the_meaning_of_its_number() -> None:
    (one,) = findings_of(HEAD + "x.cc:7 NCCL WARN Cuda failure 'driver shutting down'")
    assert one.check == "cuda-error" and "CUDA error 4 " in one.why
    texts = catalog.load("causes", "catalog")["cuda_texts"]
    assert set(texts.values()) <= set(numbered("cuda"))


def test_an_error_that_was_only_announced_is_the_next_line() -> None:
    trace = '  File "/frob.py", line 7, in call\n    frob()\n         ^^^^^^\n'
    head = f"-- Process 0 terminated with the following error:\n{trace}"
    (one,) = findings_of(f"{head}RuntimeError: no frob is there")
    assert one.check == "raised" and "no frob" in one.seen
    (one,) = findings_of(head)
    assert "error: [the text ends there]" in one.seen


def test_a_message_between_rules_is_one() -> None:
    rule = "-" * 74
    text = f"{rule}\nIt looks like MPI_INIT failed for\nsome reason:\n\n  the frob failed\n{rule}"
    (one,) = findings_of(text)
    assert one.check == "mpi-start" and one.seen.endswith("reason: the frob failed")
    assert "x.log line 2" in one.seen
    assert len(findings_of(f"{rule}\nfrob failed\nCUDA error 700\n")) > 1  # it never ended


def test_of_several_lines_the_one_with_the_system_s_words_is_shown() -> None:
    lines = ["couldn't start", "failed to execute: /frob: No such file or directory", "failed"]
    (one,) = findings_of("\n".join(f"error: pyxis: container: {line}" for line in lines))
    assert one.check == "pyxis" and "/frob: No such file" in one.seen


def test_a_watchdog_s_line_that_was_cut_names_no_other_operation() -> None:
    text = f"{watchdog(1, 4)}\n{watchdog(2, 4).partition('REDUCE')[0]}"
    assert "mismatched-collective" not in severities(text)


def test_what_a_terminal_broke_is_one_error() -> None:
    (one,) = findings_of("[n1:7] frob.c:4 Error: ep_create(proc=5) failed: Out\n of memory")
    assert "failed: Out of memory" in one.seen and "ran out" in one.why


def test_the_store_says_how_many_came() -> None:
    line = "Timed out in store based barrier on rank: 1 (world_size=4, worker_count={})"
    few, many = (findings_of(line.format(count))[0] for count in (3, 8))
    assert few.check == "rendezvous" and few.why.startswith("Only 3 of 4 came")
    assert many.check == "store-shared" and "8 came" in many.why


def test_an_error_of_hip_has_the_words_of_amd() -> None:
    (one,) = findings_of("error: 'hipErrorInvalidDevice'(101) at square.cpp:61")
    assert one.check == "hip-error" and "HIP error 101" in one.why
    assert "nvidia" not in one.change and "CUDA" not in one.why + one.change
    assert findings_of("HIP error names: hipErrorNoBinaryForGpu is listed in docs/errors.md") == []


def test_an_xid_names_the_one_that_it_follows() -> None:
    text = "NVRM: Xid (PCI:0000:dc:00): 45, pid=7, name=x, Ch 00000001 caused by previous Xid 149"
    found = [(one.severity, one.why[:7]) for one in findings_of(text)]
    assert found == [("fault", "Xid 149"), ("remark", "Xid 45:")]


def test_how_a_process_ended_comes_behind_the_time_out_before_it() -> None:
    watchdog = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=X)"
    found = findings_of(f"{watchdog}\nsrun: error: n3: tasks 8-15: Exited with exit code 1")
    assert [one.check for one in found][:2] == ["timeout", "rank-exited"]
    assert "may follow from it" in found[1].why


def test_whose_errors_are() -> None:
    lines = (
        "n17 kernel: [1.2] Out of memory: Killed process 43 (python) total-vm:1kB",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup.",
        "65:00.0 3D controller: NVIDIA\n\tLnkSta: Speed 16GT/s, Width x8 (downgraded)",
    )
    subjects = [findings_of(line)[0].subject for line in lines]
    assert subjects == ["process 43 (python), host n17", "step 191.batch", "device 65:00.0"]


def test_what_nobody_understands_and_names_an_error_is_told() -> None:
    text = HEAD + "NCCL INFO Using network IB\nMyOwnError: the frobnicator failed to align"
    assert severities(text) == {"unread-error": "remark"}
    assert names_error("rank 0 failed to join") and names_error("0 errors, 1 failed")


def test_a_healthy_host_and_job_have_no_findings() -> None:
    lines = (DATA / "healthy.txt").read_text().splitlines()
    assert {line: found for line in lines if (found := severities(line))} == {}
    assert severities("\n".join(lines)) == {}


def test_a_count_of_zero_hides_no_later_count() -> None:
    for line, name in (("EDAC MC0: {} UE", "host-hardware"), ("frob: {} errors", "unread-error")):
        text = "\n".join(line.format(count) for count in (0, 3))
        (one,) = findings_of(text)
        assert one.check == name and "line 2" in one.seen


def watchdog(rank: int, number: int) -> str:
    """A line of PyTorch's watchdog."""
    return (
        f"[rank{rank}]:[E1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective"
        f" operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8)"
    )


def status(rank: int, enqueued: int) -> str:
    """How far a rank's program came."""
    return (
        f"[rank{rank}]:[E1 x.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Last enqueued NCCL"
        f" work: {enqueued}, last completed NCCL work: 39."
    )


def test_who_never_came_and_who_is_silent() -> None:
    lines = [watchdog(0, 40), status(0, 42), watchdog(1, 40), status(1, 41), status(2, 39)]
    late = next(one for one in findings_of("\n".join(lines)) if one.check == "rank-behind")
    assert late.subject.startswith("rank 2 of ") and "operation 40" in late.seen
    three = "\n".join(watchdog(rank, 4) for rank in (1, 2, 3))
    for text in (three, three.replace("timeout: ", "timeout: \n")):  # as a terminal breaks it
        assert {one.check: one.subject for one in findings_of(text)}["rank-silent"] == "rank 0"
    assert "rank-silent" not in severities(f"{three}\n[E1 ")  # the rest is cut off
    # nobody is behind because a program asked for more before the operation ended
    both = findings_of("\n".join([watchdog(0, 40), status(0, 42), watchdog(1, 40), status(1, 40)]))
    assert [one.check for one in both] == ["timeout", "stuck-collective"]
    differing = f"{watchdog(0, 40)}\n{watchdog(1, 40).replace('REDUCE', 'GATHER')}"
    assert [*severities(differing)] == ["mismatched-collective", "timeout"]


def test_a_rank_that_waits_itself_is_not_the_cause() -> None:
    lines = [watchdog(0, 40), watchdog(1, 42), watchdog(2, 42)]
    late = next(one for one in findings_of("\n".join(lines)) if one.check == "rank-behind")
    assert late.subject.startswith("rank 0 of ") and "says itself that it waits" in late.why
    assert late.severity == "risk" and "name no group" in late.why
    # other operations at other numbers are of several groups that have no names
    lines[0] = lines[0].replace("REDUCE", "GATHER")
    (unaligned, timeout) = findings_of("\n".join(lines))
    assert (unaligned.check, timeout.check) == ("hang-unaligned", "timeout")
    assert "opCount" not in unaligned.why  # of NCCL's lines
    assert "hang-unaligned" in severities("\n".join([watchdog(0, 4), *lines[1:]]))  # too far apart


def test_what_failed_stands_before_general_words() -> None:
    text = "ncclInvalidUsage: y\nLast error:\nDuplicate GPU detected : rank 3 and rank 0 both"
    assert [one.check for one in findings_of(text)] == ["duplicate-gpu", "invalid-use"]


def test_why_a_run_left_no_results(tmp_path: Path) -> None:
    file = tmp_path / "run.txt"
    file.write_text("Test CUDA failure common.cu:9 'no kernel image is available'")
    error = with_cause(UsageError("no table", ""), [file])
    assert error.message.startswith("no table. gpu-code") and "To do: " in error.hint
    assert with_cause(error, [tmp_path / "none.txt"]) is error


def operation(host: str, opcount: int, count: int) -> str:
    """An operation of a rank."""
    return (
        f"{host}:1:2 [0] NCCL INFO AllReduce: opCount {opcount:x} sendbuff 0x1 recvbuff 0x1 count"
        f" {count} datatype 7 op 0 root 0 comm 0x{host} [nranks=2] stream 0xb"
    )


def aligned(*lines: str) -> list[str]:
    """The findings of a hang."""
    reader = LogReader()
    reader.feed("x.log", lines)
    return [one.check for one in hang_findings(groups_of(reader.finish()))]


def test_excerpts_are_aligned_by_the_counter() -> None:
    a = [operation("a", number, number) for number in range(5, 9)]
    b = [operation("b", number, number) for number in range(6, 9)]
    assert aligned(*a, *b) == []
    assert aligned(*a, *b[:-1]) == ["rank-behind"]
    assert aligned(*a, *b[:-1], operation("b", 8, 99)) == ["mismatched-collective"]


def test_without_a_counter_nobody_can_tell_who_is_behind() -> None:
    a = [operation("a", 0, 10), operation("a", 0, 20)]
    assert aligned(*a, operation("b", 0, 20)) == ["hang-unaligned"]
    assert aligned(*a) == []


def test_group_calls_share_a_counter() -> None:
    a = [operation("a", number // 2, number) for number in range(4, 12)]
    b = [operation("b", number // 2, number) for number in range(5, 12)]  # begins inside a group
    assert aligned(*a, *b) == []


def test_a_dump_is_read_and_no_pickle_is_run(tmp_path: Path) -> None:
    def dump(rank: int, last: int) -> bytes:
        entries = [
            {"collective_seq_id": number, "profiling_name": "nccl:all_reduce", "input_sizes": [[8]],
             "process_group": ("0", "default_pg"), "is_p2p": False}
            for number in range(1, last + 1)
        ]  # fmt: skip
        groups = {"0": {"desc": "default_pg", "ranks": "[0, 1]"}}
        return pickle.dumps({"rank": rank, "entries": entries, "pg_config": groups})

    recorders = Recorders()
    recorders.add_pickle("nccl_trace_rank_0", dump(0, 3))
    recorders.add_pickle("nccl_trace_rank_1", dump(1, 2))
    (late,) = behind(recorders.groups())
    assert (late.name, late.missed) == ("rank 1", "nccl:all_reduce of 8")

    class _Runs:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "ran",)

    for data in (pickle.dumps(_Runs()), pickle.dumps({"entries": [_Runs()]}), dump(0, 3)[:-20]):
        with pytest.raises(UsageError, match="pickle"):
            Recorders().add_pickle("x", data)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("head", "command"),
    [
        ("# nccl-tests version 2.17\n", "compare"),
        ("   D\\D     0\nUnidirectional P2P=Enabled Bandwidth", "compare"),
        ("\tGPU0\tGPU1\tCPU Affinity\n", "topo --from"),
        ("host_a,host_b,busbw\n", "hunt --from"),
    ],
)
def test_files_of_other_commands_are_named_with_them(
    head: str, command: str, capsys: Capture
) -> None:
    refuse_others("x.txt", head, is_log=True)
    assert f"collbench {command}" in capsys.readouterr().err
    with pytest.raises(UsageError) as caught:
        refuse_others("x.txt", head)
    assert f"collbench {command}" in caught.value.hint


@pytest.mark.parametrize("name", ["nccl", "programs", "systems", "words"])
def test_tables_of_causes_have_what_is_read(name: str) -> None:
    keys = {"name", "lines", "why", "change", "severity", "source", "is_general", "is_open"}
    for one in catalog.load("causes", name)["causes"]:
        assert one.keys() <= keys, one
        assert one.get("severity", "fault") in SEVERITIES and one["why"] and one["change"]
        assert all(re.compile(line) for line in one["lines"])


def test_every_number_says_what_to_do() -> None:
    tables = [numbered(name) for name in ("xids", "sxids", "cuda", "completions")]
    assert all(one.name and one.why and one.change for table in tables for one in table.values())


@pytest.mark.parametrize("reader", ["nccl", "programs", "words"])
def test_each_pattern_names_a_text_that_it_needs(reader: Reader) -> None:
    """A pattern without one would never be tried, as one whose texts no word is in."""
    words = words_of(reader)
    for pattern in _patterns(reader):
        texts = literals(pattern)
        assert texts and all(any(word in text for word in words) for text in texts), pattern


def _patterns(reader: Reader) -> list[str]:
    names = ("programs", "systems") if reader == "programs" else (reader,)
    tables = [one for name in names for one in catalog.load("causes", name)["causes"]]
    return [pattern for one in tables for pattern in one["lines"]]


def test_what_follows_from_another_never_leads() -> None:
    text = (
        f"[mpiexec@n1] YOUR APPLICATION TERMINATED WITH the exit code\n{HEAD}misc/socket.cc:47 -> 3"
    )
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0"
    assert findings_of(f"{text}\n{killed}")[0].check == "host-memory-killed"


def test_the_first_error_that_nobody_knows_leads() -> None:
    one, end = findings_of("[rank3] error: Permission denied\n*** JOB 7 ON n CANCELLED AT 7 ***")
    assert one.subject == "rank 3" and "By its words" in one.why and "stands behind" in end.why
