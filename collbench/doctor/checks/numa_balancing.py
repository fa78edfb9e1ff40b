"""Whether the kernel moves pages between NUMA nodes while ranks communicate."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

TITLE = "Pages that the kernel moves between NUMA nodes"
NEEDS: tuple[Need, ...] = ("system",)
NO_EXPERIMENT = "only root can switch it off"
EXPLANATION = """
On machines with several NUMA nodes the kernel can move pages to the node that uses them. To find
out which one that is, it takes pages away from a process from time to time, so that the next access
faults. Ranks that share memory use the same pages from several nodes, so that there is no right
place: they only have the faults. These take the time of many messages, and all other ranks wait for
the one that has them: the mean hardly changes, but every now and then an operation takes
milliseconds.

The check reads `/proc/sys/kernel/numa_balancing` on hosts with more than one NUMA node that has
cores. Anything but 0 is a risk. Most distributions switch it on by default.

As root, `sysctl kernel.numa_balancing=0`, and in `/etc/sysctl.d` for the next start. Ranks that are
bound to their node lose nothing by it. Memory with a policy of its own is left alone: `numactl
--membind=N` in front of the program is a way without root. To be sure, look at `numa_pte_updates`
in `/proc/vmstat`, which must not grow, and at the slowest of many operations, for example with
`collbench sweep --distribution`.
"""


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, host, system in evidence.systems():
        value = system.numa_balancing
        if value and len(host.numa) > 1:
            yield Finding(
                subject=name,
                seen=f"kernel.numa_balancing is {value}, on {len(host.numa)} NUMA nodes",
                why="The kernel takes pages away to see who uses them: now and then a message"
                " waits for milliseconds.",
                change="sysctl kernel.numa_balancing=0, as root; or numactl --membind in front of"
                " the program",
                risk="Programs that are not bound to a node may lose speed.",
            )
