"""NVRTC and nvdisasm from their wheels: kernels are compiled and disassembled without CuPy and
without a GPU.

Nvrtc has the functions of cupy.cuda.nvrtc that collbench.device.compile calls, by the same names.
"""

import ctypes
import hashlib
import os
import pickle
import re
import struct
import subprocess
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from collbench.device import compile as device_compile
from collbench.device.compile import Source, compile_source

LIBRARIES = {13: "cu13/lib/libnvrtc.so.13", 12: "cuda_nvrtc/lib/libnvrtc.so.12"}
WHEELS = "pip install 'collbench[test]'"
_LIMIT_S = 120
_IS_EXECUTED = 4  # SHF_EXECINSTR of a section of ELF


class NvrtcError(Exception):
    """An error that NVRTC reports."""


class Nvrtc:
    """One libnvrtc."""

    NVRTCError = NvrtcError

    def __init__(self, file: Path) -> None:
        # NVRTC does not always find this library by itself
        self._builtins = [
            ctypes.CDLL(str(found)) for found in file.parent.glob("libnvrtc-builtins.so.*")
        ]
        self._library = ctypes.CDLL(str(file))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def _call(self, name: str, *args: object) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            raise NvrtcError(f"{name}: {self._library.nvrtcGetErrorString(code).decode()}")

    def _text(self, name: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{name}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{name}", program, buffer)
        return buffer.raw

    def getVersion(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def createProgram(
        self, text: str, name: str, headers: Sequence[bytes], names: Sequence[bytes]
    ) -> ctypes.c_void_p:
        program, strings = ctypes.c_void_p(), ctypes.c_char_p * len(headers)
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            text.encode(),
            name.encode(),
            len(headers),
            strings(*headers),
            strings(*names),
        )
        return program

    def compileProgram(self, program: ctypes.c_void_p, options: Sequence[str]) -> None:
        self._call(
            "nvrtcCompileProgram",
            program,
            len(options),
            (ctypes.c_char_p * len(options))(*(option.encode() for option in options)),
        )

    def getCUBIN(self, program: ctypes.c_void_p) -> bytes:
        return self._text("CUBIN", program)

    def getProgramLog(self, program: ctypes.c_void_p) -> str:
        return self._text("ProgramLog", program).rstrip(b"\0").decode()

    def destroyProgram(self, program: ctypes.c_void_p) -> None:
        self._call("nvrtcDestroyProgram", ctypes.byref(program))


def _in_wheels(path: str) -> Path:
    spec = find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (Path(folder) / path).exists():
            return Path(folder) / path
    raise FileNotFoundError(f"no nvidia/{path} among the installed packages: {WHEELS}")


@cache
def nvrtc_for(arch: int) -> Nvrtc:
    """The NVRTC that compiles for an architecture. CUDA 13 does not support those below sm_75."""
    return Nvrtc(_in_wheels(LIBRARIES[13 if arch >= 75 else 12]))


def compiled_once(source: Source, arch: int, *more: str) -> tuple[bytes, str]:
    """Machine code and the log, as of compile_source: a source is compiled once in a run of tests,
    whichever of its workers asks.
    """
    nvrtc, folder = nvrtc_for(arch), device_compile.SOURCES
    texts = [(file.name, file.read_bytes()) for file in sorted(folder.glob("*.cu*"))]
    key = hashlib.sha256(repr((source, arch, more, nvrtc.getVersion(), texts)).encode())
    kept = Path(os.environ["COLLBENCH_COMPILED"], key.hexdigest())
    if not kept.exists():
        draft = kept.with_suffix(f".{os.getpid()}")
        draft.write_bytes(pickle.dumps(compile_source(source, arch, *more, nvrtc=nvrtc)))
        draft.replace(kept)
    made: tuple[bytes, str] = pickle.loads(kept.read_bytes())
    return made


def code_bytes(cubin: bytes) -> int:
    """The size of all sections of machine code that are executed."""
    (start,), (size, count) = (
        struct.unpack_from("<Q", cubin, 40),
        struct.unpack_from("<2H", cubin, 58),
    )
    sections = [
        struct.unpack_from("<2I4Q", cubin, start + number * size) for number in range(count)
    ]
    return sum(length for _, _, flags, _, _, length in sections if flags & _IS_EXECUTED)


def instructions(cubin: bytes, folder: Path) -> Counter[str]:
    """The count of each instruction, with its modifiers, in machine code."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    done = subprocess.run(
        [_in_wheels("cu13/bin/nvdisasm"), "-c", "--no-dataflow", file],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=True,
    )
    return Counter(
        re.findall(
            r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", done.stdout, re.MULTILINE
        )
    )
