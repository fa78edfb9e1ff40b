"""The kernels' sources: they compile for every GPU, keep all operands in registers, access 16 bytes
at a time and name no schedule. Nothing of stamps and of unequal blocks is in one without them.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import pytest

from collbench.core.case import Case
from collbench.core.collectives import ALL_OPS, OPS, OpName
from collbench.core.dtypes import DTYPES, REDOPS, DtypeName, RedopName
from collbench.device import compile as device_compile
from collbench.device.compile import (
    SOURCES,
    Source,
    barrier_source,
    compile_source,
    copy_source,
    flag_source,
    kernel_source,
    pattern_source,
)
from collbench.device.program import SLOT, Program, lower
from collbench.planning.limits import Limits
from collbench.planning.planner import resolve
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.protocols import sentinel
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from tests.support.litmus import BY_NAME, litmus_source
from tests.support.nvrtc import Nvrtc, code_bytes, compiled_once, instructions, nvrtc_for
from tests.support.tables import cells_of, values_of
from tests.support.tiers import pairwise_of, tiered

ARCHS = (70, 80, 90, 100, 120)
FP8_SINCE = 89  # compute capability that converts 8-bit floats


SHAPES: dict[str, Case] = {
    name: Case(backend="cuda", **values_of(text))
    for name, text in cells_of(__file__, "kernels.tsv")
}


def limits_of(arch: int) -> Limits:
    """What GPUs of an architecture have."""
    return Limits(has_clusters=arch >= 90)


def compiled(source: Source, arch: int) -> bytes:
    """The machine code of a source. Asserts that NVRTC reports nothing."""
    made, log = compiled_once(source, arch)
    # NVRTC 12.9 calls sm_70 deprecated
    assert [line for line in log.splitlines() if line and "deprecated" not in line] == []
    return made


OF_ANY_TYPE = [name for name in PROTOCOLS if not PROTOCOLS.load(name).CLEARS]
WITH_MARKER = [dtype for dtype in DTYPES if not sentinel.why_not(dtype)]
KINDS = [
    (dtype, redop, arch)
    for dtype, redop, arch in product(DTYPES, REDOPS, ARCHS)
    if arch >= FP8_SINCE or not dtype.startswith("float8")
]
# Every type; protocols, reductions and GPUs take turns.
DAILY_TYPES = [
    (proto, dtype, redop, 90 if dtype.startswith("float8") else arch)
    for dtype, proto, redop, arch in zip(
        (*DTYPES, *WITH_MARKER),
        [*islice(cycle(OF_ANY_TYPE), len(DTYPES)), *["sentinel"] * len(WITH_MARKER)],
        cycle(REDOPS),
        cycle((*ARCHS, 80)),
        strict=False,
    )
]


@tiered(
    ("proto", "dtype", "redop", "arch"),
    DAILY_TYPES
    # any two of type, reduction and GPU are compiled together; how data moves takes turns
    + [
        (proto, dtype, redop, arch)
        for proto, (dtype, redop, arch) in zip(cycle(OF_ANY_TYPE), pairwise_of(KINDS), strict=False)
        if (proto, dtype, redop, arch) not in DAILY_TYPES
    ],
    2,
)
def test_types_and_reductions_compile(
    proto: str, dtype: DtypeName, redop: RedopName, arch: int
) -> None:
    given: dict[str, Any] = {"dtype": dtype, "redop": redop, "ranks": 3, "size_bytes": 4096}
    case = Case(op="allreduce", algo="oneshot", proto=proto, backend="cuda", **given)
    compiled(kernel_source(resolve(case, limits_of(arch)).plan, 0), arch)


@tiered(("shape", "arch"), product(SHAPES, ARCHS), 3)
def test_every_kind_of_kernel_compiles(shape: str, arch: int) -> None:
    """What the host packs has the size that the kernels assert."""
    plan = resolve(SHAPES[shape], limits_of(arch)).plan
    for source in {kernel_source(plan, rank) for rank in (0, plan.n - 1)}:
        compiled(source, arch)


@tiered("arch", ARCHS, 1)
def test_kernels_beside_the_plans_compile(arch: int) -> None:
    flag = flag_source(is_dependent=arch >= 90)
    for source in (barrier_source(), flag, copy_source(), *map(pattern_source, (1, 2, 4, 8))):
        compiled(source, arch)


@tiered(
    ("name", "arch"),
    product(BY_NAME, ARCHS),
    [("mp-16-warps-fence", 70), ("line-128-reload", 90), ("lb-warps", 120)],
)
def test_litmus_tests_compile(name: str, arch: int) -> None:
    source = litmus_source(BY_NAME[name])
    compiled(source, arch)
    if name.startswith("line-128"):
        planted = litmus_source(BY_NAME[name], is_unordered=True)
        assert compiled(planted, arch) != compiled(source, arch)


@pytest.mark.exhaustive
def test_kernels_for_stress_tests_and_faults_compile() -> None:
    for shape in ("simple", "ll", "ll128", "sentinel"):
        plan = resolve(SHAPES[shape]).plan
        compiled(kernel_source(plan, 0, drop_after=2, any_size=True), 90)


@pytest.mark.parametrize("arch", [70, 90])
def test_machine_code_is_whole(arch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the binding drops the last byte, as CuPy's does."""
    nvrtc = nvrtc_for(arch)
    whole, _ = compile_source(barrier_source(), arch, nvrtc=nvrtc)
    monkeypatch.setattr(nvrtc, "getCUBIN", lambda program: Nvrtc.getCUBIN(nvrtc, program)[:-1])
    assert compile_source(barrier_source(), arch, nvrtc=nvrtc)[0] == whole


# The tool's own choices on an H100 or H200


def choices(op: OpName, n: int) -> Iterable[tuple[Source, Program]]:
    """The different kernels of the automatic choices from 8 bytes to 1 GiB, in steps of 8 from
    where the collective's turn is, that store over the link, with their programs.

    Of kernels that differ only in the number of threads, or in the numbers of a program of one
    shape, this returns the one that has most threads, whose threads have the fewest registers.
    """
    kernels: dict[object, tuple[int, Source, Program]] = {}
    for size in (8 << k for k in range(ALL_OPS.index(op) % 3, 28, 3)):
        case = Case(op=op, backend="cuda", transport="p2p", ranks=n, size_bytes=size).rounded()
        if case.why_senseless():
            continue
        plan = resolve(case).plan
        assert plan.kernel is not None
        for rank in range(1 if plan.schedule.is_symmetric else n):
            source = kernel_source(plan, rank)
            key = source.file, *(macro for macro in source.macros if macro[0] != "THREADS")
            if key not in kernels or kernels[key][0] < plan.kernel.threads:
                kernels[key] = (plan.kernel.threads, source, lower(plan, rank))
    return [(source, program) for _, source, program in kernels.values()]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("op", "n"), [*((op, 4) for op in ALL_OPS[::2]), ("allreduce", 8), ("alltoall", 2)]
)
def test_automatic_choices_stay_in_registers(op: OpName, n: int, tmp_path: Path) -> None:
    """They neither spill nor have a stack, with the threads that they are launched with. For 4
    ranks, the instructions of one kernel of each kind are checked as well.
    """
    seen = set()
    for source, program in choices(op, n):
        moves = moves_of(program)
        made, log = compiled_once(source, 90, "--ptxas-options=-v")
        frames = re.findall(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
        )
        assert frames
        assert set(frames) == {("0", "0", "0")}, f"{source}: {log}"
        kind = (source.file, dict(source.macros).get("ALIGNED"), moves)
        if n == 4 and kind not in seen:
            seen.add(kind)
            assert_wide(source.file, moves, instructions(made, tmp_path))


def moves_of(program: Program) -> frozenset[str]:
    """The memory accesses of a program's steps: loads or stores, in slots or in buffers."""
    return frozenset(
        f"{verb} {'slot' if ref.kind == SLOT else 'buffer'}"
        for step in program.steps
        for verb, refs in (("load", step.sources), ("store", step.targets))
        for ref in refs
    )


def assert_wide(file: str, moves: frozenset[str], found: Counter[str]) -> None:
    """Every load and store of a step has sixteen bytes, except for the 8 bytes of payload of ll,
    and nothing is in local memory.
    """
    assert found["EXIT"]
    assert not [name for name in found if name.startswith(("LDL", "STL"))]
    is_flagged = file != "simple.cu"
    for verb, instruction in (("load", "LDG.E.128"), ("store", "STG.E.128")):
        # A line with flags never comes from a cache that the peer's store does not reach.
        assert bool(found[f"{instruction}.STRONG.SYS"]) == (is_flagged and f"{verb} slot" in moves)
        # A reader of sentinel clears its own slot as it stores into a buffer.
        clears = (file, verb) == ("sentinel.cu", "store") and "load slot" in moves
        if file != "ll.cu":
            assert bool(found[instruction]) == (
                f"{verb} buffer" in moves or clears or (not is_flagged and f"{verb} slot" in moves)
            )


# Names


@pytest.mark.parametrize("file", sorted(SOURCES.glob("*.cu*")), ids=lambda file: file.name)
def test_kernels_name_no_schedule(file: Path) -> None:
    """One kernel a protocol runs any schedule. The only word allowed is the verb "reduce", in
    comments and in the name of reduce.cuh.
    """
    names = {*ALGORITHMS.names(), *OPS}
    code, comments = re.sub(r"//.*", "", file.read_text()), re.findall(r"//(.*)", file.read_text())
    assert words(code.replace('#include "reduce.cuh"', "")) & names == set()
    assert words("\n".join(comments)) & names <= {"reduce"}


def words(text: str) -> set[str]:
    """The words of a text; identifiers are split into their words.

    >>> sorted(words("ring_all(RingStep, allReduce2)"))
    ['all', 'reduce', 'ring', 'step']
    """
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)}


_TRACED_LINE = re.compile(r'^ *(?:TRACED\(.*\)|#include "trace\.cuh")\n', re.MULTILINE)
_BLOCKS = re.compile(
    r"^#ifdef BLOCKS\n(?:(?!#(?:else|endif)).*\n)*(?:#else\n((?:(?!#endif).*\n)*))?#endif\n",
    re.MULTILINE,
)
# another number of sources, targets, tracks or loops repeats lines that these have
DIFFERENT = [
    kind for kind in SHAPES if not re.search(" of (many|tracks|loops|one)|many|counted", kind)
]


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
@pytest.mark.parametrize(("kind", "arch"), list(product(DIFFERENT, (70, 90))))
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
