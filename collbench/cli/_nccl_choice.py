"""What NCCL takes for a case, by its own log: a launch in new processes that write one."""

import tempfile
from contextlib import closing
from pathlib import Path

from collbench.analysis.nccl_log.model import Choice
from collbench.analysis.nccl_log.reader import LogReader
from collbench.backends.base import Batch
from collbench.backends.nccl.backend import NcclSession
from collbench.backends.nccl.knobs import GROUPED
from collbench.bench.runner import session_options
from collbench.launch.group import Group
from collbench.spec.case import Case
from collbench.spec.options import Settings
from collbench.util.errors import CollbenchError


def nccl_choice(case: Case, group: Group, timeout_s: float) -> str:
    """What NCCL says that it took, in a sentence, or why that is not known."""
    if case.op in GROUPED:
        return f"NCCL's {case.op} is sends and receives, of which its log names no choice."
    with tempfile.TemporaryDirectory(prefix="collbench-nccl-") as folder:
        try:
            _launch(case, group, Path(folder), timeout_s)
        except CollbenchError as error:
            return f"What NCCL chose is not known: {error.message}."
        reader = LogReader()
        for file in sorted(Path(folder).iterdir()):
            reader.feed(file.name, file.read_text(errors="replace").splitlines())
    return choice_text(list(reader.finish().choices.values()))


def _launch(case: Case, group: Group, folder: Path, timeout_s: float) -> None:
    variables = (
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_DEBUG_FILE", str(folder / "%h.%p")),
        ("NCCL_DEBUG_SUBSYS", "TUNING"),
    )
    settings = Settings(hot=True, timeout_s=timeout_s)
    options = session_options(settings, group).gpu
    session = NcclSession(group, [case], hot=True, options=options, variables=variables)
    with closing(session):
        session.run(case, Batch(iterations=1))


def choice_text(choices: list[Choice]) -> str:
    """What NCCL took, in a sentence.

    >>> choice_text([Choice("RING", "LL128", 16)])
    'There NCCL chose RING with LL128 and 16 channels.'
    """
    texts = [
        f"{one.algo} with {one.proto}"
        + (f" and {one.channels} channel{'s' * (one.channels > 1)}" if one.channels else "")
        for one in choices
    ]
    if not texts:
        return "What NCCL chose is not known: its log does not say."
    return f"There NCCL chose {', then '.join(dict.fromkeys(texts))}."
