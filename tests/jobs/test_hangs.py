"""Which ranks of a hang did not come, and which called something else, by logs: hangs.toml."""

import tomllib
from pathlib import Path

import pytest

from collbench.jobs.hang_findings import hang_findings
from collbench.jobs.nccl_log.progress import behind, groups_of, mismatches, watchdog_groups
from collbench.jobs.nccl_log.reader import LogReader

DATA = Path(__file__).parent.parent / "data" / "nccl-logs"
CASES = tomllib.loads(Path(__file__).with_name("hangs.toml").read_text())


@pytest.mark.parametrize("what", CASES)
def test_who_is_found(what: str) -> None:
    case, reader = CASES[what], LogReader()
    text = case["text"] if "text" in case else (DATA / case["file"]).read_text()
    reader.feed("job.log", text.splitlines())
    report = reader.finish()
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
