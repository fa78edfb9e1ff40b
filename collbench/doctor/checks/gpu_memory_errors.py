"""Whether the memory of GPUs has errors that are not repaired, or repairs that wait for a reset."""

from collections.abc import Iterable

from collbench.doctor.checks._siblings import conditions
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.discovery.recording import GpuCondition

NEEDS: tuple[Need, ...] = ("condition",)

# NVML_GPU_RECOVERY_ACTION_*, of the newest nvml.h
_ACTIONS = {
    1: "a reset of the GPU",
    2: "a restart of the machine",
    3: "an end of peer access, then a reset",
    4: "an end of all work, then a reset",
    5: "a recovery of the IMEX domain",
    6: "a reset of the bus",
    7: "a restart of the system",
}


def find(evidence: Evidence) -> Iterable[Seen]:
    for name, gpu, condition in conditions(evidence):
        for kind, values in _faults(condition):
            yield seen(kind, name, gpu=gpu.index, **values)


def _faults(condition: GpuCondition) -> Iterable[tuple[str, dict[str, object]]]:
    """Kinds of faults, each with its values."""
    if count := condition.ecc_uncorrected:
        yield "uncorrected", {"count": count, "s": "s" * (count > 1)}
    for is_so, kind in (
        (condition.remap_failed, "remap-failed"),
        (condition.remap_pending, "remap-pending"),
        (condition.retired_pending, "retired-pending"),
    ):
        if is_so:
            yield kind, {}
    if number := condition.recovery_action:
        yield "action", {"action": _ACTIONS.get(number, f"action {number}")}
    modes = condition.ecc, condition.ecc_pending
    if None not in modes and modes[0] != modes[1]:
        now, later = (("off", "on")[bool(one)] for one in modes)
        yield "ecc", {"now": now, "later": later}
