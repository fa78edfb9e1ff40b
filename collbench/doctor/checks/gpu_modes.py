"""Whether GPUs are divided, closed to several processes, not kept awake, or shared by ranks."""

from collections.abc import Iterable

from collbench.doctor.checks._siblings import numbered
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.discovery.recording import Recording

NEEDS: tuple[Need, ...] = ("gpus",)

# NVML_COMPUTEMODE_EXCLUSIVE_THREAD, _PROHIBITED, _EXCLUSIVE_PROCESS
_EXCLUSIVE, _PROHIBITED = (1, 3), 2


def find(evidence: Evidence) -> Iterable[Seen]:
    for host in evidence.hosts:
        yield from _divided(evidence, host)
        yield from _compute_modes(evidence, host)
        yield from _asleep(evidence, host)
        yield from _crowded(evidence, host)


def _divided(evidence: Evidence, host: Recording) -> Iterable[Seen]:
    gpus = host.usable_gpus
    divided = [gpu.index for gpu in gpus if gpu.has_mig]
    if divided:
        is_odd = any(gpu.has_mig is False for gpu in gpus)
        yield seen(
            "divided",
            evidence.on(numbered("GPU", divided), host),
            "fault" if is_odd else "risk" if len(gpus) > 1 else "remark",
            others=", where others of this host are not" if is_odd else "",
        )


def _compute_modes(evidence: Evidence, host: Recording) -> Iterable[Seen]:
    modes = {gpu.index: gpu.condition.compute_mode for gpu in host.usable_gpus if gpu.condition}
    prohibited = [index for index, mode in modes.items() if mode == _PROHIBITED]
    exclusive = [index for index, mode in modes.items() if mode in _EXCLUSIVE]
    if prohibited:
        yield seen("prohibited", evidence.on(numbered("GPU", prohibited), host))
    if exclusive:
        ranks = {
            index: [one for one in host.processes if one.cuda == (index,)] for index in exclusive
        }
        shared = {index: some for index, some in ranks.items() if len(some) > 1}
        most = max(map(len, shared.values()), default=0)
        yield seen(
            "exclusive",
            evidence.on(numbered("GPU", shared or exclusive), host),
            "fault" if shared else "remark",
            who=f", and {most} ranks see no other GPU" if shared else ": one process at a time",
        )


def _asleep(evidence: Evidence, host: Recording) -> Iterable[Seen]:
    gpus = [
        gpu.index
        for gpu in host.usable_gpus
        if gpu.condition is not None and gpu.condition.persistence == 0
    ]
    is_wsl = host.system is not None and host.system.is_wsl
    if gpus and not is_wsl:  # Windows keeps them awake
        yield seen("asleep", evidence.on(numbered("GPU", gpus), host))


def _crowded(evidence: Evidence, host: Recording) -> Iterable[Seen]:
    """Ranks that share GPUs while others are free."""
    if any(one.cuda is None for one in host.processes):
        return
    ranks_on: dict[frozenset[int], list[int]] = {}
    for one in host.processes:
        ranks_on.setdefault(frozenset(one.cuda or ()), []).append(one.rank)
    used = frozenset().union(*ranks_on)
    free = [gpu.index for gpu in host.usable_gpus if gpu.index not in used and not gpu.has_mig]
    for gpus, ranks in ranks_on.items():
        if gpus and len(ranks) > len(gpus):
            yield seen(
                "unused" if free else "crowded",
                evidence.on(numbered("rank", ranks), host),
                ranks=len(ranks),
                gpus=numbered("GPU", gpus),
                free=f"{numbered('GPU', free)} {'are' if len(free) > 1 else 'is'}",
            )
