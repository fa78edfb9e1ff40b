"""The backends of somebody's kernels: each is a library whose name is that of its file."""

import re
from collections.abc import Sequence
from pathlib import Path

from collbench.backends.base import Peer, Session, SessionOptions
from collbench.backends.gpu.session import why_no_gpus
from collbench.backends.kernel.contract import KernelFile
from collbench.backends.kernel.part import arena_bytes
from collbench.backends.library import private_bytes
from collbench.core.case import Case
from collbench.core.errors import UsageError
from collbench.core.peers import PEERS, is_peer
from collbench.launch.group import Group

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")


class KernelBackend(Peer):
    """The kernel of a file."""

    def __init__(self, path: Path) -> None:
        self.name, self.file = path.stem, KernelFile(path)

    @property
    def is_gpu(self) -> bool:  # type: ignore[override]  # known once the file is loaded
        return self.file.on_gpus

    def why_not(self, group: Group) -> str:
        if len(set(group.hosts)) > 1:
            return f"{self.file.path.name} is measured on one host"
        return why_no_gpus() if self.is_gpu else ""

    def is_apart(self, case: Case) -> bool:
        # ranks of a launcher have the part of one kernel at a time
        return self.is_gpu or len(KERNELS) > 1

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        return self.file.why_waived(case, is_reduction)

    def shared_bytes(self, case: Case, *, hot: bool) -> int:
        return arena_bytes(case.ranks, self.file.shared_bytes)

    def private_bytes(self, case: Case, *, hot: bool) -> int:
        return 0 if self.is_gpu else private_bytes(case, hot=hot)

    def open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> Session[Case]:
        if self.is_gpu:
            from collbench.backends.kernel.gpu import KernelGpuSession

            return KernelGpuSession(group, cases, self.file, hot=options.hot, gpu=options.gpu)
        from collbench.backends.kernel.rank import KernelCpuSession

        return KernelCpuSession(group, cases, self.file, hot=options.hot)


KERNELS: dict[str, KernelBackend] = {}  # that were named, by their names in rows


def add(file: str) -> str:
    """The name of a kernel in rows, which is from then on a backend. Raises UsageError."""
    path = Path(file).resolve()
    name = path.stem
    if not path.is_file():
        raise UsageError(f"--backend: there is no file {file}", "give the path of a kernel")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--backend: '{name}' cannot be a name in rows",
            "rename the file: a letter, then at most 30 letters, digits, _ and -",
        )
    kernel = KERNELS.setdefault(name, KernelBackend(path))
    if name in PEERS or not is_peer(name) or kernel.file.path != path:
        raise UsageError(f"--backend: {name} is the name of another backend", "rename the file")
    return name
