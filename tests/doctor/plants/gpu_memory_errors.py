"""GPUs whose memory is broken, or that wait for a reset."""

from tests.support.evidence import machine, planted, with_gpu

PLANTS = [
    planted(name, with_gpu(machine("dgx_a100"), 2, **values)).finds("GPU 2", words, severity)
    for name, values, words, severity in (
        ("uncorrected", {"ecc_uncorrected": 2}, "2 uncorrected errors", "fault"),
        ("remapping failed", {"remap_failed": 1}, "row of its memory failed", "fault"),
        ("remapping pending", {"remap_pending": 1}, "row of its memory is pending", "fault"),
        ("retirement pending", {"retired_pending": 1}, "page of its memory is pending", "fault"),
        ("reset wanted", {"recovery_action": 1}, "asks for a reset of the GPU", "fault"),
        ("unknown action", {"recovery_action": 99}, "asks for action 99", "fault"),
        ("ECC off later", {"ecc_pending": 0}, "ECC is on, and will be off", "remark"),
    )
]
