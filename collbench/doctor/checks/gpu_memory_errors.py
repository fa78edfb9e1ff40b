"""Whether the memory of GPUs has errors that are not repaired, or repairs that wait for a reset."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need, Severity
from collbench.doctor.checks._siblings import conditions
from collbench.machine.discovery.recording import GpuCondition

TITLE = "Errors of GPU memory, and resets that GPUs ask for"
NEEDS: tuple[Need, ...] = ("condition",)
NO_EXPERIMENT = "it decides whether results are right and programs go on, not how fast they are"
EXPLANATION = """
The memory of data centre GPUs has codes that correct one wrong bit and detect two (ECC). An
uncorrected error ends the programs that use the memory, and a collective whose rank ended hangs on
all others. Hopper and Ampere replace a broken row of memory by a spare one, older GPUs take the
page out of use; both happen at the next reset of the GPU, and until then the error may come again.
Where no spare row is left, remapping fails and the GPU must be replaced.

The check reads by NVML the uncorrected errors since the driver was loaded
(`nvmlDeviceGetTotalEccErrors`), pending and failed row remapping (`nvmlDeviceGetRemappedRows`),
pending page retirement (`nvmlDeviceGetRetiredPagesPendingStatus`), the current and the pending mode
of ECC (`nvmlDeviceGetEccMode`), and what the driver itself asks for
(`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`). Corrected errors are no finding.

Stop what runs on the GPU and reset it (`nvidia-smi --gpu-reset -i N`, as root) or restart the
machine; drain it from the batch system before. After that `nvidia-smi -q -d ECC,ROW_REMAPPER` must
show no pending row and no new uncorrected error. Ask for a replacement if remapping failed.
"""

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
