"""`collbench log` from the command line."""

import gzip
import json
from datetime import date
from pathlib import Path

from collbench.cli import run
from tests.support.commands import Capture, result_of, stdin_of

DATA = Path(__file__).parent.parent / "data" / "nccl-logs"
HEALTHY = DATA / "rccl-2.21.txt"
SLOW = DATA / "v2.28-srun-two-sockets.txt"
FAILED = DATA / "v2.18-mpirun-ib-error.txt"


def test_what_a_healthy_host_prints_is_no_fault(capsys: Capture) -> None:
    assert run(["log", str(DATA / "healthy.txt"), "--fail-on", "risk"]) == 0
    out = capsys.readouterr().out
    assert not any(word in out for word in ("FAULT", "RISK", "of an error"))


def test_files_that_cannot_be_read_or_say_nothing(tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.log"
    other.write_text("epoch 1\n")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"\x1f\x8b nothing")
    for file in (other, broken, tmp_path / "none.log"):
        assert run(["log", str(file)]) == 2
        assert file.name in capsys.readouterr().err
    other.write_text(
        '{"schemaVersion": 1, "distributedInfo": {"pg_config": []}, "traceEvents": []}'
    )
    assert run(["log", str(other)]) == 2
    err = capsys.readouterr().err
    assert "this is a Kineto trace" in err and f"collbench replay {other} reads it" in err


def test_gzip_whole_and_cut(tmp_path: Path, capsys: Capture) -> None:
    whole = tmp_path / "job.log.gz"
    data = gzip.compress(FAILED.read_bytes())
    whole.write_bytes(data)
    assert run(["log", str(whole)]) == 1
    assert "job.log.gz line 31" in capsys.readouterr().out
    # bytes that do not compress, so that the cut one has many lines too
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(FAILED.read_bytes() + bytes(range(256)) * 400)[:-40])
    capsys.readouterr()
    assert run(["log", str(cut), "--fail-on", "never"]) == 0
    err = capsys.readouterr().err
    assert "cut.gz: it cannot be unpacked: " in err
    assert err.endswith("What comes before was read.\n")


def test_stdin(capsys: Capture) -> None:
    with stdin_of(FAILED):
        assert run(["log", "-"]) == 1
    assert "stdin line 31" in capsys.readouterr().out


def test_documents(tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "log.html"
    assert run(["log", str(FAILED), "--json", "-", "--html", str(page)]) == 1
    document = result_of(capsys.readouterr().out)
    assert document["verdict"] == "FAIL"
    assert [one["check"] for one in document["findings"]][:2] == ["ib-completion", "remote-exit"]
    text = page.read_text()
    assert "status 12 = RETRY_EXC_ERR" in text and "<script" not in text
    assert f"; NVLS is not in the log; read {date.today()}</p>" in text
    assert run(["log", str(FAILED), "--json", "-", "--html", "-"]) == 2


def test_a_hang(tmp_path: Path, capsys: Capture) -> None:
    assert run(["log", "--hang", str(DATA / "hang.txt")]) == 1
    assert "rank-behind: rank 2" in capsys.readouterr().out
    # without it too it says what is wrong in any job, and that there is more to ask
    assert run(["log", str(DATA / "hang.txt")]) == 1
    said = capsys.readouterr()
    assert "mismatched-collective" in said.out and "rank-behind" not in said.out
    assert "If the job hangs, --hang names who did not come" in said.err
    dumps = [str(DATA / f"recorder_rank_{rank}.json") for rank in (0, 1)]
    assert run(["log", *dumps]) == 1
    assert "rank-behind: rank 1" in capsys.readouterr().out
    assert run(["log", str(DATA / "ras.txt")]) == 1
    assert "rank-behind: rank 2" in capsys.readouterr().out
    assert run(["log", "--hang", str(HEALTHY), "--fail-on", "risk"]) == 0
    assert run(["log", "--hang", str(SLOW.parent / "interleaved.txt")]) == 2
    pickled = tmp_path / "nccl_trace_rank_0"
    pickled.write_bytes(b"\x80\x02}q\x00.")
    assert run(["log", str(pickled)]) == 2
    assert "pickle" in capsys.readouterr().err


def test_dumps_that_cannot_be_compared_or_are_cut(tmp_path: Path, capsys: Capture) -> None:
    one = {"collective_seq_id": 1, "process_group": ["0", "default_pg"], "state": "scheduled"}
    dump = json.dumps({"version": "2.5", "pg_config": [], "entries": [one]})
    file = tmp_path / "rank.json"
    file.write_text(dump)
    assert run(["log", str(file)]) == 2
    assert "nothing can be compared" in capsys.readouterr().err
    file.write_text(dump[:-9])
    assert run(["log", str(file)]) == 2
    assert "is the file cut off?" in capsys.readouterr().err


def test_files_of_one_name_are_told_apart(tmp_path: Path, capsys: Capture) -> None:
    files = [tmp_path / name / "job.log" for name in ("n1", "n2")]
    for file in files:
        file.parent.mkdir()
        file.write_text(FAILED.read_text())
    run(["log", *map(str, files)])
    assert str(files[0]) in "".join(capsys.readouterr().out.split())
