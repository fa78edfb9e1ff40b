"""`compare --plot`: the checks before any work, and the picture at its end."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from collbench.compare.load import ResultFile
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.files import check_writable, named_in_errors, write_whole
from collbench.core.screen import remark
from collbench.core.text import one_line

ENDINGS = ("png", "svg")


def check_plot(target: Path, files: Sequence[Path]) -> None:
    """Refuse before the work what could not be drawn or written. Raises CollbenchError."""
    if _ending(target) not in ENDINGS:
        raise UsageError(
            "--plot draws png and svg, by the ending of the file, not"
            f" {target.suffix or 'a file without an ending'}",
            "for example results.svg",
        )
    if len(files) > 2:
        raise UsageError(
            f"--plot draws one file or two, not {len(files)}", "give the new one and one base"
        )
    if find_spec("matplotlib") is None:
        raise UnavailableError(
            "--plot needs matplotlib, which is not installed", "pip install 'collbench[report]'"
        )
    check_writable(target, "--plot")


def plot(target: Path, sides: Sequence[ResultFile]) -> None:
    """One file's curves, or two files' with their ratio. Raises UsageError if they hold nothing to
    draw, UnavailableError if it cannot be written.
    """
    from collbench.compare.curves import curves, pairs
    from collbench.compare.plots.draw import MOST_GROUPS, draw, draw_pairs
    from collbench.core.text import texts_of

    names = [one_line(Path(side.name).name) for side in sides]
    devices = sorted({device for side in sides for device in texts_of(side.frame["device"])})
    heading = one_line(", ".join([" and ".join(names), *devices]))
    if len(sides) == 1:
        known = curves(sides[0].records)
        groups = len({curve.group for curve in known})
        data = draw(known, heading, _ending(target)) if known else b""
    else:
        both = pairs(sides[0].records, sides[1].records)
        groups = len({pair.new.group for pair in both})
        data = draw_pairs(both, heading, _ending(target)) if both else b""
    if not data:
        raise UsageError(
            "nothing to draw: no row has a time"
            if len(sides) == 1
            else "nothing to draw: the files have no configuration in common",
            "run compare without --plot to see what the files hold",
        )
    with named_in_errors(target, "--plot"):
        write_whole(target, data)
    is_cut = groups > MOST_GROUPS
    cut = f": the first {MOST_GROUPS} of {groups} problems; give a file of some to draw others"
    remark(f"wrote {target}" + cut * is_cut)


def _ending(target: Path) -> str:
    return target.suffix.lower().removeprefix(".")
