"""Which links the ranks of a command have, and what is said of them."""

from collections.abc import Sequence

from collbench.backends import FAMILY
from collbench.bench import ranks
from collbench.bench.ranks import MODEL, Ranks
from collbench.cli._options import remark
from collbench.cli._rules import Options
from collbench.launch.group import Group
from collbench.machine.discovery.recording import Recording
from collbench.machine.formats import described
from collbench.machine.topology import unnamed
from collbench.machine.topology.model import Topology
from collbench.util.errors import UsageError

__all__ = ["MODEL", "Ranks", "ranks_of", "recordings_of", "refuse_few_gpus"]


def ranks_of(
    backends: Sequence[str],
    machine: str | None,
    group: Group,
    gpus: Sequence[int],
    recorded: Topology | None,
) -> Ranks:
    """As bench.ranks has them; says what a described machine leaves unnamed."""
    topology = described(machine) if machine is not None else None
    if topology is not None and (text := unnamed.remark(topology)):
        remark(text)
    return ranks.ranks_of(backends, machine, group, gpus, recorded)


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
