"""Kernels with stamps compile; without the macros, nothing of stamps and of tables of unequal
blocks is in a kernel.
"""

import re
import shutil
from itertools import product
from pathlib import Path

import pytest

from collbench.device import compile as device_compile
from collbench.device.compile import SOURCES, kernel_source
from collbench.planning.planner import resolve
from tests.device.test_kernels import SHAPES, compiled, limits_of
from tests.support.nvrtc import code_bytes

_TRACED_LINE = re.compile(r'^ *(?:TRACED\(.*\)|#include "trace\.cuh")\n', re.MULTILINE)
_BLOCKS = re.compile(
    r"^#ifdef BLOCKS\n(?:(?!#(?:else|endif)).*\n)*(?:#else\n((?:(?!#endif).*\n)*))?#endif\n",
    re.MULTILINE,
)
# another number of sources, targets, tracks or loops repeats lines that these have
KINDS = [kind for kind in SHAPES if not re.search(" of (many|tracks|loops|one)|many|counted", kind)]


def bare(folder: Path) -> Path:
    """The sources without any line that only stamps or unequal blocks have."""
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "trace.cuh").unlink()
    for file in folder.glob("*.cu*"):
        text = _TRACED_LINE.sub("", file.read_text()).replace(" TRACE_PARAMETER", "")
        assert not re.search("TRACE|STAMP|stamp", text), file.name
        text = _BLOCKS.sub(lambda found: found[1] or "", text)
        text = re.sub(r"^struct Block \{\n.*\n\};\n", "", text, flags=re.MULTILINE)
        assert not re.search(r"BLOCKS|\bBlock\b|\bblocks\[", re.sub("//.*", "", text)), file.name
        file.write_text(text)
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "arch"), list(product(KINDS, (70, 90))))
def test_kernels_have_stamps_if_traced_and_no_byte_of_what_they_do_not_use(
    kind: str, arch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = resolve(SHAPES[kind], limits_of(arch)).plan
    source = kernel_source(plan, 0)
    assert not {"BLOCKS", "TRACE"} & {name for name, _ in source.macros}
    code = compiled(source, arch)
    traced = compiled(kernel_source(plan, 0, is_traced=True), arch)
    assert code_bytes(traced) > code_bytes(code)
    monkeypatch.setattr(device_compile, "SOURCES", bare(tmp_path / "device"))
    assert compiled(source, arch) == code
