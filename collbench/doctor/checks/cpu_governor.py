"""Whether the clocks of the cores are held down to save power."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

TITLE = "Clocks of the cores (frequency governor)"
NEEDS: tuple[Need, ...] = ("system",)
NO_EXPERIMENT = "only root can change the governor"
EXPLANATION = """
A governor of the kernel decides how fast a core runs. `performance` asks for the highest clock
always. `powersave` asks for the lowest one, except with the driver `intel_pstate` and newer ones
for AMD, where it follows the load, as `ondemand` and `schedutil` do. A rank works in bursts of
microseconds: before the governor has seen the load, the message is over. Starting kernels, copying
through host memory and everything that the CPU does for a message then takes longer, and varies.

The check reads `scaling_governor` of all cores (`/sys/devices/system/cpu/cpu*/cpufreq`). Powersave
is a risk, as are cores with different governors; those that follow the load are a remark. Virtual
machines have no governors: their host decides.

As root, `cpupower frequency-set -g performance`, or `tuned-adm profile hpc-compute` for this and
more. On machines of others, the setting may belong to the profile of the batch system. To be sure,
read `scaling_cur_freq` of a core while a collective runs, and compare the latencies of small
messages before and after: `collbench compare`.
"""

_SLOW, _LAZY = {"powersave"}, {"ondemand", "schedutil", "conservative"}


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, _, system in evidence.systems():
        governors = set(system.governors)
        if not governors & (_SLOW | _LAZY):
            continue
        is_risk = bool(governors & _SLOW) or len(governors) > 1
        yield Finding(
            subject=name,
            seen=f"the governor{'s' * (len(governors) > 1)} of its cores:"
            f" {', '.join(sorted(governors))}",
            why="Bursts of microseconds are over before the clock rises: small messages take"
            " longer, and vary.",
            change="cpupower frequency-set -g performance, as root",
            risk="Idle cores then take more power.",
            severity="risk" if is_risk else "remark",
        )
