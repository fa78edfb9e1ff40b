"""Whether GPUs are held back: by heat, by power, or by clocks and limits that somebody set."""

from collections.abc import Iterable

from collbench.doctor.checks._siblings import conditions
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.discovery.recording import GpuCondition
from collbench.machine.gpus import CLOCKS_SETTING, GPU_IDLE, LOW_CLOCK

NEEDS: tuple[Need, ...] = ("condition",)

# nvmlClocksEventReason: the kind of finding. Power is capped on many machines that work hard, with
# nothing wrong.
_REASONS = {0x4: "power", 0x8: "slowdown", 0x20: "driver-heat", 0x40: "heat", 0x80: "brake"}
_OF_HEAT = {"slowdown", "driver-heat", "heat"}
_SLOWDOWN = 0x8  # is set beside 0x40 and 0x80, which say why
_NEAR_C = 5  # degrees below the slow-down: hotter ones are a matter of the next warm day


def find(evidence: Evidence) -> Iterable[Seen]:
    for name, _, condition in conditions(evidence):
        yield from _settings(name, condition)
    for name, gpu in evidence.gpus(evidence.loaded):
        bits = None if gpu.condition is None else gpu.condition.throttle_bits
        if gpu.condition is not None and bits is not None and not bits & GPU_IDLE:
            yield from _under_load(name, gpu.condition, bits)


def _settings(name: str, condition: GpuCondition) -> Iterable[Seen]:
    """What somebody set, whatever the GPU does."""
    clock, usual = condition.app_sm_mhz, condition.app_default_sm_mhz
    if clock and usual and clock < usual:
        yield seen("application-clock", name, clock=clock, usual=usual)
    limit, default = condition.power_limit_mw, condition.power_default_mw
    if limit and default and limit < default:
        yield seen("power-limit", name, limit=limit // 1000, default=default // 1000)


def _under_load(name: str, condition: GpuCondition, bits: int) -> Iterable[Seen]:
    reasons = [kind for bit, kind in _REASONS.items() if bits & bit]
    if bits & _SLOWDOWN and bits & 0xC0:
        reasons.remove(_REASONS[_SLOWDOWN])
    for kind in reasons:
        yield seen(kind, name, bits=bits)
    clock, most = condition.sm_mhz, condition.sm_max_mhz
    if clock and most and clock < LOW_CLOCK * most and not reasons:
        kind = "set-clock" if bits & CLOCKS_SETTING else "low-clock"
        yield seen(kind, name, clock=clock, most=most)
    now, limit = condition.temperature_c, condition.slowdown_c
    if now and limit and now >= limit - _NEAR_C and _OF_HEAT.isdisjoint(reasons):
        yield seen("hot", name, now=now, limit=limit)
