"""More ranks than cores."""

from tests.support.evidence import Plant, evidence, machine, with_ranks, with_system

PLANTS = [
    Plant(
        name="twice as many ranks as cores",
        evidence=evidence(with_ranks(machine("cpus"), 64)),
        words="64 ranks run on 32 cores",
        severity="fault",
    ),
    Plant(
        name="more ranks than the control group has time for, on one of two hosts",
        evidence=evidence(
            with_ranks(machine("hgx_h100", "node1"), 8, 0, 16),
            with_system(with_ranks(machine("hgx_h100", "node2"), 8, 8, 16), cgroup_cpus=4.0),
        ),
        subject="node2",
        words="8 ranks have 4 CPUs' worth of time",
        severity="fault",
    ),
]
