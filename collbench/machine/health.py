"""How a machine is at a moment: what its processors have to do, and what its GPUs report."""

import os
from dataclasses import dataclass

from collbench.machine.gpus import GpuState, states
from collbench.machine.host import has_nvidia_gpus, usable_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState:
    """A host at a moment. load: runnable tasks, the mean of the last minute, on so many cores; None
    if the kernel does not say.
    """

    load: float | None
    cores: int
    gpus: tuple[GpuState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A host before and after something was measured."""

    before: MachineState
    after: MachineState


def machine_state() -> MachineState:
    """The host as it is now. Reads the kernel and NVML; changes nothing."""
    try:
        load: float | None = os.getloadavg()[0]
    except OSError:
        load = None
    gpus = states() if has_nvidia_gpus() else ()
    return MachineState(load=load, cores=usable_cores(), gpus=gpus)
