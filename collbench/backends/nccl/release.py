"""A release of NCCL in a file, as a backend of its own, so that one sweep can measure several: its
ranks are processes that load this file before any other library.
"""

import mmap
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from collbench.backends.base import SessionOptions
from collbench.backends.gpu.session import why_no_gpus
from collbench.backends.nccl.backend import INSTALL, NcclBackend, NcclSession
from collbench.core.case import Case
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.group import Group
from collbench.core.peers import RELEASE_OF_NCCL

_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")  # as it logs it
_OPTION = "--nccl-library"


class NcclRelease(NcclBackend):
    """The NCCL of a file."""

    is_apart = True

    def __init__(self, version: str, path: Path) -> None:
        self.name, self.version, self.path = f"{RELEASE_OF_NCCL}{version}", version, path

    def why_not(self, group: Group) -> str:
        lacks_binding = find_spec("nccl") is None
        return why_no_gpus() or (f"nccl4py is not installed; {INSTALL}" if lacks_binding else "")

    def open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> NcclSession:
        preload = (("LD_PRELOAD", str(self.path)),)
        hot, gpu = options.hot, options.gpu
        session = NcclSession(group, cases, hot=hot, options=gpu, variables=preload)
        if f"nccl {self.version}" not in session.version:
            session.close()
            raise UnavailableError(
                f"{self.path} was not loaded: ranks have {session.version}",
                "ask for the kind of file that nccl4py loads: libnccl.so.2",
            )
        return session


RELEASES: dict[str, NcclRelease] = {}  # that were named, by their names in rows


def add(file: str) -> str:
    """The name of a release in rows, which is from then on a backend. Raises UsageError."""
    path = Path(file).resolve()
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise UsageError(f"{_OPTION}: {file} is not a file", _HINT)
    try:
        with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as data:
            found = _VERSION.search(data)
            version = found[1].decode() if found is not None else ""
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise UsageError(
            f"{_OPTION}: {file} cannot be read: {getattr(error, 'strerror', '') or error}", _HINT
        ) from None
    if not version:
        raise UsageError(f"{_OPTION}: {file} is no library of NCCL", _HINT)
    release = NcclRelease(version, path)
    known = RELEASES.setdefault(release.name, release)
    if known.path != path:
        raise UsageError(
            f"{_OPTION}: {file} and {known.path} are both NCCL {release.version}",
            "give each release once",
        )
    return release.name


_HINT = "give the libnccl.so.2 of a release, for example from the wheel nvidia-nccl-cu13"
