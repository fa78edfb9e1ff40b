"""Whether the memory of GPUs has errors that are not repaired, or repairs that wait for a reset."""

from collections.abc import Iterable
from dataclasses import replace

from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._siblings import conditions
from collbench.machine.discovery.recording import GpuCondition

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


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, gpu, condition in conditions(evidence):
        for row, seen in _faults(condition):
            found = told(row, name, seen)
            yield replace(found, change=found.change.replace("-i N", f"-i {gpu.index}"))


def _faults(condition: GpuCondition) -> Iterable[tuple[str, str]]:
    """Rows of findings, and what was seen."""
    if condition.ecc_uncorrected:
        count = condition.ecc_uncorrected
        yield (
            "memory-uncorrected",
            f"{count} uncorrected error{'s' * (count > 1)} of its memory since the driver was"
            " loaded",
        )
    if condition.remap_failed:
        yield "remap-failed", "the remapping of a broken row of its memory failed"
    if condition.remap_pending:
        yield "remap-pending", "the remapping of a broken row of its memory is pending"
    if condition.retired_pending:
        yield "retired-pending", "the retirement of a broken page of its memory is pending"
    if condition.recovery_action:
        action = _ACTIONS.get(condition.recovery_action, f"action {condition.recovery_action}")
        yield (
            "recovery-asked",
            f"the driver asks for {action} (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)",
        )
    if (
        None not in (condition.ecc, condition.ecc_pending)
        and condition.ecc != condition.ecc_pending
    ):
        modes = [("off", "on")[bool(one)] for one in (condition.ecc, condition.ecc_pending)]
        yield "ecc-pending", f"ECC is {modes[0]}, and will be {modes[1]} after the next reset"
