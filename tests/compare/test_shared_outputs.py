"""Each number that is imported from a shared output of another tool, against the text itself, which
is read here by other means.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from collbench.compare.load import load
from tests.support.results import REAL
from tests.support.runs import SHARED

OLD = "issue37_allgather_hash.txt"  # of before June 2020: algbw is busbw
FOREIGN = [
    file
    for file in sorted((SHARED / "foreign").glob("*"))
    # of nccl-tests before March 2019
    if file.name != OLD and not re.search(r"#\s+bytes\s+N\s", file.read_text())
]
needs_foreign = pytest.mark.skipif(not FOREIGN, reason="needs the shared outputs of other tools")


class Number(NamedTuple):
    """A measurement in a text; busbw is None where the tool prints none."""

    size: int
    placement: str
    time_us: float
    error_us: float
    busbw: float | None


def _in_text(text: str) -> Iterator[Number]:
    """The rows of nccl-tests: cells behind the element type, wherever the line begins."""
    for size, cells in re.findall(
        r"(\d+)\s+\d+\s+(?:float|bfloat16)\s+(?:sum|max|none)?([^\n]*)", text
    ):
        words = cells.split()
        words = words[1:] if re.fullmatch(r"-?\d+", words[0]) else words
        per_part = len(words) // 2
        for placement, part in (("out", words[:per_part]), ("in", words[per_part:])):
            digits = len(part[0].partition(".")[2])
            error_us = 0.5 * 10**-digits
            yield Number(int(size), placement, float(part[0]), error_us, float(part[2]))


def _in_json(text: str) -> Iterator[Number]:
    for result in json.loads(text)["results"]:
        for placement, key in (("out", "out_of_place"), ("in", "in_place")):
            part = result[key]
            yield Number(result["size"], placement, part["time"], 1e-6, part["bus_bw"])


def _in_osu(text: str) -> Iterator[Number]:
    """The rows of OSU under titles of collectives and of two ranks; sizes of blocks are times the
    ranks.
    """
    ranks = {"spack_multi_ranks.txt": 16, "jsrun.txt": 2 * 4}
    for part in re.split(r"# OSU ", text)[1:]:
        title = part.partition("\n")[0]
        if re.match(r"MPI(-CUDA)? (Allreduce|Allgather|Broadcast|Reduce_scatter) Lat", title):
            of_block = 1
            if "Allgather" in title:
                of_block = ranks["jsrun.txt" if "jsrun" in text else "spack_multi_ranks.txt"]
            for size, time in re.findall(r"(?m)^(\d+) +([\d.]+)$", part):
                yield Number(int(size) * of_block, "out", float(time), 0.005, None)
        rows = re.findall(r"(?m)^(\d+) +([\d.]+)$", part)
        if re.match(r"MPI(-CUDA)? Latency Test", title):
            yield from (Number(int(size), "out", float(time), 0.005, None) for size, time in rows)
        if re.match(r"MPI(-CUDA)? Bandwidth Test", title):
            for size, rate in rows:
                time_us = int(size) / float(rate)
                yield Number(int(size), "out", time_us, 0.0, float(rate) / 1e3)


def _numbers(text: str) -> list[Number]:
    if text.startswith("{"):
        return list(_in_json(text))
    return list(_in_osu(text) if "# OSU " in text else _in_text(text))


@needs_foreign
@pytest.mark.parametrize("file", [*FOREIGN, *REAL], ids=lambda file: file.name)
def test_every_number_is_that_of_the_text(file: Path) -> None:
    numbers = _numbers(file.read_text())
    frame = load(file).frame
    assert len(numbers) == len(frame) > 0
    for number, (_, row) in zip(numbers, frame.iterrows(), strict=True):
        assert (number.size, number.placement) == (row["size_bytes"], row["placement"])
        assert row["status"] == "ok"
        assert row["time_us"] == pytest.approx(number.time_us, rel=1e-6)
        assert row["algbw_gbs"] == pytest.approx(number.size / number.time_us / 1e3, rel=1e-6)
        if number.busbw is not None:
            error = 0.006 + number.busbw * number.error_us / number.time_us
            assert row["busbw_gbs"] == pytest.approx(number.busbw, abs=error, rel=0)
