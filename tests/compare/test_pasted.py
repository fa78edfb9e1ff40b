"""What people paste and logs have: lines that were broken, prefixes that are learned from the
headings, and streams of lines, which are kept apart.
"""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from textwrap import wrap

import pandas as pd
import pytest

from collbench.compare.load import load
from collbench.core.errors import UsageError
from tests.support.frames import H200
from tests.support.nccl_tests_text import PROGRAMS, VERSIONS, output
from tests.support.results import DATA, written
from tests.support.tiers import tiered

Prefix = Callable[[int], str]


def constant(text: str) -> Prefix:
    return lambda number: text


# those of every reader are in tests/core/test_pasted.py
PREFIXES: dict[str, Prefix] = {
    "kubectl --prefix": constant("[pod/nccl-x-7d9/nccl] "),
    "kubectl --timestamps": lambda i: f"[pod/a/b] 2026-01-02T03:{i // 60:02}:{i % 60:02}.{i:06}Z ",
    "torchrun": constant("[default0]:"),
    "PALS": constant("x3005c0s13b0n0.hsn.cm.polaris.alcf.anl.gov 0: "),
    "stern": constant("nccl-x-7d9 nccl "),
    "srun -l": constant(" 0: "),
    "mpirun --tag-output": constant("[prterun-node1-77@1,0]<stdout>: "),
    "mpirun --timestamp-output": lambda i: f"Fri Jan  2 03:04:{i:02} 2026[1,0]<stdout>:",
    "cat -n": lambda i: f"{i + 1:6}\t",
    "grep -n": lambda i: f"logs/run1.txt:{i + 1}:",
    "since the start": lambda i: f"[{i * 1.37:10.6f}] ",
    "seconds": lambda i: f"[{i // 3:4}] ",
    "half days": lambda i: f"1/2/2026 {i % 11 + 1}:{i:02}:04 {'AP'[i % 2]}M ",
    "since 1970": lambda i: f"{1767323045123 + i} ",
    "logging": lambda i: f"2026-01-02 03:04:{i:02},{i:03} - INFO - ",
    "klog": lambda i: f"I0102 03:04:{i:02}.{i:06}   12345 run.go:123] ",
    "indented": constant("    "),
    "a tool nobody knows": lambda i: f"<<{i * 3 % 101}|w-0>> ",
}
FILES = ("mpirun-tagged.txt", "no-ranks.txt", "all_gather-2.0.txt", "osu_allreduce.txt")


@pytest.mark.parametrize("width", [80, 100, 110])
def test_a_terminal_broke_the_lines(tmp_path: Path, width: int) -> None:
    text = output(VERSIONS[-1], "allreduce", 4, [100.0 * 2**size for size in range(9)])
    lines = [f"[default0]:{line}" for line in text.splitlines()]
    broken = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
    whole = load(written(tmp_path, "\n".join(lines), "allreduce.txt")).records
    cut = map(str.rstrip, broken)
    by_words = (wrap(line, width, replace_whitespace=False) for line in text.splitlines())
    for pasted in (broken, cut, chain(*by_words)):
        assert load(written(tmp_path, "\n".join(pasted), "allreduce.txt")).records == whole


@pytest.mark.parametrize("file", [DATA / "nvbandwidth.json", H200])
def test_a_document_behind_tags(tmp_path: Path, file: Path) -> None:
    text = file.read_text()
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines())
    whole, behind = (load(written(tmp_path, one, file.name)).records for one in (text, tagged))
    assert (len(behind), behind) == (len(whole), whole)


def test_all_sizes_slower_in_one_way_are_no_disturbance(tmp_path: Path) -> None:
    lines = output(VERSIONS[-1], "allreduce", 4, [100.0, 3000.0, 9000.0]).splitlines()
    for at, line in enumerate(lines):
        if line.strip()[:1].isdigit():
            cells = line.split()
            rates = [f"{float(cell) / 20:.6f}" for cell in cells[10:12]]
            lines[at] = " ".join([*cells[:9], str(float(cells[9]) * 20), *rates, *cells[12:]])
    loaded = load(written(tmp_path, "\n".join(lines) + "\n", "allreduce.txt"))
    (said,) = (text for text in loaded.remarks if "times as long" in text)
    assert said.startswith("3 sizes took 15 times as long in place")


@pytest.mark.parametrize("name", FILES)
@tiered("prefix", PREFIXES.values(), 3, ids=PREFIXES)
def test_a_prefix_changes_nothing(prefix: Prefix, name: str, tmp_path: Path) -> None:
    lines = (DATA / name).read_text().splitlines()
    text = "".join(f"{prefix(number)}{line}\n" for number, line in enumerate(lines))
    loaded, plain = load(written(tmp_path, text, name)), load(DATA / name)
    pd.testing.assert_frame_equal(loaded.frame, plain.frame)
    assert loaded.remarks == plain.remarks


def test_a_tag_that_is_written_again_in_a_line(tmp_path: Path) -> None:
    """Open MPI tags each part of a line that comes in parts."""
    lines = (DATA / "no-ranks.txt").read_text().splitlines()
    tag = "[1,0]<stdout>:"
    text = "".join(f"{tag}{line.replace('N/A   ', f'N/A{tag}   ')}\n" for line in lines)
    assert tag in text.replace("\n" + tag, "")
    pd.testing.assert_frame_equal(
        load(written(tmp_path, text)).frame, load(DATA / "no-ranks.txt").frame
    )


def _output(op: str, time_us: float) -> list[str]:
    return output(VERSIONS[-1], op, 4, [time_us, 2 * time_us], has_ranks=False).splitlines()


def test_programs_that_print_at_once_are_kept_apart_by_their_tags(tmp_path: Path) -> None:
    one = ["all_reduce_perf", *_output("allreduce", 300.0)]
    other = ["broadcast_perf", *_output("broadcast", 200.0)]
    lines = [
        f"{tag}: {line}"
        for pair in zip(one, other, strict=True)
        for tag, line in zip(("ar", "bc"), pair, strict=True)
    ]
    text = "\n".join(lines).replace("ar: all_reduce_perf\nbc: broadcast_perf\n", "")
    with pytest.raises(UsageError, match=r"does not name|two runs|is no row"):
        load(written(tmp_path, text.replace("bc: ", "ar: ")))
    frame = load(written(tmp_path, text)).frame
    assert sorted(set(frame["op"])) == ["allreduce", "broadcast"]
    assert set(frame["time_us"][frame["op"] == "broadcast"]) == {200.0, 150.0, 400.0, 300.0}


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_programs_whose_lines_nothing_tells_apart_are_refused(step: int, tmp_path: Path) -> None:
    one, other = _output("allreduce", 300.0), _output("allreduce", 200.0)
    lines = [
        line
        for at in range(0, len(one), step)
        for lines in (one, other)
        for line in lines[at : at + step]
    ]
    # a cut one of longer parts may be a run that stopped, and then another
    for cut in (len(lines), len(lines) - 4)[: 2 if step < 3 else 1]:
        text = "all_reduce_perf\n" + "\n".join(lines[:cut]) + "\n"
        with pytest.raises(UsageError, match=r"several programs|at once"):
            load(written(tmp_path, text))


def test_each_stream_has_the_program_of_its_own_command(tmp_path: Path) -> None:
    names = ("allreduce", "broadcast")
    outputs = [
        [f"+ ./{PROGRAMS[op]} -g 4", *_output(op, 100.0 * place)]
        for place, op in enumerate(names, start=1)
    ]
    text = "".join(
        f"{tag}| {line}\n"
        for lines in zip(*outputs, strict=True)
        for tag, line in zip("ab", lines, strict=True)
    )
    frame = load(written(tmp_path, text)).frame
    assert [set(frame["op"][frame["time_us"] == time]) for time in (75.0, 400.0)] == [
        {"allreduce"},
        {"broadcast"},
    ]


def test_tables_of_both_tools_in_one_log(tmp_path: Path) -> None:
    nccl, osu = (DATA / "no-ranks.txt").read_text(), (DATA / "osu_allreduce.txt").read_text()
    for text in (nccl + osu, osu + nccl):
        frame = load(written(tmp_path, text)).frame
        assert len(frame) == 7
        assert set(frame["backend"]) == {"nccl", "mpi"}
