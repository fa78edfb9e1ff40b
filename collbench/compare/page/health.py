"""The section of the page about the machine's state before and after the sweep."""

from collbench.compare.load import ResultFile
from collbench.core.web.html import Cell, HtmlCell, element, section, table
from collbench.machine.gpus import GpuState
from collbench.machine.others import MachineState

_HEADS = ("GPU", "when", "SM clock MHz", "temperature C", "power W", "held back by")


def health(loaded: ResultFile) -> str:
    """How the machine was, of a saved run; nothing for other files."""
    if loaded.health is None:
        return ""
    before, after = loaded.health.before, loaded.health.after
    loads = f"Load before {_load(before)}, after {_load(after)}, on {after.cores} cores."
    rows = [
        _cells(gpu, moment)
        for pair in zip(before.gpus, after.gpus, strict=False)
        for gpu, moment in zip(pair, ("before", "after"), strict=True)
    ]
    kinds = ("name", "", "num", "num", "num", "")
    grid = table(_HEADS, rows, kinds=kinds, label="State of the GPUs") if rows else ""
    return section("health", "The machine", element("p", loads), grid)


def _load(state: MachineState) -> str:
    return "unknown" if state.load is None else f"{state.load:.1f}"


def _cells(gpu: GpuState, moment: str) -> list[Cell]:
    held = ", ".join(one.removeprefix("throttled:") for one in gpu.throttles) or "nothing"
    return [
        f"{gpu.index} {gpu.name}",
        moment,
        _of(gpu.sm_mhz, gpu.sm_max_mhz),
        _of(gpu.temperature_c, None),
        _of(gpu.power_w, gpu.power_limit_w),
        HtmlCell(held, kind="bad" if gpu.throttles else ""),
    ]


def _of(value: float | None, most: float | None) -> str:
    """A number, and what it may be at most.

    >>> _of(1980, 1980), _of(None, 700.0), _of(41, None)
    ('1980 of 1980', '-', '41')
    """
    if value is None:
        return "-"
    return f"{value:.0f}" + ("" if most is None else f" of {most:.0f}")
