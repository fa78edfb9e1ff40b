"""Kernels with stamps: they compile, and without the macro nothing of them is in a kernel."""

import re
import shutil
from itertools import product
from pathlib import Path

import pytest

from collbench.device import compile as device_compile
from collbench.device.compile import SOURCES, kernel_source
from collbench.planning.planner import resolve
from tests.device.test_kernels import SHAPES, compiled, limits_of
from tests.support.nvrtc import instructions
from tests.support.tiers import tiered

_TRACED_LINE = re.compile(r'^ *(?:TRACED\(.*\)|#include "trace\.cuh")\n', re.MULTILINE)


def without_traces(folder: Path) -> Path:
    """The sources without any line of traces."""
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "trace.cuh").unlink()
    for file in folder.glob("*.cu*"):
        text = _TRACED_LINE.sub("", file.read_text()).replace(" TRACE_PARAMETER", "")
        assert not re.search("TRACE|STAMP|stamp", text), file.name
        file.write_text(text)
    return folder


DISASSEMBLED = 75  # the least architecture that the disassembler of CUDA 13 knows


# macros put the stamps in, whatever the architecture: one of each NVRTC
@pytest.mark.parametrize(
    ("kind", "arch"), tiered(list(product(SHAPES, (70, 90))), [("pulled", 90)])
)
def test_kernels_have_stamps_if_traced_and_else_no_byte_of_them(
    kind: str, arch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = resolve(SHAPES[kind], limits_of(arch)).plan
    source = kernel_source(plan, 0)
    code = compiled(source, arch)
    traced = compiled(kernel_source(plan, 0, is_traced=True), arch)
    if arch >= DISASSEMBLED:
        assert instructions(traced, tmp_path).total() > instructions(code, tmp_path).total()
    monkeypatch.setattr(device_compile, "SOURCES", without_traces(tmp_path / "device"))
    assert compiled(source, arch) == code
