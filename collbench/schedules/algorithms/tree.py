"""Double binary tree: two trees over the same ranks, each carrying half of the data; a rank that
works inside one is a leaf of the other.

Logarithmic latency, and for even n no rank is inner in both, so long messages run at nearly full
bandwidth: 2S bytes at an inner rank. Allreduce reduces to each tree's top and broadcasts back, up
and down at the same time on tracks of their own. The rooted forms are two trees over the other
ranks, fed or drained by the root. Over several hosts the trees are of hosts, so that they cross the
network as rarely as trees can, and a chain hangs inside each host from the rank that is in the
tree: from its first in tree 0, from its last in tree 1. Source: Sanders, Speck and Traeff 2009; the
numbering, and chains inside hosts, are NCCL's.
"""

from collections.abc import Sequence

from collbench.core.world import World
from collbench.schedules.algorithms._steps import Serves, inp, out
from collbench.schedules.ir import Edge, Program, Step, Track


def _family(n: int, node: int) -> tuple[int, list[int]]:
    """Parent (-1 at the top) and children of a node of the binary tree over 0..n-1: its lowest set
    bit says how high it stands.

    >>> _family(8, 4), _family(8, 0), _family(8, 6)
    ((0, [2, 6]), (-1, [4]), (4, [5, 7]))
    """
    if node == 0:
        bit = 1
        while bit < n:
            bit *= 2
        return -1, [bit // 2] if n > 1 else []
    bit = node & -node
    parent = (node ^ bit) | (2 * bit)
    if parent >= n:
        parent = node ^ bit
    low = bit // 2
    children = [node - low] if low else []
    while low and node + low >= n:
        low //= 2
    return parent, [*children, node + low] if low else children


def _tree(which: int, n: int, node: int) -> tuple[int, list[int]]:
    """The family of a node in tree 0, or in tree 1: mirrored for even n, moved by one for odd n."""
    if which == 0:
        return _family(n, node)
    if n % 2 == 0:
        parent, children = _family(n, n - 1 - node)
        return (n - 1 - parent if parent >= 0 else -1), [n - 1 - child for child in children]
    parent, children = _family(n, (node - 1) % n)
    return ((parent + 1) % n if parent >= 0 else -1), [(child + 1) % n for child in children]


def _chains(hosts: Sequence[tuple[int, ...]], tree: int) -> list[tuple[int, ...]]:
    """The ranks of each host, from the one in the tree on: reversed in tree 1."""
    return [ranks if tree == 0 else ranks[::-1] for ranks in hosts]


def _hung(chains: Sequence[tuple[int, ...]], tree: int, rank: int) -> tuple[int, list[int]]:
    """Parent (-1 at the top) and children of a rank in a tree of hosts with a chain in each.

    >>> [_hung([(0, 1), (2, 3), (4, 5)], 0, rank) for rank in range(4)]
    [(-1, [1, 4]), (0, []), (4, [3]), (2, [])]
    """
    host = next(number for number, chain in enumerate(chains) if rank in chain)
    place = chains[host].index(rank)
    below = [chains[host][place + 1]] if place + 1 < len(chains[host]) else []
    if place:
        return chains[host][place - 1], below
    parent, children = _tree(tree, len(chains), host)
    return (chains[parent][0] if parent >= 0 else -1), [
        *below,
        *(chains[child][0] for child in children),
    ]


def allreduce(world: World, rank: int) -> Program:
    """Chunk 0 through tree 0, chunk 1 through tree 1."""
    tracks = []
    for tree in (0, 1):
        parent, children = (
            _hung(_chains(world.members(), tree), tree, rank)
            if world.hosts
            else _tree(tree, world.n, rank)
        )
        collect = tuple(Edge(child, f"up{tree}") for child in children)
        spread = tuple(Edge(child, f"down{tree}") for child in children)
        if parent < 0:
            tracks.append(
                Track(
                    name=f"top{tree}",
                    rounds=((Step(src=(inp(tree),), recv=collect, dst=out(tree), send=spread),),),
                )
            )
            continue
        up = Step(src=(inp(tree),), recv=collect, send=(Edge(parent, f"up{tree}"),))
        down = Step(recv=(Edge(parent, f"down{tree}"),), dst=out(tree), send=spread)
        tracks += [
            Track(name=f"up{tree}", rounds=((up,),)),
            Track(name=f"down{tree}", rounds=((down,),)),
        ]
    return tuple(tracks)


def _rooted(world: World, rank: int, tree: int) -> tuple[list[int], list[int]]:
    """Parents and children of a rank where the root stands above the tops of two trees over the
    other ranks, or over the other hosts.
    """
    n, root = world.n, world.root
    if world.hosts:
        return _rooted_over_hosts(world, rank, tree)
    rank_of = [(root + 1 + node) % n for node in range(n - 1)]
    if rank == root:
        top = next(node for node in range(n - 1) if _tree(tree, n - 1, node)[0] < 0)
        return [], [rank_of[top]]
    parent, children = _tree(tree, n - 1, (rank - root - 1) % n)
    return [rank_of[parent] if parent >= 0 else root], [rank_of[child] for child in children]


def _rooted_over_hosts(world: World, rank: int, tree: int) -> tuple[list[int], list[int]]:
    """The same over hosts: the root's own host hangs from it as a chain, beside the tree."""
    hosts = world.members()
    near = next(ranks for ranks in hosts if world.root in ranks)
    others = _chains([ranks for ranks in hosts if ranks != near], tree)
    own = (world.root, *_chains([tuple(peer for peer in near if peer != world.root)], tree)[0])
    if rank in own:
        place = own.index(rank)
        top = [
            chain[0]
            for number, chain in enumerate(others)
            if _tree(tree, len(others), number)[0] < 0
        ]
        return list(own[:place][-1:]), [
            *own[place + 1 : place + 2],
            *(top if rank == world.root else []),
        ]
    parent, children = _hung(others, tree, rank)
    return [parent if parent >= 0 else world.root], children


def broadcast(world: World, rank: int) -> Program:
    """The root feeds each tree with half of the data."""
    tracks = []
    for tree in (0, 1):
        parents, children = _rooted(world, rank, tree)
        received = tuple(Edge(parent, f"down{tree}") for parent in parents)
        sent = tuple(Edge(child, f"down{tree}") for child in children)
        step = Step(src=() if received else (inp(tree),), recv=received, dst=out(tree), send=sent)
        tracks.append(Track(name=f"down{tree}", rounds=((step,),)))
    return tuple(tracks)


def reduce(world: World, rank: int) -> Program:
    """Each tree brings its half to the root."""
    tracks = []
    for tree in (0, 1):
        parents, children = _rooted(world, rank, tree)
        received = tuple(Edge(child, f"up{tree}") for child in children)
        sent = tuple(Edge(parent, f"up{tree}") for parent in parents)
        step = Step(src=(inp(tree),), recv=received, dst=None if sent else out(tree), send=sent)
        tracks.append(Track(name=f"up{tree}", rounds=((step,),)))
    return tuple(tracks)


SERVES: Serves = {"allreduce": allreduce, "broadcast": broadcast, "reduce": reduce}
