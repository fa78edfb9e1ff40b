"""Variables and files that were set wrong, twice or long ago."""

from dataclasses import replace

from collbench.doctor.check import Evidence
from collbench.machine.discovery.recording import ConfigFile
from tests.support.evidence import Plant, evidence, machine, planted, with_ranks


def with_variables(**variables: str) -> Evidence:
    """One process on eight GPUs with variables in its environment."""
    recording = machine("hgx_h100")
    (process,) = recording.processes
    process = replace(process, environment=variables, nccl_version="2.28.9")
    return evidence(replace(recording, processes=(process,)))


def with_file(text: str, **variables: str) -> Evidence:
    """The same with a configuration file of NCCL."""
    (recording,) = with_variables(**variables).hosts
    (process,) = recording.processes
    files = (ConfigFile(path="/etc/nccl.conf", text=text),)
    return evidence(replace(recording, processes=(replace(process, files=files),)))


def with_unread_file() -> Evidence:
    """One process that may not read NCCL's file."""
    (recording,) = with_variables().hosts
    (process,) = recording.processes
    process = replace(process, unknown={"/etc/nccl.conf": "Permission denied"})
    return evidence(replace(recording, processes=(process,)))


PLANTS = [
    Plant("a slip of the pen", with_variables(NCCL_P2P_DISABLED="1")).finds(
        "NCCL_P2P_DISABLED", "did you mean NCCL_P2P_DISABLE?"
    ),
    Plant("peer access turned off", with_variables(NCCL_P2P_DISABLE="1")).finds(
        "NCCL_P2P_DISABLE", "NCCL_P2P_DISABLE=1"
    ),
    Plant("left over from debugging", with_variables(CUDA_LAUNCH_BLOCKING="1")).finds(
        "CUDA_LAUNCH_BLOCKING", "is for debugging"
    ),
    Plant("no number", with_variables(NCCL_MIN_NCHANNELS="many")).finds(
        "NCCL_MIN_NCHANNELS", "NCCL_MIN_NCHANNELS=many"
    ),
    Plant("a line of a file", with_file("NCCL_SHM_DISABLE=1\n")).finds(
        "NCCL_SHM_DISABLE", "/etc/nccl.conf line 1"
    ),
    Plant("a file that cannot be read", with_unread_file()).finds(
        "/etc/nccl.conf", "rank 0 cannot read /etc/nccl.conf: Permission denied"
    ),
    planted(
        "on one rank of four",
        with_ranks(
            machine("hgx_h100"),
            4,
            environment=lambda rank: {"NCCL_SHM_DISABLE": "1"} if rank == 3 else {},
        ),
    ).finds("NCCL_SHM_DISABLE (rank 3 of 4)", "NCCL_SHM_DISABLE=1"),
]
