"""Kernels, containers and variables that forbid copies between processes."""

from tests.support.evidence import machine, planted, with_ranks, with_system

PLANTS = [
    planted("Yama", with_system(with_ranks(machine("cpus"), 8), ptrace_scope=2)).finds(
        "this host", "ptrace_scope is 2"
    ),
    planted("Yama's default", with_system(with_ranks(machine("cpus"), 8), ptrace_scope=1)).finds(
        "this host", "ptrace_scope is 1", "remark"
    ),
    planted(
        "Yama for root as well",
        with_system(with_ranks(machine("cpus"), 8, can_trace=True), ptrace_scope=3),
    ).finds("this host", "ptrace_scope is 3"),
    planted(
        "a filter of system calls", with_ranks(machine("cpus"), 4, can_copy=False, seccomp=2)
    ).finds("ranks 0-3", "process_vm_readv is refused"),
    planted(
        "different users",
        with_ranks(machine("cpus"), 2, namespaces=lambda rank: {"user": f"user:[{rank}]"}),
    ).finds("this host", "2 user namespaces"),
    planted(
        "a variable of MPICH",
        with_ranks(machine("cpus"), 2, environment={"MPIR_CVAR_CH4_CMA_ENABLE": "0"}),
    ).finds("ranks 0-1", "MPIR_CVAR_CH4_CMA_ENABLE=0 switches it off"),
    planted(
        "a variable of Open MPI",
        with_ranks(machine("cpus"), 2, environment={"OMPI_MCA_smsc": "^cma"}),
    ).finds("ranks 0-1", "OMPI_MCA_smsc=^cma"),
]
