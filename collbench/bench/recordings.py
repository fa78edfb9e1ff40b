"""Which links the ranks of a command have, and what is said of them."""

from collbench.backends import FAMILY
from collbench.core.errors import UsageError
from collbench.core.rules import Options
from collbench.core.screen import remark
from collbench.launch.group import Group
from collbench.machine.discovery.recording import Recording
from collbench.machine.formats import described
from collbench.machine.topology import unnamed


def remark_unnamed(machine: str | None) -> None:
    """Say what a described machine leaves unnamed."""
    topology = described(machine) if machine is not None else None
    if topology is not None and (text := unnamed.remark(topology)):
        remark(text)


def refuse_few_gpus(machine: str, ranks: int) -> None:
    """Raise UsageError if a described machine has GPUs, but not one for each rank: the schedules of
    many ranks take long to prove.
    """
    links = described(machine)
    if links is not None and ranks > len(links.gpus):
        raise UsageError(f"{machine} has {len(links.gpus)} GPUs, not {ranks}", "use fewer --ranks")


def recordings_of(group: Group, options: Options) -> list[Recording]:
    """What the ranks' hosts are, if GPUs are in the sweep. Under a launcher all ranks must call it;
    only rank 0 gets them.
    """
    if not any(FAMILY.load(backend).is_gpu for backend in options.get("backend", ())):
        return []
    from collbench.machine.discovery import gather, record

    return [record()] if group.kind == "local" else gather(group.comm) or []  # type: ignore[attr-defined]
