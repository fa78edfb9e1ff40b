"""Documents that are written as a whole or not at all."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from collbench.core.catalog import user_files
from collbench.core.files import check_whole, state_folder, write_whole
from tests.support.commands import Capture

OLD, NEW = b"the old page", b"the new page" * 1000


@contextmanager
def full_disk(most_bytes: int = 4096) -> Iterator[None]:
    """No file may grow beyond some bytes, which a write learns as it would of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_new_file_has_the_usual_rights(tmp_path: Path) -> None:
    (plain := tmp_path / "plain").write_bytes(b"")
    write_whole(file := tmp_path / "page.html", NEW)
    assert file.read_bytes() == NEW
    assert file.stat().st_mode == plain.stat().st_mode


def test_an_old_file_keeps_its_rights_and_a_link_its_target(tmp_path: Path) -> None:
    (file := tmp_path / "page.html").write_bytes(OLD)
    file.chmod(0o604)
    (link := tmp_path / "link").symlink_to("page.html")
    check_whole(link)
    write_whole(link, NEW)
    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o7777) == (NEW, 0o604)
    (dangling := tmp_path / "dangling").symlink_to("later.html")
    write_whole(dangling, NEW)
    assert (tmp_path / "later.html").read_bytes() == NEW
    assert len(list(tmp_path.iterdir())) == 4


def test_a_device_that_takes_nothing_is_found_before() -> None:
    check_whole(Path("/dev/null"))
    with pytest.raises(OSError, match="No space left"):
        check_whole(Path("/dev/full"))


def test_a_full_disk_and_an_interrupt_leave_the_old_file(tmp_path: Path) -> None:
    (file := tmp_path / "page.html").write_bytes(OLD)
    with full_disk(), pytest.raises(OSError, match="File too large"):
        write_whole(file, NEW)
    with patch.object(os, "fsync", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        write_whole(file, NEW)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == OLD


def test_no_place_to_write(tmp_path: Path) -> None:
    (loop := tmp_path / "loop").symlink_to("loop")
    for place in (tmp_path, tmp_path / "missing" / "page.html", loop):
        for attempt in (check_whole, lambda file: write_whole(file, NEW)):
            with pytest.raises(OSError):
                attempt(place)
    with pytest.raises(OSError, match="No space left"):
        write_whole(Path("/dev/full"), NEW)
    assert Path("/dev/full").is_char_device()


def test_pipes_are_written_through(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_whole(pipe)
    write_whole(pipe, NEW)
    assert os.read(reader, 1 << 16) == NEW
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_stdout_in_a_file_is_written_through(tmp_path: Path, mode: str) -> None:
    """Renaming would take the file away from under the shell that opened it."""
    (log := tmp_path / "log").write_bytes(OLD)
    code = "import sys; from collbench.core.files import *; from pathlib import Path\n" + (
        "write_whole(Path('/dev/stdout'), b'document'); print(' and more')"
    )
    with log.open(mode) as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True, timeout=30)
    assert log.read_bytes() == (OLD if mode == "ab" else b"") + b"document and more\n"


def test_a_home_that_may_not_be_entered_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert state_folder() == tmp_path / ".local" / "state" / "collbench"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may enter everything
    for _ in range(2):
        with pytest.raises(RuntimeError):
            state_folder()
    assert user_files("machines") == ()
    assert capsys.readouterr().err.count("may not be entered") == 1
