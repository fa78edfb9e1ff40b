"""More ranks than cores."""

from tests.support.evidence import machine, planted, with_ranks, with_system

PLANTS = [
    planted("twice as many ranks as cores", with_ranks(machine("cpus"), 64)).finds(
        "this host", "64 ranks run on 32 cores", "fault"
    ),
    planted(
        "more ranks than the control group has time for, on one of two hosts",
        with_ranks(machine("hgx_h100", "node1"), 8, 0, 16),
        with_system(with_ranks(machine("hgx_h100", "node2"), 8, 8, 16), cgroup_cpus=4.0),
    ).finds("node2", "8 ranks have 4 CPUs' worth of time", "fault"),
]
