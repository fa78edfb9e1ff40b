"""Variables and files that were set wrong, twice or long ago."""

from dataclasses import replace

from collbench.doctor.evidence import Evidence
from collbench.machine.discovery.recording import ConfigFile
from tests.support.evidence import Plant, evidence, machine, with_ranks


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
    Plant(
        name="a slip of the pen",
        evidence=with_variables(NCCL_P2P_DISABLED="1"),
        subject="NCCL_P2P_DISABLED",
        words="did you mean NCCL_P2P_DISABLE?",
    ),
    Plant(
        name="peer access turned off",
        evidence=with_variables(NCCL_P2P_DISABLE="1"),
        subject="NCCL_P2P_DISABLE",
        words="NCCL_P2P_DISABLE=1",
    ),
    Plant(
        name="left over from debugging",
        evidence=with_variables(CUDA_LAUNCH_BLOCKING="1"),
        subject="CUDA_LAUNCH_BLOCKING",
        words="is for debugging",
    ),
    Plant(
        name="no number",
        evidence=with_variables(NCCL_MIN_NCHANNELS="many"),
        subject="NCCL_MIN_NCHANNELS",
        words="NCCL_MIN_NCHANNELS=many",
    ),
    Plant(
        name="a line of a file",
        evidence=with_file("NCCL_SHM_DISABLE=1\n"),
        subject="NCCL_SHM_DISABLE",
        words="/etc/nccl.conf line 1",
    ),
    Plant(
        name="a file that cannot be read",
        evidence=with_unread_file(),
        subject="/etc/nccl.conf",
        words="rank 0 cannot read /etc/nccl.conf: Permission denied",
    ),
    Plant(
        name="on one rank of four",
        evidence=evidence(
            with_ranks(
                machine("hgx_h100"),
                4,
                environment=lambda rank: {"NCCL_SHM_DISABLE": "1"} if rank == 3 else {},
            )
        ),
        subject="NCCL_SHM_DISABLE (rank 3 of 4)",
        words="NCCL_SHM_DISABLE=1",
    ),
]
