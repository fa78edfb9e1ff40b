"""Whether GPUs are held back: by heat, by power, or by clocks and limits that somebody set."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._siblings import conditions
from collbench.machine.discovery.recording import GpuCondition
from collbench.machine.gpus import CLOCKS_SETTING, GPU_IDLE, LOW_CLOCK

# nvmlClocksEventReason: the row of the finding, and what it says. Power is capped on many machines
# that work hard, with nothing wrong.
_REASONS = {
    0x4: ("held-by-power", "its clocks are held back by the power limit"),
    0x8: ("slowed", "its hardware slows it down, by heat or power"),
    0x20: ("slowed-by-heat", "its clocks are held back by the driver, by heat"),
    0x40: ("slowed-by-heat", "its hardware slows it down, by heat"),
    0x80: (
        "power-brake",
        "its hardware slows it down, as the power supply asks for it (power brake)",
    ),
}
_SLOWDOWN = 0x8  # is set beside 0x40 and 0x80, which say why
_NEAR_C = 5  # degrees below the slow-down: hotter ones are a matter of the next warm day


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, _, condition in conditions(evidence):
        yield from _settings(name, condition)
    for name, gpu in evidence.gpus(evidence.loaded):
        bits = None if gpu.condition is None else gpu.condition.throttle_bits
        if gpu.condition is not None and bits is not None and not bits & GPU_IDLE:
            for row, seen in _under_load(gpu.condition, bits):
                yield told(row, name, seen)


def _settings(name: str, condition: GpuCondition) -> Iterable[Finding]:
    """What somebody set, whatever the GPU does."""
    clock, usual = condition.app_sm_mhz, condition.app_default_sm_mhz
    if clock and usual and clock < usual:
        seen = f"its application clock is set to {clock} MHz, where {usual} is the default"
        yield told("clock-set", name, seen)
    limit, default = condition.power_limit_mw, condition.power_default_mw
    if limit and default and limit < default:
        watts = default // 1000
        seen = f"its power limit is {limit // 1000} W, where {watts} W is the default"
        yield told("power-set", name, seen, change=f"nvidia-smi -pl {watts}, as root")


def _under_load(condition: GpuCondition, bits: int) -> Iterable[tuple[str, str]]:
    """Rows of findings, and what was seen."""
    reasons = [one for bit, one in _REASONS.items() if bits & bit]
    if bits & _SLOWDOWN and bits & 0xC0:
        reasons.remove(_REASONS[_SLOWDOWN])
    for row, seen in reasons:
        yield row, f"{seen}, under load (reasons {bits:#x})"
    clock, most = condition.sm_mhz, condition.sm_max_mhz
    if clock and most and clock < LOW_CLOCK * most and not reasons:
        is_set = bool(bits & CLOCKS_SETTING)
        why = "as somebody set" if is_set else "and no reason is given"
        row = "clock-set" if is_set else "clock-low"
        yield row, f"its SM clock is {clock} MHz of {most} under load, {why}"
    now, limit = condition.temperature_c, condition.slowdown_c
    if now and limit and now >= limit - _NEAR_C and not any("heat" in one[1] for one in reasons):
        yield "hot", f"it is {now} degrees Celsius, and slows down at {limit}"
