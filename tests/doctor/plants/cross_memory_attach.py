"""Kernels, containers and variables that forbid copies between processes."""

from tests.support.evidence import Plant, evidence, machine, with_ranks, with_system

PLANTS = [
    Plant(
        name="Yama",
        evidence=evidence(with_system(with_ranks(machine("cpus"), 8), ptrace_scope=2)),
        words="ptrace_scope is 2",
    ),
    Plant(
        name="Yama's default",
        evidence=evidence(with_system(with_ranks(machine("cpus"), 8), ptrace_scope=1)),
        words="ptrace_scope is 1",
        severity="remark",
    ),
    Plant(
        name="Yama for root as well",
        evidence=evidence(
            with_system(with_ranks(machine("cpus"), 8, can_trace=True), ptrace_scope=3)
        ),
        words="ptrace_scope is 3",
    ),
    Plant(
        name="a filter of system calls",
        evidence=evidence(with_ranks(machine("cpus"), 4, can_copy=False, seccomp=2)),
        subject="ranks 0-3",
        words="process_vm_readv is refused",
    ),
    Plant(
        name="different users",
        evidence=evidence(
            with_ranks(machine("cpus"), 2, namespaces=lambda rank: {"user": f"user:[{rank}]"})
        ),
        words="2 user namespaces",
    ),
    Plant(
        name="a variable of MPICH",
        evidence=evidence(
            with_ranks(machine("cpus"), 2, environment={"MPIR_CVAR_CH4_CMA_ENABLE": "0"})
        ),
        subject="ranks 0-1",
        words="MPIR_CVAR_CH4_CMA_ENABLE=0 switches it off",
    ),
    Plant(
        name="a variable of Open MPI",
        evidence=evidence(with_ranks(machine("cpus"), 2, environment={"OMPI_MCA_smsc": "^cma"})),
        subject="ranks 0-1",
        words="OMPI_MCA_smsc=^cma",
    ),
]
