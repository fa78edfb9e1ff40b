"""The cache of compiled kernels: what is taken from it, and what is not."""

import os
from pathlib import Path

import pytest

from collbench.device import compile as device_compile
from collbench.device.compile import barrier_source, cubin

CODE = b"\x7fELF code of a kernel"


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Compilations, of a compiler in the place of NVRTC, for a cache in a folder of its own."""
    calls: list[int] = []

    def compile_source(source: object, arch: int) -> tuple[bytes, str]:
        calls.append(arch)
        return CODE, ""

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(device_compile, "compile_source", compile_source)
    monkeypatch.setattr(device_compile, "_key", lambda source, arch: f"key{arch}")
    return calls


def file_of(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "collbench" / "kernels").iterdir()
    return file


def test_a_kernel_is_compiled_once_and_kept_for_its_user_alone(
    tmp_path: Path, compiled: list[int]
) -> None:
    assert cubin(barrier_source(), 90) == cubin(barrier_source(), 90) == CODE
    assert compiled == [90]
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o600
    assert file_of(tmp_path).parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("harm", ["cut", "changed", "writable", "link", "folder"])
def test_what_others_may_have_written_is_not_used(
    tmp_path: Path, compiled: list[int], harm: str
) -> None:
    cubin(barrier_source(), 90)
    file = file_of(tmp_path)
    data = file.read_bytes()
    if harm == "cut":
        file.write_bytes(data[:-1])
    elif harm == "changed":
        file.write_bytes(data[:-1] + b"!")
    elif harm == "writable":
        file.chmod(0o666)
    else:
        file.rename(tmp_path / "elsewhere")
        if harm == "link":
            file.symlink_to(tmp_path / "elsewhere")
        else:
            file.mkdir()
    assert cubin(barrier_source(), 90) == CODE
    assert compiled == [90, 90]
    assert harm == "folder" or file.read_bytes() == data


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user: run as root")
def test_a_file_of_another_user_is_not_used(tmp_path: Path, compiled: list[int]) -> None:
    cubin(barrier_source(), 90)
    os.chown(file_of(tmp_path), 65534, 65534)
    cubin(barrier_source(), 90)
    assert compiled == [90, 90]


def test_a_cache_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert cubin(barrier_source(), 90) == CODE
    assert list((tmp_path / "collbench" / "kernels").iterdir()) == []
