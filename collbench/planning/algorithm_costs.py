"""What the registered algorithms cost: hops and bytes of each collective that they serve."""

from collections.abc import Sequence
from dataclasses import replace

from collbench.core.collectives import OpName, collective
from collbench.core.world import World
from collbench.planning.layout import registered
from collbench.schedules.algorithms import FAMILY, needs_hosts
from collbench.schedules.drawings.schedule import share
from collbench.schedules.passes import between_hosts, traffic
from collbench.schedules.verify.check import check


def algorithm_costs(names: Sequence[str], ops: Sequence[OpName], world: World) -> list[list[str]]:
    """The heads of a table, and a row for each collective that each algorithm serves; dashes where
    it needs several hosts.
    """
    heads = ["collective", "algorithm", "hops", "sent", "received", "messages"]
    rows = [heads + (["to hosts"] if world.hosts else [])]
    for op in ops:
        for name in names:
            if op not in FAMILY.load(name).SERVES:
                continue
            if needs_hosts(name) and not world.hosts:
                rows.append([op, name, *"----"])
                continue
            is_rooted = collective(op).is_rooted
            schedule = registered(op, name, world if is_rooted else replace(world, root=0))
            moved = traffic(schedule)
            # nothing runs it: one loop of one launch has all hops
            hops = check(schedule, loops=1, launches=1).hops
            row = [op, name, str(hops), share(moved.sent), share(moved.received)]
            row.append(str(moved.messages))
            rows.append(
                row + ([share(between_hosts(schedule, world.hosts))] if world.hosts else [])
            )
    return rows
