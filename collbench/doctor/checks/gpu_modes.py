"""Whether GPUs are divided, closed to several processes, not kept awake, or shared by ranks."""

from collections.abc import Iterable

from collbench.core.grouping import grouped
from collbench.doctor.check import Evidence, Finding, told
from collbench.machine.discovery.recording import Recording
from collbench.machine.topology.model import numbered

# NVML_COMPUTEMODE_EXCLUSIVE_THREAD, _PROHIBITED, _EXCLUSIVE_PROCESS
_EXCLUSIVE, _PROHIBITED = (1, 3), 2


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        yield from _divided(evidence, host)
        yield from _compute_modes(evidence, host)
        yield from _asleep(evidence, host)
        yield from _crowded(evidence, host)


def _divided(evidence: Evidence, host: Recording) -> Iterable[Finding]:
    gpus = host.usable_gpus
    divided = [gpu.index for gpu in gpus if gpu.has_mig]
    if divided:
        is_odd = any(gpu.has_mig is False for gpu in gpus)
        yield told(
            "mig",
            evidence.on(numbered("GPU", divided), host),
            "divided (MIG is on)" + (", where others of this host are not" if is_odd else ""),
            severity="fault" if is_odd else "risk" if len(gpus) > 1 else "remark",
        )


def _compute_modes(evidence: Evidence, host: Recording) -> Iterable[Finding]:
    modes = {gpu.index: gpu.condition.compute_mode for gpu in host.usable_gpus if gpu.condition}
    prohibited = [index for index, mode in modes.items() if mode == _PROHIBITED]
    exclusive = [index for index, mode in modes.items() if mode in _EXCLUSIVE]
    if prohibited:
        yield told(
            "compute-prohibited",
            evidence.on(numbered("GPU", prohibited), host),
            "the compute mode is prohibited",
        )
    if exclusive:
        ranks = {
            index: [one for one in host.processes if one.cuda == (index,)] for index in exclusive
        }
        shared = {index: some for index, some in ranks.items() if len(some) > 1}
        yield told(
            "compute-exclusive",
            evidence.on(numbered("GPU", shared or exclusive), host),
            "the compute mode is exclusive"
            + (
                f", and {max(map(len, shared.values()))} ranks see no other GPU"
                if shared
                else ": one process at a time"
            ),
            severity="fault" if shared else "remark",
        )


def _asleep(evidence: Evidence, host: Recording) -> Iterable[Finding]:
    gpus = [
        gpu.index for gpu in host.usable_gpus if gpu.condition and gpu.condition.persistence == 0
    ]
    is_wsl = host.system is not None and host.system.is_wsl
    if gpus and not is_wsl:  # Windows keeps them awake
        yield told(
            "persistence", evidence.on(numbered("GPU", gpus), host), "persistence mode is off"
        )


def _crowded(evidence: Evidence, host: Recording) -> Iterable[Finding]:
    """Ranks that share GPUs while others are free."""
    if any(one.cuda is None for one in host.processes):
        return
    ranks_on = grouped((frozenset(one.cuda or ()), one.rank) for one in host.processes)
    used = frozenset().union(*ranks_on)
    free = [gpu.index for gpu in host.usable_gpus if gpu.index not in used and not gpu.has_mig]
    verb = "are" if len(free) > 1 else "is"
    for gpus, ranks in ranks_on.items():
        if gpus and len(ranks) > len(gpus):
            yield told(
                "gpus-shared",
                evidence.on(numbered("rank", ranks), host),
                f"{len(ranks)} ranks share {numbered('GPU', gpus)}"
                + (f", while {numbered('GPU', free)} {verb} free" if free else ""),
                severity="fault" if free else "risk",
                change="select the GPU by the local rank, or srun --gpus-per-task=1"
                if free
                else "start as many ranks as there are GPUs",
            )
