"""How a machine is at a moment: what its processors have to do, and what its GPUs report."""

import json
import os
from dataclasses import asdict, dataclass

from collbench.machine.gpus import GpuState, states
from collbench.machine.host import has_nvidia_gpus, usable_cores
from collbench.util.errors import UsageError
from collbench.util.reading import parse_json
from collbench.util.text import printable

_MOST_CHARS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState:
    """A host at a moment. load: runnable tasks, the mean of the last minute, on so many cores; None
    if the kernel does not say.
    """

    load: float | None
    cores: int
    gpus: tuple[GpuState, ...]


def machine_state() -> MachineState:
    """The host as it is now. Reads the kernel and NVML; changes nothing."""
    try:
        load: float | None = os.getloadavg()[0]
    except OSError:
        load = None
    gpus = states() if has_nvidia_gpus() else ()
    return MachineState(load=load, cores=usable_cores(), gpus=gpus)


def dumps(before: MachineState, after: MachineState) -> str:
    """Two states as a text that `loads` reads."""
    return json.dumps({"before": asdict(before), "after": asdict(after)}, indent=1) + "\n"


def loads(text: str, name: str) -> tuple[MachineState, MachineState]:
    """The states before and after. Raises UsageError where the text holds something else."""
    data = parse_json(text, name, _MOST_CHARS)
    try:
        before, after = (_state(data[moment]) for moment in ("before", "after"))  # type: ignore[index]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{name} holds no states of a machine: {error}") from None
    return before, after


def _state(data: dict[str, object]) -> MachineState:
    gpus = data["gpus"]
    if not isinstance(gpus, list):
        raise TypeError("gpus is no list")
    return MachineState(
        load=_number(data["load"]),
        cores=int(_number(data["cores"]) or 0),
        gpus=tuple(_gpu(**gpu) for gpu in gpus),
    )


def _gpu(*, index: object, name: object, throttles: object, **numbers: object) -> GpuState:
    if not isinstance(throttles, list):
        raise TypeError("throttles is no list")
    return GpuState(
        index=int(_number(index) or 0),
        name=printable(str(name)),
        throttles=tuple(printable(str(one)) for one in throttles),
        **{key: _number(value) for key, value in numbers.items()},  # type: ignore[arg-type]
    )


def _number(value: object) -> float | None:
    """A number or None. Raises TypeError for anything else."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{value!r} is no number")
