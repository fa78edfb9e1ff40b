"""Whether GPUs are held back: by heat, by power, or by clocks and limits that somebody set."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Severity, told
from collbench.doctor.checks._siblings import conditions
from collbench.machine.discovery.recording import GpuCondition
from collbench.machine.gpus import CLOCKS_SETTING, GPU_IDLE, LOW_CLOCK

_COOLING = "look at fans, air filters and the temperature of the room"
# nvmlClocksEventReason: what it says, what to change, and how bad it is. Power is capped on many
# machines that work hard, with nothing wrong.
_REASONS: dict[int, tuple[str, str, Severity]] = {
    0x4: (
        "its clocks are held back by the power limit",
        "nvidia-smi -q -d POWER; set the limit back with nvidia-smi -pl WATTS, as root",
        "risk",
    ),
    0x8: (
        "its hardware slows it down, by heat or power",
        f"{_COOLING}, and at the power supplies",
        "fault",
    ),
    0x20: ("its clocks are held back by the driver, by heat", _COOLING, "fault"),
    0x40: ("its hardware slows it down, by heat", _COOLING, "fault"),
    0x80: (
        "its hardware slows it down, as the power supply asks for it (power brake)",
        "look at the machine's power supplies and their cables",
        "fault",
    ),
}
_SLOWDOWN = 0x8  # is set beside 0x40 and 0x80, which say why
_NEAR_C = 5  # degrees below the slow-down: hotter ones are a matter of the next warm day
_SET_BACK = "nvidia-smi -rac and nvidia-smi -rgc, as root"


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, _, condition in conditions(evidence):
        for seen, change in _settings(condition):
            yield _finding(name, seen, change, "risk")
    for name, gpu in evidence.gpus(evidence.loaded):
        bits = None if gpu.condition is None else gpu.condition.throttle_bits
        if gpu.condition is not None and bits is not None and not bits & GPU_IDLE:
            for seen, change, severity in _under_load(gpu.condition, bits):
                yield _finding(name, seen, change, severity)


def _finding(name: str, seen: str, change: str, severity: Severity) -> Finding:
    return told("gpu-clocks", name, seen, severity=severity, change=change)


def _settings(condition: GpuCondition) -> Iterable[tuple[str, str]]:
    """What somebody set, whatever the GPU does."""
    clock, usual = condition.app_sm_mhz, condition.app_default_sm_mhz
    if clock and usual and clock < usual:
        yield (
            f"its application clock is set to {clock} MHz, where {usual} is the default",
            _SET_BACK,
        )
    limit, default = condition.power_limit_mw, condition.power_default_mw
    if limit and default and limit < default:
        watts = default // 1000
        yield (
            f"its power limit is {limit // 1000} W, where {watts} W is the default",
            f"nvidia-smi -pl {watts}, as root",
        )


def _under_load(condition: GpuCondition, bits: int) -> Iterable[tuple[str, str, Severity]]:
    reasons = [one for bit, one in _REASONS.items() if bits & bit]
    if bits & _SLOWDOWN and bits & 0xC0:
        reasons.remove(_REASONS[_SLOWDOWN])
    for seen, change, severity in reasons:
        yield f"{seen}, under load (reasons {bits:#x})", change, severity
    clock, most = condition.sm_mhz, condition.sm_max_mhz
    if clock and most and clock < LOW_CLOCK * most and not reasons:
        is_set = bool(bits & CLOCKS_SETTING)
        why = "as somebody set" if is_set else "and no reason is given"
        yield (
            f"its SM clock is {clock} MHz of {most} under load, {why}",
            _SET_BACK if is_set else "nvidia-smi -q -d PERFORMANCE,CLOCK while it works",
            "risk" if is_set else "fault",
        )
    now, limit = condition.temperature_c, condition.slowdown_c
    if now and limit and now >= limit - _NEAR_C and not any("heat" in one[0] for one in reasons):
        yield f"it is {now} degrees Celsius, and slows down at {limit}", _COOLING, "risk"
