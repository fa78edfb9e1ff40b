"""`compare --plot`: the checks before any work, and the picture at its end."""

from importlib.util import find_spec
from pathlib import Path

from collbench.compare.load import ResultFile
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.files import check_writable, named_in_errors, write_whole
from collbench.core.screen import remark
from collbench.core.text import one_line

ENDINGS = ("png", "svg")


def check_plot(target: Path) -> None:
    """Refuse before the work what could not be drawn or written. Raises CollbenchError."""
    if _ending(target) not in ENDINGS:
        raise UsageError(
            "--plot draws png and svg, by the ending of the file, not"
            f" {target.suffix or 'a file without an ending'}",
            "for example results.svg",
        )
    if find_spec("matplotlib") is None:
        raise UnavailableError(
            "--plot needs matplotlib, which is not installed", "pip install 'collbench[report]'"
        )
    check_writable(target, "--plot")


def plot(target: Path, loaded: ResultFile) -> None:
    """The curves of a file. Raises UsageError if it holds nothing to draw, UnavailableError if it
    cannot be written.
    """
    from collbench.compare.curves import curves
    from collbench.compare.plots.draw import MOST_GROUPS, draw
    from collbench.compare.tables.summary import measured_text

    heading = one_line(f"{Path(loaded.name).name}: {measured_text(loaded.records)}")
    known = curves(loaded.records)
    if not known:
        raise UsageError(
            "nothing to draw: no row has a time",
            "run compare without --plot to see what the file holds",
        )
    with named_in_errors(target, "--plot"):
        write_whole(target, draw(known, heading, _ending(target)))
    groups = len({curve.group for curve in known})
    is_cut = groups > MOST_GROUPS
    cut = f": the first {MOST_GROUPS} of {groups} problems; give a file of some to draw others"
    remark(f"wrote {target}" + cut * is_cut)


def _ending(target: Path) -> str:
    return target.suffix.lower().removeprefix(".")
