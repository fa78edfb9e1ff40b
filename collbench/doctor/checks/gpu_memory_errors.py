"""Whether the memory of GPUs has errors that are not repaired, or repairs that wait for a reset."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need, Severity
from collbench.doctor.checks._siblings import conditions
from collbench.machine.discovery.recording import GpuCondition

NEEDS: tuple[Need, ...] = ("condition",)

_RESET = "stop what runs on it and reset it: nvidia-smi --gpu-reset -i N, as root"
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
        for seen, why, change, severity in _faults(condition):
            yield Finding(
                subject=name,
                seen=seen,
                why=why,
                change=change.replace("-i N", f"-i {gpu.index}"),
                severity=severity,
            )


def _faults(condition: GpuCondition) -> Iterable[tuple[str, str, str, Severity]]:
    """What was seen, why it matters, what to change, and how bad it is."""
    if condition.ecc_uncorrected:
        count = condition.ecc_uncorrected
        yield (
            f"{count} uncorrected error{'s' * (count > 1)} of its memory since the driver was"
            " loaded",
            "Programs that use the memory end, and the other ranks of their collectives hang.",
            _RESET,
            "fault",
        )
    for is_so, seen, why, change in (
        (condition.remap_failed, "the remapping of a broken row of its memory failed",
         "The row stays in use, and its errors come again.",
         "take the GPU out of use and have it replaced"),
        (condition.remap_pending, "the remapping of a broken row of its memory is pending",
         "The row is replaced at the next reset; until then its errors may come again.", _RESET),
        (condition.retired_pending, "the retirement of a broken page of its memory is pending",
         "The page is taken out of use at the next reset; until then its errors may come again.",
         _RESET),
    ):  # fmt: skip
        if is_so:
            yield seen, why, change, "fault"
    if condition.recovery_action:
        action = _ACTIONS.get(condition.recovery_action, f"action {condition.recovery_action}")
        yield (
            f"the driver asks for {action} (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)",
            "The driver saw an error after which the GPU or its links do not work as they should.",
            "do what the driver asks for; dmesg has the reason as an Xid",
            "fault",
        )
    if (
        None not in (condition.ecc, condition.ecc_pending)
        and condition.ecc != condition.ecc_pending
    ):
        modes = [("off", "on")[bool(one)] for one in (condition.ecc, condition.ecc_pending)]
        yield (
            f"ECC is {modes[0]}, and will be {modes[1]} after the next reset",
            "Capacity and rate of the memory may differ after the next restart of the machine.",
            _RESET,
            "remark",
        )
