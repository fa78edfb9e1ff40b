"""GPUs that are held back."""

from typing import Any

from tests.support.evidence import Plant, machine, planted, under_load, with_gpu


def hot(name: str, words: str, severity: str, **values: Any) -> Plant:
    """A GPU that is so under load."""
    return Plant(
        name, under_load(machine("hgx_h100"), loaded=lambda one: with_gpu(one, 4, **values))
    ).finds("GPU 4", words, severity)


PLANTS = [
    hot("power cap", "held back by the power limit", "risk", throttle_bits=0x4, sm_mhz=1400),
    hot("slow-down", "slows it down, by heat or power", "fault", throttle_bits=0x8, sm_mhz=990),
    hot("heat", "hardware slows it down, by heat, under", "fault", throttle_bits=0x48, sm_mhz=990),
    hot("heat seen by the driver", "by the driver, by heat", "fault", throttle_bits=0x20),
    hot("power brake", "power brake", "fault", throttle_bits=0x88, sm_mhz=990),
    hot("a low clock", "345 MHz of 1980 under load, and no reason", "fault", sm_mhz=345),
    hot("a set clock", "as somebody set", "risk", sm_mhz=1005, throttle_bits=0x2),
    hot("nearly too hot", "85 degrees Celsius, and slows down at 89", "risk", temperature_c=85),
    planted("application clocks", with_gpu(machine("dgx1v"), 0, app_sm_mhz=1200)).finds(
        "GPU 0", "application clock is set to 1200 MHz, where 1980 is the default"
    ),
    planted("power limit", with_gpu(machine("dgx1v"), 7, power_limit_mw=350_000)).finds(
        "GPU 7", "power limit is 350 W, where 700 W is the default"
    ),
]
