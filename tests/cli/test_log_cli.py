"""`collbench log` from the command line."""

import gzip
import json
from datetime import date
from functools import partial
from pathlib import Path

import pytest

from tests.support.commands import Invoke, Says, stdin_of

DATA = Path(__file__).parent.parent / "data" / "nccl-logs"
FAILED = DATA / "v2.18-mpirun-ib-error.txt"


@pytest.fixture
def invoke(invoke: Invoke) -> Invoke:
    return partial(invoke, "log")


def test_files_that_cannot_be_read_or_say_nothing(tmp_path: Path, says: Says) -> None:
    other = tmp_path / "other.log"
    other.write_text("epoch 1\n")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"\x1f\x8b nothing")
    for file in (other, broken, tmp_path / "none.log"):
        assert file.name in says(2, file).err
    other.write_text(
        '{"schemaVersion": 1, "distributedInfo": {"pg_config": []}, "traceEvents": []}'
    )
    err = says(2, other).err
    assert "this is a Kineto trace" in err and f"collbench replay {other} reads it" in err


def test_gzip_whole_and_cut(tmp_path: Path, says: Says) -> None:
    whole = tmp_path / "job.log.gz"
    data = gzip.compress(FAILED.read_bytes())
    whole.write_bytes(data)
    assert "job.log.gz line 31" in says(1, whole).out
    # bytes that do not compress, so that the cut one has many lines too
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(FAILED.read_bytes() + bytes(range(256)) * 400)[:-40])
    err = says(0, cut, "--fail-on", "never").err
    assert "cut.gz: it cannot be unpacked: " in err
    assert err.endswith("What comes before was read.\n")


def test_stdin(says: Says) -> None:
    with stdin_of(FAILED):
        assert "stdin line 31" in says(1, "-").out


def test_documents(tmp_path: Path, says: Says) -> None:
    page = tmp_path / "log.html"
    document = says(1, FAILED, "--json", "-", "--html", page).result
    assert document["verdict"] == "FAIL"
    assert [one["check"] for one in document["findings"]][:2] == ["ib-completion", "remote-exit"]
    text = page.read_text()
    assert "status 12 = RETRY_EXC_ERR" in text and "<script" not in text
    assert f"; NVLS is not in the log; read {date.today()}</p>" in text
    says(2, FAILED, "--json", "-", "--html", "-")


def test_a_hang(tmp_path: Path, says: Says) -> None:
    # without it too it says what is wrong in any job, and that there is more to ask
    said = says(1, DATA / "hang.txt")
    assert "mismatched-collective" in said.out and "rank-behind" not in said.out
    assert "If the job hangs, --hang names who did not come" in said.err
    pickled = tmp_path / "nccl_trace_rank_0"
    pickled.write_bytes(b"\x80\x02}q\x00.")
    assert "pickle" in says(2, pickled).err


def test_dumps_that_cannot_be_compared_or_are_cut(tmp_path: Path, says: Says) -> None:
    one = {"collective_seq_id": 1, "process_group": ["0", "default_pg"], "state": "scheduled"}
    dump = json.dumps({"version": "2.5", "pg_config": [], "entries": [one]})
    file = tmp_path / "rank.json"
    file.write_text(dump)
    assert "nothing can be compared" in says(2, file).err
    file.write_text(dump[:-9])
    assert "is the file cut off?" in says(2, file).err


def test_files_of_one_name_are_told_apart(says: Says, tmp_path: Path) -> None:
    files = [tmp_path / name / "job.log" for name in ("n1", "n2")]
    for file in files:
        file.parent.mkdir()
        file.write_text(FAILED.read_text())
    assert str(files[0]) in "".join(says(1, *files).out.split())
