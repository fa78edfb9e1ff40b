"""Hierarchical: inside the hosts all ranks exchange directly; between the hosts, ranks with the
same number in their host form a ring.

Allreduce is a reduce-scatter inside the host, an allreduce of equal shards between the hosts, an
allgather inside, as one schedule: a part of the vector is between the hosts while the next is
reduced inside. Each rank has its shard of the traffic between the hosts, which is the least that
the definition allows: with L ranks a host, L times less than by direct exchange, through L times
the network cards of a ring. Broadcast and reduce go along the hosts as a chain, a shard at each of
its ranks. Every host must have as many ranks; one host alone is two-shot, hosts of one rank are a
ring. Source: Cho et al., BlueConnect, 2019; Mikami et al. 2018 (2D-torus all-reduce).
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest

from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.schedules.algorithms._steps import Serves, edges, inp, one_track, out
from collbench.schedules.ir import Edge, Program, Round, Step

NEEDS_HOSTS = True


class _Spot:
    """A rank's place: host h of `hosts`, number l of `size` in it. Its peers are the others of the
    host, nearest successor first.
    """

    def __init__(self, world: World, rank: int) -> None:
        self.members = world.members()
        self.hosts, self.size = len(self.members), len(self.members[0])
        if any(len(ranks) != self.size for ranks in self.members):
            raise ScheduleError(
                "hierarchical needs as many ranks on every host; they have"
                f" {', '.join(str(len(ranks)) for ranks in self.members)}",
                "use ring or tree",
            )
        self.h, self.l = next(
            (h, ranks.index(rank)) for h, ranks in enumerate(self.members) if rank in ranks
        )
        self.peers = [(self.l + k) % self.size for k in range(1, self.size)]

    def rank(self, host: int, number: int) -> int:
        return self.members[host % self.hosts][number]

    def inside(self, numbers: Sequence[int], port: str) -> tuple[Edge, ...]:
        """Edges to or from those numbers of the own host."""
        return edges([self.members[self.h][number] for number in numbers], port)

    def scatter(self, chunk: Callable[[int], int]) -> Round:
        """Input chunk(p) to every other number p of the host."""
        return tuple(
            Step(src=(inp(chunk(p)),), send=self.inside([p], "scatter")) for p in self.peers
        )

    def gather(self, chunk: Callable[[int], int]) -> Round:
        """Output chunk(p) from every other number p of the host."""
        return tuple(Step(recv=self.inside([p], "gather"), dst=out(chunk(p))) for p in self.peers)

    def before(self) -> tuple[Edge, ...]:
        """The edge from the host before, none if there is no other."""
        return edges([self.rank(self.h - 1, self.l)], "between") if self.hosts > 1 else ()

    def after(self) -> tuple[Edge, ...]:
        """The edge to the host after, none if there is no other."""
        return edges([self.rank(self.h + 1, self.l)], "between") if self.hosts > 1 else ()


def _overlapped(gives: Sequence[Round], turns: Sequence[Round], takes: Sequence[Round]) -> Program:
    """What turn k between the hosts needs is given inside the host one round before it, and what it
    brought is taken one round after.
    """
    return one_track(
        *[
            (*give, *turn, *take)
            for give, turn, take in zip_longest(gives, ((), *turns), ((), (), *takes), fillvalue=())
        ]
    )


def allreduce(world: World, rank: int) -> Program:
    """Number l reduces shard l; part h of it is complete at host h: chunk l * hosts + h."""
    at = _Spot(world, rank)
    part = [(at.h - 1 - k) % at.hosts for k in range(2 * at.hosts - 1)]
    own, last = at.hosts - 1, 2 * at.hosts - 2

    def chunk(k: int, number: int) -> int:
        return number * at.hosts + part[k]

    gives = [at.scatter(partial(chunk, k)) for k in range(at.hosts)]
    turns = []
    for k in range(last + 1):
        mine = chunk(k, at.l)
        recv = (*(at.inside(at.peers, "scatter") if k <= own else ()), *(at.before() if k else ()))
        send = (
            *(at.after() if k < last else ()),
            *(at.inside(at.peers, "gather") if k >= own else ()),
        )
        turns.append(
            (
                Step(
                    src=(inp(mine),) if k <= own else (),
                    recv=recv,
                    dst=out(mine) if k >= own else None,
                    send=send,
                ),
            )
        )
    takes = [at.gather(partial(chunk, k)) for k in range(own, last + 1)]
    return _overlapped(gives, turns, [()] * own + takes)


def reducescatter(world: World, rank: int) -> Program:
    """Inside a host number l adds the blocks of all ranks with number l; a ring of those ranks adds
    each at its host.
    """
    at = _Spot(world, rank)
    host = [at.h - 1 - k for k in range(at.hosts)]
    last = at.hosts - 1
    gives = [at.scatter(partial(at.rank, host[k])) for k in range(at.hosts)]
    turns = [
        (
            Step(
                src=(inp(at.rank(host[k], at.l)),),
                recv=(*at.inside(at.peers, "scatter"), *(at.before() if k else ())),
                dst=out(0) if k == last else None,
                send=at.after() if k < last else (),
            ),
        )
        for k in range(at.hosts)
    ]
    return _overlapped(gives, turns, ())


def allgather(world: World, rank: int) -> Program:
    """Blocks of number l go round the ring of those ranks; each is broadcast inside the host."""
    at = _Spot(world, rank)
    last = at.hosts - 1
    turns = [
        (
            Step(
                src=() if k else (inp(0),),
                recv=at.before() if k else (),
                dst=out(at.rank(at.h - k, at.l)),
                send=(*(at.after() if k < last else ()), *at.inside(at.peers, "gather")),
            ),
        )
        for k in range(at.hosts)
    ]
    takes = [at.gather(partial(at.rank, at.h - k)) for k in range(at.hosts)]
    return _overlapped((), turns, takes)


def broadcast(world: World, rank: int) -> Program:
    """The root scatters shards inside its host; shard l goes along the hosts by the ranks with
    number l, and is broadcast inside each.
    """
    at, home = _Spot(world, rank), _Spot(world, world.root)
    after = at.after() if (at.h + 1) % at.hosts != home.h else ()
    if rank == world.root:
        shares = [Step(src=(inp(p),), dst=out(p), send=at.inside([p], "scatter")) for p in at.peers]
        send = (*after, *at.inside(at.peers, "gather"))
        return one_track((*shares, Step(src=(inp(at.l),), dst=out(at.l), send=send)))
    listeners, recv = at.peers, at.before()
    if at.h == home.h:
        listeners, recv = [p for p in at.peers if p != home.l], at.inside([home.l], "scatter")
    own = Step(recv=recv, dst=out(at.l), send=(*after, *at.inside(listeners, "gather")))
    return one_track((own,), at.gather(lambda p: p))


def reduce(world: World, rank: int) -> Program:
    """Number l adds shard l inside each host; its shard is added along the hosts, ends at the
    root's, and is gathered at the root.
    """
    at, home = _Spot(world, rank), _Spot(world, world.root)
    gives = at.scatter(lambda p: p)
    recv = (
        *at.inside(at.peers, "scatter"),
        *(at.before() if (at.h - 1) % at.hosts != home.h else ()),
    )
    if rank == world.root:
        own = Step(src=(inp(at.l),), recv=recv, dst=out(at.l))
        return one_track(gives, (own,), at.gather(lambda p: p))
    send = at.inside([home.l], "gather") if at.h == home.h else at.after()
    return one_track(gives, (Step(src=(inp(at.l),), recv=recv, send=send),))


SERVES: Serves = {
    "allreduce": allreduce,
    "reducescatter": reducescatter,
    "allgather": allgather,
    "broadcast": broadcast,
    "reduce": reduce,
}
