"""Kernels from source to machine code: the macros of a plan's kernel, NVRTC, and a cache of
compiled kernels.

Compiling needs no GPU. The key of the cache covers the architecture, the compiler, the options and
every source of this folder, because a kernel may include any of them.
"""

import hashlib
import os
import stat
import struct
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collbench.core.dtypes import REDOPS, dtype
from collbench.core.errors import CollbenchError, UnavailableError
from collbench.device.cupy_types import Nvrtc
from collbench.device.layout import macros
from collbench.device.program import (
    is_aligned,
    is_narrow,
    largest_piece,
    lower,
    needs_fences,
    program_text,
)
from collbench.planning.limits import fits_one_loop, needs_no_credits
from collbench.planning.plan import Plan

SOURCES = Path(__file__).parent
_DIGEST_BYTES = hashlib.sha256().digest_size  # before the code in a file of the cache
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
DTYPE_NUMBER = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "int64": 3,
    "float16": 4,
    "bfloat16": 5,
    "float32": 6,
    "float64": 7,
    "float8_e4m3fn": 8,
    "float8_e5m2": 9,
}
PDL_NUMBER = {"off": 0, "early": 1, "late": 2}  # as in program.cuh
# the most sources plus targets for which the code of a step is unrolled: the rank's own data, that
# of seven peers, and the result
MAX_UNROLLED = 9
# of all slots, up to which they are all read before the number of the next one is known
FEW_LINES_BYTES = 256 << 10
_TABLE = "program_table.h"
CUPY_INSTALL_HINT = (
    "install it with: pip install 'collbench[cuda13]' (or [cuda12] for a driver of CUDA 12)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The input of one compilation: a file of this folder, macros, and the text of the program if
    it is compiled in.
    """

    file: str
    macros: tuple[tuple[str, str], ...]
    table: str = ""


def kernel_source(
    plan: Plan,
    rank: int,
    drop_after: int | None = None,
    *,
    any_size: bool = False,
    is_traced: bool = False,
) -> Source:
    """The source of a rank's kernel.

    drop_after, for tests: rank 0 stops sending on channel 0 after that many slices. any_size: the
    kernel also serves smaller problems of the plan. is_traced: it stamps what it does (see
    trace.cuh).
    """
    kernel, program = plan.kernel, lower(plan, rank)
    assert kernel is not None
    if plan.transport == "ce":
        return engine_source(plan)
    values: dict[str, int | str] = dict(macros(program))
    values |= {
        "DTYPE": DTYPE_NUMBER[plan.problem.dtype],
        "ITEM": dtype(plan.problem.dtype).item_bytes,
        "REDOP": REDOPS.index(plan.problem.redop),
        "THREADS": kernel.threads,
        "SLOTS": plan.slots,
        "SLICED": int(plan.slices > 1),
        "PDL": PDL_NUMBER[kernel.pdl],
        "NARROW": int(is_narrow(plan)),
        "PARTS": plan.parts if plan.is_interleaved else 0,
    }
    if plan.problem.counts:
        values["BLOCKS"] = 1 + len(program.blocks)
    unit = 8 if kernel.proto == "ll" else 16
    aligned = not any_size and is_aligned(plan, unit)
    is_whole = aligned and plan.problem.block_bytes % unit == 0
    values |= {"ALIGNED": int(aligned), "WHOLE": int(is_whole)}
    if drop_after is not None:
        values["INJECT_DROP"] = drop_after
    if is_traced:
        values["TRACE"] = 1
    if kernel.proto == "simple":
        small = [shape for shape in program.shapes if sum(shape) <= MAX_UNROLLED]
        values |= {
            "UNROLL": kernel.unroll,
            "WIDE": int(len(small) < len(program.shapes)),
            "SHAPES": " ".join(f"SHAPE({sources},{targets})" for sources, targets in small),
        }
        return Source(file="simple.cu", macros=_sorted(values))
    values |= {
        "SINGLE": int(fits_one_loop(plan)),
        "UNCREDITED": int(not any_size and needs_no_credits(plan)),
        "FENCED": int(needs_fences(plan)),
    }
    values |= {"BATCH": kernel.credit_batch(plan.slots)}
    if kernel.proto == "ll128":
        values |= {"RELOAD": int(kernel.reload), "ONE_PASS": 0}
    else:
        piece = largest_piece(plan)
        is_one_pass = not any_size and piece <= unit * kernel.threads * kernel.unroll
        has_few = is_one_pass and piece * plan.channels * plan.slots <= FEW_LINES_BYTES
        values |= {"LINES": kernel.unroll, "ONE_PASS": int(is_one_pass), "FEW_LINES": int(has_few)}
    if kernel.specialized:
        values["COMPILED_PROGRAM"] = f'"{_TABLE}"'
    return Source(
        file=f"{kernel.proto}.cu",
        macros=_sorted(values),
        table=program_text(program) if kernel.specialized else "",
    )


def move_widths(plan: Plan) -> list[int]:
    """The numbers of sources of the moves between copies by a copy engine."""
    return sorted(
        {
            1,
            *(
                sources
                for rank in range(len(plan.schedule.programs))
                for sources, _ in lower(plan, rank).shapes
            ),
        }
    )


def engine_source(plan: Plan) -> Source:
    """The source of the kernels of a launch by copy engines; the same for every rank."""
    assert plan.kernel is not None
    widths = move_widths(plan)
    small = [sources for sources in widths if sources < MAX_UNROLLED]
    return Source(
        file="engine.cu",
        macros=_sorted(
            {
                "DTYPE": DTYPE_NUMBER[plan.problem.dtype],
                "ITEM": dtype(plan.problem.dtype).item_bytes,
                "REDOP": REDOPS.index(plan.problem.redop),
                "THREADS": plan.kernel.threads,
                "UNROLL": plan.kernel.unroll,
                "MAX_SOURCES": widths[-1],
                "WIDE": int(len(small) < len(widths)),
                "SHAPES": " ".join(f"SHAPE({sources})" for sources in small),
            }
        ),
    )


def pattern_source(item_bytes: int) -> Source:
    """The kernels that write inputs and verify outputs, for elements of that width."""
    return Source(file="pattern.cu", macros=(("ITEM", str(item_bytes)),))


def barrier_source() -> Source:
    """The kernel of the barrier of all ranks."""
    return Source(file="barrier.cu", macros=(("ITEM", "4"),))


def flag_source(*, is_dependent: bool) -> Source:
    """The least kernel, which exchanges flags, as a launch that depends on the one in front of it
    or as another.
    """
    return Source(file="flag.cu", macros=(("DEPENDENT", str(int(is_dependent))), ("ITEM", "4")))


def copy_source() -> Source:
    """The kernel that copies."""
    return Source(file="copy.cu", macros=(("ITEM", "4"),))


def _sorted(values: Mapping[str, int | str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in values.items()))


def cubin(source: Source, arch: int) -> bytes:
    """Machine code for compute capability arch / 10, from the cache or from NVRTC. Raises
    UnavailableError without CuPy.
    """
    file = _cache_folder() / f"{_key(source, arch)}.cubin"
    code = _kept(file)
    if code is None:
        code, _ = compile_source(source, arch)
        _keep(file, code)
    return code


def compile_source(source: Source, arch: int, *more: str, nvrtc: Nvrtc = None) -> tuple[bytes, str]:
    """Machine code and the compiler's log, without the cache. `more`: options for NVRTC; nvrtc: its
    binding, by default CuPy's.
    """
    nvrtc = nvrtc or _nvrtc()
    options = [
        "-std=c++17",
        "-default-device",
        f"-arch=sm_{arch}",
        f"-I{SOURCES}",
        *(f"-D{name}={value}" for name, value in source.macros),
        *more,
    ]
    headers, names = ([source.table.encode()], [_TABLE.encode()]) if source.table else ([], [])
    program = nvrtc.createProgram((SOURCES / source.file).read_text(), source.file, headers, names)
    try:
        nvrtc.compileProgram(program, options)
        return _whole(bytes(nvrtc.getCUBIN(program))), str(nvrtc.getProgramLog(program))
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise CollbenchError(
            f"NVRTC refuses {source.file} for sm_{arch}: {error}\n{log}",
            "this looks like a mistake in collbench: please report it",
        ) from None
    finally:
        nvrtc.destroyProgram(program)


def _whole(elf: bytes) -> bytes:
    """The file padded to the end of its program headers, its last part: CuPy drops the last byte, a
    zero, as the end of a string.
    """
    (start,), (size, count) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<2H", elf, 54)
    return elf.ljust(start + size * count, b"\0")


def _nvrtc() -> Nvrtc:
    try:
        from cupy.cuda import nvrtc
    except ImportError:
        raise UnavailableError("CuPy is not installed", CUPY_INSTALL_HINT) from None
    return nvrtc


@cache
def _folder_hash() -> str:
    text = b"".join(
        file.name.encode() + file.read_bytes() for file in sorted(SOURCES.glob("*.cu*"))
    )
    return hashlib.sha256(text).hexdigest()


def _key(source: Source, arch: int) -> str:
    text = repr((source, arch, _nvrtc().getVersion(), _folder_hash()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "collbench" / "kernels"


def _kept(file: Path) -> bytes | None:
    """What was kept in a file of this user that nobody else can write, if it is whole; else None:
    a GPU runs it.
    """
    try:
        with open(file, "rb", opener=_no_link) as opened:
            status = os.fstat(opened.fileno())
            if status.st_uid != os.getuid() or status.st_mode & _WRITABLE_BY_OTHERS:
                return None
            digest, code = opened.read(_DIGEST_BYTES), opened.read()
    except OSError:
        return None
    return code if hashlib.sha256(code).digest() == digest else None


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _keep(file: Path, content: bytes) -> None:
    """Write the whole file or nothing, because other processes read it concurrently. A cache that
    cannot be written is not an error.
    """
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # of which only this user can read and write
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as draft:
            try:
                draft.write(hashlib.sha256(content).digest() + content)
                draft.flush()
                Path(draft.name).replace(file)
            except BaseException:
                Path(draft.name).unlink(missing_ok=True)
                raise
